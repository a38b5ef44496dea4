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
    let (mut resolved, mut rest) = (Vec::new(), name.to_vec());
    let mut links = 0;
    while !rest.is_empty() {
        let end = memchr::memchr(b'/', &rest).unwrap_or(rest.len());
        let after = rest.get(end + 1..).unwrap_or_default().to_vec();
        let parent = resolved.len();
        match &rest[..end] {
            b"" | b"." => {}
            b".." if resolved.is_empty() => return Err(LookupError::Escapes),
            b".." => resolved.truncate(memchr::memrchr(b'/', &resolved).unwrap_or(0)),
            component => {
                if parent > 0 {
                    resolved.push(b'/');
                }
                resolved.extend_from_slice(component);
            }
        }
        rest = after;
        if resolved.len() <= parent {
            continue;
        }
        if let Some(target) = target(directory, &resolved, reach)? {
            links += 1;
            if links > MOST_LINKS || target.len() + rest.len() >= LONGEST {
                return Err(LookupError::NotFound);
            }
            let is_absolute = target.starts_with(b"/");
            let target =
                if is_absolute { directory.below(&target).ok_or(LookupError::Escapes)? } else { &target };
            rest = [target, b"/", &rest].concat();
            resolved.truncate(if is_absolute { 0 } else { parent });
        }
    }
    match reach.dot_files || !path::is_hidden(&resolved) {
        true if resolved.is_empty() => Ok(b".".to_vec()),
        true => Ok(resolved),
        false => Err(LookupError::Hidden),
    }
}

/// Where a name leads if it is a link.
fn target(directory: &Directory, name: &[u8], reach: Reach) -> Result<Option<Vec<u8>>, LookupError> {
    let node = directory
        .open_plain(name, OFlags::PATH | OFlags::NOFOLLOW, reach)
        .map_err(|errno| reach.error(errno))?;
    // An empty name reads the link that is open. Short targets are kept in the inode, which is in memory by now.
    match readlinkat(&node, c"", Vec::new()) {
        Ok(target) => Ok(Some(target.into_bytes())),
        Err(Errno::NOENT | Errno::INVAL) => Ok(None),
        Err(errno) => Err(reach.error(errno)),
    }
}
