//! Symbolic links below the root, followed one by one.
//!
//! The kernel follows no link for this crate: every open uses `RESOLVE_NO_SYMLINKS`. This module turns a name
//! that leads through links into a name without links, which is opened the same way. The checked name is
//! therefore the opened name, without a race. An absolute link that leads back into the root may be followed.
//!
//! A hard link is not a symbolic link: it cannot be told from the file, and is served under its own name.

use rustix::fs::{OFlags, readlinkat};
use rustix::io::Errno;

use super::{Directory, LookupError, Reach};
use crate::path;

/// Maximum links in one name, as in the kernel (path_resolution(7)).
const MOST_LINKS: usize = 40;
/// Maximum bytes of the names that remain in a look-up: PATH_MAX.
const LONGEST: usize = 4096;

/// Returns the name without links that leads to the same file now. Makes the calls `openat2`, `readlinkat`
/// and `close` for each name on the way.
///
/// # Errors
/// [`LookupError::Escapes`] for a link that leads out of the root, [`LookupError::Hidden`] for one that leads
/// to a dot-file out of `reach`, [`LookupError::NotFound`] for a loop. Also the errors of opening.
pub(crate) fn resolve(directory: &Directory, name: &[u8], reach: Reach) -> Result<Vec<u8>, LookupError> {
    let mut walk = Walk { directory, reach, here: Vec::new(), rest: name.to_vec(), links: 0 };
    while !walk.rest.is_empty() {
        walk.step()?;
    }
    match walk.here {
        here if !reach.dot_files && path::is_hidden(&here) => Err(LookupError::Hidden),
        here if here.is_empty() => Ok(b".".to_vec()),
        here => Ok(here),
    }
}

/// A name on its way to the name without links.
struct Walk<'a> {
    directory: &'a Directory,
    reach: Reach,
    /// The part without links, from the root.
    here: Vec<u8>,
    /// The part that may have links, from `here`.
    rest: Vec<u8>,
    links: usize,
}

impl Walk<'_> {
    /// Takes the first name of the rest.
    fn step(&mut self) -> Result<(), LookupError> {
        let end = memchr::memchr(b'/', &self.rest).map_or(self.rest.len(), |slash| slash + 1);
        let name: Vec<u8> = self.rest.drain(..end).collect();
        match name.strip_suffix(b"/").unwrap_or(&name) {
            b"" | b"." => Ok(()),
            b".." if self.here.is_empty() => Err(LookupError::Escapes),
            b".." => {
                self.here.truncate(memchr::memrchr(b'/', &self.here).unwrap_or(0));
                Ok(())
            }
            name => self.enter(name),
        }
    }

    fn enter(&mut self, name: &[u8]) -> Result<(), LookupError> {
        let parent = self.here.len();
        if parent > 0 {
            self.here.push(b'/');
        }
        self.here.extend_from_slice(name);
        let Some(target) = self.target()? else { return Ok(()) };
        self.links += 1;
        if self.links > MOST_LINKS || target.len() + self.rest.len() >= LONGEST {
            return Err(LookupError::NotFound);
        }
        self.here.truncate(parent);
        let target = match target.first() {
            Some(b'/') => {
                self.here.clear();
                self.directory.below(&target).ok_or(LookupError::Escapes)?
            }
            _ => &target,
        };
        self.rest = [target, b"/", &self.rest].concat();
        Ok(())
    }

    /// The target of the name that was entered last, if that is a link.
    fn target(&self) -> Result<Option<Vec<u8>>, LookupError> {
        let opened = self.directory.open_plain(&self.here, OFlags::PATH | OFlags::NOFOLLOW, self.reach);
        let node = opened.map_err(|errno| self.reach.error(errno))?;
        // An empty name reads the open link itself. Short targets are in the inode, which is in memory by
        // now.
        match readlinkat(node, c"", Vec::new()) {
            Ok(target) => Ok(Some(target.into_bytes())),
            // The kernel's errors for an open file that is not a link.
            Err(Errno::NOENT | Errno::INVAL) => Ok(None),
            Err(errno) => Err(self.reach.error(errno)),
        }
    }
}
