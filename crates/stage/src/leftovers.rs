//! Removal of the leftovers of a laboratory that was killed.
//!
//! The kernel removes most of them. Network namespaces have no names and vanish with their last process. A child
//! is killed when its parent ends. Control groups, generated files and the children of a server with several
//! processes survive a SIGKILL. Each carries its owner's process number ([`super::owner`]); this module removes
//! those whose owner is gone.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};

use super::cgroup;
use super::owner::{IN_MEMORY, ON_DISK, is_alive, owner_in, owner_of};

/// The result of a cleaning, one line for each leftover.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// The removed leftovers.
    pub gone: Vec<String>,
    /// The remaining leftovers, each with the reason.
    pub left: Vec<String>,
}

/// Removes the leftovers of laboratories that have ended. Processes come first, because they hold the rest.
pub fn clean() -> Cleaned {
    let mut cleaned = Cleaned::default();
    for (process, owner) in marked_processes() {
        let done = kill_process(process, Signal::KILL).map_err(std::io::Error::from);
        cleaned.note(format!("process {} of {owner}", process.as_raw_nonzero()), done);
    }
    for group in cgroup::places().iter().flat_map(|place| orphans(place)) {
        cleaned.note(format!("control group {}", group.display()), cgroup::remove(&group));
    }
    let places = BTreeSet::from([std::env::temp_dir(), IN_MEMORY.into(), ON_DISK.into()]);
    for folder in places.iter().flat_map(|place| orphans(place)) {
        cleaned.note(format!("folder {}", folder.display()), fs::remove_dir_all(&folder));
    }
    cleaned
}

impl Cleaned {
    fn note(&mut self, what: String, done: std::io::Result<()>) {
        match done {
            Ok(()) => self.gone.push(what),
            Err(error) => self.left.push(format!("{what}: {error}")),
        }
    }
}

/// Returns our folders in a place whose owners are gone.
fn orphans(place: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    let owned = entries.filter_map(|entry| {
        let owner = owner_in(entry.file_name().to_str()?)?;
        (!is_alive(owner)).then(|| entry.path())
    });
    owned.collect()
}

/// Returns the processes with our mark whose owner is gone, with the owner's number.
fn marked_processes() -> Vec<(Pid, i32)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let marked = entries.filter_map(|entry| {
        let process: i32 = entry.file_name().to_str()?.parse().ok()?;
        let owner = owner_of(&fs::read(entry.path().join("environ")).ok()?)?;
        (!is_alive(owner)).then_some((Pid::from_raw(process)?, owner))
    });
    marked.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    use super::super::owner::{MARK, NAME, prefix};

    /// Above every process number there is.
    const NOBODY: i32 = i32::MAX;

    #[test]
    fn only_folders_of_dead_owners_are_orphans() {
        let place = tempfile::tempdir().unwrap();
        let dead = place.path().join(format!("{NAME}{NOBODY}-a"));
        fs::create_dir(&dead).unwrap();
        fs::create_dir(place.path().join(format!("{}b", prefix()))).unwrap();
        fs::create_dir(place.path().join("other")).unwrap();
        assert_eq!(orphans(place.path()), [dead]);
    }

    #[test]
    fn process_of_a_dead_lab_is_found_by_its_mark() {
        let program = sys::process::Program::new("yes");
        let mut child = program.environment(MARK, NOBODY.to_string()).start().unwrap();
        // The kernel shows no environment of a process that is not yet past its exec. This one writes, so it is.
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let found = marked_processes();
        assert!(
            found
                .iter()
                .any(|(pid, owner)| { pid.as_raw_nonzero().get() as u32 == child.id() && *owner == NOBODY })
        );
    }
}
