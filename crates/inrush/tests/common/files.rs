//! A directory to serve.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// A folder `root` in a temporary place. The server copies [`Files::SMALL`] behind its head, sends
/// [`Files::MEDIUM`] from memory, and [`Files::LARGE`] by sendfile. All three have the content of
/// [`pattern`].
pub struct Files {
    place: tempfile::TempDir,
}

/// `length` bytes in which neighbouring pages differ.
pub fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index ^ (index >> 8) ^ (index >> 15)) as u8).collect()
}

impl Files {
    pub const SMALL: (&str, usize) = ("/small.bin", 1000);
    pub const MEDIUM: (&str, usize) = ("/medium.bin", 40_000);
    pub const LARGE: (&str, usize) = ("/folder/large.bin", 3_000_000);

    /// The three files, an index and an empty file.
    pub fn new() -> Files {
        let files = Files { place: tempfile::tempdir().unwrap() };
        fs::create_dir_all(files.path("/folder")).unwrap();
        for (name, length) in [Files::SMALL, Files::MEDIUM, Files::LARGE] {
            files.write(name, pattern(length));
        }
        files.write("/index.html", "<!doctype html><title>Index</title>");
        files.write("/empty.txt", "");
        files
    }

    /// The served directory.
    pub fn root(&self) -> PathBuf {
        self.place.path().join("root")
    }

    /// The path of a file beside the root.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// The file of a request path.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root().join(path.trim_start_matches('/'))
    }

    pub fn write(&self, path: &str, contents: impl AsRef<[u8]>) {
        fs::write(self.path(path), contents).unwrap();
    }

    /// Writes a file of zeros that takes no space and is longer than the capacity of all socket buffers.
    pub fn write_endless(&self, path: &str) -> u64 {
        const LENGTH: u64 = 64 << 20;
        set_length(&self.path(path), LENGTH);
        LENGTH
    }
}

/// Makes a file shorter, or longer with zeros.
pub fn set_length(path: &Path, length: u64) {
    let file = File::options().write(true).create(true).truncate(false).open(path).unwrap();
    file.set_len(length).unwrap();
}
