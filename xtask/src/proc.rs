//! What /proc says of a process and of a network namespace.
//!
//! Owns reading and parsing; `lab::stage::kernel` has what the server's side drops and how busy its CPUs are.

use std::fs::{self, File};
use std::io::{self, Read, Seek};

use anyhow::Context;
use base::Bytes;
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
    kibibytes(&text, name).with_context(|| format!("{path} has no {name}"))
}

/// The value of a line `Name:   123 kB`.
fn kibibytes(status: &str, name: &str) -> Option<Bytes> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let number: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Bytes(number * 1024))
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
    snmp: File,
    netstat: File,
    sockstat: File,
}

impl SocketCounters {
    /// Opens what is looked at.
    ///
    /// # Errors
    /// Those of opening files in /proc.
    pub fn of(side: &Side) -> io::Result<SocketCounters> {
        side.enter(|| {
            Ok(SocketCounters {
                snmp: File::open("/proc/thread-self/net/snmp")?,
                netstat: File::open("/proc/thread-self/net/netstat")?,
                sockstat: File::open("/proc/thread-self/net/sockstat")?,
            })
        })
    }

    /// Connection attempts so far.
    ///
    /// # Errors
    /// Those of reading files in /proc.
    pub fn attempts(&mut self) -> io::Result<Attempts> {
        let opened = counter(&read_again(&mut self.snmp)?, "Tcp:", "ActiveOpens");
        let resent = counter(&read_again(&mut self.netstat)?, "TcpExt:", "TCPSynRetrans");
        Ok(Attempts { opened: opened.unwrap_or(0), resent: resent.unwrap_or(0) })
    }

    /// TCP sockets there are, connecting ones among them, TIME-WAIT left out.
    ///
    /// # Errors
    /// Those of reading files in /proc.
    pub fn sockets(&mut self) -> io::Result<u64> {
        Ok(sockets_in_use(&read_again(&mut self.sockstat)?).unwrap_or(0))
    }
}

fn read_again(file: &mut File) -> io::Result<String> {
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// A counter of a group: a line of names and a line of values, each behind the group's name.
fn counter(text: &str, group: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(group));
    let (names, values) = (lines.next()?, lines.next()?);
    let mut pairs = names.split_whitespace().zip(values.split_whitespace());
    pairs.find(|(known, _)| *known == name)?.1.parse().ok()
}

/// `inuse` of the line `TCP: inuse 3 orphan 0 tw 12 alloc 5 mem 1`.
fn sockets_in_use(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("TCP: inuse "))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::stage::topology::Topology;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let status = "VmHWM:\t    1024 kB\nRssAnonymous: 7 kB\nRssAnon:\t       2 kB\n";
        assert_eq!(kibibytes(status, "RssAnon"), Some(Bytes(2048)));
        assert_eq!(kibibytes(status, "VmHWM"), Some(Bytes(1 << 20)));
        assert_eq!(kibibytes(status, "VmSwap"), None);
    }

    #[test]
    fn counters_are_found_by_name_in_their_group() {
        let text = "Ip: ActiveOpens\nIp: 9\nTcp: MaxConn ActiveOpens\nTcp: -1 5\n";
        assert_eq!(counter(text, "Tcp:", "ActiveOpens"), Some(5));
        assert_eq!(counter(text, "Tcp:", "PassiveOpens"), None);
        assert_eq!(sockets_in_use("sockets: used 1\nTCP: inuse 3 orphan 0\n"), Some(3));
    }

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
