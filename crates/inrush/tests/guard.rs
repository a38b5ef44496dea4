//! `inrush guard` as users see it: the survey, its errors and exit codes, and a server that it starts itself.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::process::Output;

use assert_cmd::Command;
use base::{Bytes, Nanos};
use rustix::net::SendFlags;
use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, Resource, Rlimit, Signal, pidfd_getfd, pidfd_open, prlimit,
};
use serde_json::Value;
use stage::cgroup::{Bound, Cgroup};
use sys::process::{Child, Exit, Program};
use sys::readiness::poll;

const PROGRAM: &str = env!("CARGO_BIN_EXE_inrush");

fn guard(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).arg("guard").args(arguments).output().unwrap()
}

#[track_caller]
fn check_error(arguments: &[&str], code: i32, parts: &[&str]) {
    let output = guard(arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    for part in parts {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
}

#[test]
fn guard_errors_are_a_line_with_the_next_step() {
    check_error(&[], 2, &["name a listener", ":8080", "--unit"]);
    check_error(&["8080"], 2, &["expected :PORT or ADDR:PORT"]);
    check_error(&[":80", "--allow", "all"], 2, &["192.0.2.7 or 2001:db8::/32"]);
    check_error(&["--pid", "1", "--unit", "a.service"], 2, &["cannot be used with"]);
    check_error(&["--pid", &i32::MAX.to_string()], 3, &["there is no process"]);
    // Port 1 has no listener unless somebody runs a TCPMUX server.
    check_error(&["127.0.0.1:1"], 3, &["no TCP listener at 127.0.0.1:1", "--observe"]);
    check_error(&[":1", "--", "no-such-server"], 2, &["no-such-server", "cannot start the server"]);
}

#[test]
fn survey_lists_our_listener_as_json() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let output = guard(&["--observe", "--output", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let ours = found.iter().find(|found| found["address"] == address.as_str()).unwrap();
    assert_eq!(ours["owners"][0]["pid"], std::process::id());
    assert_eq!((&ours["depth"], &ours["drops"]), (&Value::from(0), &Value::from(0)));
}

#[test]
fn survey_as_ndjson_has_a_line_for_each_listener() {
    let listeners = ["127.0.0.1:0"; 2].map(|any| TcpListener::bind(any).unwrap());
    let output = guard(&["--observe", "--output", "ndjson"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let found: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for listener in listeners {
        let address = listener.local_addr().unwrap().to_string();
        assert!(found.iter().any(|found| found["address"] == address.as_str()), "{text}");
    }
}

/// Asserts that an HTTP server answers at an address.
#[track_caller]
fn assert_answers(address: &str) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).unwrap();
    assert!(reply.starts_with(b"HTTP/1."));
}

/// Waits for the end of a process, however long it takes.
fn end_of(child: &mut Child) -> Exit {
    loop {
        if let Some(exit) = child.wait(Nanos::SECOND).unwrap() {
            return exit;
        }
    }
}

#[test]
fn command_starts_and_ends_with_its_guard() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let folder = tempfile::tempdir().unwrap();
    let listen = format!("127.0.0.1:{port}");
    let arguments = [
        "guard".to_owned(),
        listen.clone(),
        "--observe".to_owned(),
        "--signal=queue".to_owned(),
        "--output=ndjson".to_owned(),
        "--".to_owned(),
        PROGRAM.to_owned(),
        "serve".to_owned(),
        folder.path().to_str().unwrap().to_owned(),
        "--listen".to_owned(),
        listen.clone(),
    ];
    let mut child = Program::new(PROGRAM).arguments(arguments).start().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let status: Value = serde_json::from_str(&lines.map(Result::unwrap).next().unwrap()).unwrap();
    assert_eq!((&status["state"], &status["signal"]), (&Value::from("open"), &Value::from("queue")));
    assert_answers(&listen);
    child.signal(Signal::TERM).unwrap();
    assert_eq!(end_of(&mut child).status.code(), Some(0));
    assert!(TcpStream::connect(&listen).is_err(), "the server has ended too");
}

#[test]
fn server_outlives_figures_that_cannot_be_written() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let folder = tempfile::tempdir().unwrap();
    let listen = format!("127.0.0.1:{port}");
    let script =
        "exec $0 guard $1 --observe --signal=queue --output=ndjson -- $0 serve $2 --listen $1 >/dev/full";
    let arguments = ["-c", script, PROGRAM, &listen, folder.path().to_str().unwrap()];
    let mut child = Program::new("sh").arguments(arguments).start().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.find(|line| line.contains("cannot write the figures")).expect("a line about the disk");
    assert!(line.ends_with("No space left on device (os error 28); the guard goes on"), "{line}");
    assert_answers(&listen);
    child.signal(Signal::TERM).unwrap();
    assert_eq!(end_of(&mut child).status.code(), Some(0));
}

#[test]
fn figures_are_served_as_metrics_and_json() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let arguments = ["guard", &address, "--observe", "--signal=queue", "--admin=127.0.0.1:0"];
    let mut child = Program::new(PROGRAM).arguments(arguments).start().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.find(|line| line.contains("http://")).expect("a line with the page's address");
    let page = line.split(['/', ' ']).find(|word| word.starts_with("127.0.0.1:")).unwrap().to_owned();
    let get = |path: &str| {
        let mut stream = TcpStream::connect(&page).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {page}\r\nConnection: close\r\n\r\n").unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
        reply.split_once("\r\n\r\n").unwrap().1.to_owned()
    };
    let metrics = get("/metrics");
    let refusing = format!("inrush_guard_refusing{{listener=\"{address}\"}} 0");
    assert!(metrics.lines().any(|line| line == refusing), "no {refusing} in {metrics}");
    let status: Value = serde_json::from_str(&get("/status")).unwrap();
    assert_eq!((&status["state"], &status["hook"]), (&Value::from("open"), &Value::from("none")));
    child.signal(Signal::TERM).unwrap();
    end_of(&mut child);
}

/// The program that changes rights. Prints a skip where it is missing, or we are not root.
fn setpriv() -> Option<std::path::PathBuf> {
    let found = sys::process::find_program("setpriv").filter(|_| rustix::process::geteuid().is_root());
    if found.is_none() {
        println!("skipped: needs root and setpriv");
    }
    found
}

/// The guard as a user without rights, with these capabilities. `None` where that cannot be tested.
fn as_nobody(capabilities: &str, arguments: &[&str]) -> Option<Output> {
    let setpriv = setpriv()?;
    let folder = tempfile::tempdir().unwrap();
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), readable).unwrap();
    // The folder of our program may be closed to others. A process of its own writes the copy: a child that another test
    // starts would inherit our open descriptor, and the kernel runs no file that somebody may write.
    let program = folder.path().join("inrush");
    Command::new("cp").arg(PROGRAM).arg(&program).assert().success();
    let user = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let rights = [format!("--inh-caps={capabilities}"), format!("--ambient-caps={capabilities}")];
    let mut command = Command::new(setpriv);
    command.args(user).args(rights).arg(program).arg("guard").args(arguments);
    Some(command.timeout(std::time::Duration::from_secs(60)).output().unwrap())
}

#[test]
fn user_without_rights_is_told_what_is_missing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let Some(output) = as_nobody("-all", &[&address]) else { return };
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("nothing here can refuse connections") && said.contains("CAP_BPF"), "{said}");
}

#[test]
fn ambient_capabilities_are_enough_to_guard() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    // The started server ends at once, and the guard with it.
    let arguments = [&*address, "--signal=requests", "--hook=cgroup", "--output=json", "--", "true"];
    let Some(output) = as_nobody("+bpf,+net_admin", &arguments) else { return };
    let said = String::from_utf8(output.stderr).unwrap();
    if said.contains("no cgroup2 hierarchy") {
        return println!("skipped: {said}");
    }
    let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"));
    assert_eq!((&status["hook"], &status["state"]), (&Value::from("cgroup"), &Value::from("open")), "{said}");
    let rights = &status["rights"];
    assert_eq!(rights["starter"]["capabilities"], Value::from(vec!["CAP_NET_ADMIN", "CAP_BPF"]), "{rights}");
    assert_eq!(rights["controller"]["capabilities"], Value::Array(Vec::new()), "{rights}");
}

#[test]
fn user_without_rights_observes_confined() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let arguments = [&*address, "--observe", "--output=json", "--", "true"];
    let Some(output) = as_nobody("-all", &arguments) else { return };
    let said = String::from_utf8(output.stderr).unwrap();
    let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"));
    assert_eq!((&status["signal"], &status["hook"]), (&Value::from("queue"), &Value::from("none")), "{said}");
    let rights = &status["rights"];
    assert_eq!(rights["starter"]["capabilities"], Value::Array(Vec::new()), "{rights}");
    let (found, none) = (&rights["controller"], confine::Facility::Missing);
    assert_eq!(
        (&found["filters_calls"], &found["no_new_privileges"]),
        (&(confine::probe()[1] != none).into(), &true.into())
    );
}

/// The text of an example in `deploy`.
fn example(name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name);
    std::fs::read_to_string(path).unwrap()
}

/// The arguments of the guard in an example for Kubernetes, which follow the word `guard`.
fn arguments_of(name: &str) -> Vec<String> {
    let text = example(name);
    let arguments = text.lines().find_map(|line| line.trim().strip_prefix("args: [guard, ")).unwrap();
    arguments.trim_end_matches(']').split(", ").map(|word| word.trim_matches('"').to_owned()).collect()
}

/// The guard as root of a container with these capabilities alone. `None` where that cannot be tested.
fn as_root_of_container(capabilities: &str, arguments: &[&str]) -> Option<Output> {
    let setpriv = setpriv()?;
    let mut command = Command::new(setpriv);
    command.arg(format!("--bounding-set={capabilities}")).arg("--inh-caps=-all").arg(PROGRAM).arg("guard");
    Some(command.args(arguments).timeout(std::time::Duration::from_secs(60)).output().unwrap())
}

/// Runs the guard of an example beside a listener here, with the capabilities that the example adds. `None` where that
/// cannot be tested.
fn status_of(example: &str, capabilities: &str) -> Option<Value> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut arguments = arguments_of(example);
    arguments[0] = listener.local_addr().unwrap().to_string();
    let admin = arguments.iter_mut().find(|argument| argument.ends_with(":9191")).unwrap();
    *admin = "127.0.0.1:0".to_owned();
    // The started server ends at once, and the guard with it.
    let end = ["--output=json", "--", "true"].map(str::to_owned);
    let arguments: Vec<String> = arguments.into_iter().chain(end).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let output = as_root_of_container(capabilities, &arguments)?;
    let said = String::from_utf8(output.stderr).unwrap();
    if said.contains("no cgroup2 hierarchy") {
        println!("skipped: {said}");
        return None;
    }
    Some(serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}")))
}

#[test]
fn sidecar_example_refuses_on_devices() {
    let Some(status) = status_of("kubernetes-guard.yaml", "-all,+bpf,+net_admin") else { return };
    assert_eq!([&status["hook"], &status["signal"], &status["state"]], ["tc", "queue", "open"], "{status}");
}

#[test]
fn daemon_set_example_refuses_at_the_cgroup() {
    let Some(status) = status_of("kubernetes-guard-node.yaml", "+all") else { return };
    let found = [&status["hook"], &status["signal"], &status["state"]];
    assert_eq!(found, ["cgroup", "requests and queue", "open"], "{status}");
}

#[test]
fn examples_with_capabilities_run_as_root() {
    // A program that another user starts gets none of a container's capabilities, and the image names such a user.
    assert!(example("../packaging/Containerfile").contains("\nUSER 65532:65532\n"));
    let depth = |text: &str| text.len() - text.trim_start().len();
    for name in ["kubernetes-guard.yaml", "kubernetes-guard-node.yaml"] {
        let text = example(name);
        let (_, rest) = text.split_once("securityContext:\n").unwrap();
        let lines: Vec<&str> =
            rest.lines().take_while(|line| depth(line) >= depth(rest)).map(str::trim).collect();
        let has_rights = |line: &&str| line.starts_with("add:") || *line == "privileged: true";
        assert!(lines.iter().any(has_rights) && lines.contains(&"runAsUser: 0"), "{name}: {lines:?}");
    }
}

/// A guard as a user starts it, with its lines.
struct Running {
    starter: sys::process::Child,
    lines: std::io::Lines<BufReader<std::process::ChildStderr>>,
}

impl Running {
    fn start(arguments: &[&str]) -> Running {
        let mut starter = Program::new(PROGRAM).arguments(["guard"]).arguments(arguments).start().unwrap();
        let lines = BufReader::new(starter.stderr.take().unwrap()).lines();
        Running { starter, lines }
    }

    /// The next line with these words.
    fn line(&mut self, words: &str) -> String {
        let found = self.lines.by_ref().map(Result::unwrap).find(|line| line.contains(words));
        found.unwrap_or_else(|| panic!("the guard ended before it said {words:?}"))
    }

    fn children(&self) -> Vec<Pid> {
        let id = self.starter.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        let ids = children.split_whitespace().map(|child| child.parse().unwrap());
        ids.map(|id| Pid::from_raw(id).unwrap()).collect()
    }

    /// The process that decides: the only child.
    fn controller(&self) -> Pid {
        let [controller] = self.children()[..] else { panic!("the guard has another child") };
        controller
    }
}

/// A line of a process's status.
fn status_line(pid: impl std::fmt::Display, name: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    text.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim_start_matches(':').trim().to_owned()
}

fn is_missing(what: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    let confines = !confine::probe().contains(&confine::Facility::Missing);
    if !root || !confines {
        println!("skipped: {what} needs root, Landlock and seccomp");
    }
    !root || !confines
}

#[test]
fn sink_says_that_it_cannot_guess_health_checks() {
    if is_missing("a guard that gives up rights") {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut guard = Running::start(&[&address, "--hook=sink", "--signal=queue", "--allow-probe"]);
    guard.line("hook sink, which does not know steady clients from others");
}

#[test]
fn rights_are_split_and_read_back() {
    if is_missing("a guard that gives up rights") {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut guard = Running::start(&[&address, "--hook=sink", "--signal=queue", "--output=json"]);
    let line = guard.line("confined");
    assert!(line.contains("no capabilities, files by") && line.contains("system calls by seccomp"), "{line}");
    let controller = guard.controller().as_raw_nonzero();
    for (name, value) in [("CapEff", "0000000000000000"), ("CapPrm", "0000000000000000")] {
        assert_eq!(status_line(controller, name), value);
    }
    assert_eq!([status_line(controller, "NoNewPrivs"), status_line(controller, "Seccomp")], ["1", "2"]);
    // CAP_DAC_READ_SEARCH, CAP_SETUID, CAP_NET_ADMIN, CAP_SYS_PTRACE, CAP_BPF.
    let kept = 1_u64 << 2 | 1 << 7 | 1 << 12 | 1 << 19 | 1 << 39;
    let effective = u64::from_str_radix(&status_line(guard.starter.id(), "CapEff"), 16).unwrap();
    assert_eq!(effective & !kept, 0, "{effective:x}");
    guard.starter.signal(Signal::TERM).unwrap();
    let output = guard.starter.output(Nanos::SECOND, || true).unwrap();
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rights = &status["rights"];
    assert_eq!(rights["controller"]["capabilities"], Value::Array(Vec::new()), "{rights}");
    assert_eq!(rights["controller"]["filters_calls"], true);
    let told = rights["starter"]["capabilities"].as_array().unwrap();
    assert_eq!(told.len() as u32, effective.count_ones(), "{rights}");
    assert!(line.contains(told[0].as_str().unwrap()), "{line}");
}

#[test]
fn guard_that_cannot_restart_tries_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let page = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut guard = Running::start(&[&address, "--observe", "--signal=queue", &format!("--admin={page}")]);
    guard.line("figures on");
    let controller = guard.controller();
    // The starter sees the end of its controller once another program has taken the port of the page.
    guard.starter.signal(Signal::STOP).unwrap();
    rustix::process::kill_process(controller, Signal::KILL).unwrap();
    let taken = loop {
        if let Ok(taken) = TcpListener::bind(page) {
            break taken;
        }
    };
    guard.starter.signal(Signal::CONT).unwrap();
    guard.line("the guard was killed");
    guard.line("the guard ended with exit code 1, and everything is admitted; it starts again");
    drop(taken);
    guard.line("observing");
    guard.starter.signal(Signal::TERM).unwrap();
    assert!(guard.starter.output(Nanos::SECOND, || true).unwrap().exit.status.success());
}

#[test]
fn guard_without_controller_sees_its_server_end() {
    if is_missing("a guard that gives up rights") {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let go = folder.path().join("go");
    let script = format!("while [ ! -e {} ]; do sleep 0.05; done; exit 7", go.display());
    let mut guard = Running::start(&[&address, "--observe", "--signal=queue", "--", "sh", "-c", &script]);
    guard.line("confined");
    let children = guard.children();
    let is_server = |child: &&Pid| status_line(child.as_raw_nonzero(), "Name") == "sh";
    let (server, controller): (Vec<&Pid>, Vec<&Pid>) = children.iter().partition(is_server);
    let starter = Pid::from_raw(guard.starter.id() as i32).unwrap();
    let no_descriptor = Rlimit { current: Some(3), maximum: Some(3) };
    prlimit(Some(starter), Resource::Nofile, no_descriptor).unwrap();
    rustix::process::kill_process(*controller[0], Signal::KILL).unwrap();
    guard.line("make a socket");
    std::fs::write(&go, "").unwrap();
    let server = server[0].as_raw_nonzero();
    let has_ended = || {
        let status = std::fs::read_to_string(format!("/proc/{server}/status"));
        status.is_err() || status.is_ok_and(|status| status.contains("State:\tZ"))
    };
    while !has_ended() {
        std::thread::yield_now();
    }
    // One attempt may have failed before the server ended, and one while it ended.
    assert!(guard.lines.by_ref().take(4).count() < 4, "the guard goes on without its server");
    end_of(&mut guard.starter);
    assert_eq!(guard.starter.wait(Nanos::ZERO).unwrap().unwrap().status.code(), Some(7));
}

#[test]
fn guard_starts_again_after_an_error_of_its_starter() {
    if is_missing("a descriptor of another process") {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut guard = Running::start(&[&address, "--observe", "--signal=queue"]);
    guard.line("confined");
    let controller = pidfd_open(guard.controller(), PidfdFlags::empty()).unwrap();
    let socket = pidfd_getfd(&controller, 0, PidfdGetfdFlags::empty()).unwrap();
    rustix::net::send(&socket, b"nonsense", SendFlags::empty()).unwrap();
    guard.line("the controller asked for something that no controller asks for");
    guard.line("the guard ended with exit code 1, and everything is admitted; it starts again");
    guard.line("observing");
    guard.starter.signal(Signal::TERM).unwrap();
    assert!(guard.starter.output(Nanos::SECOND, || true).unwrap().exit.status.success());
}

/// Listens at an address whose listener has closed. A process that a test beside this one has forked may have a copy, which the
/// kernel takes from the address a moment after it stops to listen.
fn listen_again(address: SocketAddr) -> TcpListener {
    let is_free = |bound: &std::io::Result<_>| {
        !bound.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::AddrInUse)
    };
    let mut attempts = (0..10_000).map(|_| {
        poll::wait(&mut [], Some(Nanos::MILLISECOND)).unwrap();
        TcpListener::bind(address)
    });
    attempts.find(is_free).expect("the guard's own sockets leave the address").unwrap()
}

/// Kills the controller of a guard beside a listener here, then opens the listener again, then kills the starter.
fn guard_again_after_kill(hook: &str) {
    // An address of its own: a client of a test beside this one may get the port while nobody listens there.
    let listener = TcpListener::bind("127.0.9.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut guard = Running::start(&[&address.to_string(), &format!("--hook={hook}")]);
    guard.line("guarding");
    guard.line("confined");
    let first = guard.controller();
    rustix::process::kill_process(first, Signal::KILL).unwrap();
    guard.line("the guard was killed, and everything is admitted");
    TcpStream::connect(address).unwrap();
    let line = guard.line("guarding");
    assert!(line.contains(&format!("hook {hook}")), "{line}");
    guard.line("confined");
    assert_ne!(guard.controller(), first);
    // The listener goes and comes: the starter attaches again with the rights that it has kept.
    drop(listener);
    guard.line("the listener is gone");
    let _listener = listen_again(address);
    let line = guard.line("the listeners have changed; guarding");
    assert!(line.contains(&format!("hook {hook}")), "{line}");
    // A starter takes its controller along.
    guard.starter.kill().unwrap();
    end_of(&mut guard.starter);
    assert!(guard.lines.all(|line| line.is_ok()), "the controller has ended, and with it the pipe");
    TcpStream::connect(address).unwrap();
}

#[test]
fn killed_guard_starts_again_at_the_cgroup() {
    if is_missing("a guard at the cgroup") {
        return;
    }
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    if !mounts.contains(" cgroup2 ") {
        return println!("skipped: no cgroup2 hierarchy is mounted here");
    }
    guard_again_after_kill("cgroup");
}

#[test]
fn killed_guard_starts_again_with_a_sink() {
    if !is_missing("a sink") {
        guard_again_after_kill("sink");
    }
}

/// The number of processes of a group that the kernel has killed for want of memory.
fn killed_in(group: &Cgroup) -> u64 {
    let link = format!("/proc/self/fd/{}", group.as_fd().as_raw_fd());
    let folder = std::fs::read_link(link).unwrap().parent().unwrap().to_owned();
    // The file's name in version 1, and in version 2.
    let mut files = ["memory.oom_control", "memory.events"].into_iter();
    let text = files.find_map(|name| std::fs::read_to_string(folder.join(name)).ok()).unwrap();
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")).unwrap().parse().unwrap()
}

#[test]
fn guard_without_memory_admits_and_starts_again() {
    if is_missing("a sink") {
        return;
    }
    let groups = match Cgroup::with(&[Bound::Memory(Bytes(64 << 20))]) {
        Ok(groups) => groups,
        Err(error) => return println!("skipped: no control groups here: {error}"),
    };
    let memory = &groups[0];
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut guard = Running::start(&[&address.to_string(), "--hook=sink", "--signal=queue"]);
    guard.line("confined");
    let controller = guard.controller().as_raw_nonzero();
    rustix::io::write(memory, controller.to_string().as_bytes()).unwrap();
    // The kernel kills this one first.
    std::fs::write(format!("/proc/{controller}/oom_score_adj"), "1000").unwrap();
    // A line without an end, which the program must keep whole.
    let glutton = Program::new("tail").arguments(["/dev/zero"]).in_cgroups(vec![memory.as_fd()]);
    let mut glutton = glutton.start().unwrap();
    end_of(&mut glutton);
    assert_eq!(killed_in(memory), 2, "the guard, and what took the memory");
    guard.line("the guard was killed, and everything is admitted");
    TcpStream::connect(address).unwrap();
    guard.line("guarding");
    guard.line("confined");
    guard.starter.kill().unwrap();
    end_of(&mut guard.starter);
}

#[test]
fn started_server_keeps_the_rights_of_its_user() {
    if is_missing("a guard that gives up rights") {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let (file, go) = (folder.path().join("status"), folder.path().join("go"));
    let script = format!(
        "while [ ! -e {} ]; do sleep 0.05; done; cat /proc/self/status > {}",
        go.display(),
        file.display()
    );
    let mut guard = Running::start(&[&address, "--observe", "--signal=queue", "--", "sh", "-c", &script]);
    guard.line("confined");
    std::fs::write(&go, "").unwrap();
    end_of(&mut guard.starter);
    let status = std::fs::read_to_string(&file).unwrap();
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    for name in ["CapEff", "NoNewPrivs", "Seccomp"] {
        let find = |text: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert_eq!(find(&status), find(&own));
    }
}
