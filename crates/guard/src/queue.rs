//! The accept queue of a foreign listener, read without a copy of its socket.
//!
//! sock_diag tells depth, limit and drops of every listener to everybody. So the guard holds no descriptor that would keep
//! the port open after the server's end.

use std::collections::HashMap;

use overload::AcceptQueueReading;
use sys::network::netlink::Listener;
use sys::proc_file::ProcFile;

/// The counters of the calling thread's network namespace.
pub const SNMP: &str = "/proc/thread-self/net/snmp";

/// The totals of a listener's accept queue, or of the queues of a SO_REUSEPORT group.
#[derive(Debug)]
pub struct AcceptQueues {
    /// The last drops of each listener, by its cookie.
    last: HashMap<u64, u32>,
    dropped: u64,
    /// SYNs that a program has refused.
    refused: u64,
    /// Refused SYNs that the drops do not show yet.
    unseen: u64,
    /// The counters of the network namespace, /proc/net/snmp.
    snmp: ProcFile,
    /// `PassiveOpens` at the first reading.
    opens_before: Option<u64>,
}

impl AcceptQueues {
    /// The queues of listeners in the network namespace of this file, [`SNMP`].
    pub fn new(snmp: ProcFile) -> AcceptQueues {
        AcceptQueues { last: HashMap::new(), dropped: 0, refused: 0, unseen: 0, snmp, opens_before: None }
    }

    /// Adds up the queues. `accepted` is only read `with_accepted`: it counts the connections to every listener of the
    /// namespace. `refused` are the SYNs that a program has refused at the listeners so far. The kernel counts them among the
    /// drops, and a full queue has not dropped them.
    pub fn read(&mut self, listeners: &[Listener], with_accepted: bool, refused: u64) -> AcceptQueueReading {
        let mut reading = AcceptQueueReading::default();
        let mut grown = 0;
        for listener in listeners {
            reading.depth += listener.depth;
            reading.limit = reading.limit.saturating_add(listener.limit);
            let before = self.last.insert(listener.cookie, listener.drops).unwrap_or(listener.drops);
            grown += u64::from(listener.drops.wrapping_sub(before));
        }
        // The refusals are read a moment later than the drops, so that some of the new ones show in the next reading.
        let new = refused.saturating_sub(self.refused);
        let owed = self.unseen + new;
        self.refused = refused;
        self.dropped += grown.saturating_sub(owed);
        self.unseen = owed.saturating_sub(grown).min(new);
        self.last.retain(|cookie, _| listeners.iter().any(|listener| listener.cookie == *cookie));
        reading.dropped = self.dropped;
        if with_accepted {
            reading.accepted = self.opens().saturating_sub(reading.depth.into());
        }
        reading
    }

    /// Connections that the namespace's listeners have got since the first reading.
    fn opens(&mut self) -> u64 {
        let text = self.snmp.read().unwrap_or_default();
        let opens = passive_opens(&text).unwrap_or_default();
        opens.saturating_sub(*self.opens_before.get_or_insert(opens))
    }
}

/// Finds `PassiveOpens` in /proc/net/snmp: two lines for each protocol, names and values.
fn passive_opens(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with("Tcp:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names.split(' ').position(|name| name == "PassiveOpens")?;
    values.split(' ').nth(at)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(cookie: u64, depth: u32, drops: u32) -> Listener {
        let plain = crate::address::tests::listener("127.0.0.1:80", false);
        Listener { cookie, depth, limit: 100, drops, ..plain }
    }

    #[test]
    fn drops_grow_from_the_first_reading() {
        let mut queues = AcceptQueues::new(ProcFile::open(SNMP).unwrap());
        let dropped =
            |queues: &mut AcceptQueues, listeners: &[Listener]| queues.read(listeners, false, 0).dropped;
        assert_eq!(dropped(&mut queues, &[listener(1, 0, 7)]), 0);
        assert_eq!(dropped(&mut queues, &[listener(1, 0, 9), listener(2, 0, 5)]), 2);
        assert_eq!(dropped(&mut queues, &[listener(2, 0, 6)]), 3, "those of a closed listener still count");
        assert_eq!(
            dropped(&mut queues, &[listener(2, 0, 2)]),
            3 + u64::from(2_u32.wrapping_sub(6)),
            "it wraps"
        );
    }

    #[test]
    fn refused_syns_are_no_drops_of_a_full_queue() {
        let mut queues = AcceptQueues::new(ProcFile::open(SNMP).unwrap());
        let mut dropped =
            |drops: u32, refused: u64| queues.read(&[listener(1, 0, drops)], false, refused).dropped;
        assert_eq!(dropped(7, 0), 0);
        assert_eq!(dropped(10, 3), 0);
        assert_eq!(dropped(10, 5), 0, "two that the drops do not show yet");
        assert_eq!(dropped(13, 5), 1, "and one that the queue has dropped");
        assert_eq!(dropped(13, 9), 1);
        assert_eq!(dropped(13, 9), 1, "the listener that refused them has closed");
        assert_eq!(dropped(16, 9), 4);
    }

    #[test]
    fn queues_of_a_group_are_added_up() {
        let mut queues = AcceptQueues::new(ProcFile::open(SNMP).unwrap());
        let reading = queues.read(&[listener(1, 3, 0), listener(2, 4, 0)], true, 0);
        assert_eq!((reading.depth, reading.limit, reading.accepted), (7, 200, 0));
    }

    #[test]
    fn passive_opens_are_found_by_name() {
        let text = "Ip: A\nIp: 1\nTcp: RtoMin PassiveOpens\nTcp: 200 42\n";
        assert_eq!(passive_opens(text), Some(42));
        assert_eq!(passive_opens("Tcp: RtoMin\nTcp: 200\n"), None);
        assert_eq!(passive_opens(""), None);
    }
}
