//! One connection: connects, waits until it is accepted and closed, and waits until the herd sleeps again.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;

use base::{Clock, Nanos, RealClock};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, ipproto};
use rustix::process::Pid;
use sys::cpu;
use sys::readiness::poll::timespec;

use crate::error::{HerdError, system};
use crate::population::Population;
use crate::watch::{PATIENCE, Watch, nap, stuck};

/// The cost of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Wake-ups of waiters.
    pub wakeups: u64,
    /// The time from just before connect() until the last woken waiter slept again.
    pub settle: Nanos,
    /// The most by which `settle` may be too long.
    pub settle_late_by: Nanos,
    /// CPU time of all waiters, the acceptor and the connect() call, in which the kernel does the listener's
    /// work on loopback.
    pub cpu: Nanos,
    /// The waiter that accepted the connection.
    pub winner: usize,
}

/// The rest of the experiment after it has looked at all tasks. The scheduler makes a task wait that has just
/// used a processor for long, and the waiter that it wakes too. Without the rest some settle times would be a
/// scheduler's slice of 4 ms, more of them with more tasks.
const REST: Nanos = Nanos::from_millis(2);

/// Connections for practice: after one or two of them the time of the next stays the same.
const PRACTICE: usize = 3;

/// Makes the connections, one at a time.
pub(crate) struct Client {
    /// The listener for practice.
    own: TcpListener,
}

impl Client {
    pub fn new() -> Result<Client, HerdError> {
        let own = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(system("listen on 127.0.0.1"))?;
        Ok(Client { own })
    }

    /// Rests, then brings the kernel's connection code back into the caches, which the look at 1000 tasks has
    /// evicted. Otherwise a herd that sleeps on would seem slower the larger it is.
    fn get_ready(&self) -> io::Result<()> {
        nap(REST);
        for _ in 0..PRACTICE {
            let connection = TcpStream::connect(self.own.local_addr()?)?;
            drop((self.own.accept()?, connection));
        }
        Ok(())
    }
}

/// Makes one connection to a sleeping herd and waits until the herd sleeps again.
pub(crate) fn take(
    herd: &Population,
    tasks: &[Pid],
    watch: &mut Watch,
    client: &Client,
) -> Result<Sample, HerdError> {
    let connections = connections(herd);
    let cpu_time = || herd.cpu_time(tasks).map_err(system("read a waiter's CPU time"));
    let used = cpu_time()?;
    watch.begin(herd)?;
    client.get_ready().map_err(system("connect to a listener of one's own"))?;
    let socket = socket()?;
    let own = cpu::thread_time();
    let start = RealClock.now();
    rustix::net::connect(&socket, &herd.address)
        .map_err(|errno| system("connect to the waiters")(errno.into()))?;
    let own = cpu::thread_time().saturating_sub(own);
    wait_for_end(herd, &socket)?;
    let settled = watch.await_all_asleep(herd, start)?;
    let used = cpu_time()?.saturating_sub(used);
    Ok(Sample {
        wakeups: settled.wakeups,
        settle: settled.at.saturating_sub(start),
        settle_late_by: settled.late_by,
        cpu: used + own,
        winner: winner(herd, &connections)?,
    })
}

fn socket() -> Result<OwnedFd, HerdError> {
    rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        Some(ipproto::TCP),
    )
    .map_err(|errno| system("make a socket")(errno.into()))
}

/// Waits until the waiter that accepted the connection has closed it.
fn wait_for_end(herd: &Population, client: &OwnedFd) -> Result<(), HerdError> {
    let failed = |errno: Errno| system("wait for the end of a connection")(errno.into());
    loop {
        match poll(&mut [PollFd::new(client, PollFlags::IN)], Some(&timespec(PATIENCE))) {
            Ok(0) => return Err(stuck(herd, "no waiter accepted the connection")),
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(failed(errno)),
        }
    }
    match rustix::net::recv(client, &mut [0; 1], RecvFlags::empty()) {
        Ok((0, _)) | Err(Errno::CONNRESET) => Ok(()),
        Ok(_) => Err(system("wait for the end of a connection")(io::ErrorKind::InvalidData.into())),
        Err(errno) => Err(failed(errno)),
    }
}

fn connections(herd: &Population) -> Vec<u64> {
    (0..herd.waiters).map(|waiter| herd.board().connections(waiter)).collect()
}

/// The one waiter that has one connection more than before.
fn winner(herd: &Population, before: &[u64]) -> Result<usize, HerdError> {
    let after = connections(herd);
    let mut more = (0..herd.waiters).filter(|waiter| after[*waiter] > before[*waiter]);
    let sum = |counts: &[u64]| counts.iter().sum::<u64>();
    match more.next() {
        Some(winner) if sum(&after) == sum(before) + 1 => Ok(winner),
        _ => Err(stuck(
            herd,
            &format!("one connection was accepted {} times", sum(&after).saturating_sub(sum(before))),
        )),
    }
}
