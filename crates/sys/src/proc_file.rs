//! Files of `/proc`, read again and again.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::OwnedFd;

/// A file of `/proc` that stays open. A file of `/proc/net` shows the namespace of the thread that opened it.
#[derive(Debug)]
pub struct ProcFile(File);

impl ProcFile {
    /// Opens the file.
    ///
    /// # Errors
    /// The errors of opening it.
    pub fn open(path: &str) -> io::Result<ProcFile> {
        File::open(path).map(ProcFile)
    }

    /// The open file of another process, which has passed its descriptor on.
    pub fn passed_on(descriptor: OwnedFd) -> ProcFile {
        ProcFile(descriptor.into())
    }

    /// The current text. Reading from the beginning makes the kernel write the file anew.
    ///
    /// # Errors
    /// The errors of reading it.
    pub fn read(&mut self) -> io::Result<String> {
        let mut text = String::new();
        self.0.rewind()?;
        self.0.read_to_string(&mut text)?;
        Ok(text)
    }
}

impl From<ProcFile> for OwnedFd {
    fn from(file: ProcFile) -> OwnedFd {
        file.0.into()
    }
}
