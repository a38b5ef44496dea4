//! The values in files of `/proc`.
//!
//! Owns parsing alone; [`super::kernel`] chooses counters and takes differences.

use std::fs;
use std::io;

use base::Bytes;

/// The living and unreaped children of a process. Some may have ended when the list is used.
///
/// # Errors
/// There is no such process.
pub fn children(pid: u32) -> io::Result<Vec<u32>> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))?.flatten();
    let lines = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let numbers =
        |line: String| line.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>();
    Ok(lines.flat_map(numbers).collect())
}

/// A counter of `/proc/net/snmp` or `/proc/net/netstat`: a group has a line of names and a line of values, each behind
/// the group's name.
pub fn counter(text: &str, group: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(group));
    let (names, values) = (lines.next()?, lines.next()?);
    let mut pairs = names.split_whitespace().zip(values.split_whitespace());
    pairs.find(|(known, _)| *known == name)?.1.parse().ok()
}

/// Returns the TCP sockets of `/proc/net/sockstat` without TIME-WAIT: `inuse` of the line `TCP: inuse 3 orphan 0
/// tw 12 alloc 5 mem 1`. Returns 0 if the file has no such line.
pub fn sockets_in_use(text: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix("TCP: inuse ")).unwrap_or_default();
    line.split_whitespace().next().and_then(|value| value.parse().ok()).unwrap_or(0)
}

/// The value of a line `Name:   123 kB` of `/proc/PID/status`.
pub fn memory(status: &str, name: &str) -> Option<Bytes> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let number: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Bytes(number * 1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_found_by_its_whole_name() {
        let status = "VmHWM:\t    1024 kB\nRssAnonymous: 7 kB\nRssAnon:\t       2 kB\n";
        assert_eq!(memory(status, "RssAnon"), Some(Bytes(2048)));
        assert_eq!(memory(status, "VmHWM"), Some(Bytes(1 << 20)));
        assert_eq!(memory(status, "VmSwap"), None);
    }

    #[test]
    fn counters_are_found_by_name_in_their_group() {
        let text = "Ip: ActiveOpens\nIp: 9\nTcp: MaxConn ActiveOpens\nTcp: -1 5\n";
        assert_eq!(counter(text, "Tcp:", "ActiveOpens"), Some(5));
        assert_eq!(counter(text, "Tcp:", "PassiveOpens"), None);
    }

    #[test]
    fn the_sockets_in_use_are_found() {
        let text = "sockets: used 123\nTCP: inuse 3 orphan 0 tw 12 alloc 5 mem 1\nUDP: inuse 9 mem 0\n";
        assert_eq!(sockets_in_use(text), 3);
        assert_eq!(sockets_in_use("TCP: inuse"), 0);
    }
}
