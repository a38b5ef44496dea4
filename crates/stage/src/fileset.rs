//! The files that servers offer in experiments: a SPECweb99-like set, or a given folder's files.
//!
//! Owns the names, sizes and contents of the generated set (Brecht 2004, section 5; SPECweb99). Each directory holds
//! 36 files, four classes of nine, of about 102.4 x 10^class x 1..9 bytes, together 5,119,484. As in SPECweb99, names
//! count from 0: `class0_0` is the smallest. The workload in `load` decides the popularity of files.
//!
//! Contents are printable and depend on the seed alone; no two files start alike.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use base::{Bytes, Seed};
use rand::RngExt;

/// Classes of size in a directory.
pub const CLASSES: u32 = 4;
/// Files in a class.
pub const FILES_PER_CLASS: u32 = 9;
/// The bytes of one directory.
pub const DIRECTORY_SIZE: Bytes = Bytes(5_119_484);

/// The size of file 0..=8 of class 0..=3: 102.4 x 10^class x (file + 1) bytes, rounded down.
pub fn file_size(class: u32, file: u32) -> Bytes {
    Bytes(1024 * 10_u64.pow(class) * u64::from(file + 1) / 10)
}

/// Returns a file's path from the root of the set: `dir00003/class1_7`.
pub fn file_name(directory: u32, class: u32, file: u32) -> String {
    format!("dir{directory:05}/class{class}_{file}")
}

/// Writes a set of directories under `root`, and returns the number of bytes written.
///
/// # Errors
/// The errors of creating and writing files there; files written before stay.
pub fn write(root: &Path, directories: u32, seed: Seed) -> io::Result<Bytes> {
    let largest = file_size(CLASSES - 1, FILES_PER_CLASS - 1).0 as usize;
    // All files share one text: each is a stretch of it from a place of its own. So 100 MB are written at the speed
    // of memory, not of the random generator.
    let mut rng = seed.child("file set").rng();
    let text: Vec<u8> = (0..2 * largest).map(|at| letter(at, rng.random())).collect();
    let mut written = 0;
    for directory in 0..directories {
        fs::create_dir_all(root.join(format!("dir{directory:05}")))?;
        for (class, file) in in_directory() {
            let size = file_size(class, file).0 as usize;
            let start = rng.random_range(0..largest);
            fs::write(root.join(file_name(directory, class, file)), &text[start..start + size])?;
            written += size as u64;
        }
    }
    Ok(Bytes(written))
}

/// The class and number of the 36 files of a directory.
fn in_directory() -> impl Iterator<Item = (u32, u32)> {
    (0..CLASSES).flat_map(|class| (0..FILES_PER_CLASS).map(move |file| (class, file)))
}

/// Lower-case letters in lines of 64, so that a person can look at a file.
fn letter(at: usize, random: u8) -> u8 {
    if at % 64 == 63 { b'\n' } else { b'a' + random % 26 }
}

/// Lists the paths of a folder's files, as URLs name them, from the slash on. `/` comes first if there is an
/// `index.html`, then the others in alphabetical order, at most `most`. Leaves out hidden files, and files behind
/// symbolic links to folders.
///
/// # Errors
/// The errors of reading the folder itself; unreadable folders within it are passed over.
pub fn url_paths(root: &Path, most: usize) -> io::Result<Vec<String>> {
    fs::read_dir(root)?;
    let mut paths = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(root.join(&folder)) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let hidden = name.as_encoded_bytes().starts_with(b".");
            let path = folder.join(&name);
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && !hidden => folders.push(path),
                Ok(kind) if kind.is_file() && !hidden => paths.push(percent_encoded(&path)),
                _ => {}
            }
        }
    }
    paths.sort_by_key(|path| (path != "/index.html", path.clone()));
    paths.truncate(most);
    if let Some(first) = paths.first_mut().filter(|path| *path == "/index.html") {
        "/".clone_into(first);
    }
    Ok(paths)
}

/// Takes a folder's files out of the page cache, so that the next to read them fetches them from the disk, and a bound
/// on its memory counts them.
///
/// # Errors
/// The errors of reading the folders and opening the files.
pub fn forget(root: &Path) -> io::Result<()> {
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            forget(&entry.path())?;
        } else if entry.file_type()?.is_file() {
            let file = fs::File::open(entry.path())?;
            // Only what is on the disk can leave.
            rustix::fs::fdatasync(&file)?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        }
    }
    Ok(())
}

/// Writes a path for a request line: escapes the characters that RFC 3986 does not allow there.
fn percent_encoded(path: &Path) -> String {
    let mut url = String::from("/");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                url.push(char::from(*byte));
            }
            _ => url.push_str(&format!("%{byte:02X}")),
        }
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_the_bytes_that_specweb99_gives_it() {
        let total: u64 = in_directory().map(|(class, file)| file_size(class, file).0).sum();
        assert_eq!(Bytes(total), DIRECTORY_SIZE);
        assert_eq!(in_directory().count(), 36);
        assert_eq!(file_size(0, 0), Bytes(102));
        assert_eq!(file_size(3, 8), Bytes(921_600));
    }

    #[test]
    fn file_set_is_as_announced_and_depends_on_seed_alone() {
        let read = |seed| {
            let folder = tempfile::tempdir().unwrap();
            assert_eq!(write(folder.path(), 2, seed).unwrap(), Bytes(2 * DIRECTORY_SIZE.0));
            let file = fs::read(folder.path().join(file_name(1, 2, 8))).unwrap();
            assert_eq!(file.len() as u64, file_size(2, 8).0);
            file
        };
        assert_eq!(read(Seed(1)), read(Seed(1)));
        assert_ne!(read(Seed(1)), read(Seed(2)));
    }

    #[test]
    fn a_folder_becomes_urls_with_its_index_first() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("a b")).unwrap();
        fs::create_dir(folder.path().join(".git")).unwrap();
        for name in ["a b/ü.txt", "index.html", "about.html", ".secret", ".git/config"] {
            fs::write(folder.path().join(name), "x").unwrap();
        }
        let all = url_paths(folder.path(), 100).unwrap();
        assert_eq!(all, ["/", "/a%20b/%C3%BC.txt", "/about.html"]);
        assert_eq!(url_paths(folder.path(), 1).unwrap(), ["/"]);
        assert!(url_paths(&folder.path().join("absent"), 1).is_err());
    }

    #[test]
    fn forgotten_files_are_fetched_from_the_disk() {
        /// `TMPFS_MAGIC` and `FUSE_SUPER_MAGIC` of linux/magic.h: file systems that charge no reader for a disk.
        const WITHOUT_DISK: [i64; 2] = [0x0102_1994, 0x6573_5546];
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("in")).unwrap();
        let path = folder.path().join("in/file");
        fs::write(&path, [1; 8192]).unwrap();
        if WITHOUT_DISK.contains(&rustix::fs::statfs(&path).unwrap().f_type) {
            return println!("skipped: the folder is on no disk of this machine");
        }
        let by_this_thread = || -> Option<u64> {
            let account = fs::read_to_string("/proc/thread-self/io").ok()?;
            account.lines().find_map(|line| line.strip_prefix("read_bytes: "))?.parse().ok()
        };
        let Some(before) = by_this_thread() else {
            return println!("skipped: this kernel does not account for what a thread reads");
        };
        fs::read(&path).unwrap();
        assert_eq!(by_this_thread(), Some(before), "a file that has just been written is in memory");
        forget(folder.path()).unwrap();
        fs::read(&path).unwrap();
        assert!(by_this_thread().unwrap() > before);
    }
}
