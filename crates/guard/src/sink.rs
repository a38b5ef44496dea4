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
//! Owns the copy, the sink, and its program. Works for one listener at an address: several listeners of a server's own
//! SO_REUSEPORT group get their connections by a rule that this program would replace.
//!
//! Invariants: no connection can get stuck in the sink, because its filter is there before it listens. When the sink is
//! closed, or this process ends, the program names no socket any more, and the kernel gives every SYN to the listener.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bpf::Exempt;
use overload::hook::program::Program;
use overload::hook::{Admission, Hook, Routing};
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use sys::netlink::Listener;
use sys::socket::accept_queue;

use crate::GuardError;
use crate::owner::Holding;

/// The smallest relative change of a share that justifies a new program.
const WORTH: f64 = 0.07;

/// A sink that has joined a listener.
#[derive(Debug)]
pub struct Sink {
    socket: OwnedFd,
    /// The inode of its socket, which is no listener of the server's.
    inode: u32,
    holding: Holding,
    /// True if the listener had no SO_REUSEPORT before.
    is_shared_by_us: bool,
    share: f64,
    salt: u32,
    exempt: Exempt,
    refused: u64,
    last_drops: u32,
}

impl Sink {
    /// Joins a listener, in the network namespace of the calling thread. Everything is admitted at first, and
    /// clients of `exempt` always.
    ///
    /// # Errors
    /// [`GuardError::Sink`] with the missing right.
    pub fn join(
        listener: &Listener,
        holding: Holding,
        salt: u32,
        exempt: &Exempt,
    ) -> Result<Sink, GuardError> {
        let copy = copy(holding)
            .map_err(failed("copy its descriptor (pidfd_getfd needs CAP_SYS_PTRACE, or its user)"))?;
        let was_shared =
            sockopt::socket_reuseport(&copy).map_err(|errno| failed("read its options")(errno.into()))?;
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
        let inode =
            rustix::fs::fstat(&socket).map_err(|errno| failed("read the sink")(errno.into()))?.st_ino as u32;
        let mut sink = Sink {
            socket,
            inode,
            holding,
            is_shared_by_us: !was_shared,
            share: 1.0,
            salt,
            exempt: exempt.clone(),
            refused: 0,
            last_drops: 0,
        };
        sink.attach().map_err(failed("attach its program"))?;
        sink.last_drops = sink.drops().map_err(failed("read the sink"))?;
        Ok(sink)
    }

    /// The inode of its own socket.
    pub fn inode(&self) -> u32 {
        self.inode
    }

    /// Leaves the address, and takes back SO_REUSEPORT from the listener if that was set for the sink.
    pub fn leave(self) {
        let Sink { socket, holding, is_shared_by_us, .. } = self;
        drop(socket);
        if is_shared_by_us && let Ok(copy) = copy(holding) {
            // The descriptor may be another file's by now, which has no such option or has it for itself.
            let is_listener = sockopt::socket_acceptconn(&copy).unwrap_or(false);
            if is_listener {
                let _ = sockopt::set_socket_reuseport(&copy, false);
            }
        }
    }

    fn attach(&self) -> io::Result<()> {
        let program = Program {
            routing: &Routing::Even,
            shares: &[self.share],
            listeners: 1,
            salt: self.salt,
            exempt: &self.exempt,
            filler: None,
        };
        sys::reuseport::attach(self.socket.as_fd(), &program.operations())
    }

    fn drops(&self) -> io::Result<u32> {
        Ok(accept_queue(self.socket.as_fd())?.drops)
    }
}

impl Hook for Sink {
    fn name(&self) -> &'static str {
        "sink"
    }

    fn admit(&mut self, admission: &Admission) -> io::Result<()> {
        let share = admission.share.clamp(0.0, 1.0);
        let opens_or_closes = (self.share >= 1.0) != (share >= 1.0);
        if !(opens_or_closes || (share - self.share).abs() > WORTH * self.share) {
            return Ok(());
        }
        if self.share >= 1.0 {
            // Each overload refuses other clients, so that no client is refused every day.
            self.salt = self.salt.wrapping_mul(0x9e37_79b1).wrapping_add(1);
        }
        self.share = share;
        self.attach()
    }

    fn refused(&mut self) -> io::Result<u64> {
        let drops = self.drops()?;
        self.refused += u64::from(drops.wrapping_sub(self.last_drops));
        self.last_drops = drops;
        Ok(self.refused)
    }
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
