//! The scripts of `.ci`, with programs in place of cargo.

use std::fs;
use std::path::{Path, PathBuf};

use base::Nanos;
use sys::process::{Output, Program};

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../.ci").join(name)
}

fn run(program: Program<'_>) -> Output {
    program.start().unwrap().output(Nanos::from_secs(60), || true).unwrap()
}

/// Runs commands of a shell in a folder, which succeed.
fn shell(folder: &Path, commands: &str) -> String {
    let script = format!("set -eu; cd \"$0\"; {commands}");
    let output = run(Program::new("sh").arguments(["-c", &script, folder.to_str().unwrap()]));
    assert!(output.exit.status.success(), "{commands}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn release_is_compared_with_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join(".ci")).unwrap();
    fs::copy(script("published"), folder.path().join(".ci/published")).unwrap();
    let published = "PATH=$PWD/bin:$PATH bash .ci/published";
    // A shell writes the program: nothing here then has it open for writing when another test starts a program.
    let repository = "mkdir bin; printf '#!/bin/sh\\necho \"$@\"\\n' > bin/cargo; chmod +x bin/cargo; git init -q .; \
         git config user.name a; git config user.email a@b; git config commit.gpgsign false; git config tag.gpgsign false; \
         git commit -q --allow-empty -m first; git tag v0.1.0";
    shell(folder.path(), repository);
    let said = shell(folder.path(), published);
    assert!(said.ends_with("\nskipped: no release to compare the interfaces with\n"), "{said}");
    for release in
        ["git commit -q --allow-empty -m next", "git commit -q --allow-empty -m last; git tag v0.2.0"]
    {
        let said = shell(folder.path(), &format!("{release}; {published}"));
        assert!(said.ends_with("\nsemver-checks --workspace --baseline-rev v0.1.0\n"), "{release}: {said}");
    }
}

/// The exit code of the judgement of these skips.
fn judged(skips: &str, require: &str) -> Option<i32> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("skips");
    fs::write(&path, skips).unwrap();
    let program = Program::new("bash").arguments([script("skips"), path]);
    run(program.environment("INRUSH_REQUIRE_ALL", require)).exit.status.code()
}

#[test]
fn skips_beyond_the_list_fail_the_checks() {
    let (listed, facility) = ("      3 skipped: no trace points\n", "skipped: no IPv6 here\n");
    let programs = ["skipped: mkdocs is not installed\n", "      1 skipped: haproxy is not on PATH\n"];
    for require in ["1", "programs", "0"] {
        assert_eq!(judged("", require), Some(0), "{require}");
        assert_eq!(judged(listed, require), Some(0), "{require}");
    }
    assert_eq!([judged(facility, "1"), judged(facility, "programs")], [Some(1), Some(0)]);
    for program in programs {
        let found = ["1", "programs", "0"].map(|require| judged(&format!("{listed}{program}"), require));
        assert_eq!(found, [Some(1), Some(1), Some(0)], "{program}");
    }
}

/// A function of `.ci/run`, with its name and braces.
fn function(name: &str) -> String {
    let run = fs::read_to_string(script("run")).unwrap();
    let start = run.find(&format!("\n{name}() {{\n")).unwrap_or_else(|| panic!("{name}"));
    let length = run[start..].find("\n}\n").unwrap() + 3;
    run[start..start + length].to_owned()
}

#[test]
fn skips_of_other_steps_join_those_of_the_tests() {
    let folder = tempfile::tempdir().unwrap();
    let step = "scratch=.; echo 'skipped: a' > skips; printf 'fine\\nskipped: b\\n' | keep_skips; cat skips";
    let said = shell(folder.path(), &format!("{}\n{step}", function("keep_skips")));
    assert_eq!(said, "fine\nskipped: b\nskipped: a\nskipped: b\n");
    // The steps that may skip: the book, and the reports of the demonstration and the experiment.
    let run = fs::read_to_string(script("run")).unwrap();
    let kept = run.lines().filter(|line| line.ends_with(" | keep_skips"));
    assert_eq!(kept.count(), 3);
}

#[test]
fn missing_package_leaves_the_others_installed() {
    let folder = tempfile::tempdir().unwrap();
    // An apt-get that knows all packages but one.
    let apt = "case \" $* \" in *' install '*' gone '*) exit 100 ;; *) echo \"$*\" >> installed ;; esac";
    let functions = ["install_tools", "apt_install"].map(function).join("\n");
    let install = format!("tools=(sh:dash no-such-a:gone no-such-b:there)\n{functions}\ninstall_tools");
    let script = "cd \"$0\"; mkdir bin; printf '#!/bin/sh\\n%s\\n' \"$1\" > bin/apt-get; chmod +x bin/apt-get; \
                  PATH=$PWD/bin:$PATH exec bash -euc \"$2\"";
    let arguments = ["-c", script, folder.path().to_str().unwrap(), apt, &install];
    let output = run(Program::new("sh").arguments(arguments));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.exit.status.success() && said.contains("could not install gone: "), "{said}");
    let installed = fs::read_to_string(folder.path().join("installed")).unwrap();
    assert!(installed.ends_with("install --yes --no-install-recommends there\n"), "{installed}");
}
