//! The guard beside servers that somebody else wrote, where they are installed: what it counts, and that it follows them
//! through restarts and reloads.

mod common;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use base::{Clock, Nanos, RealClock};
use common::programs::cgroup_root;
use common::{PATIENCE, guard, tick_until};
use guard::{Guard, GuardError, Place, Server, Settings, SignalChoice, Status, Wanted};
use sys::process::{Child, Program, Streams, find_program};

/// A port that is free now.
fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

/// A server in a process of its own.
struct Running {
    child: Child,
    address: SocketAddr,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.terminate(Nanos::from_secs(5));
    }
}

/// Starts a program and waits until it listens; `None` if it is not installed.
fn start(program: &str, arguments: &[&str], port: u16) -> Option<Running> {
    let Some(path) = find_program(program) else {
        println!("skipped: {program} is not installed");
        return None;
    };
    let child = Program::new(path).arguments(arguments).with_streams(Streams::Messages).start().unwrap();
    let running = Running { child, address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)) };
    let clock = RealClock::new();
    let until = clock.now() + PATIENCE;
    while TcpStream::connect(running.address).is_err() {
        assert!(clock.now() < until, "{program} does not listen");
        sys::readiness::poll::wait(&mut [], Some(Nanos::from_millis(20))).unwrap();
    }
    Some(running)
}

/// One request on a connection of its own. Returns once the server has closed it.
fn request(address: SocketAddr) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).unwrap();
    assert!(reply.starts_with(b"HTTP/1."), "{}", String::from_utf8_lossy(&reply));
}

/// Asks a server some times, and checks that every request is counted, and answered.
fn check_counts(running: &Running) {
    const REQUESTS: u64 = 20;
    let Some(mut guard) = guard(running.address, SignalChoice::Requests) else { return };
    (0..REQUESTS).for_each(|_| request(running.address));
    // Half a request is not answered, and is counted as such.
    let mut half = TcpStream::connect(running.address).unwrap();
    half.write_all(b"GET /").unwrap();
    let figures = |status: &Status| status.requests.clone().unwrap_or_default();
    tick_until(&mut guard, |status| figures(status).asked == REQUESTS + 1);
    let counted = figures(&guard.status());
    assert_eq!((counted.answered + counted.ended, counted.unanswered), (REQUESTS, 1), "{counted:?}");
    assert_eq!(counted.connections, REQUESTS + 1);
    assert!(!guard.status().owners.is_empty());
    guard.close();
}

#[test]
fn requests_to_python_add_up() {
    let (port, folder) = (free_port(), tempfile::tempdir().unwrap());
    let arguments = [
        "-m",
        "http.server",
        "--bind",
        "127.0.0.1",
        "-d",
        folder.path().to_str().unwrap(),
        &port.to_string(),
    ];
    let Some(running) = start("python3", &arguments, port) else { return };
    check_counts(&running);
}

#[test]
fn requests_to_node_add_up() {
    let port = free_port();
    let script = format!("require('http').createServer((q, r) => r.end('ok')).listen({port}, '127.0.0.1')");
    let Some(running) = start("node", &["-e", &script], port) else { return };
    check_counts(&running);
}

/// The configuration of an nginx in a folder of its own.
fn nginx(folder: &std::path::Path, port: u16, workers: u32, options: &str) -> String {
    let place = folder.display();
    let text = format!(
        "worker_processes {workers}; daemon off; pid {place}/pid; error_log {place}/error;\n\
         events {{ worker_connections 64; }}\n\
         http {{ access_log off; client_body_temp_path {place}/b; proxy_temp_path {place}/p;\n\
         fastcgi_temp_path {place}/f; uwsgi_temp_path {place}/u; scgi_temp_path {place}/s;\n\
         server {{ listen 127.0.0.1:{port}{options}; location / {{ return 200 ok; }} }} }}\n"
    );
    let file = folder.join("nginx.conf");
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn nginx_is_guarded_through_a_reload() {
    let (port, folder) = (free_port(), tempfile::tempdir().unwrap());
    let config = nginx(folder.path(), port, 1, " reuseport");
    let log = folder.path().join("error");
    let arguments = ["-c", &config, "-e", log.to_str().unwrap(), "-p", folder.path().to_str().unwrap()];
    let Some(running) = start("nginx", &arguments, port) else { return };
    check_counts(&running);
    let Some(mut guard) = guard(running.address, SignalChoice::Requests) else { return };
    // From one listener to two, and back.
    for (workers, listeners) in [(2, 2), (1, 1)] {
        nginx(folder.path(), port, workers, " reuseport");
        running.child.signal(rustix::process::Signal::HUP).unwrap();
        let lines = tick_until(&mut guard, |status| status.listeners == listeners);
        assert!(lines.iter().any(|line| line.contains("have changed")), "{lines:?}");
        assert_eq!(guard.status().state, "open");
    }
    check_guarded(&mut guard, running.address);
    guard.close();
}

/// Requests counted so far.
fn asked(status: &Status) -> u64 {
    status.requests.clone().unwrap_or_default().asked
}

/// Checks that the guard is open and counts another request.
fn check_guarded(guard: &mut Guard, address: SocketAddr) {
    assert_eq!(guard.status().state, "open");
    let before = asked(&guard.status());
    request(address);
    tick_until(guard, |status| asked(status) > before);
}

#[test]
fn nginx_is_guarded_from_four_workers_to_one() {
    let (port, folder) = (free_port(), tempfile::tempdir().unwrap());
    let config = nginx(folder.path(), port, 4, "");
    let log = folder.path().join("error");
    let arguments = ["-c", &config, "-e", log.to_str().unwrap(), "-p", folder.path().to_str().unwrap()];
    let Some(running) = start("nginx", &arguments, port) else { return };
    let Some(mut guard) = guard(running.address, SignalChoice::Requests) else { return };
    check_guarded(&mut guard, running.address);
    let children = || {
        let pid = running.child.id();
        let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        text.split_whitespace().count()
    };
    nginx(folder.path(), port, 1, "");
    running.child.signal(rustix::process::Signal::HUP).unwrap();
    tick_until(&mut guard, |_| children() == 1);
    assert_eq!(guard.status().listeners, 1, "the same listener");
    check_guarded(&mut guard, running.address);
    guard.close();
}

/// A server that has left its parent, by the file with its process number. Ends with this value.
struct Daemon(std::path::PathBuf);

impl Daemon {
    fn pid(&self) -> Option<rustix::process::Pid> {
        rustix::process::Pid::from_raw(std::fs::read_to_string(&self.0).ok()?.trim().parse().ok()?)
    }

    fn signal(&self, signal: rustix::process::Signal) {
        if let Some(pid) = self.pid() {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.signal(rustix::process::Signal::TERM);
    }
}

#[test]
fn nginx_is_guarded_through_an_upgrade() {
    use rustix::process::{Signal, kill_process, test_kill_process};
    let (port, folder) = (free_port(), tempfile::tempdir().unwrap());
    let config = nginx(folder.path(), port, 1, "");
    // In the foreground it ignores the signal for an upgrade.
    let text = std::fs::read_to_string(&config).unwrap().replace("daemon off; ", "");
    std::fs::write(&config, text).unwrap();
    let log = folder.path().join("error");
    let arguments = ["-c", &config, "-e", log.to_str().unwrap(), "-p", folder.path().to_str().unwrap()];
    let Some(running) = start("nginx", &arguments, port) else { return };
    let daemon = Daemon(folder.path().join("pid"));
    let Some(mut guard) = guard(running.address, SignalChoice::Requests) else { return };
    check_guarded(&mut guard, running.address);
    let old = daemon.pid().unwrap();
    daemon.signal(Signal::USR2);
    tick_until(&mut guard, |_| daemon.pid().is_some_and(|pid| pid != old));
    kill_process(old, Signal::QUIT).unwrap();
    tick_until(&mut guard, |_| test_kill_process(old).is_err());
    check_guarded(&mut guard, running.address);
    daemon.signal(Signal::QUIT);
    let lines = tick_until(&mut guard, |status| status.state == "gone");
    assert!(lines.iter().any(|line| line.contains("is gone")), "{lines:?}");
    guard.close();
}

#[test]
fn server_in_another_cgroup_is_guarded_again() {
    let Some(root) = cgroup_root() else { return };
    let (port, folder) = (free_port(), tempfile::tempdir().unwrap());
    let groups = ["first", "second"].map(|name| root.join(format!("inrush-test-{port}-{name}")));
    let mut guarded = None;
    for group in &groups {
        if let Err(error) = std::fs::create_dir(group) {
            return println!("skipped: cannot make a cgroup: {error}");
        }
        let serve = "exec python3 -m http.server --bind 127.0.0.1 -d";
        let script = format!(
            "echo $$ > {}/cgroup.procs && {serve} {} {port}",
            group.display(),
            folder.path().display()
        );
        let running = start("sh", &["-c", &script], port);
        let running = running.expect("every machine has a shell");
        let mut guard = match guarded.take() {
            None => match guard(running.address, SignalChoice::Requests) {
                Some(guard) => guard,
                None => return remove(&groups),
            },
            Some(mut guard) => {
                tick_until(&mut guard, |status| status.state == "open");
                guard
            }
        };
        assert!(guard.description().contains(group.to_str().unwrap()), "{}", guard.description());
        check_guarded(&mut guard, running.address);
        drop(running);
        tick_until(&mut guard, |status| status.state == "gone");
        remove(std::slice::from_ref(group));
        guarded = Some(guard);
    }
}

/// Removes cgroups, which the kernel allows once their processes have ended.
fn remove(groups: &[std::path::PathBuf]) {
    for group in groups.iter().filter(|group| group.exists()) {
        let clock = RealClock::new();
        let until = clock.now() + PATIENCE;
        while std::fs::remove_dir(group).is_err() && clock.now() < until {
            sys::readiness::poll::wait(&mut [], Some(Nanos::from_millis(10))).unwrap();
        }
    }
}

#[test]
fn listener_is_guarded_again_after_it_was_closed() {
    // An address of its own: a client of a test beside this one may get the port while nobody listens there.
    let listener = TcpListener::bind("127.0.9.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let Some(mut guard) = guard(address, SignalChoice::Auto) else { return };
    drop(listener);
    let lines = tick_until(&mut guard, |status| status.state == "gone");
    assert!(lines.iter().any(|line| line.contains("is gone")), "{lines:?}");
    let again = TcpListener::bind(address).unwrap();
    let lines = tick_until(&mut guard, |status| status.state == "open");
    assert!(lines.iter().any(|line| line.contains("guarding")), "{lines:?}");
    assert_eq!(guard.status().listeners, 1);
    drop(again);
}

#[test]
fn missing_servers_are_named() {
    let address = format!("127.0.0.1:{}", free_port()).parse().unwrap();
    let place = Place::find(&Server::AtAddress, Some(address)).unwrap();
    let settings = Settings { target: Nanos::from_millis(20), wanted: Wanted::default() };
    let error = Guard::open(place, settings, Nanos(0)).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("no TCP listener at 127.0.0.1:") && error.contains("--observe"), "{error}");
    let error = |server| Place::find(&server, None).unwrap_err().to_string();
    assert_eq!(error(Server::Process(i32::MAX)), format!("there is no process {}", i32::MAX));
    let unit = error(Server::Unit("no-such.service".to_owned()));
    assert!(unit.contains("no-such.service") || unit.contains("cgroup2"), "{unit}");
    assert!(error(Server::AtAddress).starts_with("name a listener"));
}

#[test]
fn process_is_found_with_its_port() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let us = Server::Process(std::process::id() as i32);
    let place = Place::find(&us, Some(format!(":{port}").parse().unwrap())).unwrap();
    assert_eq!((place.address.port, place.namespace.is_none()), (port, true));
    let elsewhere = Place::find(&us, Some(format!(":{}", free_port()).parse().unwrap()));
    assert!(matches!(elsewhere, Err(GuardError::NoListener { .. })));
}
