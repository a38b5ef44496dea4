//! What a demonstration serves and asks for: a generated file set, or a given folder.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use base::{Nanos, Seed};
use tempfile::TempDir;

use super::DemoOptions;
use crate::fileset;
use crate::trial::Workload;

/// Below the second after which a dropped SYN is sent again: every drop is seen as one.
const CONNECT_TIMEOUT: Nanos = Nanos::from_millis(250);
/// What takes longer is no good to a person any more.
const REQUEST_TIMEOUT: Nanos = Nanos::from_secs(1);
/// SPECweb99's sessions: 30 % make one request, 70 % make 5 to 15.
const SPECWEB_REQUESTS_PER_SESSION: f64 = 7.3;
/// More URLs than this do not fit a readable command line.
const URLS_MAX: usize = 200;

/// What is served and what is asked for.
pub struct Content {
    /// The folder that is served.
    pub root: PathBuf,
    /// What is asked for.
    pub workload: Workload,
    /// Both in a few words.
    pub title: String,
    /// The generated set, gone with this.
    _folder: Option<TempDir>,
}

impl Content {
    /// The folder of the options, or a new set of so many directories.
    ///
    /// # Errors
    /// When the folder has nothing to serve, or the set cannot be written.
    pub fn of(options: &DemoOptions, directories: u32) -> anyhow::Result<Content> {
        match &options.dir {
            Some(dir) => Content::given(dir),
            None => Content::generated(directories, options.seed),
        }
    }

    /// The files of a folder, each as likely as the others, one request a connection.
    fn given(dir: &Path) -> anyhow::Result<Content> {
        let root = fs::canonicalize(dir).with_context(|| format!("cannot serve {}", dir.display()))?;
        let paths = fileset::url_paths(&root, URLS_MAX)
            .with_context(|| format!("cannot serve {}", root.display()))?;
        if paths.is_empty() {
            bail!("there is no file to serve in {}", root.display());
        }
        let title = format!("{} of {}, one request a connection", files(paths.len()), root.display());
        Ok(Content { root, workload: workload(paths, "one-packet".to_owned(), 1.0), title, _folder: None })
    }

    /// A generated file set, in memory where there is a file system in memory.
    fn generated(directories: u32, seed: Seed) -> anyhow::Result<Content> {
        let builder = &mut tempfile::Builder::new();
        builder.prefix("inrush-files-");
        let folder = builder.tempdir_in("/dev/shm").or_else(|_| builder.tempdir());
        let folder = folder.context("cannot make a folder for the file set")?;
        let size = fileset::write(folder.path(), directories, seed).with_context(|| {
            format!("cannot write {directories} directories of 5.1 MB to {}", folder.path().display())
        })?;
        let name = format!("specweb99:{directories}");
        let workload = workload(vec!["/".to_owned()], name, SPECWEB_REQUESTS_PER_SESSION);
        let title = format!("SPECweb99-like sessions, {:.1} MB of static files", size.0 as f64 / 1e6);
        Ok(Content { root: folder.path().to_owned(), workload, title, _folder: Some(folder) })
    }
}

fn workload(paths: Vec<String>, name: String, requests_per_session: f64) -> Workload {
    Workload {
        paths,
        name,
        requests_per_session,
        connect_timeout: CONNECT_TIMEOUT,
        request_timeout: REQUEST_TIMEOUT,
    }
}

fn files(count: usize) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{count} files") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(dir: Option<&Path>) -> DemoOptions {
        DemoOptions { dir: dir.map(Path::to_owned), quick: true, out: PathBuf::new(), seed: Seed(1) }
    }

    #[test]
    fn a_generated_set_is_served_from_its_root_and_gone_afterwards() {
        let content = Content::of(&options(None), 1).unwrap();
        let root = content.root.clone();
        assert!(root.join("dir00000/class3_8").exists());
        assert_eq!(content.workload.name, "specweb99:1");
        assert_eq!(content.title, "SPECweb99-like sessions, 5.1 MB of static files");
        drop(content);
        assert!(!root.exists());
    }

    #[test]
    fn a_given_folder_is_served_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let error = Content::of(&options(Some(folder.path())), 1).err().unwrap().to_string();
        assert!(error.starts_with("there is no file to serve in "), "{error}");
        fs::write(folder.path().join("index.html"), "x").unwrap();
        let content = Content::of(&options(Some(folder.path())), 1).unwrap();
        assert_eq!(content.workload.paths, ["/"]);
        assert!(Content::of(&options(Some(Path::new("/no/such/folder"))), 1).is_err());
    }
}
