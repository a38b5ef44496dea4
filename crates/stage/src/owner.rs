//! The mark that ties folders, control groups and processes to the laboratory that made them.
//!
//! The mark is the process number of the laboratory. It stands in the name of a folder or a control group, and in
//! an environment variable of a process. Owns writing and reading it.

use std::fs;

use rustix::process::{Pid, test_kill_process};

/// The variable that servers under test are started with.
pub const MARK: &str = "INRUSH_LAB";
/// The first part of the names of our folders and control groups.
pub(crate) const NAME: &str = "inrush-lab-";

/// A file system in memory.
pub(crate) const IN_MEMORY: &str = "/dev/shm";
/// A folder for larger temporary files, which is on a disk by convention (hier(7)).
pub(crate) const ON_DISK: &str = "/var/tmp";

/// Returns the prefix of our folders and groups: `inrush-lab-1234-`.
pub fn prefix() -> String {
    format!("{NAME}{}-", std::process::id())
}

/// Makes a temporary folder that cleaning finds, in a file system in memory if there is one. Every user may use
/// it, because some servers give up root.
///
/// # Errors
/// The errors of making the folder.
pub fn temporary_folder() -> std::io::Result<tempfile::TempDir> {
    folder_in(IN_MEMORY)
}

/// Makes such a folder on a disk.
///
/// # Errors
/// The errors of making the folder.
pub fn folder_on_disk() -> std::io::Result<tempfile::TempDir> {
    folder_in(ON_DISK)
}

fn folder_in(place: &str) -> std::io::Result<tempfile::TempDir> {
    use std::os::unix::fs::PermissionsExt;
    let prefix = prefix();
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix);
    let folder = builder.tempdir_in(place).or_else(|_| builder.tempdir())?;
    // The mode is set afterwards, because the process's umask would remove bits of it.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777))?;
    Ok(folder)
}

/// Returns the owner in a name: 1234 in `inrush-lab-1234-7`.
pub(crate) fn owner_in(name: &str) -> Option<i32> {
    name.strip_prefix(NAME)?.split('-').next()?.parse().ok()
}

/// Tells whether a process with that number exists.
pub(crate) fn is_alive(process: i32) -> bool {
    // EPERM means that it exists, too.
    Pid::from_raw(process)
        .is_some_and(|process| !matches!(test_kill_process(process), Err(rustix::io::Errno::SRCH)))
}

/// Returns the owner in an environment, whose variables each end with a zero byte.
pub(crate) fn owner_of(environment: &[u8]) -> Option<i32> {
    let mark = format!("{MARK}=");
    let value = environment.split(|byte| *byte == 0).find_map(|line| line.strip_prefix(mark.as_bytes()))?;
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_found_in_names_and_environments() {
        assert_eq!(owner_in("inrush-lab-1234-x7"), Some(1234));
        assert_eq!(owner_in("inrush-demo-1"), None);
        assert_eq!(owner_of(b"PATH=/bin\0INRUSH_LAB=77\0A=b\0"), Some(77));
        assert_eq!(owner_of(b"PATH=/bin\0"), None);
        assert!(is_alive(std::process::id() as i32) && !is_alive(i32::MAX));
    }
}
