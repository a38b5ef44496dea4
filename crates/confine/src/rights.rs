//! The rights that the kernel says a thread has, read back after it gave some up.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::thread::CapabilitySet;
use serde::{Deserialize, Serialize};

/// More than the kernel writes about a process.
const STATUS_BYTES: usize = 8192;

/// The rights of a thread, as `/proc/thread-self/status` has them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rights {
    /// Effective capabilities, such as `CAP_BPF`.
    pub capabilities: Vec<String>,
    /// True if a seccomp filter decides about system calls.
    pub filters_calls: bool,
    /// True if no program that it executes can get more rights.
    pub no_new_privileges: bool,
}

/// The open file with the rights of the thread that opened it. A process that may open no file can still read it.
#[derive(Debug)]
pub struct OwnRights(OwnedFd);

impl OwnRights {
    /// Opens `/proc/thread-self/status`.
    ///
    /// # Errors
    /// The errors of open(2): without /proc, ENOENT.
    pub fn open() -> io::Result<OwnRights> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(OwnRights(rustix::fs::open("/proc/thread-self/status", flags, Mode::empty())?))
    }

    /// Asks the kernel.
    ///
    /// # Errors
    /// `InvalidData` if the text has no line of a right; the errors of pread(2).
    pub fn read(&self) -> io::Result<Rights> {
        let mut text = vec![0; STATUS_BYTES];
        let length = rustix::io::pread(self.0.as_fd(), &mut *text, 0)?;
        Rights::parse(&String::from_utf8_lossy(&text[..length])).ok_or(io::ErrorKind::InvalidData.into())
    }
}

impl Rights {
    fn parse(status: &str) -> Option<Rights> {
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.map(str::trim)
        };
        let effective = CapabilitySet::from_bits_retain(u64::from_str_radix(field("CapEff")?, 16).ok()?);
        Some(Rights {
            capabilities: effective.iter_names().map(|(name, _)| format!("CAP_{name}")).collect(),
            filters_calls: field("Seccomp")? == "2",
            no_new_privileges: field("NoNewPrivs")? == "1",
        })
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.capabilities.as_slice() {
            [] => write!(f, "no capabilities"),
            few if few.len() <= 8 => f.write_str(&few.join(", ")),
            many => write!(f, "{} capabilities", many.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_read_from_their_lines() {
        let text =
            "Name:\tCapEff\nCapEff:\t0000008000001000\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n";
        let rights = Rights::parse(text).unwrap();
        assert_eq!(rights.capabilities, ["CAP_NET_ADMIN", "CAP_BPF"]);
        assert!(rights.filters_calls && rights.no_new_privileges);
        assert_eq!(rights.to_string(), "CAP_NET_ADMIN, CAP_BPF");
        let none = text.replace("8000001000", "0000000000").replace("Seccomp:\t2", "Seccomp:\t0");
        let none = Rights::parse(&none).unwrap();
        assert!(none.capabilities.is_empty() && !none.filters_calls);
        assert_eq!(Rights::parse("CapEff:\t0\n"), None);
    }

    #[test]
    fn own_rights_are_those_of_this_thread() {
        let rights = OwnRights::open().unwrap().read().unwrap();
        let all = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let none = all.lines().any(|line| line == "CapEff:\t0000000000000000");
        assert_eq!(rights.capabilities.is_empty(), none);
    }
}
