//! Bounds on the CPU time, the memory and the disk of a server: control groups of its own.
//!
//! Why CPU time: one client CPU must offer a server ten times the load that it can serve. A server as fast as the client
//! never sees such a load; a server with a tenth of a CPU does. Why memory and disk: the papers' machines could not hold
//! what their servers read or started, and their disks were slow. A group's memory includes the files that its processes
//! were the first to read.
//!
//! Owns finding the hierarchies (version 1 or 2), making groups with their bounds, and removing them. Dropping a
//! [`Cgroup`] ends the processes in it and removes it. Its name carries the owner's mark, so that
//! [`super::leftovers`] finds a group that a killed laboratory left.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use base::Bytes;
use rustix::process::{Pid, Signal, kill_process};

use super::owner;

/// The period of the quota, which is short beside every measured latency. A bound whose quota the kernel would refuse
/// in it has a longer period.
const PERIOD_US: u64 = 20_000;
/// The kernel's smallest quota: a twentieth of the period.
const QUOTA_US_MIN: u64 = 1_000;
/// The controllers of all bounds.
const CONTROLLERS: [&str; 4] = ["cpu", "memory", "blkio", "io"];

/// A bound on the processes of a group together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// CPUs.
    Cores(f64),
    /// Memory. The kernel takes cached files from the group first, and then ends a process of it.
    Memory(Bytes),
    /// Reads a second from the disk that holds a folder.
    DiskReads {
        /// The disk: major and minor number.
        disk: (u32, u32),
        /// The reads, of 128 KiB or so at most.
        per_s: u32,
    },
}

/// The hierarchy in which control groups have a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Hierarchy {
    /// Version 1: the controller's own hierarchy.
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

impl Bound {
    /// The names of the controller in the two versions.
    fn controller(self) -> [&'static str; 2] {
        match self {
            Bound::Cores(_) => ["cpu"; 2],
            Bound::Memory(_) => ["memory"; 2],
            Bound::DiskReads { .. } => ["blkio", "io"],
        }
    }

    /// The files of a group that set the bound, with their contents.
    fn settings(self, hierarchy: &Hierarchy) -> Vec<(&'static str, String)> {
        match (self, hierarchy) {
            (Bound::Cores(cores), Hierarchy::One(_)) => {
                let (quota, period) = quota_and_period_us(cores);
                vec![("cpu.cfs_period_us", period.to_string()), ("cpu.cfs_quota_us", quota.to_string())]
            }
            (Bound::Cores(cores), Hierarchy::Two(_)) => {
                let (quota, period) = quota_and_period_us(cores);
                vec![("cpu.max", format!("{quota} {period}"))]
            }
            (Bound::Memory(most), Hierarchy::One(_)) => vec![("memory.limit_in_bytes", most.0.to_string())],
            (Bound::Memory(most), Hierarchy::Two(_)) => vec![("memory.max", most.0.to_string())],
            (Bound::DiskReads { disk: (major, minor), per_s }, Hierarchy::One(_)) => {
                vec![("blkio.throttle.read_iops_device", format!("{major}:{minor} {per_s}"))]
            }
            (Bound::DiskReads { disk: (major, minor), per_s }, Hierarchy::Two(_)) => {
                vec![("io.max", format!("{major}:{minor} riops={per_s}"))]
            }
        }
    }
}

/// Returns the CPU time of a number of CPUs and the period in which it may be used, in microseconds.
fn quota_and_period_us(cores: f64) -> (u64, u64) {
    let period = (QUOTA_US_MIN as f64 / cores).max(PERIOD_US as f64).round();
    ((cores * period).round() as u64, period as u64)
}

impl Hierarchy {
    /// Returns this machine's hierarchy: version 1 if it has the controller, otherwise version 2.
    fn of_this_machine([first, second]: [&str; 2]) -> io::Result<Hierarchy> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let has_it = |root: &Path| {
            let controllers = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
            controllers.split_whitespace().any(|name| name == second)
        };
        Hierarchy::among(&mounts, first, has_it).ok_or_else(|| {
            let missing = format!("there is no cgroup with a {first} controller");
            io::Error::new(io::ErrorKind::Unsupported, missing)
        })
    }

    /// Finds the hierarchy in lines of `/proc/self/mounts`: device, place, type, options.
    fn among(mounts: &str, controller: &str, has_it: impl Fn(&Path) -> bool) -> Option<Hierarchy> {
        let lines = || mounts.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let first = lines().find_map(|words| match words[..] {
            [_, place, "cgroup", options, ..] if options.split(',').any(|option| option == controller) => {
                Some(Hierarchy::One(place.into()))
            }
            _ => None,
        });
        first.or_else(|| {
            lines().find_map(|words| match words[..] {
                [_, place, "cgroup2", ..] if has_it(Path::new(place)) => Some(Hierarchy::Two(place.into())),
                _ => None,
            })
        })
    }

    fn folder(&self) -> &Path {
        match self {
            Hierarchy::One(folder) | Hierarchy::Two(folder) => folder,
        }
    }
}

/// Returns the folders in which our groups can be.
pub(crate) fn places() -> BTreeSet<PathBuf> {
    let found = CONTROLLERS.iter().filter_map(|name| Hierarchy::of_this_machine([name; 2]).ok());
    found.map(|hierarchy| hierarchy.folder().to_owned()).collect()
}

impl Cgroup {
    /// Makes groups with these bounds, one in each hierarchy that they need.
    ///
    /// # Errors
    /// `PermissionDenied` without root; `Unsupported` if the kernel has no such bound.
    pub fn with(bounds: &[Bound]) -> io::Result<Vec<Cgroup>> {
        let mut groups: Vec<Cgroup> = Vec::new();
        for bound in bounds {
            let hierarchy = Hierarchy::of_this_machine(bound.controller())?;
            let is_there = |group: &&Cgroup| group.folder.parent() == Some(hierarchy.folder());
            let folder = match groups.iter().find(is_there) {
                Some(group) => group.folder.clone(),
                None => {
                    let made = Cgroup::among(&hierarchy)?;
                    let folder = made.folder.clone();
                    groups.push(made);
                    folder
                }
            };
            if let Hierarchy::Two(root) = &hierarchy {
                fs::write(root.join("cgroup.subtree_control"), format!("+{}", bound.controller()[1]))?;
            }
            for (file, value) in bound.settings(&hierarchy) {
                fs::write(folder.join(file), value)?;
            }
        }
        Ok(groups)
    }

    /// Makes a group without bounds.
    fn among(hierarchy: &Hierarchy) -> io::Result<Cgroup> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = hierarchy.folder().join(format!("{}{number}", owner::prefix()));
        fs::create_dir(&folder)?;
        let processes = OpenOptions::new().write(true).open(folder.join("cgroup.procs"));
        let processes = processes.inspect_err(|_| {
            // An error of the removal would say less than the reported error.
            let _ = fs::remove_dir(&folder);
        })?;
        Ok(Cgroup { folder, processes })
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

/// Kills the processes of a control group.
fn end_members(group: &Path) {
    let members = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    for member in members.lines().filter_map(|line| Pid::from_raw(line.trim().parse().ok()?)) {
        // It may have ended meanwhile.
        let _ = kill_process(member, Signal::KILL);
    }
}

impl AsFd for Cgroup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.processes.as_fd()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The workers of a killed server stay in its group, which cannot be removed then.
        end_members(&self.folder);
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
        let found = |controller| Hierarchy::among(&format!("{two}{one}"), controller, |_| true);
        assert_eq!(found("cpu"), Some(Hierarchy::One("/sys/fs/cgroup/cpu,cpuacct".into())));
        assert_eq!(found("memory"), Some(Hierarchy::Two("/sys/fs/cgroup".into())));
        assert_eq!(Hierarchy::among(two, "cpu", |_| false), None);
    }

    #[test]
    fn cores_become_a_quota_in_each_version() {
        let of = |cores, hierarchy| Bound::Cores(cores).settings(&hierarchy);
        let (one, two) = (Hierarchy::One(PathBuf::new()), Hierarchy::Two(PathBuf::new()));
        assert_eq!(of(0.5, two.clone()), [("cpu.max", "10000 20000".to_owned())]);
        let pair = [("cpu.cfs_period_us", "20000".to_owned()), ("cpu.cfs_quota_us", "10000".to_owned())];
        assert_eq!(of(0.5, one), pair);
        assert_eq!(of(2.0, two), [("cpu.max", "40000 20000".to_owned())]);
    }

    #[test]
    fn few_cores_have_the_least_quota_in_a_long_period() {
        let of = |cores| Bound::Cores(cores).settings(&Hierarchy::Two(PathBuf::new())).remove(0).1;
        assert_eq!(of(0.05), "1000 20000");
        assert_eq!(of(0.01), "1000 100000", "an experiment's least number of cores");
        assert_eq!(of(0.03), "1000 33333");
    }

    #[test]
    fn control_groups_hold_a_process_and_end_with_owner() {
        let most = Bytes(64 << 20);
        let groups = match Cgroup::with(&[Bound::Cores(0.5), Bound::Memory(most)]) {
            Ok(groups) => groups,
            Err(error) => return println!("skipped: no control groups here: {error}"),
        };
        let program = sys::process::Program::new("cat").arguments(["/proc/self/cgroup"]);
        let child = program.in_cgroups(groups.iter().map(AsFd::as_fd).collect()).start().unwrap();
        let output = child.output(Nanos::MILLISECOND, || true).unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let folders: Vec<PathBuf> = groups.iter().map(|group| group.folder.clone()).collect();
        assert!(folders.iter().all(|folder| said.contains(folder.file_name().unwrap().to_str().unwrap())));
        let bound = ["memory.limit_in_bytes", "memory.max"]
            .map(|file| folders.iter().find_map(|folder| fs::read_to_string(folder.join(file)).ok()));
        assert_eq!(bound.into_iter().flatten().next().unwrap().trim(), most.0.to_string());
        drop(groups);
        assert!(folders.iter().all(|folder| !folder.exists()));
    }

    #[test]
    fn members_of_a_group_are_killed() {
        use std::os::unix::process::ExitStatusExt;
        let folder = tempfile::tempdir().unwrap();
        let mut member = sys::process::Program::new("sleep").arguments(["1000"]).start().unwrap();
        fs::write(folder.path().join("cgroup.procs"), format!("{}\n", member.id())).unwrap();
        end_members(folder.path());
        let exit = member.wait(Nanos::from_secs(10)).unwrap().unwrap();
        assert_eq!(exit.status.signal(), Some(9));
    }

    #[test]
    fn reads_are_bounded_on_a_whole_disk() {
        use std::os::unix::fs::MetadataExt;
        let folder = owner::folder_on_disk().unwrap();
        let device = fs::metadata(folder.path()).unwrap().dev();
        let disk = (rustix::fs::major(device), rustix::fs::minor(device));
        let groups = match Cgroup::with(&[Bound::DiskReads { disk, per_s: 200 }]) {
            Ok(groups) => groups,
            Err(error) => return println!("skipped: no bound on this disk: {error}"),
        };
        let bound = ["blkio.throttle.read_iops_device", "io.max"]
            .map(|file| fs::read_to_string(groups[0].folder.join(file)).unwrap_or_default())
            .concat();
        assert!(bound.contains(&format!("{}:{} ", disk.0, disk.1)) && bound.contains("200"), "{bound}");
    }
}
