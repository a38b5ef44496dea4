//! The memory of processes, and the connection attempts of a network namespace, for the benchmarks.
//!
//! `lab::stage::proc` reads and parses the files.

use std::fs;
use std::io;

use anyhow::Context;
use base::Bytes;
use lab::stage::proc::{self, ProcFile};
use lab::stage::topology::Side;

/// The anonymous memory of a process that is in RAM (RssAnon): heap and stacks, not mapped files.
///
/// # Errors
/// There is no such process.
pub fn anonymous_memory(pid: u32) -> anyhow::Result<Bytes> {
    status_field(pid, "RssAnon")
}

/// The same of a process and of all that it has started, directly or not.
///
/// # Errors
/// There is no such process.
pub fn anonymous_memory_of_all(pid: u32) -> anyhow::Result<Bytes> {
    let mut sum = anonymous_memory(pid)?;
    let path = format!("/proc/{pid}/task");
    let threads = fs::read_dir(&path).with_context(|| format!("cannot read {path}"))?;
    // Threads and children that end meanwhile have no memory.
    for thread in threads.flatten() {
        let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
            sum.0 += anonymous_memory_of_all(child).map_or(0, |memory| memory.0);
        }
    }
    Ok(sum)
}

/// The most memory a process has had in RAM so far (VmHWM). Unlike `ru_maxrss` it leaves out what the
/// process was before it executed its program: a copy of us.
///
/// # Errors
/// There is no such process, or it has ended.
pub fn peak_memory(pid: u32) -> anyhow::Result<Bytes> {
    status_field(pid, "VmHWM")
}

fn status_field(pid: u32, name: &str) -> anyhow::Result<Bytes> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    proc::memory(&text, name).with_context(|| format!("{path} has no {name}"))
}

/// Connection attempts counted by the kernel for a network namespace, since it exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempts {
    /// Calls of connect(2) that sent a SYN (Tcp ActiveOpens): each is counted once.
    pub opened: u64,
    /// SYNs that were sent again (TcpExt TCPSynRetrans).
    pub resent: u64,
}

/// Looks at one side's sockets. The files stay open: they speak for the namespace they were opened in.
pub struct SocketCounters {
    snmp: ProcFile,
    netstat: ProcFile,
    sockstat: ProcFile,
}

impl SocketCounters {
    /// Opens what is looked at.
    ///
    /// # Errors
    /// Those of opening files in /proc.
    pub fn of(side: &Side) -> io::Result<SocketCounters> {
        side.enter(|| {
            Ok(SocketCounters {
                snmp: ProcFile::open("/proc/thread-self/net/snmp")?,
                netstat: ProcFile::open("/proc/thread-self/net/netstat")?,
                sockstat: ProcFile::open("/proc/thread-self/net/sockstat")?,
            })
        })
    }

    /// Connection attempts so far.
    ///
    /// # Errors
    /// Those of reading files in /proc.
    pub fn attempts(&mut self) -> io::Result<Attempts> {
        let opened = proc::counter(&self.snmp.read()?, "Tcp:", "ActiveOpens");
        let resent = proc::counter(&self.netstat.read()?, "TcpExt:", "TCPSynRetrans");
        Ok(Attempts { opened: opened.unwrap_or(0), resent: resent.unwrap_or(0) })
    }

    /// TCP sockets there are, connecting ones among them, TIME-WAIT left out.
    ///
    /// # Errors
    /// Those of reading files in /proc.
    pub fn sockets(&mut self) -> io::Result<u64> {
        Ok(proc::sockets_in_use(&self.sockstat.read()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::stage::topology::Topology;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_connection_attempt_is_counted() {
        let topology = Topology::best().unwrap();
        let mut counters = SocketCounters::of(&topology.client).unwrap();
        let before = counters.attempts().unwrap();
        let address = topology.server.free_port().unwrap();
        let _listener = topology.server.enter(|| TcpListener::bind(address)).unwrap();
        let _client = topology.client.enter(|| TcpStream::connect(address)).unwrap();
        assert!(counters.attempts().unwrap().opened > before.opened);
        assert!(counters.sockets().unwrap() >= 1);
    }

    #[test]
    fn we_have_memory() {
        let own = std::process::id();
        assert!(peak_memory(own).unwrap() > Bytes(0));
        assert!(anonymous_memory(own).unwrap() <= peak_memory(own).unwrap());
    }
}
