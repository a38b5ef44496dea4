//! The files that a process may open, by Landlock: paths with the rights under them. Everything else is refused with
//! EACCES.
//!
//! Descriptors that are open already keep their rights, and the rules hold for root too. With Linux 6.12 the process
//! also cannot signal processes outside of it, or connect to their abstract sockets.

use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus, Scope, path_beneath_rules,
};

use crate::Facility;

/// The newest Landlock version whose rights over files are known here.
const FILES: ABI = ABI::V5;
/// The Landlock version that restricts signals and abstract sockets.
const SCOPES: ABI = ABI::V6;

/// The operations that are allowed under a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Reading files and listing folders.
    Read,
    /// Reading and writing a device.
    Device,
    /// Creating files and writing them.
    Write,
    /// Creating and removing socket files.
    Sockets,
    /// Reading and executing files.
    Execute,
}

impl Kept {
    fn rights(self) -> BitFlags<AccessFs> {
        match self {
            Kept::Read => AccessFs::ReadFile | AccessFs::ReadDir,
            Kept::Device => AccessFs::ReadFile | AccessFs::WriteFile,
            Kept::Write => AccessFs::WriteFile | AccessFs::MakeReg,
            Kept::Sockets => AccessFs::MakeSock | AccessFs::RemoveFile,
            Kept::Execute => AccessFs::Execute | AccessFs::ReadFile | AccessFs::ReadDir,
        }
    }
}

/// The paths that a process keeps.
#[derive(Clone, Debug, Default)]
pub struct Files(Vec<(PathBuf, Kept)>);

impl Files {
    /// Keeps a file, or a folder with everything under it. A path that does not exist gives no right.
    pub fn keep(&mut self, path: impl Into<PathBuf>, kept: Kept) {
        self.0.push((path.into(), kept));
    }

    /// Keeps a file that may be replaced by another of its name: its folder, and the folder of the file that a
    /// symbolic link leads to. In the root folder and in the user's home it keeps only the file, because too much
    /// lies beside it.
    pub fn keep_replaceable(&mut self, file: &Path, kept: Kept) {
        self.keep(file, kept);
        self.keep_folder_of(file, kept);
        if file.is_symlink() {
            self.keep_target_of(file, kept);
        }
    }

    /// Keeps a folder that may be replaced like a file, also by a change of any symbolic link in its path.
    pub fn keep_deployed(&mut self, folder: &Path, kept: Kept) {
        let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        self.keep_replaceable(&folder, kept);
        for link in folder.ancestors().skip(1).filter(|ancestor| ancestor.is_symlink()) {
            self.keep_target_of(link, kept);
        }
    }

    fn keep_target_of(&mut self, link: &Path, kept: Kept) {
        if let Ok(target) = std::fs::canonicalize(link) {
            self.keep(&target, kept);
            self.keep_folder_of(&target, kept);
        }
    }

    fn keep_folder_of(&mut self, file: &Path, kept: Kept) {
        let wide = |folder: &Path| {
            folder == Path::new("/") || std::env::home_dir().is_some_and(|home| folder == home)
        };
        let folder = std::fs::canonicalize(folder_of(file));
        self.0.extend(folder.ok().filter(|folder| !wide(folder)).map(|folder| (folder, kept)));
    }

    /// Keeps the files that are needed to start this program again: its own, and the folders of its libraries.
    pub fn keep_this_program(&mut self) {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let mapped = maps.lines().filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])));
        let program = std::fs::read_link("/proc/self/exe").unwrap_or_default();
        for library in mapped.filter(|path| *path != program) {
            self.keep(folder_of(library), Kept::Execute);
        }
        self.keep("/etc/ld.so.cache", Kept::Read);
        self.keep("/proc/self/exe", Kept::Execute);
        self.0.dedup();
    }

    /// Restricts this thread, and the threads and processes that it starts from now on, to the kept paths. Sets
    /// `no_new_privs`. Returns the extent to which the kernel enforces the rules.
    ///
    /// # Errors
    /// A Landlock call fails, for example beyond 16 layers of rules.
    pub fn restrict(&self) -> io::Result<Facility> {
        let restricted = ruleset(CompatLevel::BestEffort).and_then(|set| set.create()).and_then(|set| {
            let mut set = set.set_compatibility(CompatLevel::BestEffort);
            for (path, kept) in &self.0 {
                // A rule that the kernel refuses gives no right. It refuses one for a pipe, which needs no rule.
                let _ = (&mut set).add_rules(path_beneath_rules([path], kept.rights()));
            }
            set.restrict_self()
        });
        Ok(match restricted.map_err(io::Error::other)?.ruleset {
            RulesetStatus::FullyEnforced => Facility::Here,
            RulesetStatus::PartiallyEnforced => Facility::Partly,
            RulesetStatus::NotEnforced => Facility::Missing,
        })
    }
}

fn folder_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn ruleset(level: CompatLevel) -> Result<Ruleset, RulesetError> {
    let set = Ruleset::default().set_compatibility(level);
    set.handle_access(AccessFs::from_all(FILES))?.scope(Scope::from_all(SCOPES))
}

/// Tests the kernel's support of Landlock.
pub fn probe() -> Facility {
    let required = |abi: ABI| {
        let set = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
        set.handle_access(AccessFs::from_all(abi)).and_then(Ruleset::create).is_ok()
    };
    if ruleset(CompatLevel::HardRequirement).and_then(Ruleset::create).is_ok() {
        Facility::Here
    } else if required(ABI::V1) {
        Facility::Partly
    } else {
        Facility::Missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, OpenOptions, read, read_dir, write};
    use std::io::ErrorKind::PermissionDenied;

    #[test]
    fn a_thread_opens_what_it_keeps_and_nothing_else() {
        if probe() == Facility::Missing {
            return println!("skipped: this kernel has no Landlock");
        }
        let place = tempfile::tempdir().unwrap();
        let [served, log, other] = ["served", "log", "other"].map(|name| place.path().join(name));
        [&served, &log, &other].into_iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
        [&served, &other].into_iter().for_each(|folder| write(folder.join("file"), "text").unwrap());
        let mut files = Files::default();
        files.keep(&served, Kept::Read);
        files.keep_replaceable(&log.join("access.log"), Kept::Write);
        files.keep(place.path().join("absent"), Kept::Read);
        let restricted = std::thread::spawn(move || {
            let before = File::open(other.join("file")).unwrap();
            files.restrict().unwrap();
            assert_eq!(read(served.join("file")).unwrap(), b"text");
            assert_eq!(read_dir(&served).unwrap().count(), 1);
            let refused = |result: io::Result<()>| assert_eq!(result.unwrap_err().kind(), PermissionDenied);
            refused(write(served.join("file"), "other"));
            refused(write(served.join("new"), "other"));
            refused(read(other.join("file")).map(drop));
            refused(read_dir(&other).map(drop));
            refused(read("/etc/passwd").map(drop));
            refused(std::fs::remove_file(served.join("file")));
            OpenOptions::new().append(true).create(true).open(log.join("access.log")).unwrap();
            refused(read(log.join("access.log")).map(drop));
            assert_eq!(before.metadata().unwrap().len(), 4);
        });
        restricted.join().unwrap();
    }

    #[test]
    fn replaced_folder_is_kept_but_never_the_root() {
        let place = tempfile::tempdir().unwrap();
        let releases = place.path().join("releases");
        std::fs::create_dir_all(releases.join("1/public")).unwrap();
        std::os::unix::fs::symlink("releases/1", place.path().join("current")).unwrap();
        let mut files = Files::default();
        files.keep_deployed(&place.path().join("current/public"), Kept::Read);
        assert!(files.0.contains(&(std::fs::canonicalize(&releases).unwrap(), Kept::Read)), "{files:?}");
        files.keep_replaceable(Path::new("/file-of-no-name"), Kept::Write);
        assert!(files.0.iter().all(|(path, _)| path != Path::new("/")), "{files:?}");
    }
}
