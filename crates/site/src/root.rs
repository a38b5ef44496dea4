//! The served directory, and the only way into it.
//!
//! Owns the directory's descriptor and every look-up below it. Each look-up is one `openat2` with
//! `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS`: the kernel refuses a name that would
//! leave the root, at every step and without a race. A name with a symbolic link takes a second look-up
//! ([`links`]), and the same rules hold for the name without links. Does not know request paths
//! (see [`path`](crate::path)) nor the meaning of a file.
//!
//! A root may vanish and come back, because a deployment renames directories or changes a link.
//! [`Root::current`] compares the directory at the path with the open one.
//!
//! Invariant: only regular files are opened for reading. They are examined through `O_PATH` first, because
//! opening a FIFO or a device can have effects of its own.

mod links;

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use base::lock;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::{Errno, retry_on_intr};

/// Maximum repeated resolutions of a name because a directory in its path became a link.
const RACES_TOLERATED: usize = 4;

/// The reason why a directory cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    /// The directory cannot be opened.
    #[error("cannot open {path} as a directory: {source}")]
    Open {
        /// The path as given.
        path: PathBuf,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The user has no search permission on the directory.
    #[error(
        "no permission to serve {path}: the server's user needs search permission (x) on it and on every directory \
         above it"
    )]
    Forbidden {
        /// The path as given.
        path: PathBuf,
    },
    /// `openat2` is missing (a kernel before 5.6) or forbidden (a sandbox).
    #[error("the system call openat2 is not available ({0}): serving files safely needs Linux 5.6")]
    NoOpenat2(std::io::Error),
}

/// The served directory. All threads share it.
#[derive(Debug)]
pub struct Root {
    path: PathBuf,
    open: Mutex<Option<Arc<Directory>>>,
}

/// An open directory, with the data that tells it from another directory at its path.
#[derive(Debug)]
pub(crate) struct Directory {
    descriptor: OwnedFd,
    device: u64,
    inode: u64,
    /// The directory's path as given and its path without links: absolute links into it begin with either.
    paths: Vec<PathBuf>,
}

/// The metadata that identify a version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    changed: (i64, u64),
    /// Modification time: seconds since 1970 and nanoseconds.
    pub(crate) modified: (i64, u64),
    /// Length in bytes.
    pub(crate) length: u64,
}

/// The limits of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reach {
    /// Lets the look-up wait for the disk. Otherwise it uses only the kernel's memory, and fails with
    /// [`LookupError::Cold`] if that does not suffice.
    pub(crate) disk: bool,
    /// Lets links lead to files whose name begins with a dot.
    pub(crate) dot_files: bool,
}

impl Reach {
    /// The error for an errno. In a look-up from memory alone, EAGAIN means that memory does not suffice.
    pub(crate) fn error(self, errno: Errno) -> LookupError {
        match errno {
            Errno::AGAIN if !self.disk => LookupError::Cold,
            errno => errno.into(),
        }
    }
}

/// The reason why there is no file to serve. Every errno of a look-up maps to one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LookupError {
    /// The name does not exist, or is neither a regular file nor a directory.
    NotFound,
    /// The name is a directory and not the requested file.
    IsDirectory,
    /// The path is that of a file or a folder but for its slash, and no address ends with a slash.
    HasSlash,
    /// A link leads out of the root.
    Escapes,
    /// A link leads to a dot-file.
    Hidden,
    /// The server may not read the file.
    Forbidden,
    /// The process has no descriptor or no memory left.
    Exhausted,
    /// The look-up needs the disk, and its reach does not allow that.
    Cold,
    /// The file system failed, or the name kept changing.
    Failed,
}

impl From<Errno> for LookupError {
    fn from(errno: Errno) -> LookupError {
        match errno {
            // ENXIO and ENODEV: a socket or a device without a driver. EINVAL: a name that no file system
            // takes.
            Errno::NOENT
            | Errno::NOTDIR
            | Errno::LOOP
            | Errno::NAMETOOLONG
            | Errno::NXIO
            | Errno::NODEV
            | Errno::INVAL
            | Errno::ILSEQ => LookupError::NotFound,
            Errno::XDEV => LookupError::Escapes,
            Errno::ACCESS | Errno::PERM => LookupError::Forbidden,
            Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS => LookupError::Exhausted,
            _ => LookupError::Failed,
        }
    }
}

impl Root {
    /// Opens a directory for serving. Calls `stat`, `open` and `openat2`.
    ///
    /// # Errors
    /// [`RootError`] if the path is not a directory that can be opened, or if the kernel lacks `openat2`.
    pub fn open(path: impl AsRef<Path>) -> Result<Root, RootError> {
        let given = path.as_ref();
        let failed = |source: std::io::Error| match source.kind() {
            std::io::ErrorKind::PermissionDenied => RootError::Forbidden { path: given.to_owned() },
            _ => RootError::Open { path: given.to_owned(), source },
        };
        // The working directory may change later, and the path must keep its meaning.
        let path = std::path::absolute(given).map_err(failed)?;
        let directory = Directory::open(&path).map_err(|errno| failed(errno.into()))?;
        directory.open_plain(b".", OFlags::PATH, Reach { disk: true, dot_files: false }).map_err(
            |errno| match errno {
                // A kernel without the call returns ENOSYS; sandboxes return either error.
                Errno::NOSYS | Errno::PERM => RootError::NoOpenat2(errno.into()),
                errno => failed(errno.into()),
            },
        )?;
        Ok(Root { path, open: Mutex::new(Some(Arc::new(directory))) })
    }

    /// Opens a directory that this server has opened before, in another process. It may be missing for now, because a
    /// deployment replaces it.
    ///
    /// # Errors
    /// The errors of [`Root::open`], except for a path without a directory.
    pub fn reopen(path: impl AsRef<Path>) -> Result<Root, RootError> {
        match Root::open(&path) {
            Err(RootError::Open { path, source }) if source.kind() == std::io::ErrorKind::NotFound => {
                let open = Mutex::new(None);
                Ok(Root {
                    path: std::path::absolute(&path).map_err(|source| RootError::Open { path, source })?,
                    open,
                })
            }
            opened => opened,
        }
    }

    /// A root without any file, for a host whose rules answer alone.
    pub fn empty() -> Root {
        Root { path: PathBuf::new(), open: Mutex::new(None) }
    }

    /// Tells whether there never is a file.
    pub(crate) fn is_empty(&self) -> bool {
        self.path.as_os_str().is_empty()
    }

    /// The absolute path of the served directory; empty for a root without any file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory at the path now; `None` while there is none. Calls `stat`, and `open` if another
    /// directory has taken the path. The `Arc` stays the same while the directory does.
    pub(crate) fn current(&self) -> Option<Arc<Directory>> {
        let mut open = lock(&self.open);
        match rustix::fs::stat(&self.path) {
            Ok(stat) => {
                let same = open.as_ref().is_some_and(|open| open.is(&stat));
                if !same {
                    *open = Directory::open(&self.path).ok().map(Arc::new);
                }
            }
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => *open = None,
            // The path cannot be examined, but the open directory can still be served.
            Err(_) => {}
        }
        open.clone()
    }
}

impl Directory {
    fn open(path: &Path) -> Result<Directory, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = retry_on_intr(|| rustix::fs::openat(CWD, path, flags, Mode::empty()))?;
        let stat = rustix::fs::fstat(&descriptor)?;
        // If the path without links is unknown, absolute links by that path count as leading out.
        let real = std::fs::canonicalize(path).ok().filter(|real| real != path);
        let paths = [path.to_owned()].into_iter().chain(real).collect();
        Ok(Directory { descriptor, device: stat.st_dev, inode: stat.st_ino, paths })
    }

    fn is(&self, stat: &Stat) -> bool {
        (self.device, self.inode) == (stat.st_dev, stat.st_ino)
    }

    /// The rest of an absolute path that begins with this directory's own path.
    pub(crate) fn below<'a>(&self, path: &'a [u8]) -> Option<&'a [u8]> {
        let path = Path::new(OsStr::from_bytes(path));
        let mut rests = self.paths.iter().filter_map(|own| path.strip_prefix(own).ok());
        rests.next().map(|rest| rest.as_os_str().as_bytes())
    }

    /// The stamp of a name now, without opening it for reading. Calls `openat2`, `fstat` and `close`.
    pub(crate) fn examine(&self, name: &[u8], reach: Reach) -> Result<Stamp, LookupError> {
        Stamp::of(self.open_at(name, OFlags::PATH, reach)?)
    }

    /// True if the name certainly does not exist. The check is cheaper than [`Directory::examine`], which
    /// must decide if the result is false. Calls `fstatat`.
    pub(crate) fn is_absent(&self, name: &[u8], reach: Reach) -> bool {
        if !reach.disk {
            // fstatat has no flag against waiting.
            return false;
        }
        // The kernel may report a name that leads outside either way, and it is not served in either case.
        let stat = rustix::fs::statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW);
        stat.is_err_and(|errno| errno == Errno::NOENT)
    }

    /// Opens a file for reading that has been examined and is a regular file. Calls `openat2` and `fstat`.
    pub(crate) fn open_file(&self, name: &[u8], reach: Reach) -> Result<(OwnedFd, Stamp), LookupError> {
        // O_NONBLOCK: the name may have become a FIFO since its examination.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let descriptor = self.open_at(name, flags, reach)?;
        let stamp = Stamp::of(&descriptor)?;
        Ok((descriptor, stamp))
    }

    /// Opens a directory for reading its names. Calls `openat2`.
    pub(crate) fn open_folder(&self, name: &[u8], reach: Reach) -> Result<OwnedFd, LookupError> {
        self.open_at(if name.is_empty() { b"." } else { name }, OFlags::RDONLY | OFlags::DIRECTORY, reach)
    }

    fn open_at(&self, name: &[u8], flags: OFlags, reach: Reach) -> Result<OwnedFd, LookupError> {
        let mut opened = self.open_plain(name, flags, reach);
        for _ in 0..RACES_TOLERATED {
            match opened {
                Err(Errno::LOOP) => {
                    opened = self.open_plain(&links::resolve(self, name, reach)?, flags, reach)
                }
                result => return result.map_err(|errno| reach.error(errno)),
            }
        }
        Err(LookupError::Failed)
    }

    /// Opens a name without a symbolic link. With `O_PATH | O_NOFOLLOW` the last part may be a link. Calls
    /// `openat2`.
    ///
    /// # Errors
    /// ELOOP if a link is on the way; EXDEV if the name leaves the root; EAGAIN if memory does not suffice.
    pub(crate) fn open_plain(&self, name: &[u8], flags: OFlags, reach: Reach) -> Result<OwnedFd, Errno> {
        let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        // RESOLVE_CACHED (Linux 5.12) fails with EAGAIN if a name is not in the kernel's cache of names.
        resolve.set(ResolveFlags::CACHED, !reach.disk);
        let flags = flags | OFlags::CLOEXEC;
        retry_on_intr(|| rustix::fs::openat2(&self.descriptor, name, flags, Mode::empty(), resolve))
    }
}

impl Stamp {
    /// The stamp of an open regular file. Calls `fstat`.
    pub(crate) fn of(descriptor: impl AsFd) -> Result<Stamp, LookupError> {
        let stat = rustix::fs::fstat(descriptor)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(Stamp {
                device: stat.st_dev,
                inode: stat.st_ino,
                changed: (stat.st_ctime, stat.st_ctime_nsec),
                modified: (stat.st_mtime, stat.st_mtime_nsec),
                length: u64::try_from(stat.st_size).unwrap_or(0),
            }),
            FileType::Directory => Err(LookupError::IsDirectory),
            _ => Err(LookupError::NotFound),
        }
    }

    /// A digest that differs between versions of a file and is the same in every process. The device
    /// is left out, because its number may change at a reboot.
    pub(crate) fn digest(&self) -> u64 {
        let (modified, changed) = (self.modified, self.changed);
        let words = [self.inode, modified.0 as u64, modified.1, changed.0 as u64, changed.1];
        digest(words.into_iter().flat_map(u64::to_le_bytes))
    }
}

/// The digest of bytes by FNV-1a.
pub(crate) fn digest(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use rustix::process::Uid;

    const REACH: Reach = Reach { disk: true, dot_files: false };

    fn tree() -> (tempfile::TempDir, Root) {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir_all(place.path().join("root/dir")).unwrap();
        fs::write(place.path().join("root/dir/file"), "inside").unwrap();
        fs::write(place.path().join("secret"), "outside").unwrap();
        let root = Root::open(place.path().join("root")).unwrap();
        (place, root)
    }

    #[test]
    fn names_resolve_beneath_the_root_or_not_at_all() {
        let (place, root) = tree();
        let at = |name: &str| place.path().join("root").join(name);
        symlink("dir/file", at("good")).unwrap();
        symlink("../root/dir/file", at("around")).unwrap();
        symlink("dir/../dir/file", at("up-and-down")).unwrap();
        symlink("../secret", at("bad")).unwrap();
        symlink("..", at("parent")).unwrap();
        symlink(place.path().join("secret"), at("absolute-out")).unwrap();
        symlink(at("dir/file"), at("absolute-in")).unwrap();
        symlink("/proc/self/root", at("magic")).unwrap();
        symlink("loop", at("loop")).unwrap();
        let directory = root.current().unwrap();
        for (name, expected) in [
            ("dir/file", Ok(6)),
            ("good", Ok(6)),
            ("up-and-down", Ok(6)),
            ("around", Err(LookupError::Escapes)),
            ("bad", Err(LookupError::Escapes)),
            ("parent/secret", Err(LookupError::Escapes)),
            ("../secret", Err(LookupError::Escapes)),
            ("absolute-out", Err(LookupError::Escapes)),
            ("absolute-in", Ok(6)),
            ("magic/etc/passwd", Err(LookupError::Escapes)),
            ("/etc/passwd", Err(LookupError::Escapes)),
            ("loop", Err(LookupError::NotFound)),
            ("nothing", Err(LookupError::NotFound)),
            ("dir/file/x", Err(LookupError::NotFound)),
            ("dir", Err(LookupError::IsDirectory)),
            ("dir/..", Err(LookupError::IsDirectory)),
            ("nul\0", Err(LookupError::NotFound)),
        ] {
            let examined = directory.examine(name.as_bytes(), REACH).map(|stamp| stamp.length);
            assert_eq!(examined, expected, "{name}");
            let opened = directory.open_file(name.as_bytes(), REACH).map(|(_, stamp)| stamp.length);
            assert_eq!(opened, expected, "{name}");
        }
        assert_eq!(directory.examine(&[b'x'; 300], REACH), Err(LookupError::NotFound));
    }

    #[test]
    fn fifos_and_sockets_are_not_files() {
        let (place, root) = tree();
        let fifo = place.path().join("root/fifo");
        rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(place.path().join("root/socket")).unwrap();
        let directory = root.current().unwrap();
        for name in [&b"fifo"[..], b"socket"] {
            assert_eq!(directory.examine(name, REACH), Err(LookupError::NotFound));
            assert_eq!(directory.open_file(name, REACH).unwrap_err(), LookupError::NotFound);
        }
    }

    #[test]
    fn vanished_root_is_found_again_on_its_return() {
        let (place, root) = tree();
        let path = place.path().join("root");
        let first = root.current().unwrap();
        assert!(Arc::ptr_eq(&first, &root.current().unwrap()));
        fs::rename(&path, place.path().join("away")).unwrap();
        assert!(root.current().is_none());
        fs::write(&path, "a file in its place").unwrap();
        assert!(root.current().is_none());
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let second = root.current().unwrap();
        assert!(!Arc::ptr_eq(&first, &second));
        assert_eq!(second.examine(b"dir/file", REACH), Err(LookupError::NotFound));
    }

    #[test]
    fn root_may_be_missing_at_a_reopen_elsewhere() {
        let (place, _) = tree();
        let path = place.path().join("newer");
        assert!(Root::open(&path).is_err());
        let root = Root::reopen(&path).unwrap();
        assert!(root.current().is_none());
        fs::create_dir(&path).unwrap();
        fs::write(path.join("file"), "newer").unwrap();
        assert!(root.current().unwrap().examine(b"file", REACH).is_ok());
    }

    #[test]
    fn a_link_that_is_turned_switches_the_root() {
        let (place, _) = tree();
        let current = place.path().join("current");
        symlink("root", &current).unwrap();
        let root = Root::open(&current).unwrap();
        let first = root.current().unwrap();
        fs::remove_file(&current).unwrap();
        symlink("root/dir", &current).unwrap();
        let second = root.current().unwrap();
        assert!(!Arc::ptr_eq(&first, &second));
        assert!(second.examine(b"file", REACH).is_ok());
    }

    #[test]
    fn errors_of_the_kernel_are_told_apart() {
        for (errno, error) in [
            (Errno::NOENT, LookupError::NotFound),
            (Errno::NAMETOOLONG, LookupError::NotFound),
            (Errno::LOOP, LookupError::NotFound),
            (Errno::XDEV, LookupError::Escapes),
            (Errno::ACCESS, LookupError::Forbidden),
            (Errno::MFILE, LookupError::Exhausted),
            (Errno::NFILE, LookupError::Exhausted),
            (Errno::NOMEM, LookupError::Exhausted),
            (Errno::IO, LookupError::Failed),
            (Errno::STALE, LookupError::Failed),
        ] {
            assert_eq!(LookupError::from(errno), error, "{errno}");
        }
    }

    #[test]
    fn what_cannot_be_served_is_said_at_the_start() {
        let (place, _) = tree();
        let error = Root::open(place.path().join("secret")).unwrap_err().to_string();
        assert!(error.starts_with("cannot open ") && error.contains("secret as a directory: "), "{error}");
        assert!(Root::open(place.path().join("missing")).is_err());
    }

    #[test]
    fn forbidden_directory_is_a_permission_error() {
        let (place, _) = tree();
        let root = place.path().join("root");
        fs::set_permissions(&root, fs::Permissions::from_mode(0o600)).unwrap();
        for path in [root.clone(), root.join("dir")] {
            // Only this thread's identity changes.
            let opened = std::thread::spawn(move || {
                let nobody = Uid::from_raw(65534);
                let _ = rustix::thread::set_thread_res_uid(nobody, nobody, nobody);
                Root::open(path).map_err(|error| error.to_string())
            });
            let error = opened.join().unwrap().unwrap_err();
            assert!(
                error.starts_with("no permission to serve ") && error.contains("search permission (x)"),
                "{error}"
            );
        }
        fs::set_permissions(&root, fs::Permissions::from_mode(0o700)).unwrap();
    }
}
