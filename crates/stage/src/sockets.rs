//! The sockets and the connection attempts of one side.

use std::io;

use sys::proc_file::ProcFile;

use super::proc;
use super::topology::Side;

/// Connection attempts counted by the kernel for a network namespace, since it exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempts {
    /// Calls of connect(2) that sent a SYN (Tcp ActiveOpens): each is counted once.
    pub opened: u64,
    /// SYNs that were sent again (TcpExt TCPSynRetrans).
    pub resent: u64,
}

/// Counts one side's sockets. The files stay open, because they show the namespace they were opened in.
pub struct SocketCounters {
    snmp: ProcFile,
    netstat: ProcFile,
    sockstat: ProcFile,
}

impl SocketCounters {
    /// Opens the files.
    ///
    /// # Errors
    /// The errors of opening files in /proc.
    pub fn of(side: &Side) -> io::Result<SocketCounters> {
        let open = |name| ProcFile::open(&format!("/proc/thread-self/net/{name}"));
        side.enter(|| {
            let (snmp, netstat, sockstat) = (open("snmp")?, open("netstat")?, open("sockstat")?);
            Ok(SocketCounters { snmp, netstat, sockstat })
        })
    }

    /// Returns the connection attempts so far.
    ///
    /// # Errors
    /// The errors of reading files in /proc.
    pub fn attempts(&mut self) -> io::Result<Attempts> {
        let opened = proc::counter(&self.snmp.read()?, "Tcp:", "ActiveOpens");
        let resent = proc::counter(&self.netstat.read()?, "TcpExt:", "TCPSynRetrans");
        Ok(Attempts { opened: opened.unwrap_or(0), resent: resent.unwrap_or(0) })
    }

    /// Returns the number of TCP sockets. Connecting ones count, those in TIME-WAIT do not.
    ///
    /// # Errors
    /// The errors of reading files in /proc.
    pub fn sockets(&mut self) -> io::Result<u64> {
        Ok(proc::sockets_in_use(&self.sockstat.read()?))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::topology::Topology;

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
}
