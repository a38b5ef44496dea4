//! A temporary file without a name as memory: bytes that the kernel may write to the disk and read again.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;

use super::Mapping;

/// A file that is being written. It is in the folder for temporary files, and vanishes with its owner.
#[derive(Debug)]
pub struct NamelessFile {
    file: File,
    length: usize,
}

/// The bytes of such a file. Its only descriptor is closed, so they never change.
#[derive(Debug)]
pub struct NamelessBytes {
    mapping: Mapping,
}

// SAFETY: the mapping belongs to the process, not to a thread, and its bytes never change.
unsafe impl Send for NamelessBytes {}
// SAFETY: as above.
unsafe impl Sync for NamelessBytes {}

impl NamelessFile {
    /// An empty file.
    ///
    /// # Errors
    /// EACCES, ENOENT or EROFS of the folder; EMFILE, ENFILE, ENOSPC.
    pub fn create() -> io::Result<NamelessFile> {
        Ok(NamelessFile { file: tempfile::tempfile()?, length: 0 })
    }

    /// Appends bytes. May block for the disk.
    ///
    /// # Errors
    /// ENOSPC, EDQUOT, EIO.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.length += bytes.len();
        Ok(())
    }

    /// The number of bytes that were appended.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Maps the bytes, and closes the file.
    ///
    /// # Errors
    /// EINVAL for an empty file; ENOMEM; ENODEV if the folder's file system has no mappings.
    pub fn map(self) -> io::Result<NamelessBytes> {
        let mapping = Mapping::new(self.length, libc::MAP_SHARED, self.file.as_raw_fd(), 0)?;
        Ok(NamelessBytes { mapping })
    }
}

impl AsRef<[u8]> for NamelessBytes {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the mapping has this length and lives as long as `self`. The file is as long, and nobody can write to it
        // or make it shorter: it has no name, and its only descriptor was closed in `map`.
        unsafe { std::slice::from_raw_parts(self.mapping.start.as_ptr(), self.mapping.length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_bytes_are_the_appended_ones() {
        let mut file = NamelessFile::create().unwrap();
        file.append(b"hel").unwrap();
        file.append(b"lo").unwrap();
        assert_eq!(file.length(), 5);
        assert_eq!(file.map().unwrap().as_ref(), b"hello");
        assert!(NamelessFile::create().unwrap().map().is_err(), "an empty file has no mapping");
    }
}
