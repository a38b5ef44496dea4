//! The servers that are compared: how each is started, found ready, asked and stopped.
//!
//! Owns their command lines and configuration. A server that does not start is an error with a reason
//! for the record, never the end of an experiment.
//!
//! Each runs on the server's side of a topology with the same backlog, connection limit, files and CPU.
//! nginx gets what its operators give it for static files: one event loop, sendfile, open_file_cache,
//! keep-alive without a bound, no access log. It runs with `master_process off`: the same loop without
//! a supervisor, because a worker would survive the supervisor's death by SIGKILL and we would leave it
//! behind.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;

use base::{Clock, Limit, Nanos};
use sys::process::Child;
use tempfile::TempDir;

use crate::topology::Topology;

/// A server has this long to be ready; a loaded machine starts a process in well under a second.
const READY_WITHIN: Nanos = Nanos::from_secs(5);
/// How long to wait between two looks whether a port is open.
const LOOK_EVERY: Nanos = Nanos::from_millis(5);
/// A status page that takes longer is given up.
const STATUS_WITHIN: Nanos = Nanos::from_millis(500);
const STATUS_LENGTH_MAX: u64 = 1 << 20;
/// A server that is asked to stop has nobody left to serve.
const STOP_WITHIN: Nanos = Nanos::from_millis(300);
/// So many lines of complaint are kept for the record; what comes after them is read and dropped.
const COMPLAINTS: usize = 64;

/// Which server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `inrush serve` with one process and one thread.
    Inrush {
        /// How many connections it accepts each time the listener is ready.
        accept_limit: Limit,
        /// CPU time it spends on each request beside serving it.
        burn: Nanos,
    },
    /// nginx as it is installed here.
    Nginx,
}

/// What all servers of an experiment have in common.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The folder to serve; absolute.
    pub root: PathBuf,
    /// The length of the accept queue.
    pub backlog: u32,
    /// The most connections at once.
    pub connections: u32,
}

/// Why a server is not there.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is no such program.
    #[error("{0} is not installed")]
    NotInstalled(&'static str),
    /// It could not be prepared or started.
    #[error("cannot {0}: {1}")]
    Io(&'static str, #[source] io::Error),
    /// It ended before it was ready.
    #[error("it ended at once, {0}{1}")]
    Died(ExitStatus, String),
    /// It runs and is not ready.
    #[error("it was not ready within {READY_WITHIN}{0}")]
    Late(String),
}

/// A server that is ready. Dropping it kills it.
#[derive(Debug)]
pub struct Running {
    /// Where it serves.
    pub address: SocketAddr,
    /// Where it tells about itself, if it does.
    admin: Option<SocketAddr>,
    /// Its command line, word by word.
    pub command: Vec<String>,
    child: Child,
    complaints: Receiver<String>,
    /// Its configuration and whatever it writes.
    _folder: Option<TempDir>,
}

impl Kind {
    /// Short, for a legend.
    pub fn name(&self) -> String {
        match self {
            Kind::Inrush { accept_limit, .. } => format!("accept-limit {accept_limit}"),
            Kind::Nginx => "nginx".to_owned(),
        }
    }

    /// One sentence on what it is.
    pub fn description(&self) -> String {
        match self {
            Kind::Inrush { accept_limit, burn } => {
                let accepts = match accept_limit {
                    Limit::AtMost(1) => "one connection".to_owned(),
                    Limit::AtMost(most) => format!("at most {most} connections"),
                    Limit::Infinite => "every waiting connection".to_owned(),
                };
                let burnt = match *burn {
                    Nanos::ZERO => String::new(),
                    burn => format!(", with {burn} of CPU time added to each request"),
                };
                format!("inrush serve, one event loop that accepts {accepts} each time round{burnt}.")
            }
            Kind::Nginx => {
                "nginx with one event loop, sendfile and open_file_cache, nothing added to its requests."
                    .to_owned()
            }
        }
    }

    /// Starts it on the server's side and waits until it is ready. To be called on a thread that stays:
    /// the server ends with it.
    ///
    /// # Errors
    /// [`StartError`], whose text says why this server is not in the comparison.
    pub fn start(
        &self,
        topology: &Topology,
        settings: &Settings,
        clock: &dyn Clock,
    ) -> Result<Running, StartError> {
        match self {
            Kind::Inrush { accept_limit, burn } => {
                start_inrush(topology, settings, *accept_limit, *burn, clock)
            }
            Kind::Nginx => start_nginx(topology, settings, clock),
        }
    }
}

impl Running {
    /// Lets time pass, less of it if the server ends. Blocks.
    ///
    /// # Errors
    /// None in practice.
    pub fn linger(&mut self, time: Nanos) -> io::Result<()> {
        self.child.wait(time).map(|_| ())
    }

    /// What it says about itself; nothing where it has no status page or does not answer in time.
    pub fn status(&self, topology: &Topology) -> Option<serde_json::Value> {
        let admin = self.admin?;
        let reply = topology.server.enter(|| get(admin, "/status")).ok()?;
        let body = reply.split_once("\r\n\r\n")?.1;
        serde_json::from_str(body).ok()
    }

    /// How it ended, if it has, with the last line it wrote. Returns at once.
    ///
    /// # Errors
    /// None in practice.
    pub fn end(&mut self) -> io::Result<Option<String>> {
        let exit = self.child.wait(Nanos::ZERO)?;
        let lines: Vec<String> = self.complaints.try_iter().collect();
        Ok(exit.map(|exit| format!("{}{}", exit.status, quoted(&lines))))
    }

    /// Asks it to stop, and makes it. Blocks for a moment.
    ///
    /// # Errors
    /// None in practice.
    pub fn stop(mut self) -> io::Result<()> {
        self.child.terminate(STOP_WITHIN).map(|_| ())
    }
}

fn start_inrush(
    topology: &Topology,
    settings: &Settings,
    accept_limit: Limit,
    burn: Nanos,
    clock: &dyn Clock,
) -> Result<Running, StartError> {
    let path = sys::process::this_program().map_err(|error| StartError::Io("find this program", error))?;
    let any_port = format!("{}:0", topology.server.addresses[0]);
    let cpus: Vec<String> = topology.server.cpus.iter().map(usize::to_string).collect();
    let program = topology
        .server
        .program(path)
        .arguments(["serve".as_ref(), settings.root.as_os_str()])
        .arguments(["--listen", &any_port, "--admin", &any_port, "--arch", "sped", "--dispatch", "epoll"])
        .arguments(["--workers", "1", "--cpus", &cpus.join(",")])
        .arguments(["--accept-limit".to_owned(), accept_limit.to_string()])
        .arguments(["--backlog".to_owned(), settings.backlog.to_string()])
        .arguments(["--max-connections".to_owned(), settings.connections.to_string()])
        .arguments(["--burn".to_owned(), burn.to_string()]);
    let mut child = program.start().map_err(|error| StartError::Io("start it", error))?;
    let lines = read_complaints(&mut child);
    let deadline = clock.now() + READY_WITHIN;
    let (mut address, mut admin, mut heard) = (None, None, Vec::new());
    while address.is_none() || admin.is_none() {
        match lines.recv_timeout(deadline.saturating_sub(clock.now()).into()) {
            Ok(line) => {
                address = address.or_else(|| announced(&line, "listening on "));
                admin = admin.or_else(|| announced(&line, "admin on "));
                heard.push(line);
            }
            Err(RecvTimeoutError::Timeout) => return Err(StartError::Late(quoted(&heard))),
            Err(RecvTimeoutError::Disconnected) => return Err(died(child, &heard)),
        }
    }
    let address = address.expect("the loop above ends with it");
    Ok(Running { address, admin, command: program.command_line(), child, complaints: lines, _folder: None })
}

/// The address behind `what` in a line of a server.
fn announced(line: &str, what: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once(what)?;
    let word = rest.split_whitespace().next()?;
    word.trim_start_matches("http://").trim_end_matches(['/', ',', '.']).parse().ok()
}

fn start_nginx(topology: &Topology, settings: &Settings, clock: &dyn Clock) -> Result<Running, StartError> {
    let path = sys::process::find_program("nginx").ok_or(StartError::NotInstalled("nginx"))?;
    let address = topology.server.free_port().map_err(|error| StartError::Io("find it a port", error))?;
    let prepare = |error| StartError::Io("write its configuration", error);
    let folder = tempfile::tempdir().map_err(prepare)?;
    let conf = folder.path().join("nginx.conf");
    fs::write(&conf, nginx_conf(folder.path(), address, settings)).map_err(prepare)?;
    let program = topology
        .server
        .program(path)
        .arguments(["-p".as_ref(), folder.path().as_os_str()])
        .arguments(["-c".as_ref(), conf.as_os_str()])
        .arguments(["-e", "stderr"]);
    let mut child = program.start().map_err(|error| StartError::Io("start it", error))?;
    let lines = read_complaints(&mut child);
    let deadline = clock.now() + READY_WITHIN;
    loop {
        match topology.client.enter(|| TcpStream::connect_timeout(&address, STATUS_WITHIN.into())) {
            Ok(_) => break,
            Err(_) if clock.now() < deadline => {}
            Err(_) => return Err(StartError::Late(quoted(&lines.try_iter().collect::<Vec<_>>()))),
        }
        let ended = child.wait(LOOK_EVERY).map_err(|error| StartError::Io("wait for it", error))?;
        if ended.is_some() {
            return Err(died(child, &lines.iter().collect::<Vec<_>>()));
        }
    }
    let command = program.command_line();
    Ok(Running { address, admin: None, command, child, complaints: lines, _folder: Some(folder) })
}

/// nginx's configuration: everything it writes stays in `folder`.
fn nginx_conf(folder: &Path, address: SocketAddr, settings: &Settings) -> String {
    let Settings { root, backlog, connections } = settings;
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("    {kind}_temp_path {}/{kind};\n", folder.display()))
        .concat();
    format!(
        "daemon off;
master_process off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr crit;
events {{
    use epoll;
    worker_connections {connections};
}}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_timeout 60s;
    keepalive_requests 1000000000;
    open_file_cache max=10000 inactive=60s;
    open_file_cache_valid 60s;
    types {{ text/html html htm; }}
    default_type application/octet-stream;
{temporary}    server {{
        listen {address} backlog={backlog};
        root \"{root}\";
    }}
}}
",
        folder = folder.display(),
        root = root.display().to_string().replace('\\', "\\\\").replace('"', "\\\""),
    )
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
    for line in BufReader::new(from).lines() {
        let Ok(line) = line else { return };
        // A full channel means that there are complaints enough already.
        let _ = to.try_send(line);
    }
}

fn died(mut child: Child, heard: &[String]) -> StartError {
    match child.wait(READY_WITHIN) {
        Ok(Some(exit)) => StartError::Died(exit.status, quoted(heard)),
        Ok(None) => StartError::Late(quoted(heard)),
        Err(error) => StartError::Io("wait for it", error),
    }
}

/// The last line of what a server wrote, to be put behind a reason.
fn quoted(lines: &[String]) -> String {
    lines.last().map_or(String::new(), |line| format!(": {}", line.trim()))
}

/// One GET and its whole reply, as text.
fn get(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, STATUS_WITHIN.into())?;
    stream.set_read_timeout(Some(STATUS_WITHIN.into()))?;
    stream.set_write_timeout(Some(STATUS_WITHIN.into()))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut reply = String::new();
    stream.take(STATUS_LENGTH_MAX).read_to_string(&mut reply)?;
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::RealClock;

    fn settings(root: &Path) -> Settings {
        Settings { root: root.to_owned(), backlog: 128, connections: 1000 }
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
    fn a_reason_ends_with_the_last_line_that_was_heard() {
        assert_eq!(quoted(&[]), "");
        assert_eq!(quoted(&["first".to_owned(), " last\n".to_owned()]), ": last");
    }

    #[test]
    fn nginx_serves_the_folder_or_is_said_to_be_missing() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.html"), "a page").unwrap();
        let topology = Topology::best().unwrap();
        let mut nginx = match Kind::Nginx.start(&topology, &settings(folder.path()), &RealClock::new()) {
            Ok(running) => running,
            Err(error @ StartError::NotInstalled(_)) => return println!("skipped: {error}"),
            Err(error) => panic!("{error}"),
        };
        assert_eq!(nginx.end().unwrap(), None);
        let reply = topology.client.enter(|| get(nginx.address, "/a.html")).unwrap();
        assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
        assert!(reply.ends_with("a page"), "{reply}");
        assert_eq!(nginx.status(&topology), None);
        nginx.stop().unwrap();
    }

    #[test]
    fn a_server_that_cannot_start_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let topology = Topology::best().unwrap();
        let hopeless = Settings { connections: 0, ..settings(folder.path()) };
        match Kind::Nginx.start(&topology, &hopeless, &RealClock::new()) {
            Err(error @ StartError::NotInstalled(_)) => println!("skipped: {error}"),
            Err(StartError::Died(status, reason)) => {
                assert!(!status.success());
                assert!(reason.contains("worker_connections"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }
}
