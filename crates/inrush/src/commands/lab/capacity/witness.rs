//! The server's side of a search, if the server is on this machine: its accept queue and its CPU time, from the kernel.
//!
//! Leaves out servers elsewhere, and in other network namespaces. What this user may not see is absent from the record.

use std::fs;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::thread::available_parallelism;

use base::Nanos;
use guard::survey::Survey;
use record::capacity::{QueueSide, ServerSide};
use sys::network::netlink::{Listener, SocketDiagnostics};

/// The time between two looks at the accept queue.
const LOOK_EVERY: Nanos = Nanos::from_millis(200);
/// The time over which CPU time is measured.
const CPU_OVER: Nanos = Nanos::SECOND;

/// Repeated looks at the listeners and processes of a server.
pub struct Witness {
    diagnostics: SocketDiagnostics,
    address: SocketAddr,
    looked: Nanos,
    first: Queue,
    last: Queue,
    depth_max: u64,
    cpu: CpuUse,
    name: Option<String>,
}

/// The accept queues of all listeners at an address, at one look.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Queue {
    depth: u64,
    limit: u64,
    drops: u64,
}

/// The CPU time of some processes.
struct CpuUse {
    pids: Vec<i32>,
    /// The time of the last measurement, and the CPU time until then.
    before: (Nanos, f64),
    /// The most between two measurements, in CPUs.
    most: Option<f64>,
}

impl Witness {
    /// Begins to look at the server at an address; `None` if it is not on this machine.
    pub fn of(address: SocketAddr, now: Nanos) -> Option<Witness> {
        // The kernel lets a socket have the addresses of this machine alone.
        UdpSocket::bind((address.ip(), 0)).ok()?;
        let mut diagnostics = SocketDiagnostics::open().ok()?;
        let listeners = listeners_at(&mut diagnostics, address).ok()?;
        if listeners.is_empty() {
            return None;
        }
        let first = Queue::of(&listeners);
        let bound: Vec<String> = listeners.iter().map(|listener| listener.address.to_string()).collect();
        let surveyed = Survey::begin().ok()?.end().ok()?;
        let owners = || {
            let ours = surveyed.iter().filter(|listener| bound.contains(&listener.address));
            ours.flat_map(|listener| &listener.owners)
        };
        let mut pids: Vec<i32> = owners().map(|owner| owner.pid).collect();
        pids.sort_unstable();
        pids.dedup();
        let name = owners().next().map(|owner| owner.name.clone());
        let cpu = CpuUse { before: (now, cpu_seconds(&pids)), pids, most: None };
        Some(Witness {
            diagnostics,
            address,
            looked: now,
            first,
            last: first,
            depth_max: first.depth,
            cpu,
            name,
        })
    }

    /// Looks again, unless it has just looked.
    pub fn read_again(&mut self, now: Nanos) {
        if now.saturating_sub(self.looked) < LOOK_EVERY {
            return;
        }
        self.looked = now;
        // A look that fails leaves out its figures.
        if let Ok(queue) = queue_at(&mut self.diagnostics, self.address) {
            self.last = queue;
            self.depth_max = self.depth_max.max(queue.depth);
        }
        self.cpu.measure(now);
    }

    /// The figures of all looks. `requests` is the mean number of requests of a connection; `None` leaves out the queue,
    /// which matters to new connections.
    pub fn end(mut self, requests: Option<f64>) -> ServerSide {
        let last = queue_at(&mut self.diagnostics, self.address).unwrap_or(self.last);
        let queue = requests.map(|requests_per_connection| QueueSide {
            depth_max: self.depth_max,
            limit: self.first.limit,
            drops: last.drops.saturating_sub(self.first.drops),
            requests_per_connection,
        });
        let cpus = available_parallelism().map_or(1, usize::from);
        ServerSide { name: self.name, queue, cpu: self.cpu.most, cpus }
    }
}

impl CpuUse {
    fn measure(&mut self, now: Nanos) {
        let over = now.saturating_sub(self.before.0);
        if over < CPU_OVER || self.pids.is_empty() {
            return;
        }
        let seconds = cpu_seconds(&self.pids);
        let used = (seconds - self.before.1) / over.as_secs_f64();
        self.before = (now, seconds);
        self.most = Some(self.most.map_or(used, |most| most.max(used)));
    }
}

impl Queue {
    fn of(listeners: &[Listener]) -> Queue {
        listeners.iter().fold(Queue::default(), |sum, listener| Queue {
            depth: sum.depth + u64::from(listener.depth),
            limit: sum.limit + u64::from(listener.limit),
            drops: sum.drops + u64::from(listener.drops),
        })
    }
}

/// The queues of the listeners that take connections to an address, together.
fn queue_at(diagnostics: &mut SocketDiagnostics, address: SocketAddr) -> io::Result<Queue> {
    Ok(Queue::of(&listeners_at(diagnostics, address)?))
}

/// The listeners that take connections to an address.
fn listeners_at(diagnostics: &mut SocketDiagnostics, address: SocketAddr) -> io::Result<Vec<Listener>> {
    let takes = |listener: &Listener| {
        let ip = listener.address.ip();
        let is_of_family = ip.is_ipv4() == address.is_ipv4() || listener.dual;
        ip == address.ip() || (ip.is_unspecified() && is_of_family)
    };
    let mut listeners = diagnostics.listeners(address.port())?;
    listeners.retain(takes);
    Ok(listeners)
}

/// The CPU time of processes, in seconds. A process that has ended has none.
fn cpu_seconds(pids: &[i32]) -> f64 {
    let of = |pid: &i32| ticks(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?);
    let ticks: u64 = pids.iter().filter_map(of).sum();
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// The ticks in user and in kernel mode, in /proc/PID/stat (proc(5)). The program's name may have spaces.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{self, AddressFamily, SocketType, sockopt};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::OwnedFd;

    #[test]
    fn our_own_queue_and_process_are_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        if let Err(error) = Survey::begin() {
            return println!("skipped: no sock_diag here: {error}");
        }
        let mut witness = Witness::of(address, Nanos::ZERO).unwrap();
        let _waits = [TcpStream::connect(address).unwrap(), TcpStream::connect(address).unwrap()];
        witness.read_again(Nanos::SECOND);
        let side = witness.end(Some(1.0));
        let queue = side.queue.unwrap();
        assert_eq!((queue.depth_max, queue.drops), (2, 0));
        assert!(queue.limit > 0 && side.cpu.is_some() && side.name.is_some(), "{queue:?}");
    }

    /// A listener that shares its address with others.
    fn member(address: SocketAddr, backlog: i32) -> OwnedFd {
        let socket = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        sockopt::set_socket_reuseport(&socket, true).unwrap();
        net::bind(&socket, &address).unwrap();
        net::listen(&socket, backlog).unwrap();
        socket
    }

    #[test]
    fn queues_of_a_group_are_summed_at_each_look() {
        let Ok(mut diagnostics) = SocketDiagnostics::open() else {
            return println!("skipped: no sock_diag here");
        };
        let first = member("127.0.0.1:0".parse().unwrap(), 20);
        let address: SocketAddr = net::getsockname(&first).unwrap().try_into().unwrap();
        let _second = member(address, 20);
        let _waits: Vec<TcpStream> = (0..8).map(|_| TcpStream::connect(address).unwrap()).collect();
        let queue = queue_at(&mut diagnostics, address).unwrap();
        assert_eq!(queue, Queue { depth: 8, limit: 40, drops: 0 });
    }

    #[test]
    fn servers_elsewhere_have_no_witness() {
        assert!(Witness::of("192.0.2.1:80".parse().unwrap(), Nanos::ZERO).is_none());
    }

    #[test]
    fn ticks_follow_the_name() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14";
        assert_eq!(ticks(stat), Some(11 + 12));
        assert_eq!(ticks("7 (a) S"), None);
    }
}
