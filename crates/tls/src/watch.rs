//! Detection of changed certificate files.
//!
//! An ACME client writes several files, one after another. A change is therefore reported when two checks in a row
//! have seen the same files. The caller checks once per second.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::material::Files;

/// The identity of a file's content: inode, size, and the times of both changes.
type Stamp = Option<[i64; 6]>;

/// The watched files, with their stamps.
#[derive(Debug)]
pub struct Watch {
    files: Vec<Files>,
    /// Stamps at the last report.
    told: Vec<Stamp>,
    /// Stamps at the last check.
    seen: Vec<Stamp>,
}

impl Watch {
    /// Begins to watch; the caller reads the files after this call. Blocks, as every check does.
    pub fn new(files: Vec<Files>) -> Watch {
        let told = stamps(&files);
        Watch { files, seen: told.clone(), told }
    }

    /// The files.
    pub fn files(&self) -> &[Files] {
        &self.files
    }

    /// Returns true if the files differ from the last report and are the same as at the last check.
    pub fn changed(&mut self) -> bool {
        let now = stamps(&self.files);
        let changed = now != self.told && now == self.seen;
        if changed {
            self.told.clone_from(&now);
        }
        self.seen = now;
        changed
    }

    /// Forgets earlier changes, because the caller reads the files now.
    pub fn reads(&mut self) {
        self.told = stamps(&self.files);
        self.seen.clone_from(&self.told);
    }
}

fn stamps(files: &[Files]) -> Vec<Stamp> {
    files.iter().flat_map(Files::paths).map(stamp).collect()
}

/// Follows links: certbot's files are links whose targets change.
fn stamp(path: &std::path::Path) -> Stamp {
    let about = fs::metadata(path).ok()?;
    let (inode, size) = (about.ino() as i64, about.size() as i64);
    Some([inode, size, about.mtime(), about.mtime_nsec(), about.ctime(), about.ctime_nsec()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_once_and_when_it_has_settled() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files {
            certificate: folder.path().join("c"),
            key: folder.path().join("k"),
            ocsp: Some(folder.path().join("o")),
            host: None,
        };
        fs::write(&files.certificate, "1").unwrap();
        fs::write(&files.key, "1").unwrap();
        let mut watch = Watch::new(vec![files.clone()]);
        assert!(!watch.changed());
        fs::write(&files.certificate, "two").unwrap();
        assert!(!watch.changed(), "it may not be all");
        fs::write(&files.key, "two").unwrap();
        assert!(!watch.changed(), "it may not be all");
        assert!(watch.changed());
        assert!(!watch.changed(), "once");
        fs::write(files.ocsp.as_ref().unwrap(), "a response").unwrap();
        assert_eq!([watch.changed(), watch.changed()], [false, true], "a response has come");
        fs::remove_file(&files.key).unwrap();
        assert_eq!([watch.changed(), watch.changed()], [false, true], "gone is another content");
        fs::write(&files.key, "three").unwrap();
        watch.reads();
        assert_eq!([watch.changed(), watch.changed()], [false, false], "known");
    }
}
