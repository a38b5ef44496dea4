//! The life of a server under test: start, readiness, status, end.
//!
//! Owns starting, readiness, the status page and the end. Command lines and configurations are [`recipe`]s, those of
//! packages are [`installed`]; [`read_back`] compares what is in force. A
//! server that does not start is an error with a reason for the record, never the end of an experiment.
//!
//! Each runs on the server's side of a topology with the same backlog, connection limit, files and CPU.

pub mod installed;
pub mod read_back;
pub mod recipe;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;

use base::{Clock, Limit, Nanos};
use serde_json::json;
use sys::process::Child;

use self::read_back::Asked;
use self::recipe::{Readiness, Recipe};
use crate::cgroup::Cgroup;
use crate::identity::Identity;
use crate::owner;
use crate::topology::Topology;

/// The time limit for a server to be ready. A loaded machine starts a process in well under a second; a command may have to
/// compile its application first.
const READY_WITHIN: Nanos = Nanos::from_secs(30);
/// The time between two checks whether a port is open.
const LOOK_EVERY: Nanos = Nanos::from_millis(5);
/// The time limit for all workers to have started. A thousand take some 4 s.
const STARTED_WITHIN: Nanos = Nanos::from_secs(60);
/// The time between two looks at the number of started workers.
const COUNT_EVERY: Nanos = Nanos::from_millis(100);
/// The timeout of the status page.
const STATUS_WITHIN: Nanos = Nanos::from_millis(500);
const STATUS_LENGTH_MAX: u64 = 1 << 20;
/// The time limit for a server to stop. It has no client left by then.
const STOP_WITHIN: Nanos = Nanos::from_millis(300);
/// The most lines of a server's output that are kept for the record. Later lines are read and dropped.
const COMPLAINTS: usize = 64;

/// The settings of all servers of an experiment.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The folder to serve; absolute.
    pub root: PathBuf,
    /// The length of the accept queue.
    pub backlog: u32,
    /// The connection limit.
    pub connections: u32,
    /// The certificate of a server that speaks TLS; only Inrush, nginx, HAProxy and Caddy are set up for it.
    pub tls: Option<Identity>,
    /// The folder of applications that a command may name; absent if there is none.
    pub apps: Option<PathBuf>,
}

/// The reason why a server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The program is not installed.
    #[error("{0} is not installed")]
    NotInstalled(String),
    /// It could not be prepared or started.
    #[error("cannot {0}: {1}")]
    Io(&'static str, #[source] io::Error),
    /// It ended before it was ready.
    #[error("it ended at once, {0}{1}")]
    Died(ExitStatus, String),
    /// It runs but is not ready.
    #[error("it was not ready within {READY_WITHIN}{0}")]
    Late(String),
    /// Its status page shows too few workers.
    #[error("it had started {started} of {wanted} workers within {STARTED_WITHIN}")]
    FewWorkers {
        /// As the page shows.
        started: u64,
        /// As the experiment wants.
        wanted: u64,
    },
}

/// A server that is ready. Dropping it kills it.
#[derive(Debug)]
pub struct RunningServer {
    /// The address at which it serves.
    pub address: SocketAddr,
    /// The address of its status page, if it has one.
    admin: Option<SocketAddr>,
    /// Its command line, word by word.
    pub command: Vec<String>,
    child: Child,
    /// The guard beside it.
    pub guard: Option<Box<RunningServer>>,
    /// The servers to which it passes requests on.
    pub behind: Vec<RunningServer>,
    /// The accept-limit that it is still to get while it runs.
    pub live_accept_limit: Option<Limit>,
    complaints: Receiver<String>,
    /// Its bounds. They stand after the child, because their groups must be removed after the processes have ended.
    cgroups: Vec<Cgroup>,
    /// How it was started, with the folder of its configuration and output.
    recipe: Recipe,
}

/// Starts a server on the server's side and waits until it is ready. The server ends with the calling thread, so
/// the thread must stay.
///
/// # Errors
/// [`StartError`], with the reason why this server is not in the comparison.
pub fn start(
    topology: &Topology,
    recipe: Recipe,
    cgroups: Vec<Cgroup>,
    clock: &dyn Clock,
) -> Result<RunningServer, StartError> {
    let (mut child, command) = run(topology, &recipe, &cgroups)?;
    let lines = read_complaints(&mut child);
    let deadline = clock.now() + READY_WITHIN;
    let mut reach = |address, attempt: &(dyn Fn() -> io::Result<bool> + Sync)| {
        reach(topology, &mut child, &lines, deadline, clock, attempt).map(|()| (address, None))
    };
    let ready = match recipe.readiness {
        Readiness::Announces => announcement(&lines, deadline, clock),
        Readiness::Says(address, ref text) => {
            await_line(&lines, deadline, clock, |line| line.contains(text.as_str())).map(|()| (address, None))
        }
        Readiness::Connects(address) => {
            reach(address, &|| TcpStream::connect_timeout(&address, STATUS_WITHIN.into()).map(|_| true))
        }
        Readiness::Replies(address) => {
            reach(address, &|| request(address, "GET", "/", "").map(|reply| !reply.is_empty()))
        }
        Readiness::Answers(address, ref path, times) => {
            let ask = |_| request(address, "GET", path, "").map(|reply| is_fine(&reply));
            let is_other = |answer: &io::Result<bool>| !matches!(answer, Ok(true));
            reach(address, &|| (0..times).map(ask).find(is_other).unwrap_or(Ok(true)))
        }
    };
    match ready {
        Ok((address, admin)) => Ok(RunningServer {
            address,
            admin,
            command,
            child,
            guard: None,
            behind: Vec::new(),
            live_accept_limit: None,
            complaints: lines,
            cgroups,
            recipe,
        }),
        Err(NotReady::Late(heard)) => Err(StartError::Late(quoted(&heard))),
        Err(NotReady::Ended(heard)) => Err(died(child, &heard)),
        Err(NotReady::Io(error)) => Err(StartError::Io("wait for it", error)),
    }
}

/// Starts the process of a server. Returns its command line as well.
fn run(topology: &Topology, recipe: &Recipe, cgroups: &[Cgroup]) -> Result<(Child, Vec<String>), StartError> {
    let mut program = topology
        .server
        .program(&recipe.program)
        .arguments(&recipe.arguments)
        .environment(owner::MARK, std::process::id().to_string())
        .in_cgroups(cgroups.iter().map(AsFd::as_fd).collect());
    for (name, value) in &recipe.environment {
        program = program.environment(name, value);
    }
    let child = program.start().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => StartError::NotInstalled(recipe.program.display().to_string()),
        _ => StartError::Io("start it", error),
    })?;
    Ok((child, program.command_line()))
}

/// The reason why a server is not ready, with its output.
enum NotReady {
    Late(Vec<String>),
    Ended(Vec<String>),
    Io(io::Error),
}

impl RunningServer {
    /// The conditions that it was asked for.
    pub fn asked(&self) -> &Asked {
        &self.recipe.asked
    }

    /// Its process number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Blocks for `time`, or until the server ends.
    ///
    /// # Errors
    /// None in practice.
    pub fn linger(&mut self, time: Nanos) -> io::Result<()> {
        self.child.wait(time).map(|_| ())
    }

    /// Returns the server's status; `None` without a status page or a timely answer. The status of a load balancer
    /// counts the requests of each server behind it.
    pub fn status(&self, topology: &Topology) -> Option<serde_json::Value> {
        if !self.behind.is_empty() {
            let counted = self.behind.iter().zip(1..).filter_map(|(one, number)| {
                Some((format!("requests_behind_{number}"), one.status(topology)?["requests"].take()))
            });
            return Some(json!({ "counters": counted.collect::<serde_json::Map<_, _>>() }));
        }
        let admin = self.admin?;
        let reply = topology.server.enter(|| request(admin, "GET", "/status", "")).ok()?;
        let body = reply.split_once("\r\n\r\n")?.1;
        serde_json::from_str(body).ok()
    }

    /// Blocks until the status page shows that so many worker processes have started. A server without such a page is
    /// not waited for.
    ///
    /// # Errors
    /// [`StartError::FewWorkers`], [`StartError::Died`].
    pub fn await_workers(
        &mut self,
        topology: &Topology,
        wanted: u64,
        clock: &dyn Clock,
    ) -> Result<(), StartError> {
        if self.admin.is_none() {
            return Ok(());
        }
        let deadline = clock.now() + STARTED_WITHIN;
        loop {
            let status = self.status(topology).unwrap_or_default();
            let started = status["counters"]["workers_started"].as_u64().unwrap_or(0);
            if started >= wanted {
                return Ok(());
            }
            if let Some(exit) =
                self.child.wait(COUNT_EVERY).map_err(|error| StartError::Io("wait for it", error))?
            {
                return Err(StartError::Died(
                    exit.status,
                    quoted(&self.complaints.try_iter().collect::<Vec<_>>()),
                ));
            }
            if clock.now() >= deadline {
                return Err(StartError::FewWorkers { started, wanted });
            }
        }
    }

    /// Gives one of our servers its live accept-limit, if it is still to get one.
    ///
    /// # Errors
    /// Errors of the connection; a server without an admin interface, or that refuses.
    pub fn change_accept_limit(&mut self, topology: &Topology) -> io::Result<()> {
        let Some(limit) = self.live_accept_limit.take() else { return Ok(()) };
        let admin = self.admin.ok_or_else(|| io::Error::other("it has no admin interface"))?;
        let reply = topology.server.enter(|| request(admin, "PUT", "/accept-limit", &limit.to_string()))?;
        let refused = || io::Error::other(reply.lines().next().unwrap_or_default().to_owned());
        is_fine(&reply).then_some(()).ok_or_else(refused)
    }

    /// Returns the exit status with the last line of its output if the server or one behind it has ended. Does not block.
    ///
    /// # Errors
    /// None in practice.
    pub fn end(&mut self) -> io::Result<Option<String>> {
        if let Some(end) = self.behind.iter_mut().find_map(|one| one.end().transpose()) {
            return end.map(|end| Some(format!("one behind it ended, {end}")));
        }
        if let Some(end) = self.guard.as_mut().and_then(|guard| guard.end().transpose()) {
            return end.map(|end| Some(format!("its guard ended, {end}")));
        }
        let exit = self.child.wait(Nanos::ZERO)?;
        let lines: Vec<String> = self.complaints.try_iter().collect();
        Ok(exit.map(|exit| format!("{}{}", exit.status, quoted(&lines))))
    }

    /// Kills the server, so that it can be [revived](RunningServer::revive).
    ///
    /// # Errors
    /// None in practice.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait(Nanos::MAX).map(|_| ())
    }

    /// Starts a killed server again, with the same command line. Does not wait until it is ready.
    ///
    /// # Errors
    /// [`StartError`]: the process cannot be started.
    pub fn revive(&mut self, topology: &Topology) -> Result<(), StartError> {
        (self.child, _) = run(topology, &self.recipe, &self.cgroups)?;
        self.complaints = read_complaints(&mut self.child);
        Ok(())
    }

    /// Asks the server to stop, and kills it if it does not. Blocks for a moment.
    ///
    /// # Errors
    /// None in practice.
    pub fn stop(mut self) -> io::Result<()> {
        self.child.terminate(STOP_WITHIN).map(|_| ())
    }
}

/// Waits until one of our servers has announced its address and the address of its status page.
fn announcement(
    lines: &Receiver<String>,
    deadline: Nanos,
    clock: &dyn Clock,
) -> Result<(SocketAddr, Option<SocketAddr>), NotReady> {
    let (mut address, mut admin) = (None, None);
    await_line(lines, deadline, clock, |line| {
        address = address.or_else(|| announced(line, "listening on "));
        admin = admin.or_else(|| announced(line, "admin on "));
        address.is_some() && admin.is_some()
    })?;
    Ok((address.expect("it was heard"), admin))
}

/// Waits for a line that fits.
fn await_line(
    lines: &Receiver<String>,
    deadline: Nanos,
    clock: &dyn Clock,
    mut is_it: impl FnMut(&str) -> bool,
) -> Result<(), NotReady> {
    let mut heard = Vec::new();
    loop {
        match lines.recv_timeout(deadline.saturating_sub(clock.now()).into()) {
            Ok(line) if is_it(&line) => return Ok(()),
            Ok(line) => heard.push(line),
            Err(RecvTimeoutError::Timeout) => return Err(NotReady::Late(heard)),
            Err(RecvTimeoutError::Disconnected) => return Err(NotReady::Ended(heard)),
        }
    }
}

/// Tries from the client's side until it succeeds.
fn reach(
    topology: &Topology,
    child: &mut Child,
    lines: &Receiver<String>,
    deadline: Nanos,
    clock: &dyn Clock,
    attempt: &(dyn Fn() -> io::Result<bool> + Sync),
) -> Result<(), NotReady> {
    while !topology.client.enter(attempt).unwrap_or(false) {
        if child.wait(LOOK_EVERY).map_err(NotReady::Io)?.is_some() {
            return Err(NotReady::Ended(lines.iter().collect()));
        }
        if clock.now() >= deadline {
            return Err(NotReady::Late(lines.try_iter().collect()));
        }
    }
    Ok(())
}

/// Tells whether a reply has a status below 400.
fn is_fine(reply: &str) -> bool {
    let status = reply.split_whitespace().nth(1).and_then(|status| status.parse::<u16>().ok());
    status.is_some_and(|status| status < 400)
}

/// The address behind `what` in a line of a server.
fn announced(line: &str, what: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once(what)?;
    let word = rest.split_whitespace().next()?;
    word.trim_start_matches("http://").trim_end_matches(['/', ',', '.']).parse().ok()
}

/// Reads a server's output to its end on threads of their own, so that it never blocks on a full pipe.
fn read_complaints(child: &mut Child) -> Receiver<String> {
    let (sender, lines) = sync_channel(COMPLAINTS);
    if let Some(stderr) = child.stderr.take() {
        thread::spawn(move || forward_lines(stderr, &sender));
    }
    if let Some(mut stdout) = child.stdout.take() {
        thread::spawn(move || io::copy(&mut stdout, &mut io::sink()));
    }
    lines
}

fn forward_lines(from: impl Read, to: &SyncSender<String>) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        // A full channel holds enough lines already.
        let _ = to.try_send(String::from_utf8_lossy(line.trim_ascii_end()).into_owned());
        line.clear();
    }
}

fn died(mut child: Child, heard: &[String]) -> StartError {
    match child.wait(READY_WITHIN) {
        Ok(Some(exit)) => StartError::Died(exit.status, quoted(heard)),
        Ok(None) => StartError::Late(quoted(heard)),
        Err(error) => StartError::Io("wait for it", error),
    }
}

/// Returns the last line of a server's output, to append to a reason.
fn quoted(lines: &[String]) -> String {
    lines.last().map_or(String::new(), |line| format!(": {}", line.trim()))
}

/// Sends one request and returns the whole reply as text. Bytes that are no UTF-8 are replaced.
fn request(address: SocketAddr, method: &str, path: &str, content: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, STATUS_WITHIN.into())?;
    stream.set_read_timeout(Some(STATUS_WITHIN.into()))?;
    stream.set_write_timeout(Some(STATUS_WITHIN.into()))?;
    let length = content.len();
    let text = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{content}"
    );
    // In one segment: a second one would wait for the ACK of the first, which HAProxy delays by 40 ms.
    stream.write_all(text.as_bytes())?;
    let mut reply = Vec::new();
    stream.take(STATUS_LENGTH_MAX).read_to_end(&mut reply)?;
    Ok(String::from_utf8_lossy(&reply).into_owned())
}

#[cfg(test)]
mod tests {
    use super::read_back::{differences, in_force};
    use super::*;
    use crate::kernel::Observer;
    use base::RealClock;
    use experiment::Package;
    use std::fs;
    use std::path::Path;

    fn settings(root: &Path) -> Settings {
        Settings { root: root.to_owned(), backlog: 128, connections: 1000, tls: None, apps: None }
    }

    #[test]
    fn an_announced_address_is_found_in_a_line() {
        let at = |line| announced(line, "listening on ");
        assert_eq!(at("listening on 10.77.0.1:8080"), "10.77.0.1:8080".parse().ok());
        assert_eq!(at("inrush: listening on http://[::1]:80/"), "[::1]:80".parse().ok());
        assert_eq!(at("not listening"), None);
        assert_eq!(at("listening on the roof"), None);
    }

    #[test]
    fn a_line_of_any_bytes_is_heard_and_the_next_one_too() {
        let (sender, lines) = sync_channel(COMPLAINTS);
        forward_lines(&b"GET /\xff\r\nlast"[..], &sender);
        assert_eq!(lines.try_iter().collect::<Vec<_>>(), ["GET /\u{fffd}", "last"]);
    }

    #[test]
    fn a_reply_of_any_bytes_is_read() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = [0; 512];
            assert!(stream.read(&mut asked).unwrap() > 0);
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n\xe9t\xe9").unwrap();
        });
        let reply = request(address, "GET", "/", "").unwrap();
        server.join().unwrap();
        assert!(is_fine(&reply) && reply.ends_with("\u{fffd}t\u{fffd}"), "{reply}");
    }

    #[test]
    fn a_reason_ends_with_the_last_line_that_was_heard() {
        assert_eq!(quoted(&[]), "");
        assert_eq!(quoted(&["first".to_owned(), " last\n".to_owned()]), ": last");
    }

    #[test]
    fn rival_servers_serve_or_are_named_as_missing() {
        let folder = owner::temporary_folder().unwrap();
        fs::write(folder.path().join("a.html"), "a page").unwrap();
        let topology = Topology::best().unwrap();
        let settings = settings(folder.path());
        let installed = |package| installed::installed(package, &topology, &settings, &[]);
        for (name, recipe) in [
            ("nginx", recipe::nginx(&topology, &settings)),
            ("nginx, no sendfile", recipe::nginx_with("sendfile off;", "", &topology, &settings)),
            ("Apache prefork", recipe::apache_prefork(&topology, &settings, None)),
            ("Apache event", recipe::apache_event(&topology, &settings, None)),
            ("lighttpd", recipe::lighttpd(&topology, &settings)),
            ("h2o", recipe::h2o(&topology, &settings)),
            ("nginx, installed", installed(Package::Nginx)),
            ("Apache, installed", installed(Package::Apache2)),
            ("lighttpd, installed", installed(Package::Lighttpd)),
            ("h2o, installed", installed(Package::H2o)),
        ] {
            let started = recipe.and_then(|recipe| start(&topology, recipe, Vec::new(), &RealClock::new()));
            let mut running = match started {
                Ok(running) => running,
                Err(error @ (StartError::NotInstalled(_) | StartError::Io("confine its workers", _))) => {
                    println!("skipped: {error}");
                    continue;
                }
                Err(error) => panic!("{name}: {error}"),
            };
            assert_eq!(running.end().unwrap(), None, "{name}");
            let reply = topology.client.enter(|| request(running.address, "GET", "/a.html", "")).unwrap();
            assert!(reply.starts_with("HTTP/1.1 200") && reply.ends_with("a page"), "{name}: {reply}");
            assert_eq!(running.status(&topology), None);
            let mut observer = Observer::of(&topology).unwrap();
            let found = in_force(&topology, &running, &mut observer, &[]).unwrap();
            println!("{name}: {found:?}");
            assert!(found.backlog > 0 && found.event_queues + found.processes >= 2, "{name}: {found:?}");
            // A pool may still be starting its processes.
            let asked = Asked { processes: None, ..running.asked().clone() };
            // h2o has no setting for its queue, and gets as much as the kernel allows.
            let longer =
                format!("the accept queue's limit is {} and not {}", found.backlog, settings.backlog);
            let expected = if name == "h2o" { vec![longer] } else { Vec::new() };
            assert_eq!(differences(&asked, &[], &found), expected, "{name}");
            running.stop().unwrap();
        }
    }

    #[test]
    fn a_killed_server_is_started_again() {
        let topology = Topology::best().unwrap();
        let recipe = Recipe {
            program: "sh".into(),
            arguments: ["-c", "echo here >&2; exec sleep 1000"].map(Into::into).to_vec(),
            environment: Vec::new(),
            readiness: Readiness::Says(topology.server.free_port().unwrap(), "here".to_owned()),
            folder: None,
            asked: Asked::default(),
        };
        let mut running = start(&topology, recipe, Vec::new(), &RealClock::new()).unwrap();
        let first = running.pid();
        running.kill().unwrap();
        assert_eq!(running.end().unwrap().as_deref(), Some("signal: 9 (SIGKILL)"));
        running.revive(&topology).unwrap();
        assert_eq!(running.complaints.recv().as_deref(), Ok("here"));
        assert_eq!(running.end().unwrap(), None);
        assert_ne!(running.pid(), first);
    }

    #[test]
    fn a_server_that_cannot_start_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let topology = Topology::best().unwrap();
        let hopeless = Settings { connections: 0, ..settings(folder.path()) };
        let started = recipe::nginx(&topology, &hopeless)
            .and_then(|recipe| start(&topology, recipe, Vec::new(), &RealClock::new()));
        match started {
            Err(error @ StartError::NotInstalled(_)) => println!("skipped: {error}"),
            Err(StartError::Died(status, reason)) => {
                assert!(!status.success());
                assert!(reason.contains("worker_connections"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }
}
