//! The kernel's counters on a server's side: dropped connections, CPU time, the length of the accept queue.
//!
//! Owns the choice of counters and their differences; [`super::proc`] reads and parses the files. Judges nothing.
//!
//! CPU time is that of whole CPUs. It includes packet work, which the kernel charges to no process. If a side has
//! CPUs of its own, it is the full cost of serving.
//!
//! CPU time is the time in which a CPU was not idle. The kernel measures idle time whenever a CPU falls asleep and
//! wakes, and reports it in hundredths of a second. A periodic tick samples the times of user and system instead.
//! The tick misses a task that sleeps in step with it: of a loop that used 5 % of a CPU it counted 1 %.

use std::collections::BTreeMap;
use std::io;

use base::{Clock, Nanos};
use bpf::counts::{FinalAcks, Syns};
use record::{KernelDrops, QueueDepth};
use sys::cpu::IdleTime;
use sys::network::netlink::{Route, SocketDiagnostics};
use sys::proc_file::ProcFile;

use super::proc::{counter, sockets_in_use};

use crate::topology::Topology;

/// All counters at one moment.
#[derive(Clone, Debug)]
pub struct Reading {
    at: Nanos,
    /// Since the namespace exists; `over_s` is unused.
    drops: KernelDrops,
    server_idle: IdleTime,
    client_idle: IdleTime,
    idle: BTreeMap<usize, IdleTime>,
}

/// The difference of two readings.
#[derive(Clone, Debug, PartialEq)]
pub struct Elapsed {
    /// Drops at the server's listeners.
    pub drops: KernelDrops,
    /// CPU time of the server's side, in cores.
    pub server_cpu: f64,
    /// The share of the time in which a hypervisor gave the server's CPUs to others, from 0 to 1. It is not in
    /// `server_cpu`.
    pub steal_share: f64,
    /// CPU time of the client's side, in cores.
    pub client_cpu: f64,
    /// The busy share of each CPU of either side, from 0 to 1, by its number.
    pub cpu_busy: BTreeMap<usize, f64>,
}

/// Looks at the server's side of a topology.
///
/// The files stay open. A file of `/proc/net` shows the namespace of the thread that opened it.
pub struct Observer {
    snmp: ProcFile,
    netstat: ProcFile,
    softnet: ProcFile,
    sockstat: ProcFile,
    stat: ProcFile,
    diagnostics: SocketDiagnostics,
    final_acks: Option<FinalAcks>,
    syns: Option<Syns>,
    sockets_at_start: u64,
    server_cpus: Vec<usize>,
    client_cpus: Vec<usize>,
}

impl Observer {
    /// Opens the files.
    ///
    /// # Errors
    /// Errors of opening files in /proc, and of a kernel without sock_diag.
    pub fn of(topology: &Topology) -> io::Result<Observer> {
        topology.server.enter(|| {
            let mut sockstat = ProcFile::open("/proc/thread-self/net/sockstat")?;
            Ok(Observer {
                snmp: ProcFile::open("/proc/thread-self/net/snmp")?,
                netstat: ProcFile::open("/proc/thread-self/net/netstat")?,
                softnet: ProcFile::open("/proc/thread-self/net/softnet_stat")?,
                sockets_at_start: sockets_in_use(&sockstat.read()?),
                sockstat,
                stat: ProcFile::open("/proc/stat")?,
                diagnostics: SocketDiagnostics::open()?,
                final_acks: None,
                syns: None,
                server_cpus: topology.server.cpus.clone(),
                client_cpus: topology.client.cpus.clone(),
            })
        })
    }

    /// Counts drops at the final ACK from now on. Each packet that the kernel drops then costs a little more.
    ///
    /// # Errors
    /// The reason why the program of [`FinalAcks`] does not run here.
    pub fn watch_final_acks(&mut self) -> Result<(), bpf::BpfError> {
        self.final_acks = Some(FinalAcks::watch()?);
        Ok(())
    }

    /// Counts the SYNs that arrive at the present devices of the server's side from now on.
    ///
    /// # Errors
    /// Errors of asking for the devices; inside, the reason why the program of [`Syns`] does not run here.
    pub fn watch_syns(&mut self, topology: &Topology) -> io::Result<Result<(), bpf::BpfError>> {
        let watched = topology.server.enter(|| Ok(Syns::watch(&Route::open()?.links()?)))?;
        Ok(watched.map(|syns| self.syns = Some(syns)))
    }

    /// Reads all counters.
    ///
    /// # Errors
    /// The errors of reading files in /proc.
    pub fn read(&mut self, clock: &dyn Clock) -> io::Result<Reading> {
        let stat = self.stat.read()?;
        let cpus = self.server_cpus.iter().chain(&self.client_cpus);
        let packet_queue_full = parse_softnet(&self.softnet.read()?, &self.server_cpus);
        Ok(Reading {
            at: clock.now(),
            idle: cpus.map(|cpu| (*cpu, IdleTime::read(&stat, &[*cpu]))).collect(),
            drops: KernelDrops {
                packet_queue_full,
                final_acks_dropped: self.final_acks.as_ref().map(FinalAcks::dropped),
                syns_arrived: self.syns.as_ref().map(Syns::arrived),
                ..parse_tcp(&(self.snmp.read()? + &self.netstat.read()?))
            },
            server_idle: IdleTime::read(&stat, &self.server_cpus),
            client_idle: IdleTime::read(&stat, &self.client_cpus),
        })
    }

    /// Returns the depth and the limit of the accept queue at a port.
    ///
    /// # Errors
    /// Errors of the query. A port without a listener has an empty queue without room.
    pub fn accept_queue(&mut self, port: u16) -> io::Result<sys::network::netlink::AcceptQueue> {
        Ok(self.diagnostics.accept_queue(port)?.unwrap_or_default())
    }

    /// Returns the TCP sockets of the server's side in excess of those at the start of the observation. Counts
    /// listeners and connections, accepted or not, without TIME-WAIT.
    ///
    /// # Errors
    /// The errors of reading files in /proc.
    pub fn sockets_in_use(&mut self) -> io::Result<u64> {
        let now = sockets_in_use(&self.sockstat.read()?);
        Ok(now.saturating_sub(self.sockets_at_start))
    }
}

impl Reading {
    /// The differences from an earlier reading.
    pub fn since(&self, earlier: &Reading) -> Elapsed {
        let over_s = self.at.saturating_sub(earlier.at).as_secs_f64();
        Elapsed {
            drops: self.drops.since(&earlier.drops, over_s),
            server_cpu: self.server_idle.cores_busy_since(earlier.server_idle, over_s),
            steal_share: self.server_idle.share_stolen_since(earlier.server_idle, over_s),
            client_cpu: self.client_idle.cores_busy_since(earlier.client_idle, over_s),
            cpu_busy: self
                .idle
                .iter()
                .map(|(cpu, idle)| {
                    let before = earlier.idle.get(cpu).copied().unwrap_or_default();
                    (*cpu, idle.cores_busy_since(before, over_s))
                })
                .collect(),
        }
    }
}

/// Depths of an accept queue, gathered while a trial runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueueSamples {
    count: u64,
    sum: u64,
    max: u32,
    limit: u32,
}

impl QueueSamples {
    /// Adds one sample of the queue.
    pub fn add(&mut self, queue: sys::network::netlink::AcceptQueue) {
        self.count += 1;
        self.sum += u64::from(queue.depth);
        self.max = self.max.max(queue.depth);
        self.limit = queue.limit;
    }

    /// Returns the figures for a trial's record; `None` without samples.
    pub fn summary(self) -> Option<QueueDepth> {
        (self.count > 0).then(|| QueueDepth {
            depth_max: self.max.into(),
            depth_mean: self.sum as f64 / self.count as f64,
            limit: self.limit.into(),
        })
    }
}

/// The counters of `Tcp` and `TcpExt`. A counter that this kernel does not have reads 0.
fn parse_tcp(text: &str) -> KernelDrops {
    let counter_of = |group: &str, name: &str| counter(text, group, name).unwrap_or(0);
    let counter = |name: &str| counter_of("TcpExt:", name);
    KernelDrops {
        listen_drops: counter("ListenDrops"),
        listen_overflows: counter("ListenOverflows"),
        req_q_full_drops: counter("TCPReqQFullDrop"),
        req_q_full_cookies: counter("TCPReqQFullDoCookies"),
        syn_cookies_sent: counter("SyncookiesSent"),
        retransmitted: counter_of("Tcp:", "RetransSegs"),
        ..KernelDrops::default()
    }
}

/// The packets that found the queues of some CPUs full. Each line of hexadecimal words is a CPU's: the second word is
/// the count, the thirteenth the CPU (Linux 5.10).
fn parse_softnet(text: &str, cpus: &[usize]) -> u64 {
    let number = |word: &str| u64::from_str_radix(word, 16).ok();
    let dropped = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let count = words.next().and_then(number)?;
        let cpu = words.nth(10).and_then(number)?;
        cpus.iter().any(|own| *own as u64 == cpu).then_some(count)
    };
    text.lines().filter_map(dropped).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_at_a_full_queue_are_counted_by_cpu() {
        let line =
            |dropped: &str, cpu: &str| format!("00000fff {dropped} 00000000 {}{cpu} 0 0\n", "0 ".repeat(9));
        let text =
            [line("0000001f", "00000000"), line("00000002", "00000001"), line("1", "00000003")].concat();
        assert_eq!(parse_softnet(&text, &[0]), 31);
        assert_eq!(parse_softnet(&text, &[1, 3]), 3);
        assert_eq!(
            parse_softnet("00000fff 00000001\n", &[0]),
            0,
            "an older kernel does not name the processor"
        );
        let own = std::fs::read_to_string("/proc/thread-self/net/softnet_stat").unwrap();
        assert!(own.lines().all(|line| line.split_whitespace().count() >= 13), "{own}");
    }
    use base::RealClock;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use sys::readiness::poll::{self, PollFd};

    const COUNTERS: &str = "\
Tcp: OutSegs RetransSegs InErrs
Tcp: 9 10 11
TcpExt: SyncookiesSent SyncookiesRecv ListenOverflows ListenDrops TCPReqQFullDoCookies TCPReqQFullDrop
TcpExt: 1 2 30 40 5 6
IpExt: InNoRoutes InTruncatedPkts
IpExt: 7 8
";

    #[test]
    fn the_counters_are_found_by_name() {
        let drops = parse_tcp(COUNTERS);
        assert_eq!((drops.listen_drops, drops.listen_overflows), (40, 30));
        assert_eq!((drops.req_q_full_drops, drops.req_q_full_cookies), (6, 5));
        assert_eq!((drops.syn_cookies_sent, drops.retransmitted), (1, 10));
    }

    #[test]
    fn a_counter_this_kernel_lacks_is_zero() {
        for text in ["", "TcpExt: ListenDrops", "TcpExt: ListenDrops\nTcpExt:", "TcpExt: A\nTcpExt: x\n"] {
            assert_eq!(parse_tcp(text), KernelDrops::default(), "{text:?}");
        }
    }

    #[test]
    fn an_observer_sees_the_server_side_alone() {
        let topology = Topology::best().unwrap();
        let mut observer = Observer::of(&topology).unwrap();
        let clock = RealClock::new();
        let before = observer.read(&clock).unwrap();
        let address = topology.server.free_port().unwrap();
        let listener = topology.server.enter(|| TcpListener::bind(address)).unwrap();
        let client = topology.client.enter(|| TcpStream::connect(address)).unwrap();
        // The client is connected before its last packet has come in here.
        poll::wait(&mut [PollFd::new(listener.as_raw_fd(), poll::bits::IN)], None).unwrap();
        let mut samples = QueueSamples::default();
        samples.add(observer.accept_queue(address.port()).unwrap());
        assert_eq!(samples.summary().unwrap().depth_max, 1);
        assert!(observer.sockets_in_use().unwrap() >= 2);
        // A child that another test is just starting may still hold the listener.
        rustix::net::shutdown(&listener, rustix::net::Shutdown::Both).unwrap();
        drop(client);
        let elapsed = observer.read(&clock).unwrap().since(&before);
        assert!(elapsed.drops.over_s > 0.0);
        assert_eq!(observer.accept_queue(address.port()).unwrap().limit, 0);
    }
}
