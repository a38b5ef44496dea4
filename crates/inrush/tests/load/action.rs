//! The steps of the composite action, with a program in place of `gh` that keeps its arguments.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use assert_cmd::Command;
use assert_cmd::assert::Assert;

use super::PATIENCE;
use super::common::{Files, Server};

/// Runs a step with this environment; `folder/bin` is searched for programs first.
fn step(name: &str, folder: &Path, environment: &[(&str, &str)]) -> Assert {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../action").join(name);
    let program = Path::new(env!("CARGO_BIN_EXE_inrush")).parent().unwrap();
    let path = format!("{}:{}:/usr/bin:/bin", folder.join("bin").display(), program.display());
    let mut shell = Command::new("sh");
    shell.arg(script).env("PATH", path).env("OUT", folder.join("out")).timeout(PATIENCE);
    shell.envs(environment.iter().copied());
    shell.assert()
}

/// A `gh` that answers a list with `comments`, and keeps the arguments of each call.
fn fake_gh(folder: &Path, comments: &str) {
    let program = folder.join("bin/gh");
    fs::create_dir_all(folder.join("bin")).unwrap();
    let calls = folder.join("calls").display().to_string();
    let script = format!(
        "#!/bin/sh\necho \"$*\" >> {calls}\ncase \"$*\" in *--paginate*) printf '%s' '{comments}';; esac\n"
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn action_steps_run_compare_and_comment_once() {
    let (files, folder) = (Files::new(), tempfile::tempdir().unwrap());
    files.write("index.html", b"hello");
    let server = Server::start(&files.root(), &["--arch=sped"]);
    let url = format!("http://{}/index.html", server.address);
    let flags = "--rate 20 --duration 1s --warmup 0s --fail-if errors>100000";
    step("run.sh", folder.path(), &[("URL", &url), ("FLAGS", flags), ("RUNS", "2")]).success();
    let out = folder.path().join("out");
    for name in ["run-1.json", "run-2.json", "run.html", "run.xml", "run.md"] {
        assert!(fs::metadata(out.join(name)).unwrap().len() > 0, "{name}");
    }
    let base = out.to_str().unwrap();
    step("compare.sh", folder.path(), &[("BASE", base), ("FAIL_IF", "p99>9x goodput<0.1x")]).success();
    // Nothing is a hundred times faster than itself.
    step("compare.sh", folder.path(), &[("BASE", base), ("FAIL_IF", "goodput<100x")]).code(4);
    let comparison = fs::read_to_string(out.join("comparison.txt")).unwrap();
    assert!(comparison.contains("FAIL  fails if goodput<100x"), "{comparison}");
    for (comments, call) in [
        ("", "--method POST repos/o/r/issues/7/comments"),
        ("42", "--method PATCH repos/o/r/issues/comments/42"),
    ] {
        fake_gh(folder.path(), comments);
        step("comment.sh", folder.path(), &[("NUMBER", "7"), ("REPOSITORY", "o/r")]).success();
        let calls = fs::read_to_string(folder.path().join("calls")).unwrap();
        assert!(calls.lines().last().unwrap().contains(call), "{calls}");
    }
    let comment = fs::read_to_string(out.join("comment.md")).unwrap();
    assert!(comment.starts_with("<!-- inrush load -->\n**20"), "{comment}");
    let action =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../action/action.yml")).unwrap();
    for script in ["run.sh", "compare.sh", "comment.sh"] {
        assert!(action.contains(&format!("$GITHUB_ACTION_PATH/{script}")), "{script}");
    }
}
