//! `inrush precompress`: the compressed siblings that `serve` sends in place of text files.
//!
//! Owns the walk through the folder and the siblings' names. A sibling has the time of its file, so an edited file makes
//! it outdated. Symbolic links and names that begin with a dot are left alone, as the server does not serve or list them.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use site::compress::{Effort, LEAST_BYTES, encode, is_text, is_worth};
use site::encoding::Coding;

use crate::cli::PrecompressFlags;
use crate::exit::Exit;
use crate::output::out;

/// The result of a walk.
#[derive(Default)]
struct Done {
    files: u64,
    written: u64,
    read_bytes: u64,
    written_bytes: u64,
}

/// Writes the siblings, and prints their number and size.
pub fn run(flags: &PrecompressFlags) -> Result<(), Exit> {
    let folder = &flags.folder;
    let shown = folder.display();
    if !folder.is_dir() {
        return Err(Exit::Usage(format!("FOLDER {shown}: expected a folder with the files of a site")));
    }
    let mut done = Done::default();
    walk(folder, &mut done).map_err(|(path, cause)| Exit::Failed(format!("{}: {cause}", path.display())))?;
    let Done { files, written, read_bytes, written_bytes } = done;
    out!(
        "{shown}: {files} text files of {LEAST_BYTES} bytes or more; wrote {written} compressed files, {written_bytes} bytes in \
         place of {read_bytes}"
    )
}

type Failure = (PathBuf, io::Error);

fn walk(folder: &Path, done: &mut Done) -> Result<(), Failure> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |cause| (path, cause)
    };
    let mut entries: Vec<_> =
        fs::read_dir(folder).and_then(Iterator::collect::<io::Result<_>>).map_err(failed(folder))?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, name) = (entry.path(), entry.file_name());
        let kind = entry.file_type().map_err(failed(&path))?;
        if kind.is_dir() && !name.as_bytes().starts_with(b".") {
            walk(&path, done)?;
        } else if kind.is_file() && !name.as_bytes().starts_with(b".") && is_text(name.as_bytes()) {
            compress(&path, done).map_err(failed(&path))?;
        }
    }
    Ok(())
}

/// Writes the siblings of a file that are missing or older than it.
fn compress(path: &Path, done: &mut Done) -> io::Result<()> {
    let data = fs::metadata(path)?;
    if data.len() < LEAST_BYTES {
        return Ok(());
    }
    done.files += 1;
    let modified = data.modified()?;
    let mut bytes = None;
    for coding in &Coding::ALL[1..] {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}", coding.suffix()));
        let sibling = PathBuf::from(name);
        if fs::metadata(&sibling).and_then(|sibling| sibling.modified()).is_ok_and(|time| time == modified) {
            continue;
        }
        let bytes = match &bytes {
            Some(bytes) => bytes,
            None => bytes.insert(fs::read(path)?),
        };
        let compressed = encode(*coding, Effort::Thorough, bytes)?;
        if !is_worth(compressed.len(), bytes.len()) {
            continue;
        }
        write(&sibling, &compressed, &data)?;
        done.written += 1;
        done.read_bytes += bytes.len() as u64;
        done.written_bytes += compressed.len() as u64;
    }
    Ok(())
}

/// Writes a sibling as a whole: a server sees the old one or the new one.
fn write(sibling: &Path, bytes: &[u8], of: &fs::Metadata) -> io::Result<()> {
    let mut partial = sibling.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let write = || {
        let mut file = File::create(&partial)?;
        file.write_all(bytes)?;
        file.set_permissions(of.permissions())?;
        file.set_modified(of.modified()?)?;
        fs::rename(&partial, sibling)
    };
    write().inspect_err(|_| drop(fs::remove_file(&partial)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siblings_are_written_once_and_anew_after_an_edit() {
        let folder = tempfile::tempdir().unwrap();
        let text = "a line that comes again and again\n".repeat(100);
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("in")).unwrap();
        for name in ["in/a.css", "a.png", ".hidden.css"] {
            fs::write(path(name), &text).unwrap();
        }
        fs::write(path("short.css"), "short").unwrap();
        let walked = || {
            let mut done = Done::default();
            walk(folder.path(), &mut done).unwrap();
            (done.files, done.written)
        };
        assert_eq!((walked(), walked()), ((1, 3), (1, 0)));
        for suffix in ["br", "zst", "gz"] {
            let time = |name: &str| fs::metadata(path(name)).unwrap().modified().unwrap();
            assert_eq!(time(&format!("in/a.css.{suffix}")), time("in/a.css"));
        }
        let later = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(2_000_000_000);
        File::options().write(true).open(path("in/a.css")).unwrap().set_modified(later).unwrap();
        assert_eq!(walked(), (1, 3));
        assert_eq!(fs::read_dir(path("in")).unwrap().count(), 4, "nothing partial is left");
    }
}
