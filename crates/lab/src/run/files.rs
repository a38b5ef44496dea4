//! The files that the servers of an experiment serve, and their certificate.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use experiment::Experiment;
use stage::fileset;
use stage::identity::Identity;
use stage::owner;
use tempfile::TempDir;

use crate::library::APPS;

/// A folder that is served. Dropping it removes generated files.
pub struct Served {
    /// The folder's path.
    pub root: PathBuf,
    /// The certificate of servers that speak TLS.
    pub tls: Option<Identity>,
    /// The folder of the small applications.
    pub apps: TempDir,
    _generated: TempDir,
}

impl Served {
    /// Returns the experiment's folder, or a new one with generated files.
    ///
    /// # Errors
    /// The folder does not exist, or the files cannot be written.
    pub fn of(experiment: &Experiment) -> anyhow::Result<Served> {
        let files = &experiment.files;
        let on_disk = experiment.common.needs_disk();
        let folder = if on_disk { owner::folder_on_disk() } else { owner::temporary_folder() };
        let folder = folder.context("cannot make a folder for the files")?;
        let tls = experiment.common.tls.map(|key| Identity::make(folder.path(), key)).transpose();
        let tls = tls.context("cannot make a certificate")?;
        let apps = applications().context("cannot write the small applications")?;
        if let Some(root) = &files.root {
            let root = fs::canonicalize(root).with_context(|| format!("cannot serve {}", root.display()))?;
            return Ok(Served { root, tls, apps, _generated: folder });
        }
        let seed = experiment.plan.seed;
        let write = || {
            fileset::write(folder.path(), files.specweb99, seed)?;
            fs::write(folder.path().join("index.html"), page(files.size.0))
        };
        write().with_context(|| format!("cannot write the files to {}", folder.path().display()))?;
        Ok(Served { root: folder.path().to_owned(), tls, apps, _generated: folder })
    }
}

/// Writes the small applications into a folder.
fn applications() -> std::io::Result<TempDir> {
    let folder = owner::temporary_folder()?;
    for (name, text) in APPS {
        fs::write(folder.path().join(name), text)?;
    }
    Ok(folder)
}

/// Returns a page of `size` bytes, in lines of 64.
fn page(size: u64) -> Vec<u8> {
    (0..size).map(|at| if at % 64 == 63 { b'\n' } else { b'a' + (at % 26) as u8 }).collect()
}
