//! SIGUSR2: a newer program takes over, and no client notices.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use base::{Clock, Nanos, RealClock};
use rustix::io::retry_on_intr;
use rustix::net::{RecvFlags, recv};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use sys::process::Program;

use super::architectures::{on_every_plain_architecture, on_the_completion_driver};
use super::confinement;
use super::tls::{self, Identity};
use crate::common::{Client, Files, PATIENCE, PROGRAM, Server, eventually, has_ended, pattern, pause, send};

/// A flag of a server under overload control that a busy test machine must not overload.
const PATIENT: &str = "--queue-target=10s";

/// A server, by the process that serves now. It ends when dropped, with all that went before it.
pub struct Upgrading {
    pub server: Server,
    pub process: u32,
}

impl Upgrading {
    pub fn new(server: Server) -> Upgrading {
        let process = server.process();
        Upgrading { server, process }
    }

    pub fn start(files: &Files, flags: &[&str]) -> Upgrading {
        // seda has controllers of its own.
        let patient: &[&str] = if flags.contains(&"--arch=seda") { &[] } else { &[PATIENT] };
        let flags = [flags, &["--upgrade=on"], patient].concat();
        Upgrading::new(Server::start_with_control(&files.root(), &flags))
    }

    pub fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// Asks the process that serves, and returns the lines up to one that has this part.
    fn signal(&mut self, signal: Signal, until: &str) -> String {
        send(self.process, signal);
        let mut said = String::new();
        loop {
            let line = self.server.says();
            said.push_str(&line);
            if line.contains(until) {
                return said;
            }
            assert!(!line.contains("goes on") && !line.contains("serves now"), "{said}");
        }
    }

    /// Hands over, waits for the end of the predecessor, and returns what both said.
    pub fn upgrade(&mut self) -> String {
        let before = self.process;
        let said = self.hand_over();
        self.server.eventually_of("the predecessor ends", |_| has_ended(before));
        said
    }

    /// Hands over, and returns what both processes said until the successor serves.
    pub fn hand_over(&mut self) -> String {
        let said = self.signal(Signal::USR2, " serves now; this one finishes its connections");
        let line = said.lines().last().unwrap();
        let number = line.strip_prefix("inrush: process ").and_then(|rest| rest.split(' ').next());
        self.process = number.unwrap().parse().unwrap();
        said
    }

    /// Tries to hand over in vain, and returns the last line.
    fn fail(&mut self) -> String {
        let said = self.signal(Signal::USR2, "; this one goes on");
        assert!(!has_ended(self.process));
        said.lines().last().unwrap().to_owned()
    }

    fn get(&self, path: &str) -> Vec<u8> {
        Client::connect(self.address()).get(path).body
    }
}

impl Drop for Upgrading {
    fn drop(&mut self) {
        // The processes of the first one's group end with it.
        let _ = kill_process(Pid::from_raw(self.process as i32).unwrap(), Signal::KILL);
    }
}

/// Clients that go on whatever happens, each on new connections or on one that lasts.
struct Traffic {
    over: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    clients: Vec<JoinHandle<()>>,
}

impl Traffic {
    fn start(address: SocketAddr) -> Traffic {
        let (over, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let client = |lasts: bool| {
            let (over, answered) = (Arc::clone(&over), Arc::clone(&answered));
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                while !over.load(Ordering::Relaxed) {
                    let response = client.get(Files::SMALL.0);
                    assert!(
                        response.status == 200 && response.body == pattern(Files::SMALL.1),
                        "{response:?}"
                    );
                    if response.says_close() || !lasts {
                        client = Client::connect(address);
                    }
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let clients = [true, false, true, false].map(client).into();
        Traffic { over, answered, clients }
    }

    /// Waits until some more requests have been answered.
    fn goes_on(&self, server: &mut Upgrading) {
        let before = self.answered.load(Ordering::Relaxed);
        let more = |_: &mut Server| {
            assert!(!self.clients.iter().any(JoinHandle::is_finished), "a client lost something");
            self.answered.load(Ordering::Relaxed) > before + 40
        };
        server.server.eventually_of("answered", more);
    }

    /// Ends the clients, each of which has lost nothing.
    fn end(self) {
        self.over.store(true, Ordering::Relaxed);
        self.clients.into_iter().for_each(|client| client.join().expect("a client lost something"));
    }
}

#[test]
fn upgrades_go_unnoticed_on_every_architecture() {
    let files = Files::new();
    let test = |flags: &[&str]| {
        let mut server = Upgrading::start(&files, flags);
        let traffic = Traffic::start(server.address());
        for _ in 0..3 {
            traffic.goes_on(&mut server);
            server.upgrade();
        }
        traffic.goes_on(&mut server);
        traffic.end();
    };
    on_every_plain_architecture(test);
    on_the_completion_driver(test);
}

/// Returns the numbers of the sockets that listen at an address of IPv4, from /proc/net/tcp.
pub fn listening(address: SocketAddr) -> BTreeSet<String> {
    let port = format!(":{:04X}", address.port());
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines
        .filter(|fields| fields[1].ends_with(&port) && fields[3] == "0A")
        .map(|fields| fields[9].to_owned())
        .collect()
}

#[test]
fn no_listener_and_no_sink_is_closed_by_an_upgrade() {
    let files = Files::new();
    let mut server = Upgrading::start(&files, &["--arch=per-core", "--workers=2"]);
    let before = listening(server.address());
    // Two listeners, and a sink for each.
    assert_eq!(before.len(), 4, "{before:?}");
    for _ in 0..2 {
        server.upgrade();
        assert_eq!(listening(server.address()), before);
    }
}

/// Returns the numbers of the files in the interest sets (epoll) of a process.
fn watched(process: u32) -> BTreeSet<String> {
    let descriptors = fs::read_dir(format!("/proc/{process}/fdinfo")).unwrap();
    let texts: String =
        descriptors.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap_or_default()).collect();
    let members = texts.lines().filter(|line| line.starts_with("tfd:"));
    let numbers = members.filter_map(|line| line.split_once(" ino:")?.1.split(' ').next());
    numbers.map(|number| u64::from_str_radix(number, 16).unwrap().to_string()).collect()
}

#[test]
fn predecessor_takes_listeners_from_its_interest_sets() {
    let files = Files::new();
    for arch in ["sped", "per-core", "tux", "amped", "seda", "smped", "knot-a", "knot-c"] {
        println!("--arch {arch}");
        let mut server = Upgrading::start(&files, &[&format!("--arch={arch}"), "--dispatch=epoll"]);
        // The predecessor lives until it has answered this client once more.
        let mut client = Client::connect(server.address());
        assert_eq!(client.get(Files::SMALL.0).status, 200);
        let (before, listeners) = (server.process, listening(server.address()));
        let watches = move |_: &mut Server| !watched(before).is_disjoint(&listeners);
        server.server.eventually_of("the server watches its listeners", &watches);
        server.hand_over();
        server.server.eventually_of("the predecessor watches none", |server| !watches(server));
        assert_eq!(client.get(Files::SMALL.0).status, 200);
    }
}

/// A number from the environment, for a longer run of the test below.
fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a whole number"))
}

/// The time over which [`rush`] offers connections.
const RUSH: Nanos = Nanos::from_secs(2);

/// Offers new connections at a rate for a while, beside `during`, and returns the result of `inrush load`. They all begin
/// long before the run ends, so that only a busy machine leaves some open at its end.
fn rush(address: SocketAddr, rate: u64, mut during: impl FnMut()) -> Value {
    let url = format!("http://{address}{}", Files::SMALL.0);
    let arrivals = format!("--arrivals=steps:{rate}x{RUSH},0x1h");
    let run = ["load", &url, &arrivals, "--duration=6s", "--warmup=0", "--output=json"];
    let patient = ["--connect-timeout=10s", "--request-timeout=10s"];
    let load = Program::new(PROGRAM).arguments(run).arguments(patient).start().unwrap();
    let load = std::thread::spawn(move || load.output(Nanos::from_millis(5), || true).unwrap());
    let (clock, began) = (RealClock::new(), RealClock::new().now());
    while clock.now().saturating_sub(began) < RUSH {
        during();
    }
    let output = load.join().unwrap();
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// The full size: `UPGRADES=100 UPGRADE_RATE=10000`.
#[test]
fn no_connection_of_a_rush_is_lost_in_many_upgrades() {
    let (most, rate) = (from_environment("UPGRADES", 3), from_environment("UPGRADE_RATE", 300));
    let files = Files::new();
    for flags in [
        &["--arch=per-core", "--workers=2"][..],
        &["--arch=sped"],
        &["--arch=mp", "--workers=24"],
        &["--arch=smped", "--smped=initial=3,p-min=3,p-max=3"],
    ] {
        let mut server = Upgrading::start(&files, flags);
        let (mut upgrades, mut answered, mut seconds) = (0, 0, 0.0);
        while upgrades < most {
            let result = rush(server.address(), rate, || {
                server.upgrade();
                upgrades += 1;
            });
            let of = |outcome: &str| result["outcomes"][outcome].as_u64().unwrap();
            // A busy machine leaves the generator no time for some of them, and the server none for others.
            let undecided = of("no_time") + result["in_flight_at_end"].as_u64().unwrap();
            let held = of("ok") > 0 && result["offered"] == of("ok") + undecided;
            assert!(held, "{flags:?}, {upgrades} upgrades: {undecided} undecided, {}", result["outcomes"]);
            answered += of("ok");
            seconds += RUSH.as_secs_f64();
        }
        println!("{flags:?}: {upgrades} upgrades, {answered} answered, {:.0}/s", answered as f64 / seconds);
    }
}

/// Asserts that a client is answered until a response says that it is the last.
fn answered_to_the_end(client: &mut Client) {
    loop {
        let response = client.response();
        assert!(response.status == 200 && response.body == pattern(Files::SMALL.1), "{response:?}");
        if response.says_close() {
            return assert!(client.ends());
        }
        // The loop has not heard of the hand-over.
        client.send_get(Files::SMALL.0, "");
    }
}

#[test]
fn upgrade_finishes_requests_and_answers_idle_once() {
    let files = Files::new();
    let length = files.write_endless("/endless.bin") as usize;
    for flags in [&["--arch=sped"][..], &["--arch=mp", "--workers=8"], &["--arch=mt", "--workers=8"]] {
        println!("{flags:?}");
        let mut server = Upgrading::start(&files, &[flags, &["--drain-timeout=1h"]].concat());
        let before = server.process;
        let mut idle = Client::connect(server.address());
        assert_eq!(idle.get(Files::SMALL.0).status, 200);
        let mut half = Client::connect(server.address());
        half.send("GET /small.bin HTTP/1.1\r\n");
        let mut download = Client::connect(server.address());
        download.send_get("/endless.bin", "");
        download.response_to_head();
        server.server.eventually("all in", |status| status.connections() == 3);
        server.hand_over();
        // systemd asks both processes when it stops the service.
        send(before, Signal::TERM);
        half.send("Host: x\r\n\r\n");
        answered_to_the_end(&mut half);
        idle.send_get(Files::SMALL.0, "");
        answered_to_the_end(&mut idle);
        assert!(!has_ended(before));
        assert_eq!(download.take(length).len(), length);
        drop(download);
        server.server.eventually_of("the predecessor ends", |_| has_ended(before));
        assert!(server.get(Files::SMALL.0) == pattern(Files::SMALL.1));
    }
}

#[test]
fn the_number_of_queues_may_change() {
    let files = Files::new();
    let config = files.beside("serve.toml");
    let write = |workers: u32, overload: &str| {
        let patient = if overload == "on" { "queue-target = \"10s\"\n" } else { "" };
        let common = format!("arch = \"per-core\"\nworkers = {workers}\noverload = \"{overload}\"\n");
        fs::write(&config, common + patient).unwrap();
    };
    write(3, "on");
    let flag = format!("--config={}", config.display());
    let mut server = Upgrading::new(Server::start_with_control(&files.root(), &[&flag, "--upgrade=on"]));
    let traffic = Traffic::start(server.address());
    for (workers, overload) in [(1, "on"), (4, "on"), (2, "off"), (3, "off"), (2, "on"), (4, "on")] {
        println!("{workers} {overload}");
        write(workers, overload);
        let said = server.upgrade();
        assert_eq!(
            said.contains("or are refused by the sink, because --upgrade on hands over sinks alone\n"),
            overload == "on",
            "{said}"
        );
        assert_eq!(said.matches("listening on ").count(), 1, "{said}");
        traffic.goes_on(&mut server);
        // Every queue has somebody who accepts from it.
        for _ in 0..30 {
            assert!(server.get(Files::SMALL.0) == pattern(Files::SMALL.1));
        }
    }
    traffic.end();
}

#[test]
fn a_new_program_that_fails_leaves_the_old_one() {
    let files = Files::new();
    let (config, program) = (files.beside("serve.toml"), files.beside("inrush"));
    let flag = format!("--config={}", config.display());
    fs::write(&config, "index = \"index.html\"\n").unwrap();
    symlink(PROGRAM, &program).unwrap();
    let server = Server::start_by(
        Program::new(&program),
        &files.root(),
        &["--arch=sped", "--upgrade=on", PATIENT, &flag],
    );
    let mut server = Upgrading::new(server);
    let traffic = Traffic::start(server.address());
    fs::write(&config, "no-such-setting = 1\n").unwrap();
    assert_eq!(server.fail(), "inrush: the new program ended with exit code 2; this one goes on");
    fs::remove_file(&program).unwrap();
    let said = server.fail();
    assert!(said.contains(" cannot be started: No such file or directory"), "{said}");
    symlink("/bin/false", &program).unwrap();
    assert_eq!(server.fail(), "inrush: the new program ended with exit code 1; this one goes on");
    traffic.goes_on(&mut server);
    // The file at the path, with its settings as they are now.
    fs::remove_file(&program).unwrap();
    symlink(PROGRAM, &program).unwrap();
    files.write("/other.html", "other");
    fs::write(&config, "index = \"other.html\"\n").unwrap();
    server.upgrade();
    assert_eq!(server.get("/"), b"other");
    traffic.end();
}

#[test]
fn admin_conflict_leaves_old_server_in_control() {
    let files = Files::new();
    let program = files.beside("inrush");
    symlink(PROGRAM, &program).unwrap();
    let server = Server::start_by(Program::new(&program), &files.root(), &["--arch=sped", "--upgrade=on"]);
    let mut server = Upgrading::new(server);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    fs::remove_file(&program).unwrap();
    let script = format!(
        "#!/bin/sh\nfor word; do shift; [ \"$word\" = --admin=127.0.0.1:0 ] && word=--admin={address}\n\
         set -- \"$@\" \"$word\"; done\nexec {PROGRAM} \"$@\"\n"
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(server.fail(), "inrush: the new program ended with exit code 1; this one goes on");
}

#[test]
fn late_upgrade_failure_leaves_no_overload_control() {
    if !confine::is_root() {
        return println!("skipped: only root can change to another user");
    }
    let files = Files::new();
    // The new user may not open it.
    fs::set_permissions(files.beside(""), fs::Permissions::from_mode(0o700)).unwrap();
    let config = files.beside("serve.toml");
    fs::write(&config, "").unwrap();
    let mut server = Upgrading::start(&files, &["--arch=sped", &format!("--config={}", config.display())]);
    let traffic = Traffic::start(server.address());
    fs::write(&config, "user = \"nobody\"\n").unwrap();
    let expected =
        "inrush: the new program ended with exit code 2; this one goes on, without overload control";
    assert_eq!(server.fail(), expected);
    traffic.goes_on(&mut server);
    fs::write(&config, "").unwrap();
    assert!(
        server
            .upgrade()
            .contains("or are refused by the sink, because --upgrade on hands over sinks alone\n")
    );
    traffic.end();
}

#[test]
fn a_confined_server_hands_over_to_a_confined_one() {
    let files = confinement::readable_files();
    let user = confinement::user_flags();
    let user: Vec<&str> = user.iter().map(String::as_str).collect();
    for flags in [&["--arch=per-core", "--workers=2"][..], &["--arch=mp", "--workers=4"]] {
        let mut server = Upgrading::start(&files, &[flags, &user].concat());
        for _ in 0..2 {
            let said = server.upgrade();
            assert!(said.contains("\nconfined: "), "{said}");
            confinement::check(server.process);
            assert!(server.get(Files::SMALL.0) == pattern(Files::SMALL.1));
        }
    }
}

#[test]
fn tickets_stay_valid() {
    if !tls::installed("openssl") {
        return;
    }
    let files = Files::new();
    let identity = Identity::new(&files, "own", &["localhost"]);
    for flags in [&["--arch=sped"][..], &["--arch=smped", "--smped=initial=2,p-min=2,p-max=2"]] {
        let mut server =
            Upgrading::new(tls::start(&files, &[&identity], &[flags, &["--upgrade=on"]].concat()));
        for version in ["-tls1_2", "-tls1_3"] {
            let ticket = files.beside(&format!("ticket{version}"));
            let ticket = ticket.to_str().unwrap();
            let first = tls::s_client(&server.server, &[version, "-sess_out", ticket]);
            assert!(first.contains("New, TLSv1") && first.contains("HTTP/1.1 200 OK"), "{first}");
            server.upgrade();
            let again = tls::s_client(&server.server, &[version, "-sess_in", ticket]);
            assert!(again.contains("Reused, TLSv1") && again.contains("HTTP/1.1 200 OK"), "{again}");
        }
    }
}

#[test]
fn a_server_that_may_not_hand_over_says_so() {
    let files = Files::new();
    let mut server = Server::start(&files.root(), &["--arch=sped"]);
    server.signal(Signal::USR2);
    assert_eq!(
        server.says(),
        "inrush: SIGUSR2: this server cannot hand over; it needs --upgrade on at its start\n"
    );
    assert_eq!(server.client().get(Files::SMALL.0).status, 200);
    server.stop_well();
    for flag in ["--kernel-cache=on", "--overload-hook=tc", "--dispatch=rt-signals"] {
        let mut command = assert_cmd::Command::new(PROGRAM);
        command
            .args(["serve", "--listen=127.0.0.1:0", "--arch=sped", "--upgrade=on", flag])
            .arg(files.root());
        let said = command.timeout(PATIENCE).assert().code(2).get_output().stderr.clone();
        let said = String::from_utf8(said).unwrap();
        assert!(said.starts_with("inrush: --upgrade on: ") && said.lines().count() == 1, "{said}");
    }
}

/// A socket like systemd's at this path, and a function that takes the next message from it.
fn service_manager(path: &Path) -> impl Fn() -> String + use<> {
    let socket = UnixDatagram::bind(path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    move || {
        let mut message = [0; 200];
        // A read with a timeout is not restarted after a signal, such as that of a child of another test.
        let (length, _) = retry_on_intr(|| recv(&socket, &mut message[..], RecvFlags::empty())).unwrap();
        String::from_utf8(message[..length].to_vec()).unwrap()
    }
}

#[test]
fn systemd_hears_that_the_server_is_alive() {
    let files = Files::new();
    let path = files.beside("notify");
    let hear = service_manager(&path);
    let program = Program::new(PROGRAM).environment("NOTIFY_SOCKET", &path);
    let program = program.environment("WATCHDOG_USEC", "200000");
    let server = Server::start_by(program, &files.root(), &["--arch=sped"]);
    // The server may be alive before it is ready.
    eventually("ready", || hear() == "READY=1");
    eventually("alive", || hear() == "WATCHDOG=1");
    server.signal(Signal::TERM);
    eventually("stopping", || hear().starts_with("STOPPING=1"));
}

#[test]
fn systemd_hears_of_every_change() {
    let files = Files::new();
    let path = files.beside("notify");
    let hear = service_manager(&path);
    let flags = ["--arch=sped", "--upgrade=on"];
    let program = Program::new(PROGRAM).environment("NOTIFY_SOCKET", &path);
    let server = Server::start_by(program, &files.root(), &flags);
    let mut server = Upgrading::new(server);
    let then = |expected: &str| {
        let message = hear();
        assert!(message.starts_with(expected), "{message} instead of {expected}");
    };
    then("READY=1");
    server.server.signal(Signal::HUP);
    then("RELOADING=1\nMONOTONIC_USEC=");
    then("READY=1");
    server.upgrade();
    then("RELOADING=1\nMONOTONIC_USEC=");
    then(&format!("MAINPID={}\nREADY=1", server.process));
    send(server.process, Signal::TERM);
    then("STOPPING=1");
}

#[test]
fn systemd_opens_the_socket() {
    if !tls::installed("systemd-socket-activate") {
        return;
    }
    let files = Files::new();
    // Its own choice of a port is not known, so one is chosen here and given up.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let program = Program::new("systemd-socket-activate");
    let program = program.arguments(["--listen", &free.to_string(), PROGRAM].map(OsString::from));
    // The server is started for the first client.
    let first = std::thread::spawn(move || {
        loop {
            match TcpStream::connect(free) {
                Ok(stream) => return Client::over(stream).get(Files::SMALL.0).body,
                Err(_) => pause(Nanos::MILLISECOND),
            }
        }
    });
    let mut server = Upgrading::new(Server::start_by(program, &files.root(), &["--upgrade=on"]));
    assert!(first.join().unwrap() == pattern(Files::SMALL.1));
    for _ in 0..2 {
        assert_eq!(server.address(), free);
        assert!(server.get(Files::SMALL.0) == pattern(Files::SMALL.1));
        let said = server.upgrade();
        assert!(said.contains(&format!("\nlistening on {free}\n")), "{said}");
    }
}

#[test]
fn systemd_socket_serves_again_after_a_restart() {
    let files = Files::new();
    let kept = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = kept.local_addr().unwrap();
    for flags in [["--arch=sped"], ["--arch=per-core"], ["--arch=mp"]] {
        // As systemd starts it: the socket is descriptor 3.
        let script = format!("LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" \"$@\" 3<&{}", kept.as_raw_fd());
        let program = Program::new("bash").inheriting(&[kept.as_fd()]);
        let program = program.arguments(["-c", &script, PROGRAM].map(OsString::from));
        let server = Server::start_by(program, &files.root(), &flags);
        assert_eq!(server.address, address);
        assert!(server.client().get(Files::SMALL.0).body == pattern(Files::SMALL.1));
        server.stop_well();
    }
    // A client that comes between two servers waits in the queue.
    TcpStream::connect(address).unwrap();
}
