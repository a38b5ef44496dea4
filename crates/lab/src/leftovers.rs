//! What a laboratory that was killed left behind, and taking it away.
//!
//! Most of it takes itself away: network namespaces have no names and vanish with their last process, and
//! a child is killed when its parent ends. What stays after SIGKILL: control groups, generated files, and the
//! children of a server that has several processes. Each bears the number of the process that made it, in its
//! name or (a process) in a variable of its environment; what belongs to a process that is gone is taken away.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::cgroup::Hierarchy;

/// The variable that servers under test are started with.
pub const MARK: &str = "INRUSH_LAB";
const NAME: &str = "inrush-lab-";

/// What the names of our folders and groups begin with: `inrush-lab-1234-`.
pub fn prefix() -> String {
    format!("{NAME}{}-", std::process::id())
}

/// A temporary folder that cleaning finds, in memory where there is a file system in memory. Every user may
/// use it, for some servers give up root.
///
/// # Errors
/// Those of making it.
pub fn temporary_folder() -> std::io::Result<tempfile::TempDir> {
    use std::os::unix::fs::PermissionsExt;
    let prefix = prefix();
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix);
    let folder = builder.tempdir_in("/dev/shm").or_else(|_| builder.tempdir())?;
    // Afterwards, because the process's mask would take some of it away.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777))?;
    Ok(folder)
}

/// What was taken away, and what could not be, a line each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// What is gone.
    pub gone: Vec<String>,
    /// What is still there, and why.
    pub left: Vec<String>,
}

/// Takes away what laboratories that have ended left behind: processes first, for they hold the rest.
pub fn clean() -> Cleaned {
    let mut cleaned = Cleaned::default();
    for (process, owner) in marked_processes() {
        let done = kill_process(process, Signal::KILL).map_err(std::io::Error::from);
        cleaned.note(format!("process {} of {owner}", process.as_raw_nonzero()), done);
    }
    let groups =
        Hierarchy::of_this_machine().map(|hierarchy| orphans(hierarchy.folder())).unwrap_or_default();
    for group in groups {
        cleaned.note(format!("control group {}", group.display()), remove_group(&group));
    }
    let mut places = vec![std::env::temp_dir(), PathBuf::from("/dev/shm")];
    places.dedup();
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

/// Removes a control group. One whose processes have just been killed may hold them for a moment: this waits for
/// a second at most.
///
/// # Errors
/// `ResourceBusy` where somebody is in it still.
pub fn remove_group(group: &Path) -> std::io::Result<()> {
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

/// Folders of ours in a place whose owners are gone.
fn orphans(place: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    let owned = entries.filter_map(|entry| {
        let owner = owner_in(entry.file_name().to_str()?)?;
        (!is_alive(owner)).then(|| entry.path())
    });
    owned.collect()
}

/// 1234 of `inrush-lab-1234-7`.
fn owner_in(name: &str) -> Option<i32> {
    name.strip_prefix(NAME)?.split('-').next()?.parse().ok()
}

fn is_alive(process: i32) -> bool {
    // EPERM, too, says that it exists.
    Pid::from_raw(process)
        .is_some_and(|process| !matches!(test_kill_process(process), Err(rustix::io::Errno::SRCH)))
}

/// Processes with our mark whose owner is gone, and the owner's number.
fn marked_processes() -> Vec<(Pid, i32)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let marked = entries.filter_map(|entry| {
        let process: i32 = entry.file_name().to_str()?.parse().ok()?;
        let environment = fs::read(entry.path().join("environ")).ok()?;
        let owner = owner_of(&environment)?;
        (!is_alive(owner)).then_some((Pid::from_raw(process)?, owner))
    });
    marked.collect()
}

/// The owner that an environment, variables with a zero behind each, names.
fn owner_of(environment: &[u8]) -> Option<i32> {
    let mark = format!("{MARK}=");
    let value = environment.split(|byte| *byte == 0).find_map(|line| line.strip_prefix(mark.as_bytes()))?;
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Above every process number there is.
    const NOBODY: i32 = i32::MAX;

    #[test]
    fn owners_are_found_in_names_and_environments() {
        assert_eq!(owner_in("inrush-lab-1234-x7"), Some(1234));
        assert_eq!(owner_in("inrush-demo-1"), None);
        assert_eq!(owner_of(b"PATH=/bin\0INRUSH_LAB=77\0A=b\0"), Some(77));
        assert_eq!(owner_of(b"PATH=/bin\0"), None);
        assert!(is_alive(std::process::id() as i32) && !is_alive(NOBODY));
    }

    #[test]
    fn the_folders_of_the_dead_are_orphans_and_those_of_the_living_are_not() {
        let place = tempfile::tempdir().unwrap();
        let dead = place.path().join(format!("{NAME}{NOBODY}-a"));
        fs::create_dir(&dead).unwrap();
        fs::create_dir(place.path().join(format!("{}b", prefix()))).unwrap();
        fs::create_dir(place.path().join("other")).unwrap();
        assert_eq!(orphans(place.path()), [dead]);
    }

    #[test]
    fn a_process_of_a_dead_laboratory_is_found_by_its_mark() {
        let program = sys::process::Program::new("sleep").arguments(["1000"]);
        let child = program.environment(MARK, NOBODY.to_string()).start().unwrap();
        let found = marked_processes();
        assert!(
            found
                .iter()
                .any(|(pid, owner)| { pid.as_raw_nonzero().get() as u32 == child.id() && *owner == NOBODY })
        );
    }
}
