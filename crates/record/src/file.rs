//! Records as files: JSON, written whole or not at all.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A record that could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The operating system refused to read or write the file.
    #[error("cannot {verb} {path}: {cause}")]
    Io {
        /// The failed operation: `read` or `write`.
        verb: &'static str,
        /// The file's path.
        path: PathBuf,
        /// The operating system's error.
        cause: io::Error,
    },
    /// The file is not a record of this shape.
    #[error("{path} is not such a record: {cause}")]
    Shape {
        /// The file's path.
        path: PathBuf,
        /// The first error in its JSON.
        cause: serde_json::Error,
    },
}

/// Writes `contents` beside `path` and renames it into place. What is no plain file, such as a device, a pipe or a link, is
/// written itself; so is a file that nothing can be renamed over, such as a mount point.
///
/// # Errors
/// [`RecordError::Io`]; an old file that was to be replaced is then untouched.
pub fn write_whole(path: &Path, contents: &[u8]) -> Result<(), RecordError> {
    let is_special = fs::symlink_metadata(path).is_ok_and(|found| !found.file_type().is_file());
    let written = if is_special { write_through(path, contents) } else { replace(path, contents) };
    written.map_err(|cause| RecordError::Io { verb: "write", path: path.to_owned(), cause })
}

fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    let mut file = match fs::File::create(&temporary) {
        Ok(file) => file,
        // Nothing may be made in the folder, and the file may be written all the same.
        Err(error) if path.exists() && is_forbidden(&error) => return write_through(path, contents),
        Err(error) => return Err(error),
    };
    let written = file.write_all(contents).and_then(|()| file.sync_data());
    let replaced = written.and_then(|()| match fs::rename(&temporary, path) {
        Err(_) if path.exists() => write_through(path, contents),
        renamed => renamed,
    });
    // Nothing is lost if the temporary file stays.
    let _ = fs::remove_file(&temporary);
    replaced
}

fn is_forbidden(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

fn write_through(path: &Path, contents: &[u8]) -> io::Result<()> {
    let mut file = fs::File::options().write(true).create(true).truncate(true).open(path)?;
    file.write_all(contents)
}

/// Writes a record as indented JSON.
///
/// # Errors
/// [`RecordError`] of either kind.
pub fn write(path: &Path, record: &impl Serialize) -> Result<(), RecordError> {
    let mut text = serde_json::to_vec_pretty(record)
        .map_err(|cause| RecordError::Shape { path: path.to_owned(), cause })?;
    text.push(b'\n');
    write_whole(path, &text)
}

/// Reads a record.
///
/// # Errors
/// [`RecordError`] of either kind.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<T, RecordError> {
    let text =
        fs::read(path).map_err(|cause| RecordError::Io { verb: "read", path: path.to_owned(), cause })?;
    serde_json::from_slice(&text).map_err(|cause| RecordError::Shape { path: path.to_owned(), cause })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_back_and_no_temporary_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        write(&path, &vec![1, 2, 3]).unwrap();
        assert_eq!(read::<Vec<u32>>(&path).unwrap(), [1, 2, 3]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn link_and_device_stay_what_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link] = ["a.json", "latest.json"].map(|name| folder.path().join(name));
        fs::write(&file, "an older record, which was longer").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write(&link, &1).unwrap();
        assert_eq!((read::<u32>(&file).unwrap(), fs::read_link(&link).unwrap()), (1, file.clone()));
        fs::remove_file(&file).unwrap();
        write(&link, &2).unwrap();
        assert_eq!(read::<u32>(&file).unwrap(), 2, "a link to a file that is not there yet");
        write(Path::new("/dev/null"), &1).unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }

    #[test]
    fn failed_write_is_named_and_keeps_the_old_record() {
        let error = write(Path::new("/nowhere/at/all.json"), &1).unwrap_err().to_string();
        assert!(error.starts_with("cannot write /nowhere/at/all.json: "), "{error}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        fs::write(&path, "{").unwrap();
        // The temporary file cannot be made.
        fs::create_dir(path.with_extension(format!("{}.tmp", std::process::id()))).unwrap();
        assert!(write(&path, &1).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "{");
        assert!(matches!(read::<u32>(&path), Err(RecordError::Shape { .. })));
    }
}
