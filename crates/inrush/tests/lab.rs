//! `inrush lab` as users see it: right and wrong files, a whole run, an interrupted run, and the remains of a
//! killed one. The tests do not depend on the machine's speed.

#[path = "common/schema.rs"]
mod schema;

use std::fs;
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::time::Duration;

use assert_cmd::Command;
use rustix::process::{Pid, Signal, kill_process};
use schema::obeys_schema;
use serde_json::Value;

/// An experiment that is small enough for a test and needs no privileges.
const TINY: &str = r#"
title = "tiny"

[plan]
trials = 2
warmup = "50ms"
duration = "150ms"
retries = 0

[topology]
kind = "loopback"

[[axis]]
name = "rate"
values = [50, 100]

[[server]]
name = "ours"
flags = ["--arch", "sped", "--workers", "1"]

[[load]]
name = "few"
rate = "{rate}"

[[figure]]
id = "replies"
title = "Replies"
x = "rate"
y = "replies_per_s"
"#;

/// A server that ends before it is ready.
const HOPELESS: &str = r#"
[[server]]
name = "hopeless"
kind = "command"
command = ["sh", "-c", "echo no such luck >&2; exit 3"]
"#;

fn inrush(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_inrush")).args(arguments).current_dir(folder).output().unwrap()
}

fn lab(folder: &Path, arguments: &[&str]) -> Output {
    inrush(folder, &[&["lab"], arguments].concat())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn with(experiment: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tiny.toml"), experiment).unwrap();
    folder
}

fn read(file: &Path) -> Value {
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

/// Returns the recorded trials of a run; none before the first.
fn trials_so_far(folder: &Path) -> Vec<Value> {
    if folder.join("inrush-lab/tiny/trials").exists() { trials(folder) } else { Vec::new() }
}

/// Returns the trials of a run that has recorded some.
fn trials(folder: &Path) -> Vec<Value> {
    let entries = fs::read_dir(folder.join("inrush-lab/tiny/trials")).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    files.iter().map(|file| read(file)).collect()
}

#[test]
fn shipped_experiments_are_listed_and_valid() {
    let folder = tempfile::tempdir().unwrap();
    let listed = lab(folder.path(), &["list"]);
    let lines = text(&listed.stdout);
    for name in ["brecht-userver", "molloy-micro", "fdm-9", "banga-6-7", "past-saturation", "all of them"] {
        assert!(lines.lines().any(|line| line.starts_with(name)), "{lines}");
    }
    let checked = lab(folder.path(), &["check", "brecht-userver", "fdm-8", "banga-wan", "molloy-micro"]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stdout));
    assert!(text(&checked.stdout).contains("quick: "), "{}", text(&checked.stdout));
}

#[test]
fn metrics_are_listed_with_their_units() {
    let folder = tempfile::tempdir().unwrap();
    let said = text(&lab(folder.path(), &["metrics"]).stdout);
    let line = said.lines().find(|line| line.starts_with("latency_ms_p99 ")).unwrap_or_default();
    assert!(line.contains(" ms ") && line.ends_with("99th percentile of response latency, ms"), "{said}");
    assert!(said.contains("outcome_NAME"), "{said}");
}

#[test]
fn claims_that_the_trials_cannot_judge_are_named() {
    let claim = r#"
[[claim]]
text = "It answers"
value = { metric = "replies_per_s", of = { rate = 100 } }
at-least = 1
"#;
    let folder = with(&format!("{TINY}{claim}"));
    let checked = lab(folder.path(), &["check", "tiny.toml"]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stderr));
    let said = text(&checked.stdout);
    let warning = "warning: with trials = 2, the full form leaves 1 of 1 claims undecided, for too few \
                   measurements: 'It answers' (2 of 5)";
    assert!(said.contains(warning), "{said}");
    let again = claim.replace("It answers", "It answers again").replace("at-least = 1", "at-least = 50");
    let folder = with(&format!("{TINY}{claim}{again}").replace("trials = 2", "trials = 5"));
    let said = text(&lab(folder.path(), &["check", "tiny.toml"]).stdout);
    assert!(said.contains("leaves 2 of 2 claims undecided") && said.contains("(5 of 6)"), "{said}");
    let folder = with(&format!("{TINY}{claim}").replace("trials = 2", "trials = 5"));
    let said = text(&lab(folder.path(), &["check", "tiny.toml"]).stdout);
    assert!(!said.contains("warning: with trials = 5, the full form"), "{said}");
}

#[test]
fn mistakes_are_told_with_what_may_have_been_meant() {
    for (from, to, expected) in [
        ("warmup", "warm-up", "tiny: line 6: unknown key 'warm-up'; did you mean 'warmup'?"),
        ("\"{rate}\"", "\"{rte}\"", "axis 'rte' is not known; did you mean 'rate'?"),
        ("\"sped\"", "\"spde\"", "server 'ours': invalid value 'spde' for '--arch"),
        (
            "name = \"few\"",
            "name = \"few\"\narrivals = \"never\"",
            "load 'few': invalid value 'never' for '--arrivals",
        ),
    ] {
        let folder = with(&TINY.replacen(from, to, 1));
        let checked = lab(folder.path(), &["check", "tiny.toml"]);
        assert_eq!(checked.status.code(), Some(2));
        assert!(text(&checked.stdout).contains(expected), "{}", text(&checked.stdout));
    }
    let folder = tempfile::tempdir().unwrap();
    let absent = lab(folder.path(), &["run", "brecht-usrver"]);
    assert_eq!(absent.status.code(), Some(2));
    assert!(text(&absent.stderr).contains("did you mean brecht-userver?"), "{}", text(&absent.stderr));
}

#[test]
fn a_run_leaves_its_records_and_is_not_run_twice() {
    let folder = with(TINY);
    let run = lab(folder.path(), &["run", "tiny.toml"]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let record = read(&folder.path().join("inrush-lab/tiny/experiment.json"));
    obeys_schema(&record, "run-record");
    assert_eq!(record["finished"], true);
    assert_eq!(record["topology"]["kind"], "loopback");
    assert_eq!(record["text"], TINY);
    let first = trials(folder.path());
    assert_eq!(first.len(), 4);
    for trial in &first {
        assert!(trial["metrics"]["offered_per_s"].is_number(), "{trial}");
        assert!(trial["metrics"]["accepts_per_s"].is_number(), "{trial}");
        obeys_schema(trial, "trial-record");
    }
    obeys_schema(&read(&folder.path().join("inrush-lab/tiny/summary.json")), "summary");
    assert!(folder.path().join("inrush-lab/tiny/report.html").exists());
    let again = lab(folder.path(), &["run", "tiny.toml"]);
    assert!(text(&again.stderr).contains("all trials have been run already"), "{}", text(&again.stderr));
    assert_eq!(trials(folder.path()), first);
    fs::write(folder.path().join("tiny.toml"), TINY.replace("150ms", "151ms")).unwrap();
    let other = lab(folder.path(), &["run", "tiny.toml"]);
    assert_eq!(other.status.code(), Some(1));
    assert!(
        text(&other.stderr).contains("holds a run of another form or version"),
        "{}",
        text(&other.stderr)
    );
}

#[test]
fn records_make_the_report_again_and_can_be_compared() {
    let folder = with(TINY);
    lab(folder.path(), &["run", "tiny.toml"]);
    // On a busy machine trials have flaws, and those are not compared.
    flaw_trials(folder.path(), &[]);
    let report = folder.path().join("inrush-lab/tiny/report.html");
    fs::remove_file(&report).unwrap();
    let output = lab(folder.path(), &["report", "inrush-lab/tiny"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(fs::read_to_string(&report).unwrap().contains("Replies"));
    let compare = |second: &str| lab(folder.path(), &["compare", "inrush-lab/tiny", second, "--output=json"]);
    let with_itself = compare("inrush-lab/tiny");
    assert_eq!(with_itself.status.code(), Some(0), "{}", text(&with_itself.stderr));
    let rows: Value = serde_json::from_slice(&with_itself.stdout).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), 1, "{rows:#}");
    let with_nothing = compare("nowhere");
    assert_eq!(with_nothing.status.code(), Some(2));
    assert_eq!(text(&with_nothing.stderr).lines().count(), 1, "{}", text(&with_nothing.stderr));
}

/// Gives every trial of a run the same flaws.
fn flaw_trials(folder: &Path, flaws: &[&str]) {
    for entry in fs::read_dir(folder.join("inrush-lab/tiny/trials")).unwrap() {
        let file = entry.unwrap().path();
        let mut trial = read(&file);
        trial["flaws"] = flaws.iter().copied().map(Value::from).collect();
        fs::write(file, trial.to_string()).unwrap();
    }
}

#[test]
fn comparison_with_a_run_of_a_dead_server_fails() {
    let (alive, dead) = (with(TINY), with(TINY));
    for (folder, flaws) in [(&alive, &[][..]), (&dead, &["server-died"])] {
        lab(folder.path(), &["run", "tiny.toml"]);
        flaw_trials(folder.path(), flaws);
    }
    let second = dead.path().join("inrush-lab/tiny");
    let output = lab(alive.path(), &["compare", "inrush-lab/tiny", second.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
    assert!(
        text(&output.stdout).contains("the second run has no valid trial at"),
        "{}",
        text(&output.stdout)
    );
    assert!(text(&output.stderr).contains("not measured in the second"), "{}", text(&output.stderr));
}

#[test]
fn experiments_of_one_name_are_refused_before_running() {
    let folder = with(TINY);
    fs::create_dir(folder.path().join("other")).unwrap();
    fs::copy(folder.path().join("tiny.toml"), folder.path().join("other/tiny.toml")).unwrap();
    let run = lab(folder.path(), &["run", "tiny.toml", "other/tiny.toml"]);
    assert_eq!(run.status.code(), Some(2), "{}", text(&run.stderr));
    assert!(text(&run.stderr).contains("tiny: two experiments have this name"), "{}", text(&run.stderr));
    assert!(!folder.path().join("inrush-lab").exists());
}

#[test]
fn a_server_gets_its_live_accept_limit() {
    let folder = with(&TINY.replace("[[load]]", "live-accept-limit = 7\n\n[[load]]"));
    let run = lab(folder.path(), &["run", "tiny.toml"]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let trials = trials(folder.path());
    assert_eq!(trials.len(), 4);
    for trial in trials {
        assert_eq!(trial["server_status"]["accept_limit"], "7", "{trial}");
    }
}

#[test]
fn a_load_begins_when_all_workers_have_started() {
    let folder = with(
        &TINY
            .replace("sped\", \"--workers\", \"1\"", "mp\", \"--workers\", \"40\"")
            .replace("[topology]", "[common]\nstarted-workers = 40\n\n[topology]"),
    );
    let run = lab(folder.path(), &["run", "tiny.toml"]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let started_under_load: Vec<_> = trials(folder.path())
        .iter()
        .map(|trial| trial["metrics"]["counter_workers_started_per_s"].clone())
        .collect();
    assert_eq!(started_under_load, vec![0.0; 4]);
}

#[test]
fn failed_server_start_is_named_and_others_go_on() {
    let folder = with(&format!("{TINY}{HOPELESS}"));
    let run = lab(folder.path(), &["run", "tiny.toml"]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let out = text(&run.stdout);
    assert!(out.contains("hopeless was left out: it ended at once, exit status: 3: no such luck"), "{out}");
    let all = trials(folder.path());
    let failed: Vec<_> = all.iter().filter(|trial| trial["server"] == "hopeless").collect();
    assert!(!failed.is_empty() && failed.iter().all(|trial| trial["flaws"][0] == "failed"), "{failed:?}");
    assert_eq!(all.iter().filter(|trial| trial["server"] == "ours").count(), 4);
}

/// Starts a program in a folder.
fn begin(folder: &Path, program: &str, arguments: &[&str]) -> Child {
    #[allow(clippy::disallowed_methods, reason = "the program under test is started by its test")]
    let mut command = std::process::Command::new(program);
    command.args(arguments).current_dir(folder).stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Waits until a run has recorded this many trials.
fn await_trials(folder: &Path, running: &mut Child, count: usize) {
    while trials_so_far(folder).len() < count {
        assert!(running.try_wait().unwrap().is_none(), "it ended before record {count}");
        #[allow(clippy::disallowed_methods, reason = "between two looks at a folder")]
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn send(running: &Child, signal: Signal) {
    kill_process(Pid::from_child(running), signal).unwrap();
}

#[test]
fn run_under_nohup_ends_at_sigterm_not_at_sighup() {
    let folder = with(&TINY.replace("trials = 2", "trials = 20"));
    let script = "trap '' HUP; exec \"$0\" lab run tiny.toml";
    let mut running = begin(folder.path(), "sh", &["-c", script, env!("CARGO_BIN_EXE_inrush")]);
    await_trials(folder.path(), &mut running, 1);
    send(&running, Signal::HUP);
    let seen = trials(folder.path()).len();
    // Without nohup the run would end before its next trial.
    await_trials(folder.path(), &mut running, seen + 2);
    send(&running, Signal::TERM);
    let ended = running.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1), "{}", text(&ended.stderr));
    assert!(text(&ended.stderr).contains("run the same command again"), "{}", text(&ended.stderr));
}

#[test]
fn a_run_that_was_broken_off_goes_on_where_it_was() {
    let folder = with(&TINY.replace("trials = 2", "trials = 20"));
    let mut running = begin(folder.path(), env!("CARGO_BIN_EXE_inrush"), &["lab", "run", "tiny.toml"]);
    await_trials(folder.path(), &mut running, 1);
    send(&running, Signal::TERM);
    let ended = running.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    assert!(text(&ended.stderr).contains("run the same command again"), "{}", text(&ended.stderr));
    let before = trials(folder.path());
    assert!(before.len() < 40);
    let again = lab(folder.path(), &["run", "tiny.toml"]);
    assert_eq!(again.status.code(), Some(0), "{}", text(&again.stderr));
    let after = trials(folder.path());
    assert_eq!(after.len(), 40);
    // Later trials may show that the machine was slow: then a trial is repeated, or has one more flaw.
    let repeated = text(&again.stderr).matches(", once more").count();
    let measured = |trial: &Value| {
        let mut trial = trial.clone();
        trial.as_object_mut().unwrap().remove("flaws");
        trial
    };
    let after: Vec<Value> = after.iter().map(measured).collect();
    let lost = before.iter().filter(|trial| !after.contains(&measured(trial))).count();
    assert!(lost <= repeated, "{lost} of {} trials are lost, {repeated} were repeated", before.len());
}

#[test]
fn in_namespaces_a_trial_has_a_network_of_its_own() {
    let experiment = TINY.replace("kind = \"loopback\"", "sysctls = { \"net.core.somaxconn\" = 77 }");
    let folder = with(&experiment.replace("[[axis]]", "[common]\nbacklog = 4096\n\n[[axis]]"));
    let run = lab(folder.path(), &["run", "tiny.toml"]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let record = read(&folder.path().join("inrush-lab/tiny/experiment.json"));
    if record["topology"]["kind"] != "namespaces" {
        return println!("skipped: {}", record["topology"]["warnings"]);
    }
    let all = trials(folder.path());
    let limits: Vec<_> = all.iter().filter_map(|trial| trial["queue"]["limit"].as_u64()).collect();
    assert!(!limits.is_empty() && limits.iter().all(|limit| *limit == 77), "{limits:?}");
}

#[test]
fn lab_load_uses_user_tcp_in_namespaces() {
    let user = TINY.replace("[[load]]", "[[load]]\nstack = \"user\"");
    let folder = with(&user);
    assert_eq!(lab(folder.path(), &["run", "tiny.toml"]).status.code(), Some(0));
    let record = read(&folder.path().join("inrush-lab/tiny/experiment.json"));
    let warned = record["topology"]["warnings"].to_string();
    assert!(warned.contains("the client uses kernel sockets"), "{warned}");
    assert_eq!(stacks(folder.path()), vec![None; 4]);
    let folder = with(&user.replace("kind = \"loopback\"", ""));
    let run = lab(folder.path(), &["run", "tiny.toml"]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let record = read(&folder.path().join("inrush-lab/tiny/experiment.json"));
    if record["topology"]["kind"] != "namespaces" {
        return println!("skipped: {}", record["topology"]["warnings"]);
    }
    assert_eq!(stacks(folder.path()), vec![Some("user".to_owned()); 4]);
}

#[test]
fn command_answers_as_often_as_asked_before_a_trial() {
    let program = env!("CARGO_BIN_EXE_inrush");
    let warmed = format!(
        r#"
[[server]]
name = "warmed"
kind = "command"
ready = "GET /index.html 70 times"
command = ["{program}", "serve", "{{root}}", "--listen", "{{address}}", "--access-log", "log"]
"#
    );
    let folder = with(&(TINY.to_owned() + &warmed));
    let run = lab(folder.path(), &["run", "tiny.toml", "--quick"]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let log = fs::read_to_string(folder.path().join("log")).unwrap();
    let starts = trials(folder.path()).iter().filter(|trial| trial["server"] == "warmed").count();
    // The load's requests are no more than these: 100/s for 200 ms.
    assert!(starts > 0 && log.lines().count() >= 70 * starts, "{starts} starts, {}", log.lines().count());
}

#[test]
fn an_ordinary_user_has_namespaces_too() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: the tests before this one are run by an ordinary user");
    }
    let folder =
        with(&TINY.replace("[[load]]", "[[load]]\nstack = \"user\"").replace("kind = \"loopback\"", ""));
    // Others may not reach the program where it was built. A process of its own writes the copy: a child that another test
    // starts would inherit our open descriptor, and the kernel runs no file that somebody may write.
    let program = folder.path().join("inrush");
    Command::new("cp").args([Path::new(env!("CARGO_BIN_EXE_inrush")), &program]).assert().success();
    let nobody = Some(65534);
    std::os::unix::fs::chown(folder.path(), nobody, nobody).unwrap();
    let as_nobody = |program: &Path, arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program).args(arguments);
        command.current_dir(folder.path()).output().unwrap()
    };
    let run = as_nobody(&program, &["lab", "run", "tiny.toml"]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let record = read(&folder.path().join("inrush-lab/tiny/experiment.json"));
    let topology = &record["topology"];
    if topology["kind"] != "namespaces" {
        return println!("skipped: {}", topology["warnings"]);
    }
    // Some machines leave this file to root.
    let has_tun = as_nobody(Path::new("test"), &["-w", "/dev/net/tun"]).status.success();
    let warnings = topology["warnings"].to_string();
    assert_eq!(warnings.contains("access to /dev/net/tun"), !has_tun, "{topology}");
    assert_eq!(stacks(folder.path()), vec![has_tun.then(|| "user".to_owned()); 4]);
}

/// The client's TCP in each trial that was answered; `None` for kernel sockets.
fn stacks(folder: &Path) -> Vec<Option<String>> {
    let answered =
        trials(folder).into_iter().filter(|trial| trial["client"]["outcomes"]["ok"].as_u64() > Some(0));
    answered.map(|trial| trial["client"]["manifest"]["config"]["stack"].as_str().map(str::to_owned)).collect()
}

#[test]
fn a_herd_is_a_trial_too() {
    let folder = with(
        "title = 'herd'\nplan = { trials = 1, duration = '1s' }\n[[axis]]\nname = 'n'\nvalues = [2, 5]\n\
         [[server]]\nname = 'accept'\nkind = 'herd'\n\
         flags = ['--wait', 'accept', '--waiters', '{n}', '--samples', '3']\n",
    );
    let run = lab(folder.path(), &["run", "tiny.toml"]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let trials = trials(folder.path());
    let mut waiters: Vec<_> = trials.iter().map(|trial| trial["axes"]["n"].as_f64().unwrap()).collect();
    waiters.sort_by(f64::total_cmp);
    assert_eq!(waiters, [2.0, 5.0]);
    for trial in trials {
        assert_eq!(trial["load"], Value::Null);
        assert!(trial["metrics"]["wakeups_per_connection"].as_f64().unwrap() >= 1.0, "{trial}");
    }
}

#[test]
fn what_a_killed_laboratory_left_behind_is_taken_away() {
    let folder = tempfile::tempdir().unwrap();
    // No process has the largest possible number.
    let orphan = folder.path().join(format!("inrush-lab-{}-files", i32::MAX));
    fs::create_dir(&orphan).unwrap();
    let mut clean = Command::new(env!("CARGO_BIN_EXE_inrush"));
    let output = clean.args(["lab", "clean"]).env("TMPDIR", folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains(&format!("removed folder {}", orphan.display())));
    assert!(!orphan.exists());
}
