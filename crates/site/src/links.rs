//! Symbolic links below the root, followed one by one.
//!
//! The kernel follows no link for this crate: every open says `RESOLVE_NO_SYMLINKS`. A name that leads through a link
//! comes here, and leaves as a name without links, which is opened the same way. The name that is checked is
//! therefore the name that is opened, without a race, and an absolute link may be followed that leads back into the
//! root.
//!
//! A hard link is no link: nothing tells it from the file, and it is served under its own name.

use rustix::fs::{OFlags, readlinkat};
use rustix::io::Errno;

use crate::path;
use crate::root::{Directory, LookupError, Reach};

/// As many links as the kernel follows for one name (path_resolution(7)).
const MOST_LINKS: usize = 40;
/// Names that a look-up may still have before it: PATH_MAX.
const LONGEST: usize = 4096;

/// The name without links that stands for the same file now. For each name on the way `openat2`, `readlinkat`, `close`.
///
/// # Errors
/// [`LookupError::Escapes`] for links that lead out of the root, [`LookupError::Hidden`] for those that lead to
/// dot-files out of `reach`, [`LookupError::NotFound`] for loops; and those of opening.
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

/// A name on its way to the one without links.
struct Walk<'a> {
    directory: &'a Directory,
    reach: Reach,
    /// The part that has no links, from the root.
    here: Vec<u8>,
    /// The part that may have some, from `here`.
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

    /// Where the name that was entered last leads, if it is a link.
    fn target(&self) -> Result<Option<Vec<u8>>, LookupError> {
        let opened = self.directory.open_plain(&self.here, OFlags::PATH | OFlags::NOFOLLOW, self.reach);
        let node = opened.map_err(|errno| self.reach.error(errno))?;
        // An empty name reads the link that is open. Short targets are kept in the inode, which is in memory by now.
        match readlinkat(node, c"", Vec::new()) {
            Ok(target) => Ok(Some(target.into_bytes())),
            // What the kernel answers where the open file is no link.
            Err(Errno::NOENT | Errno::INVAL) => Ok(None),
            Err(errno) => Err(self.reach.error(errno)),
        }
    }
}
