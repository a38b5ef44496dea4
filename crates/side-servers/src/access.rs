//! The access to a small server: an internet address, or a socket file that only its owner may use, and a secret.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use connection::Custody;
use rustix::fs::{FileType, Mode};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with, sockopt,
};
use sys::socket::{bind_stream, local_address};

/// Length of the accept queue. It exceeds the connection limit, so that the kernel drops no SYN of a burst.
const BACKLOG: i32 = 128;

/// An address of the admin interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminAddress {
    /// Port 0 lets the kernel choose.
    Internet(SocketAddr),
    /// The path of a socket file.
    File(PathBuf),
}

impl fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AdminAddress::Internet(address) => address.fmt(f),
            AdminAddress::File(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The failure to listen at an address.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {cause}")]
pub struct ListenError {
    /// The address.
    pub address: AdminAddress,
    /// The kernel's error.
    pub cause: io::Error,
}

/// A listening socket. Its file, if it has one, is removed when this is dropped, unless it was passed on.
#[derive(Debug)]
pub struct AdminListener {
    socket: OwnedFd,
    /// The address in use, its port never 0.
    pub address: AdminAddress,
    /// Device and inode of the socket file.
    file: Option<(u64, u64)>,
    custody: Custody,
}

impl AdminListener {
    /// Listens. Replaces a socket file that an ended process left behind.
    ///
    /// # Errors
    /// As bind(2) and listen(2); `AddrInUse` for a file that is not a socket, or that has a listener.
    pub fn open(address: &AdminAddress) -> Result<AdminListener, ListenError> {
        AdminListener::begin(address).map_err(|cause| ListenError { address: address.clone(), cause })
    }

    fn begin(address: &AdminAddress) -> io::Result<AdminListener> {
        let path = match address {
            AdminAddress::Internet(address) => return AdminListener::open_internet(*address),
            AdminAddress::File(path) => path,
        };
        let socket = stream_socket()?;
        // bind(2) gives the file the mode of the socket, so other users cannot connect even for a moment.
        rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        let own = SocketAddrUnix::new(path)?;
        match bind(&socket, &own) {
            Err(Errno::ADDRINUSE) if socket_file(path).is_none() => {
                return Err(io::Error::new(io::ErrorKind::AddrInUse, "the file exists and is not a socket"));
            }
            Err(Errno::ADDRINUSE) if refuses_connections(&own) => {
                std::fs::remove_file(path)?;
                bind(&socket, &own)?;
            }
            result => result?,
        }
        listen(&socket, BACKLOG)?;
        Ok(AdminListener::new(socket, address.clone(), socket_file(path)))
    }

    /// Accepted connections inherit TCP_NODELAY.
    fn open_internet(address: SocketAddr) -> io::Result<AdminListener> {
        let socket = bind_stream(address, false)?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        listen(&socket, BACKLOG)?;
        AdminListener::of_internet(socket)
    }

    fn of_internet(socket: OwnedFd) -> io::Result<AdminListener> {
        let address = AdminAddress::Internet(local_address(&socket)?);
        Ok(AdminListener::new(socket, address, None))
    }

    /// Takes over the socket that another process has opened for an address.
    ///
    /// # Errors
    /// The descriptor is not a socket of this kind.
    pub fn inherited(address: &AdminAddress, socket: OwnedFd) -> Result<AdminListener, ListenError> {
        match address {
            AdminAddress::Internet(_) => AdminListener::of_internet(socket)
                .map_err(|cause| ListenError { address: address.clone(), cause }),
            AdminAddress::File(path) => Ok(AdminListener::new(socket, address.clone(), socket_file(path))),
        }
    }

    fn new(socket: OwnedFd, address: AdminAddress, file: Option<(u64, u64)>) -> AdminListener {
        AdminListener { socket, address, file, custody: Custody::default() }
    }

    /// Returns the same listener, for a server that may pass its sockets on.
    pub fn in_custody(mut self, custody: &Custody) -> AdminListener {
        self.custody = custody.clone();
        self
    }

    /// Returns the custody of the listening sockets.
    pub fn custody(&self) -> &Custody {
        &self.custody
    }

    /// Returns the socket, which is readable while a connection waits.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for AdminListener {
    fn drop(&mut self) {
        if let AdminAddress::File(path) = &self.address
            && !self.custody.is_passed_on()
            && self.file == socket_file(path)
        {
            // If the removal fails, the next start replaces the file.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn stream_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// Returns device and inode of a socket file; `None` if there is no file or it is of another kind.
fn socket_file(path: &Path) -> Option<(u64, u64)> {
    let stat = rustix::fs::lstat(path).ok()?;
    let is_socket = FileType::from_raw_mode(stat.st_mode) == FileType::Socket;
    is_socket.then_some((stat.st_dev, stat.st_ino))
}

/// Tells whether a socket file has lost its listener.
fn refuses_connections(address: &SocketAddrUnix) -> bool {
    stream_socket().is_ok_and(|socket| connect(socket, address) == Err(Errno::CONNREFUSED))
}

/// A secret that admits a client.
#[derive(Clone)]
pub struct Token(Box<[u8]>);

impl Token {
    /// Parses a token from a file. White space around it does not count.
    ///
    /// # Errors
    /// The accepted form.
    pub fn parse(text: &str) -> Result<Token, &'static str> {
        let token = text.trim_ascii().as_bytes();
        if token.is_empty() || !token.iter().all(u8::is_ascii_graphic) {
            return Err("expected one line of visible ASCII characters without spaces");
        }
        Ok(Token(token.into()))
    }

    /// Compares in a time that does not reveal how much of `given` is correct.
    pub fn matches(&self, given: &[u8]) -> bool {
        let differences = self.0.iter().zip(given).fold(0, |sum, (own, given)| sum | (own ^ given));
        differences == 0 && self.0.len() == given.len()
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn socket_file_is_private_and_removed_at_the_end() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("admin.sock");
        let address = AdminAddress::File(path.clone());
        let listener = AdminListener::open(&address).unwrap();
        let data = std::fs::symlink_metadata(&path).unwrap();
        assert!(data.file_type().is_socket());
        assert_eq!(data.permissions().mode() & 0o777, 0o600);
        UnixStream::connect(&path).unwrap();
        assert_eq!(listener.address.to_string(), format!("unix:{}", path.display()));
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn only_a_stale_socket_file_is_replaced() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("admin.sock");
        drop(UnixListener::bind(&path).unwrap());
        let listener = AdminListener::open(&AdminAddress::File(path.clone())).unwrap();
        let second = AdminListener::open(&AdminAddress::File(path.clone())).unwrap_err();
        assert_eq!(second.cause.kind(), io::ErrorKind::AddrInUse);
        UnixStream::connect(&path).expect("the first is still there");
        drop(listener);
        std::fs::write(&path, "no socket").unwrap();
        let error = AdminListener::open(&AdminAddress::File(path.clone())).unwrap_err();
        assert_eq!(error.cause.to_string(), "the file exists and is not a socket");
        assert_eq!(std::fs::read(&path).unwrap(), b"no socket");
        let long = place.path().join("x".repeat(200));
        assert!(AdminListener::open(&AdminAddress::File(long)).is_err());
    }
}
