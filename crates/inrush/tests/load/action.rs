//! The steps of the composite action, with a program in place of `gh` that keeps its arguments.

use std::fs;
use std::path::Path;

use assert_cmd::Command;
use assert_cmd::assert::Assert;

use super::PATIENCE;
use super::common::{Files, Server};
use super::stand_ins::stand_ins;

/// The environment of the step that comments.
const COMMENT: &[(&str, &str)] = &[("NUMBER", "7"), ("REPOSITORY", "o/r"), ("NAME", "after")];

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

/// A `gh` that keeps the arguments and the mark of each call. It lists comments by the script `list`, and writes one by `write`.
fn fake_gh(folder: &Path, list: &str, write: &str) {
    let calls = folder.join("calls").display().to_string();
    let script =
        format!("echo \"$* of $MARK\" >> {calls}\ncase \"$*\" in *--paginate*) {list} ;; *) {write} ;; esac");
    stand_ins(folder, &[("gh", &script)]);
}

/// The text of a file of the action, or of a page about it.
fn read(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)).unwrap()
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
        ("true", "--method POST repos/o/r/issues/7/comments "),
        ("echo 42; echo 43", "--method PATCH repos/o/r/issues/comments/42 "),
    ] {
        fake_gh(folder.path(), comments, "true");
        step("comment.sh", folder.path(), COMMENT).success();
        let calls = fs::read_to_string(folder.path().join("calls")).unwrap();
        assert!(calls.lines().last().unwrap().contains(call), "{calls}");
        // The text of the mark is no part of the jq program.
        let listed = "startswith(env.MARK)) | .id of <!-- inrush load: after -->";
        assert!(calls.lines().rev().nth(1).unwrap().ends_with(listed), "{calls}");
    }
    let comment = fs::read_to_string(out.join("comment.md")).unwrap();
    assert!(comment.starts_with("<!-- inrush load: after -->\n**20"), "{comment}");
    let action = read("action/action.yml");
    for script in ["install.sh", "run.sh", "compare.sh", "comment.sh"] {
        assert!(action.contains(&format!("$GITHUB_ACTION_PATH/{script}")), "{script}");
    }
}

#[test]
fn comment_without_the_right_alone_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    fs::create_dir(&out).unwrap();
    fs::write(out.join("run.md"), "**20 replies**\n").unwrap();
    let said = |assert: &Assert| String::from_utf8(assert.get_output().stdout.clone()).unwrap();
    let denied = "echo 'gh: Resource not accessible by integration (HTTP 403)' >&2; exit 1";
    for (list, write) in [(denied, "true"), ("true", denied)] {
        fake_gh(folder.path(), list, write);
        let warned = step("comment.sh", folder.path(), COMMENT).success();
        assert!(said(&warned).starts_with("::warning::no comment: "), "{}", said(&warned));
    }
    for reason in ["API rate limit exceeded (HTTP 403)", "Server Error (HTTP 502)"] {
        let fails = format!("echo 'gh: {reason}' >&2; exit 1");
        for (list, write) in [(&*fails, "true"), ("true", &*fails)] {
            fake_gh(folder.path(), list, write);
            let failed = step("comment.sh", folder.path(), COMMENT).code(1);
            assert_eq!(said(&failed), "");
            let stderr = String::from_utf8_lossy(&failed.get_output().stderr).into_owned();
            assert!(stderr.contains(reason), "{stderr}");
        }
    }
}

/// Runs the first step with this `name` and `version`, beside a release with these checksums. Returns its exit code, its output,
/// and the folders that it puts on PATH.
fn install(name: &str, version: &str, checksums: &str) -> (i32, String, String) {
    let folder = tempfile::tempdir().unwrap();
    // Its last two arguments are the file and the URL.
    let curl = format!(
        "while [ $# -gt 2 ]; do shift; done\ncase $2 in\n\
         https://example.org/o/inrush/releases/download/v0.1.0/SHA256SUMS) echo '{checksums}' ;;\n\
         https://example.org/o/inrush/releases/download/v0.1.0/inrush-x86_64-linux) echo program ;;\n\
         *) exit 22 ;;\nesac > \"$1\""
    );
    let bin = stand_ins(folder.path(), &[("curl", &curl)]);
    let added = folder.path().join("added");
    fs::write(&added, "").unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../action/install.sh");
    let mut shell = Command::new("/bin/sh");
    // Without a version the step needs no other program, and must find no inrush.
    let others = if version.is_empty() { "" } else { ":/usr/bin:/bin" };
    shell.arg(script).env("PATH", format!("{}{others}", bin.display())).timeout(PATIENCE);
    shell
        .env("NAME", name)
        .env("VERSION", version)
        .env("REPOSITORY", "o/inrush")
        .env("GITHUB_REPOSITORY", "else/where");
    shell.env("GITHUB_SERVER_URL", "https://example.org").env("RUNNER_TEMP", folder.path());
    let output = shell.env("GITHUB_PATH", &added).output().unwrap();
    let added = fs::read_to_string(added).unwrap();
    if !added.is_empty() {
        assert_eq!(fs::read_to_string(Path::new(added.trim()).join("inrush")).unwrap(), "program\n");
    }
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap(), added)
}

/// The checksum of "program" and a line feed.
const RIGHT: &str = "fba13a37a73d657dc0f1e671f0dc714f9891dd4da15ec45bd2a6f83e0434648e  inrush-x86_64-linux";

#[test]
fn action_installs_a_release_that_has_its_checksum() {
    for version in ["0.1.0", "v0.1.0"] {
        let (code, said, added) = install("after", version, RIGHT);
        assert_eq!((code, added.lines().count()), (0, 1), "{said}");
    }
    let wrong = format!("{}  inrush-x86_64-linux", "0".repeat(64));
    for (version, checksums) in [("0.1.0", &*wrong), ("0.1.0", "no checksum"), ("9.9.9", RIGHT)] {
        let (code, said, added) = install("after", version, checksums);
        assert!(code != 0 && added.is_empty(), "{version}, {checksums}: {said}");
    }
}

#[test]
fn action_names_a_program_that_is_missing() {
    let (code, said, _) = install("after", "", "");
    assert_eq!((code, said.lines().count()), (1, 1), "{said}");
    assert!(said.starts_with("::error::inrush is not on PATH: set the input version"), "{said}");
}

#[test]
fn action_refuses_names_that_end_a_comment() {
    for name in ["inrush-results", "Load 2.0_after"] {
        let (code, said, _) = install(name, "0.1.0", RIGHT);
        assert_eq!(code, 0, "{name}: {said}");
    }
    for name in ["", "a --> b", "a\"b", "a/b", "a\nb"] {
        let (code, said, added) = install(name, "0.1.0", RIGHT);
        assert!(code == 1 && added.is_empty(), "{name}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.starts_with("::error::the input name may have "), "{said}");
    }
    assert!(read("action/action.yml").contains("\n        NAME: ${{ inputs.name }}\n        VERSION: "));
}

#[test]
fn documented_workflow_has_inputs_of_the_action() {
    let (action, page) = (read("action/action.yml"), read("docs/tasks/ci.md"));
    let inputs = action.split("\ninputs:\n").nth(1).unwrap().split("\nruns:\n").next().unwrap();
    let names = |text: &str, indent: &str| -> Vec<String> {
        let keys = text.lines().filter_map(|line| line.strip_prefix(indent)?.split_once(':'));
        keys.filter(|(key, _)| !key.starts_with(' ')).map(|(key, _)| key.to_owned()).collect()
    };
    let known = names(inputs, "  ");
    let uses: Vec<&str> = page.split("- uses: OWNER/inrush/action@main\n        with:\n").skip(1).collect();
    assert_eq!(uses.len(), 2);
    for text in uses {
        let end = text.find("\n```").unwrap_or(text.len());
        let given = names(&text[..end], "          ");
        assert!(given.iter().all(|name| known.contains(name)), "{given:?} of {known:?}");
        assert!(
            ["url", "name", "version"].iter().all(|name| given.contains(&(*name).to_owned())),
            "{given:?}"
        );
    }
    assert!(page.contains("\n  pull-requests: write\n"));
}

#[test]
fn each_use_of_the_action_has_an_artifact_of_its_own() {
    let action = read("action/action.yml");
    let upload = action.split("uses: actions/upload-artifact@").nth(1).unwrap();
    assert!(upload.contains("\n        name: ${{ inputs.name }}\n"), "{upload}");
    let (hash, _) = upload.split_once(' ').unwrap();
    assert!(hash.len() == 40 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()), "{hash}");
}
