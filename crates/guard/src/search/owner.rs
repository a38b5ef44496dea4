//! The processes that hold a listener.
//!
//! The kernel does not say who owns a socket. So this module reads the descriptors of every process under /proc, once
//! for each search. A process of another user is only readable with CAP_SYS_PTRACE or as root.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A descriptor of a process that names a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The process.
    pub pid: i32,
    /// The descriptor's number there.
    pub descriptor: i32,
}

/// A process that holds a listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The process.
    pub pid: i32,
    /// The name of its program, at most 15 bytes.
    pub name: String,
    /// Its systemd unit, if its cgroup is named so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
}

impl Owner {
    /// The owner of this number; `None` if it has ended.
    pub fn of(pid: i32) -> Option<Owner> {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim_end().to_owned();
        Some(Owner { pid, name, unit: cgroup_of(pid).as_deref().and_then(unit_of) })
    }
}

/// The path of a process in the cgroup2 hierarchy, from its root; `None` if it has ended.
pub fn cgroup_of(pid: i32) -> Option<PathBuf> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    groups.lines().find_map(|line| line.strip_prefix("0::/")).map(PathBuf::from)
}

/// The innermost unit in a cgroup's path.
fn unit_of(cgroup: &Path) -> Option<String> {
    let names = cgroup.components().rev().map(|part| part.as_os_str().to_string_lossy());
    names.into_iter().find(|name| name.ends_with(".service")).map(|name| name.into_owned())
}

/// Finds the descriptors of all readable processes that name these sockets, by the sockets' inodes.
pub fn holders(inodes: &[u32]) -> HashMap<u32, Vec<Holding>> {
    let mut found: HashMap<u32, Vec<Holding>> = HashMap::new();
    for pid in processes() {
        for (descriptor, inode) in sockets(pid) {
            if inodes.contains(&inode) {
                found.entry(inode).or_default().push(Holding { pid, descriptor });
            }
        }
    }
    found
}

/// Every visible process.
fn processes() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The sockets of a process: descriptors with the sockets' inodes. Empty if this process may not look.
pub fn sockets(pid: i32) -> impl Iterator<Item = (i32, u32)> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let target = fs::read_link(entry.path()).ok()?;
        let inode = target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()?;
        Some((entry.file_name().to_str()?.parse().ok()?, inode))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::fd::AsRawFd;

    #[test]
    fn holder_of_a_socket_is_its_process() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let inode = rustix::fs::fstat(&listener).unwrap().st_ino as u32;
        let pid = std::process::id() as i32;
        let found = holders(&[inode, u32::MAX]);
        // A program that another test starts has a copy of every descriptor until it executes.
        let own = Holding { pid, descriptor: listener.as_raw_fd() };
        assert!(found[&inode].contains(&own), "{found:?}");
        assert!(!found.contains_key(&u32::MAX));
        assert!(!Owner::of(pid).unwrap().name.is_empty());
        assert_eq!(Owner::of(i32::MAX), None);
    }

    #[test]
    fn unit_is_the_innermost_service() {
        assert_eq!(unit_of(Path::new("system.slice/nginx.service")).as_deref(), Some("nginx.service"));
        let nested = Path::new("user.slice/user@1000.service/app.slice/app.service/inner");
        assert_eq!(unit_of(nested).as_deref(), Some("app.service"));
        assert_eq!(unit_of(Path::new("docker/abc")), None);
    }
}
