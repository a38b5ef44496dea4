//! A sink beside a foreign listener: refuses connections without a program of BPF.
//!
//! ```text
//!   SYN ──> program of the SO_REUSEPORT group ── share ──> the server's listener
//!                       └──────────────────── the rest ──> the sink, whose filter drops every packet
//! ```
//!
//! The sink is a socket of ours that listens at the server's address. The listener must allow it by SO_REUSEPORT, which is
//! set through a copy of its descriptor (pidfd_getfd(2)). The copy is closed as soon as the sink has joined. So only the
//! sink could keep the port open after the server's end, and it is closed when the listener is gone.
//!
//! [`Joined`] is the part that needs rights: it makes the socket, and takes SO_REUSEPORT back. [`Sink`] has the socket and
//! refuses by it, which needs none.
//!
//! Owns the copy, the sink, and its program. Works for one listener at an address: several listeners of a server's own
//! SO_REUSEPORT group get their connections by a rule that this program would replace.
//!
//! Invariants: no connection can get stuck in the sink, because its filter is there before it listens. When the sink is
//! closed, or this process ends, the program names no socket any more, and the kernel gives every SYN to the listener.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bpf::Exempt;
use overload::hook::program::{Program, is_worth_it, next_salt};
use overload::hook::{Admission, Hook, Routing};
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use sys::network::netlink::Listener;
use sys::socket::accept_queue;

use crate::GuardError;
use crate::search::owner::Holding;

/// The address of a listener that a sink has joined, with what is to be undone.
#[derive(Debug)]
pub struct Joined {
    /// The socket, until its user has taken it.
    socket: Option<OwnedFd>,
    holding: Holding,
    /// The inode of the socket behind the descriptor.
    inode: u64,
    /// True if the listener had no SO_REUSEPORT before.
    is_shared_by_us: bool,
}

impl Joined {
    /// Makes a socket that listens beside a listener, in the network namespace of the calling thread. It drops every
    /// packet.
    ///
    /// # Errors
    /// [`GuardError::Sink`] with the missing right.
    pub fn join(listener: &Listener, holding: Holding) -> Result<Joined, GuardError> {
        let copy = copy(holding)
            .map_err(failed("copy its descriptor (pidfd_getfd needs CAP_SYS_PTRACE, or its user)"))?;
        let was_shared =
            sockopt::socket_reuseport(&copy).map_err(|errno| failed("read its options")(errno.into()))?;
        let inode = inode_of(copy.as_fd()).map_err(failed("read its inode"))?;
        let share = |on| sockopt::set_socket_reuseport(&copy, on).map_err(io::Error::from);
        share(true).map_err(failed("allow SO_REUSEPORT"))?;
        let joined = sys::thread::as_file_user(listener.uid, || bound_beside(listener, copy.as_fd()))
            .map_err(failed("act as its user (CAP_SETUID)"))
            .and_then(|bound| bound.map_err(failed("listen beside it")));
        let socket = joined.inspect_err(|_| {
            if !was_shared {
                let _ = share(false);
            }
        })?;
        // Without a program the kernel would give the sink half of the SYNs.
        attach(socket.as_fd(), 1.0, 0, &Exempt::NONE).map_err(failed("attach its program"))?;
        Ok(Joined { socket: Some(socket), holding, inode, is_shared_by_us: !was_shared })
    }

    /// Takes the socket, whose program admits everything.
    pub fn take_socket(&mut self) -> Option<OwnedFd> {
        self.socket.take()
    }

    /// Takes back SO_REUSEPORT from the listener if that was set for the sink, whose socket must be closed.
    pub fn leave(self) {
        let Joined { socket, holding, inode, is_shared_by_us } = self;
        drop(socket);
        if is_shared_by_us && let Ok(copy) = copy(holding) {
            // The descriptor may be another file's by now, or that of a listener with an option of its own.
            if inode_of(copy.as_fd()).is_ok_and(|now| now == inode) {
                let _ = sockopt::set_socket_reuseport(&copy, false);
            }
        }
    }
}

/// The socket of a sink, by which a share of the SYNs is refused.
#[derive(Debug)]
pub struct Sink {
    socket: OwnedFd,
    /// The inode of its socket, which is no listener of the server's.
    inode: u32,
    share: f64,
    salt: u32,
    /// True if the refused clients are forgotten: nobody holds them to a rate any more.
    forgotten: bool,
    exempt: Exempt,
    refused: u64,
    last_drops: u32,
}

impl Sink {
    /// The sink with the socket of a [`Joined`]. Everything is admitted at first, and clients of `exempt` always.
    ///
    /// # Errors
    /// The errors of the socket's calls.
    pub fn open(socket: OwnedFd, salt: u32, exempt: &Exempt) -> io::Result<Sink> {
        let inode = inode_of(socket.as_fd())? as u32;
        let last_drops = accept_queue(socket.as_fd())?.drops;
        Ok(Sink {
            socket,
            inode,
            share: 1.0,
            salt,
            forgotten: true,
            exempt: exempt.clone(),
            refused: 0,
            last_drops,
        })
    }

    /// The inode of its own socket.
    pub fn inode(&self) -> u32 {
        self.inode
    }
}

impl Hook for Sink {
    fn name(&self) -> &'static str {
        "sink"
    }

    fn admit(&mut self, admission: &Admission) -> io::Result<()> {
        let share = admission.share.clamp(0.0, 1.0);
        self.forgotten |= admission.is_all();
        if !is_worth_it(self.share, share) {
            return Ok(());
        }
        if share < 1.0 && std::mem::take(&mut self.forgotten) {
            self.salt = next_salt(self.salt);
        }
        self.share = share;
        attach(self.socket.as_fd(), share, self.salt, &self.exempt)
    }

    fn refused(&mut self) -> io::Result<u64> {
        let drops = accept_queue(self.socket.as_fd())?.drops;
        self.refused += u64::from(drops.wrapping_sub(self.last_drops));
        self.last_drops = drops;
        Ok(self.refused)
    }
}

fn inode_of(socket: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(rustix::fs::fstat(socket)?.st_ino)
}

/// Gives the group of a sink's socket the program that admits a share.
fn attach(socket: BorrowedFd<'_>, share: f64, salt: u32, exempt: &Exempt) -> io::Result<()> {
    let (routing, shares) = (&Routing::Even, &[share]);
    let program = Program { routing, shares, listeners: 1, salt, exempt, filler: None };
    sys::socket::reuseport::attach(socket, &program.operations())
}

/// Copies the descriptor of another process.
fn copy(holding: Holding) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(holding.pid).ok_or(io::ErrorKind::NotFound)?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    Ok(pidfd_getfd(process, holding.descriptor, PidfdGetfdFlags::empty())?)
}

/// A socket that drops every packet, listening at the address of `listener`.
fn bound_beside(listener: &Listener, copy: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let address: SocketAddr = sys::socket::local_address(copy)?;
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket =
        rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, Some(ipproto::TCP))?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, !listener.dual)?;
    }
    rustix::net::bind(&socket, &address)?;
    sys::socket::drop_new_connections(socket.as_fd())?;
    rustix::net::listen(&socket, 0)?;
    Ok(socket)
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> GuardError {
    move |cause| GuardError::Sink { what, cause }
}
