//! `inrush demo`: the experiment `demo`, with a folder and a seed of the user's.
//!
//! Owns the changes to the experiment's file and the start of a new demonstration in a folder that holds an old one.

use std::fs;
use std::path::Path;

use lab::library::DEMO;
use lab::run::RunOptions;
use record::TopologyKind;
use record::experiment::{Directory, Form};
use stage::fileset::url_paths;
use stage::topology::{Topology, TopologyOptions};

use super::experiments::carry_out;
use crate::cli::DemoFlags;
use crate::exit::Exit;

/// The lines of the experiment's file that flags replace.
const SEED: &str = "seed = 1\n";
const FILES: &str = "specweb99 = 4\n";
const WORKLOAD: &str = "workload = \"specweb99:4\"\n";
/// The texts that a machine without nginx replaces, each with its replacement: Inrush without control stands in for nginx.
const STAND_IN: [(&str, &str); 4] = [
    ("nginx is the package of this machine, in its own configuration, with TLS.", "There is no nginx here."),
    (
        "kind = \"installed\"\npackage = \"nginx\"\n",
        "flags = [\"--overload\", \"off\", \"--driver\", \"readiness\"]\nbacklog = 4096\n",
    ),
    (
        "As its package installs it: all that fit into its queue of 511",
        "With --overload off: all that fit into its queue of 4096",
    ),
    ("nginx", "Inrush without control"),
];
/// The most URLs of a readable command line.
const URLS_MAX: usize = 200;

/// Runs the demonstration. Prints its findings and the path of its report.
pub fn run(flags: DemoFlags) -> Result<(), Exit> {
    let options = RunOptions {
        name: DEMO.name.to_owned(),
        text: text(&flags, nginx_can_run()).map_err(|error| Exit::Usage(format!("{error:#}")))?,
        form: if flags.quick { Form::Quick } else { Form::Full },
        trials: None,
        out: flags.out,
    };
    make_room(&options).map_err(failed)?;
    carry_out(&[options])
}

fn failed(error: anyhow::Error) -> Exit {
    Exit::Failed(format!("{error:#}"))
}

/// Tells whether nginx is installed, and can be started from its own configuration. For that it needs namespaces.
fn nginx_can_run() -> bool {
    let has_namespaces = || {
        Topology::with(&TopologyOptions::default())
            .is_ok_and(|topology| topology.kind == TopologyKind::Namespaces)
    };
    sys::process::find_program("nginx").is_some() && has_namespaces()
}

/// The experiment's file, with the user's seed and folder.
fn text(flags: &DemoFlags, with_nginx: bool) -> anyhow::Result<String> {
    let mut text = DEMO.text.replacen(SEED, &format!("seed = {}\n", flags.seed), 1);
    if !with_nginx {
        text = STAND_IN.iter().fold(text, |text, (nginx, ours)| text.replace(nginx, ours));
    }
    let Some(folder) = &flags.dir else { return Ok(text) };
    let cannot = |why: String| anyhow::anyhow!("cannot serve {}: {why}", folder.display());
    let root = fs::canonicalize(folder).map_err(|error| cannot(error.to_string()))?;
    let paths = url_paths(&root, URLS_MAX).map_err(|error| cannot(error.to_string()))?;
    if paths.is_empty() {
        return Err(cannot("there is no file in it".to_owned()));
    }
    let root = root.to_str().ok_or_else(|| cannot("its path is not UTF-8".to_owned()))?;
    // TOML reads JSON's escapes in strings alike.
    let text = text.replacen(FILES, &format!("root = {}\n", serde_json::to_string(root)?), 1);
    Ok(text.replacen(WORKLOAD, &format!("path = {}\n", serde_json::to_string(&paths)?), 1))
}

/// Removes an earlier demonstration that this one cannot resume: a finished one, or one with other settings.
fn make_room(options: &RunOptions) -> anyhow::Result<()> {
    let directory = Directory::new(&options.out);
    let Some(earlier) = directory.run()?.filter(|run| run.name == options.name) else { return Ok(()) };
    if !earlier.finished && (&earlier.text, earlier.form) == (&options.text, options.form) {
        return Ok(());
    }
    let is_record = |path: &Path| path.extension().is_some_and(|extension| extension == "json");
    let trials = fs::read_dir(directory.trials_folder()).into_iter().flatten().flatten();
    let trials = trials.map(|entry| entry.path());
    for path in trials.filter(|path| is_record(path)).chain([directory.run_file()]) {
        fs::remove_file(&path)
            .map_err(|error| anyhow::anyhow!("cannot remove {}: {error}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Seed;
    use experiment::{Experiment, ServerKind};
    use std::path::PathBuf;

    fn flags(dir: Option<&Path>) -> DemoFlags {
        DemoFlags { dir: dir.map(Path::to_owned), quick: true, out: PathBuf::new(), seed: Seed(42) }
    }

    #[test]
    fn seed_and_folder_of_the_user_stand_in_the_file() {
        let generated = Experiment::parse(&text(&flags(None), true).unwrap()).unwrap();
        assert_eq!((generated.plan.seed, generated.files.specweb99), (Seed(42), 4));
        let folder = tempfile::Builder::new().prefix("a \"quoted\" ").tempdir().unwrap();
        fs::write(folder.path().join("index.html"), "a page").unwrap();
        fs::write(folder.path().join("b.html"), "another").unwrap();
        let given = Experiment::parse(&text(&flags(Some(folder.path())), true).unwrap()).unwrap();
        assert_eq!(given.files.root, Some(fs::canonicalize(folder.path()).unwrap()));
        assert_eq!(given.loads[0].path, ["/", "/b.html"]);
        assert_eq!((given.files.specweb99, given.loads[0].workload.as_str()), (0, "one-packet"));
    }

    #[test]
    fn inrush_without_control_stands_in_for_nginx() {
        let text = text(&flags(None), false).unwrap();
        assert!(!text.contains("nginx is"), "{text}");
        let servers = Experiment::parse(&text).unwrap().servers;
        let names: Vec<(&str, bool)> =
            servers.iter().map(|server| (server.name.as_str(), server.guard.is_some())).collect();
        let (alone, guarded) = ("Inrush without control", "guarded Inrush without control");
        assert_eq!(names, [(alone, false), (guarded, true), ("Inrush", false)]);
        assert!(servers.iter().all(|server| server.kind == ServerKind::Inrush));
    }

    #[test]
    fn a_folder_without_files_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = text(&flags(Some(folder.path())), true).unwrap_err().to_string();
        assert_eq!(error, format!("cannot serve {}: there is no file in it", folder.path().display()));
        let absent = folder.path().join("absent");
        assert!(text(&flags(Some(&absent)), true).unwrap_err().to_string().contains("No such file"));
    }
}
