//! The cgroup2 hierarchy: folders by number, by the name of a unit or a container, and the processes in them.
//!
//! A socket belongs for ever to the cgroup in which it was made. The kernel names that cgroup by the inode of its folder.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Maximum depth of the folders that are searched.
const DEPTH: usize = 16;

/// The mounted cgroup2 hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    root: PathBuf,
}

/// The folder of a cgroup.
#[derive(Debug)]
pub struct Cgroup {
    /// Its path.
    pub path: PathBuf,
    /// The open folder, to attach programs to.
    pub folder: OwnedFd,
}

impl Hierarchy {
    /// Finds the mount of the hierarchy; `None` if there is none. On a machine with cgroup1 it is often mounted beside, at
    /// /sys/fs/cgroup/unified.
    ///
    /// # Errors
    /// The errors of reading /proc/mounts.
    pub fn find() -> io::Result<Option<Hierarchy>> {
        let mounts = fs::read_to_string("/proc/mounts")?;
        Ok(mounts.lines().find_map(mounted_at).map(|root| Hierarchy { root }))
    }

    /// Finds the cgroup with this number. `hints` are paths from the root to look at first.
    pub fn by_number(&self, number: u64, hints: impl IntoIterator<Item = PathBuf>) -> Option<Cgroup> {
        let likely =
            hints.into_iter().map(|hint| self.root.join(hint)).find(|path| number_of(path) == Some(number));
        let path = likely.or_else(|| search(&self.root, DEPTH, &|path| number_of(path) == Some(number)))?;
        let folder = File::open(&path).ok()?.into();
        Some(Cgroup { path, folder })
    }

    /// Finds the folder of a systemd unit, such as `nginx.service`.
    pub fn of_unit(&self, unit: &str) -> Option<PathBuf> {
        search(&self.root, DEPTH, &|path| path.file_name().is_some_and(|name| name == unit))
    }

    /// Finds the folder of a container, whose name has at least the first twelve digits of its identifier: Docker,
    /// containerd, CRI-O and Podman name it `ID` or `RUNTIME-ID.scope`. Podman and CRI-O name that of the container's monitor
    /// `RUNTIME-conmon-ID.scope`.
    pub fn of_container(&self, id: &str) -> Option<PathBuf> {
        search(&self.root, DEPTH, &|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let own = name.strip_suffix(".scope").unwrap_or(&name);
            let own_id = own.rsplit('-').next().unwrap_or_default();
            let is_id = own_id.len() >= 12 && own_id.bytes().all(|byte| byte.is_ascii_hexdigit());
            let is_it = is_id && !id.is_empty() && own_id.starts_with(id) && !own.contains("-conmon-");
            // containerd also lets users name a container.
            is_it || own == id
        })
    }

    /// Returns the folder at a path as users write it: absolute, or from the root of the hierarchy.
    pub fn at(&self, path: &Path) -> PathBuf {
        if path.starts_with(&self.root) {
            return path.to_owned();
        }
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }
}

/// Lists the processes in a folder and below.
///
/// # Errors
/// The errors of reading the folder's cgroup.procs.
pub fn processes(folder: &Path) -> io::Result<Vec<i32>> {
    let own = fs::read_to_string(folder.join("cgroup.procs"))?;
    let mut found: Vec<i32> = own.lines().filter_map(|line| line.parse().ok()).collect();
    for below in folders(folder) {
        // It may have been removed meanwhile.
        found.extend(processes(&below).unwrap_or_default());
    }
    Ok(found)
}

fn mounted_at(line: &str) -> Option<PathBuf> {
    let mut fields = line.split(' ').skip(1);
    let (place, kind) = (fields.next()?, fields.next()?);
    (kind == "cgroup2").then(|| place.replace("\\040", " ").into())
}

fn number_of(path: &Path) -> Option<u64> {
    Some(rustix::fs::stat(path).ok()?.st_ino)
}

fn folders(path: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path())
}

/// Finds the first folder that `is_it`, at most so deep.
fn search(path: &Path, depth: usize, is_it: &dyn Fn(&Path) -> bool) -> Option<PathBuf> {
    if is_it(path) {
        return Some(path.to_owned());
    }
    if depth == 0 {
        return None;
    }
    folders(path).find_map(|below| search(&below, depth - 1, is_it))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Folders as a cgroup2 file system has them.
    fn hierarchy(paths: &[&str]) -> (tempfile::TempDir, Hierarchy) {
        let root = tempfile::tempdir().unwrap();
        for path in paths {
            fs::create_dir_all(root.path().join(path)).unwrap();
        }
        let hierarchy = Hierarchy { root: root.path().to_owned() };
        (root, hierarchy)
    }

    #[test]
    fn mount_is_found_beside_the_first_version() {
        assert_eq!(mounted_at("cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0"), None);
        let line = "cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0";
        assert_eq!(mounted_at(line), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(mounted_at(""), None);
    }

    #[test]
    fn units_and_containers_are_found_by_name() {
        let id = "3f2a9c51be77d0a1";
        let docker = format!("system.slice/docker-{id}.scope");
        let podman = ["conmon-", ""].map(|part| format!("machine.slice/libpod-{part}77{id}.scope"));
        let (root, hierarchy) = hierarchy(&[
            "system.slice/nginx.service",
            &docker,
            "kubepods/burstable/podX/aa11bb22cc33",
            &podman[0],
            &podman[1],
            "user.slice/session-3.scope",
            "default/web",
        ]);
        let at = |path: &str| Some(root.path().join(path));
        assert_eq!(hierarchy.of_unit("nginx.service"), at("system.slice/nginx.service"));
        assert_eq!(hierarchy.of_unit("apache2.service"), None);
        assert_eq!(hierarchy.of_container(&id[..12]), at(&docker));
        assert_eq!(hierarchy.of_container("aa11bb22"), at("kubepods/burstable/podX/aa11bb22cc33"));
        assert_eq!(hierarchy.of_container(&format!("77{id}")), at(&podman[1]), "not its monitor");
        assert_eq!(hierarchy.of_container("web"), at("default/web"));
        assert_eq!(hierarchy.of_container(""), None);
        assert_eq!(hierarchy.of_container("9"), None, "a session is no container");
    }

    #[test]
    fn cgroup_is_found_by_its_number() {
        let (root, hierarchy) = hierarchy(&["a/b", "c"]);
        let number = number_of(&root.path().join("a/b")).unwrap();
        for hints in [vec![], vec!["c".into()], vec!["a/b".into()]] {
            assert_eq!(hierarchy.by_number(number, hints).unwrap().path, root.path().join("a/b"));
        }
        assert!(hierarchy.by_number(u64::MAX, []).is_none());
    }

    #[test]
    fn processes_below_a_folder_belong_to_it() {
        let (root, _) = hierarchy(&["a/b"]);
        for (path, text) in [("a/cgroup.procs", "1\n2\n"), ("a/b/cgroup.procs", "3\n")] {
            fs::write(root.path().join(path), text).unwrap();
        }
        assert_eq!(processes(&root.path().join("a")).unwrap(), [1, 2, 3]);
        assert!(processes(&root.path().join("c")).is_err());
    }
}
