//! Sinks: full listeners that share the server's address. A program sends the refused SYNs to them.
//!
//! ```text
//!                  ┌──> listener 0 ──> loop 0        indexes in the SO_REUSEPORT group: listeners first,
//!   SYN ─> program ┼──> listener 1 ──> loop 1        then as many sinks
//!                  ├──> sink 0, always full
//!                  └──> sink 1, always full: the kernel drops the SYN and counts it
//! ```
//!
//! A sink listens with a backlog of 0, and one connection of the server's own fills its queue. The kernel
//! drops a SYN to a full accept queue before it creates a request socket, for 0.7 to 0.8 us. No step needs a
//! privilege.
//!
//! Each queue has its own sink, so that the drops of the sink are the refusals of that queue. A changed share
//! needs a new program for the group, which costs about 60 us (189 us have been measured). Changes below 7 %
//! are therefore skipped.
//!
//! The salt of the identities changes with the first refusal after the law has forgotten the refused clients, 8 s after
//! the last one. Until then the echo of a rush stays refused.
//!
//! No client can get stuck in a sink:
//!
//! - While sinks join, the program names only listeners, and each filler by its source. No stranger can
//!   become a filler.
//! - The filler is reset as soon as it is queued. The kernel keeps it in the queue until an accept, which
//!   never comes. No peer can break it, and it uses no port.
//! - Sinks come last in the group. When the process dies, their indexes have no listener, and the kernel
//!   chooses among the real ones.
//! - Listeners must not leave the group before the sinks: the kernel would move a sink to the free index.
//!   [`Sinks::withdraw`] comes first. [`Hook::refused`] detects a sink that is not full, or that drops SYNs
//!   while its share is 1, and then withdraws all sinks.
//! - A sink that is closed leaves its group before the kernel's list of listeners. A SYN that finds it in between
//!   goes to the sink, whatever the program says. The SYN is lost, or its connection is reset (decision 57).
//!   A server that hands over therefore passes its sinks on, and they stay open.
//!
//! Leaves out the choice of the share.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use base::Nanos;
use bpf::Exempt;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};
use sys::errno::{Failure, classify};
use sys::readiness::poll::{PollFd, bits};
use sys::socket::reuseport::attach;
use sys::socket::{accept_queue, local_address};

pub use super::program::Routing;
use super::program::{Program, is_worth_it, next_salt};
use super::{Admission, Hook};
use crate::total::Total;

/// Timeout of a filler's connect over the loopback interface, after which something must block it.
const FILL_TIMEOUT: Nanos = Nanos::SECOND;

/// The reason why a sink cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// A system call failed.
    #[error("the sink for {address} cannot {what}: {cause}")]
    System {
        /// The address of the listeners.
        address: SocketAddr,
        /// The operation.
        what: &'static str,
        /// The kernel's error.
        cause: io::Error,
    },
    /// The filler reached another socket instead of the sink.
    #[error(
        "the sink for {address} cannot be filled: other sockets than this server's listeners share the address"
    )]
    Strangers {
        /// The address of the listeners.
        address: SocketAddr,
    },
}

/// The sinks of all addresses of a server, one for each accept queue. All clones share them.
#[derive(Clone, Debug)]
pub struct Sinks(Arc<Mutex<Group>>);

/// The sinks and their current program.
#[derive(Debug)]
struct Group {
    routing: Routing,
    /// The current shares, by queue.
    shares: Vec<f64>,
    /// Listeners of each address.
    listeners: usize,
    salt: u32,
    exempt: Exempt,
    /// True for each queue whose refused clients are forgotten: nobody holds them to a rate any more.
    forgotten: Vec<bool>,
    /// Sinks by address, then by queue. Empty after withdrawal.
    sinks: Vec<Vec<OwnedFd>>,
}

impl Sinks {
    /// Joins the groups of some listeners, with one listener for each address. `queues` is the number of accept
    /// queues that get connections. `members` is the number of listeners of each address, at least `queues`.
    /// `inherited` are the [copies](Sinks::copies) of sinks that these groups have already. Clients of `exempt` are
    /// never refused. Everything is admitted at first. Blocks for the time of a connection over the loopback
    /// interface, at most a second.
    ///
    /// All `members` of an address must be listening, with SO_REUSEPORT, in the order of the queues.
    /// Their group must contain no other socket but the inherited sinks.
    ///
    /// # Errors
    /// [`SinkError::System`]: the listeners belong to another user or lack SO_REUSEPORT, no descriptor is
    /// free, or one program cannot hold the queues and the exempt networks. [`SinkError::Strangers`]. The groups
    /// then keep a program that admits everything.
    pub fn join(
        listeners: &[(SocketAddr, BorrowedFd<'_>)],
        queues: usize,
        members: usize,
        routing: Routing,
        salt: u32,
        exempt: &Exempt,
        mut inherited: Vec<OwnedFd>,
    ) -> Result<Sinks, SinkError> {
        let shares = vec![1.0; queues];
        let forgotten = vec![true; queues];
        let mut group = Group {
            routing,
            shares,
            listeners: members,
            salt,
            exempt: exempt.clone(),
            forgotten,
            sinks: Vec::new(),
        };
        for (address, listener) in listeners {
            let at = |sink: &mut OwnedFd| local_address(sink).is_ok_and(|local| local == *address);
            let before = inherited.extract_if(.., at).collect();
            let sinks = Joining { group: &group, address: *address, listener: *listener }.join(before)?;
            group.sinks.push(sinks);
        }
        Ok(Sinks(Arc::new(Mutex::new(group))))
    }

    /// The hook of one queue.
    pub fn hook(&self, queue: usize) -> SinkHook {
        let addresses = self.lock().sinks.len();
        SinkHook { sinks: self.clone(), queue, refused: vec![Total::default(); addresses], idle_readings: 0 }
    }

    /// Copies the sinks for another process, in the order of their groups. They stay in the groups while any copy is
    /// open.
    ///
    /// # Errors
    /// No descriptor is free.
    pub fn copies(&self) -> io::Result<Vec<OwnedFd>> {
        self.lock().sinks.iter().flatten().map(OwnedFd::try_clone).collect()
    }

    /// Leaves the groups and admits everything from now on. Call it before closing any listener.
    pub fn withdraw(&self) {
        self.lock().withdraw();
    }

    fn lock(&self) -> MutexGuard<'_, Group> {
        base::lock(&self.0)
    }
}

impl Group {
    /// Attaches the program of the current shares to every group.
    fn attach(&self) -> io::Result<()> {
        let program = self.program().operations();
        self.sinks.iter().try_for_each(|sinks| attach(sinks[0].as_fd(), &program))
    }

    fn program(&self) -> Program<'_> {
        let (routing, shares, exempt) = (&self.routing, &self.shares, &self.exempt);
        Program { routing, shares, listeners: self.listeners, salt: self.salt, exempt, filler: None }
    }

    /// Sends everything to the listeners, then closes the sinks. The program that remains names only
    /// listeners.
    fn withdraw(&mut self) {
        self.shares.fill(1.0);
        let _ = self.attach();
        self.sinks.clear();
    }

    /// Applies another share.
    fn share(&mut self, queue: usize, share: f64) -> io::Result<()> {
        if self.forgotten.iter().all(|forgotten| *forgotten) {
            // Clients that may still retry keep their identity, or the echo of a rush would be drawn anew.
            self.salt = next_salt(self.salt);
        }
        self.forgotten[queue] = false;
        self.shares[queue] = share;
        self.attach()
    }
}

/// The listeners of one address, while sinks join them.
struct Joining<'a> {
    group: &'a Group,
    address: SocketAddr,
    listener: BorrowedFd<'a>,
}

impl Joining<'_> {
    /// Adds sinks to those of before, until each queue has one.
    fn join(&self, mut sinks: Vec<OwnedFd>) -> Result<Vec<OwnedFd>, SinkError> {
        let program = self.group.program();
        attach(self.listener, &program.operations()).map_err(self.failed("attach its program"))?;
        let (first, queues) = (self.group.listeners, self.group.shares.len());
        let joined = (sinks.len()..queues).try_for_each(|queue| {
            sinks.push(self.sink((first + queue) as u32)?);
            Ok(())
        });
        // Replaces the program that names a filler.
        attach(self.listener, &program.operations()).map_err(self.failed("attach its program"))?;
        joined.map(|()| sinks)
    }

    /// Makes the sink with this index, and fills it.
    fn sink(&self, index: u32) -> Result<OwnedFd, SinkError> {
        let sink = self.bound(self.address).map_err(self.failed("share the address"))?;
        rustix::net::listen(&sink, 0).map_err(io::Error::from).map_err(self.failed("listen"))?;
        let filler = self.filler().map_err(self.failed("bind its filler"))?;
        let source = local_address(&filler).map_err(self.failed("bind its filler"))?;
        let program = Program { filler: Some((source, index)), ..self.group.program() };
        attach(self.listener, &program.operations()).map_err(self.failed("attach its program"))?;
        self.fill(&filler).map_err(self.failed("be filled"))?;
        let queue = accept_queue(sink.as_fd()).map_err(self.failed("be read"))?;
        if queue.depth <= queue.limit {
            return Err(SinkError::Strangers { address: self.address });
        }
        // Closing resets the filler. If this fails, the connection stays in the queue all the same: nothing
        // closes the server's end.
        let _ = sockopt::set_socket_linger(&filler, Some(Duration::ZERO));
        Ok(sink)
    }

    /// A socket that can listen in the group.
    fn bound(&self, address: SocketAddr) -> io::Result<OwnedFd> {
        let socket = stream(address)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        sockopt::set_socket_reuseport(&socket, true)?;
        if address.is_ipv6() {
            sockopt::set_ipv6_v6only(&socket, sockopt::ipv6_v6only(self.listener)?)?;
        }
        rustix::net::bind(&socket, &address)?;
        Ok(socket)
    }

    /// The client's end of a filler, with its own port.
    fn filler(&self) -> io::Result<OwnedFd> {
        let socket = stream(self.address)?;
        let mut source = self.reached_by();
        source.set_port(0);
        rustix::net::bind(&socket, &source)?;
        Ok(socket)
    }

    /// An address of this machine that reaches the listeners.
    fn reached_by(&self) -> SocketAddr {
        let mut address = self.address;
        if address.ip().is_unspecified() {
            let loopback: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
            address.set_ip(loopback[usize::from(address.is_ipv6())]);
        }
        address
    }

    fn fill(&self, filler: &OwnedFd) -> io::Result<()> {
        match rustix::net::connect(filler, &self.reached_by()) {
            Err(errno) if classify(&errno.into()) == Failure::WouldBlock => {}
            other => return Ok(other?),
        }
        let mut set = [PollFd::new(filler.as_raw_fd(), bits::OUT)];
        if sys::readiness::poll::wait(&mut set, Some(FILL_TIMEOUT))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(sockopt::socket_error(filler)??)
    }

    fn failed(&self, what: &'static str) -> impl Fn(io::Error) -> SinkError + use<> {
        let address = self.address;
        move |cause| SinkError::System { address, what, cause }
    }
}

fn stream(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?)
}

/// Refuses connections to one accept queue by sending their SYNs to its sinks.
#[derive(Debug)]
pub struct SinkHook {
    sinks: Sinks,
    queue: usize,
    /// Refused SYNs, by address.
    refused: Vec<Total>,
    /// Readings since the share became 1.
    idle_readings: u32,
}

impl Hook for SinkHook {
    fn name(&self) -> &'static str {
        "sink"
    }

    fn admit(&mut self, admission: &Admission) -> io::Result<()> {
        let share = admission.share.clamp(0.0, 1.0);
        let mut group = self.sinks.lock();
        let before = group.shares[self.queue];
        group.forgotten[self.queue] |= admission.is_all();
        if group.sinks.is_empty() || !is_worth_it(before, share) {
            return Ok(());
        }
        self.idle_readings = 0;
        group.share(self.queue, share).inspect_err(|_| group.withdraw())
    }

    fn refused(&mut self) -> io::Result<u64> {
        let mut group = self.sinks.lock();
        let before: u64 = self.refused.iter().map(Total::get).sum();
        let mut full = true;
        for (sinks, refused) in group.sinks.iter().zip(&mut self.refused) {
            let queue = accept_queue(sinks[self.queue].as_fd()).unwrap_or_default();
            full &= queue.depth > queue.limit;
            refused.read(queue.drops);
        }
        let now: u64 = self.refused.iter().map(Total::get).sum();
        let open = group.shares[self.queue] >= 1.0;
        // The first reading after a change may include SYNs refused before it.
        let astray = open && self.idle_readings > 0 && now > before;
        self.idle_readings = if open { self.idle_readings.saturating_add(1) } else { 0 };
        if full && !astray {
            return Ok(now);
        }
        group.withdraw();
        let why = if full { "gets connections that were admitted" } else { "is not full" };
        Err(io::Error::other(format!("a sink {why}; all of them are withdrawn")))
    }
}

#[cfg(test)]
mod tests;
