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

/// The exit code of the judgement of the skips in this file, with these lines beside `.ci/may-skip`.
fn judged_file(path: &Path, require: &str, more: &str) -> Option<i32> {
    let program = Program::new("bash").arguments([script("skips"), path.to_owned()]);
    let program = program.environment("INRUSH_REQUIRE_ALL", require).environment("INRUSH_MAY_SKIP", more);
    run(program).exit.status.code()
}

/// The exit code of the judgement of these skips.
fn judged(skips: &str, require: &str) -> Option<i32> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("skips");
    fs::write(&path, skips).unwrap();
    judged_file(&path, require, "")
}

#[test]
fn skips_beyond_the_list_fail_the_checks() {
    let (listed, facility) = ("      3 skipped: no trace points\n", "skipped: no IPv6 here\n");
    let programs = [
        "skipped: mkdocs is not installed\n",
        "      1 skipped: haproxy is not on PATH\n",
        "      1 skipped: h2spec is not installed\n",
        "      1 skipped: bpftool is not installed\n",
        "      1 skipped: the pinned compiler is not installed: crates/bpf/programs/build: the objects need Zig\n",
    ];
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

#[test]
fn skips_without_a_program_say_not_installed() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    for (file, said) in [
        ("http2/tests/h2spec.rs", "skipped: h2spec is not installed"),
        ("inrush/tests/serve/kernel_cache.rs", "skipped: bpftool is not installed"),
        ("bpf/tests/objects.rs", "skipped: the pinned compiler is not installed: "),
    ] {
        assert!(
            fs::read_to_string(crates.join(file)).unwrap().contains(&format!("println!(\"{said}")),
            "{file}"
        );
        assert_eq!(judged(&format!("      1 {said}\n"), "programs"), Some(1), "{said}");
    }
}

#[test]
fn unreadable_skips_fail_the_checks() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(judged_file(&folder.path().join("none"), "1", ""), Some(1));
}

#[test]
fn hosted_checks_may_lack_h2o_alone() {
    let workflow = script("../.github/workflows/checks.yml");
    let workflow = fs::read_to_string(workflow).unwrap();
    let mut more = workflow.lines().filter_map(|line| line.trim().strip_prefix("INRUSH_MAY_SKIP: "));
    let more = more.next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("skips");
    let h2o = "      3 skipped: h2o is not installed\n";
    for (skips, more, code) in [
        (h2o.to_owned(), more, 0),
        (h2o.to_owned(), "", 1),
        (format!("{h2o}      1 skipped: nginx is not installed\n"), more, 1),
        // An empty line of the list allows nothing.
        (h2o.to_owned(), "\n\n", 1),
    ] {
        fs::write(&path, &skips).unwrap();
        assert_eq!(judged_file(&path, "programs", more), Some(code), "{skips}{more}");
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

/// Runs functions of `.ci/run` and these commands in a folder, with these programs as name and script. Returns their errors.
fn with_programs(folder: &Path, programs: &[(&str, &str)], functions: &[&str], commands: &str) -> String {
    let script = "cd \"$0\"; mkdir bin; commands=$1; shift; while [ $# -gt 0 ]; do \
                  printf '#!/bin/sh\\n%s\\n' \"$2\" > \"bin/$1\"; chmod +x \"bin/$1\"; shift 2; done; \
                  PATH=$PWD/bin:$PATH exec bash -euc \"$commands\"";
    let functions: Vec<String> = functions.iter().map(|name| function(name)).collect();
    let commands = format!("{}\n{commands}", functions.join("\n"));
    let programs = programs.iter().flat_map(|(name, text)| [*name, *text]);
    let fixed = ["-c", script, folder.to_str().unwrap(), &commands];
    let output = run(Program::new("sh").arguments(fixed).arguments(programs));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.exit.status.success(), "{said}");
    said
}

#[test]
fn missing_package_leaves_the_others_installed() {
    let folder = tempfile::tempdir().unwrap();
    // An apt-get that knows all packages but one.
    let apt = "case \" $* \" in *' install '*' gone '*) exit 100 ;; *) echo \"$*\" >> installed ;; esac";
    let install = "tools=(sh:dash no-such-a:gone no-such-b:there); install_tools";
    let functions = ["install_tools", "apt_install"];
    let said = with_programs(folder.path(), &[("apt-get", apt)], &functions, install);
    assert!(said.contains("could not install gone: "), "{said}");
    let installed = fs::read_to_string(folder.path().join("installed")).unwrap();
    assert!(installed.ends_with("install --yes --no-install-recommends there\n"), "{installed}");
}

#[test]
fn python_without_an_installer_gets_its_package() {
    for (code, packages) in [(0, None), (1, Some(" python3-venv\n"))] {
        let folder = tempfile::tempdir().unwrap();
        let python = format!("exit {code}");
        let programs = [("apt-get", "echo \"$*\" >> installed"), ("python3", &*python)];
        let install = "tools=(sh:dash); install_tools";
        with_programs(folder.path(), &programs, &["install_tools", "apt_install"], install);
        let installed = fs::read_to_string(folder.path().join("installed")).ok();
        assert_eq!(installed.is_some(), packages.is_some(), "{installed:?}");
        assert!(installed.unwrap_or_default().ends_with(packages.unwrap_or_default()), "{packages:?}");
    }
    // The packages come before the tools that pip and go install.
    let run = fs::read_to_string(script("run")).unwrap();
    let step = run.split("\nstep \"tools\"\n").nth(1).unwrap();
    let at = |call: &str| step.find(call).unwrap_or_else(|| panic!("{call}"));
    for after in ["bpf_compiler", "h2spec", "pebble", "caddy", "book_tools"] {
        assert!(at("    install_tools\n") < at(&format!("\ninstall_{after}\n")), "{after}");
    }
}

#[test]
fn go_programs_may_ask_for_a_newer_compiler() {
    let folder = tempfile::tempdir().unwrap();
    let go = [("go", "echo \"$GOTOOLCHAIN $*\" > asked")];
    with_programs(
        folder.path(),
        &go,
        &["install_by_go"],
        "GOTOOLCHAIN=local; install_by_go x-1 example.org/x@v1",
    );
    assert_eq!(fs::read_to_string(folder.path().join("asked")).unwrap(), "auto install example.org/x@v1\n");
}

#[test]
fn rivals_of_the_tests_are_among_the_tools() {
    let run = fs::read_to_string(script("run")).unwrap();
    let tools = run.split("\ntools=(").nth(1).unwrap().split(')').next().unwrap();
    // Without these packages `rival_servers_serve_or_are_named_as_missing` skips, or finds no configuration.
    for tool in ["nginx:nginx-light", "apache2:apache2", "lighttpd:lighttpd", "h2o:h2o"] {
        assert!(tools.split_whitespace().any(|known| known == tool), "{tool}");
    }
}
