//! A bound on the CPU time of a server: a control group of its own.
//!
//! Why: one client CPU must offer a server ten times the load that it can serve. A server as fast as the client never sees
//! such a load; a server with a tenth of a CPU does.
//!
//! Owns finding the hierarchy (version 1 or 2), making a group with a quota, and removing it. Dropping a
//! [`Cgroup`] removes it, which needs its processes to have ended. Its name carries the owner's mark, so that
//! [`super::leftovers`] finds a group that a killed laboratory left.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::owner;

/// The period of the quota. It is short beside every measured latency. The kernel's smallest quota of 1 ms is a
/// twentieth of it.
const PERIOD_US: u64 = 20_000;
/// The kernel's smallest quota.
const QUOTA_US_MIN: u64 = 1_000;

/// The hierarchy in which control groups get a CPU quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hierarchy {
    /// Version 1: the `cpu` controller's own hierarchy.
    One(PathBuf),
    /// Version 2: the unified hierarchy.
    Two(PathBuf),
}

/// A control group, with the file through which processes enter it.
#[derive(Debug)]
pub struct Cgroup {
    folder: PathBuf,
    processes: File,
}

impl Hierarchy {
    /// Returns this machine's hierarchy: version 1 if it has the `cpu` controller, otherwise version 2.
    ///
    /// # Errors
    /// `Unsupported` if neither is mounted with that controller.
    pub fn of_this_machine() -> io::Result<Hierarchy> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        Hierarchy::among(&mounts, |root| {
            let controllers = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
            controllers.split_whitespace().any(|name| name == "cpu")
        })
        .ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, "there is no cgroup with a cpu controller"))
    }

    /// Finds the hierarchy in lines of `/proc/self/mounts`: device, place, type, options.
    fn among(mounts: &str, has_cpu: impl Fn(&Path) -> bool) -> Option<Hierarchy> {
        let lines = || mounts.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let first = lines().find_map(|words| match words[..] {
            [_, place, "cgroup", options, ..] if options.split(',').any(|option| option == "cpu") => {
                Some(Hierarchy::One(place.into()))
            }
            _ => None,
        });
        first.or_else(|| {
            lines().find_map(|words| match words[..] {
                [_, place, "cgroup2", ..] if has_cpu(Path::new(place)) => Some(Hierarchy::Two(place.into())),
                _ => None,
            })
        })
    }

    /// Returns the folder of its groups.
    pub fn folder(&self) -> &Path {
        match self {
            Hierarchy::One(folder) | Hierarchy::Two(folder) => folder,
        }
    }
}

impl Cgroup {
    /// Makes a group whose processes together may use `cores` CPUs.
    ///
    /// # Errors
    /// `PermissionDenied` without root; `Unsupported` if the kernel has no CPU quota.
    pub fn with_quota(cores: f64) -> io::Result<Cgroup> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let hierarchy = Hierarchy::of_this_machine()?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = hierarchy.folder().join(format!("{}{number}", owner::prefix()));
        fs::create_dir(&folder)?;
        Cgroup::set_up(&hierarchy, &folder, cores).inspect_err(|_| {
            // An error of the removal would say less than the reported error.
            let _ = fs::remove_dir(&folder);
        })
    }

    fn set_up(hierarchy: &Hierarchy, folder: &Path, cores: f64) -> io::Result<Cgroup> {
        let quota = ((cores * PERIOD_US as f64).round() as u64).max(QUOTA_US_MIN);
        match hierarchy {
            Hierarchy::One(_) => {
                fs::write(folder.join("cpu.cfs_period_us"), PERIOD_US.to_string())?;
                fs::write(folder.join("cpu.cfs_quota_us"), quota.to_string())?;
            }
            Hierarchy::Two(root) => {
                fs::write(root.join("cgroup.subtree_control"), "+cpu")?;
                fs::write(folder.join("cpu.max"), format!("{quota} {PERIOD_US}"))?;
            }
        }
        let processes = OpenOptions::new().write(true).open(folder.join("cgroup.procs"))?;
        Ok(Cgroup { folder: folder.to_owned(), processes })
    }
}

/// Removes a control group. Waits for at most a second, because killed processes may stay in the group for a
/// moment.
///
/// # Errors
/// `ResourceBusy` if the group still has a process.
pub(crate) fn remove(group: &Path) -> std::io::Result<()> {
    const TRIES: u32 = 100;
    for _ in 1..TRIES {
        if fs::remove_dir(group).is_ok() {
            return Ok(());
        }
        let moment = rustix::thread::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        let _ = rustix::thread::nanosleep(&moment);
    }
    fs::remove_dir(group)
}

impl AsFd for Cgroup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.processes.as_fd()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A group that still has a process remains, and the laboratory's cleaning finds it later.
        let _ = remove(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Nanos;

    #[test]
    fn the_first_version_is_taken_before_the_second() {
        let one = "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0\n";
        let two = "tmpfs /tmp tmpfs rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n";
        let found = Hierarchy::among(&format!("{two}{one}"), |_| true);
        assert_eq!(found, Some(Hierarchy::One("/sys/fs/cgroup/cpu,cpuacct".into())));
        assert_eq!(Hierarchy::among(two, |_| true), Some(Hierarchy::Two("/sys/fs/cgroup".into())));
        assert_eq!(Hierarchy::among(two, |_| false), None);
    }

    #[test]
    fn a_process_belongs_to_its_group_and_the_group_goes_with_its_owner() {
        let group = match Cgroup::with_quota(0.5) {
            Ok(group) => group,
            Err(error) => return println!("skipped: no control groups here: {error}"),
        };
        let folder = group.folder.clone();
        let program = sys::process::Program::new("cat").arguments(["/proc/self/cgroup"]);
        let child = program.in_cgroup(Some(group.as_fd())).start().unwrap();
        let output = child.output(Nanos::MILLISECOND, || true).unwrap();
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        assert!(String::from_utf8_lossy(&output.stdout).contains(&name));
        drop(group);
        assert!(!folder.exists());
    }
}
