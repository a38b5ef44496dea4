//! The server of a trial: `inrush serve` on loopback, observed through /proc and its admin address.
//!
//! In an upgrade the process that serves is replaced. The server's own messages name the next one.

use std::ffi::CString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{fmt, fs};

use anyhow::{Context, anyhow, ensure};
use base::{Clock, Nanos};
use clap::ValueEnum;
use experiment::TlsKey;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::Value;
use stage::identity::Identity;
use stage::proc;
use sys::process::{Child, Program};
use sys::readiness::poll::{self, PollFd, bits};

use crate::test_bed::TICK;

/// The file of the load: 1 KiB, held in memory.
pub const SMALL: &str = "small.bin";
/// A file that the server sends in many pieces.
pub const LARGE: &str = "large.bin";
/// The length of [`LARGE`].
pub const LARGE_BYTES: u64 = 8 << 20;
/// Number of files named `0.bin` and so on, 32 KiB each. Together they exceed a small cache.
pub const MANY: usize = 2_000;

/// The size of the access log's disk: some seconds of the load.
pub const DISK_BYTES: u64 = 64 << 10;
/// The name of the access log on it.
pub const LOG: &str = "access.log";
/// The folder of the disk.
const DISK: &str = "disk";
/// The file with the seconds by which the time of day is moved.
const CLOCK: &str = "clock";
/// Timeout for the server's counters to settle, and for its exit.
const PATIENCE: Nanos = Nanos::from_secs(10);
/// Worker processes and threads of the architectures that serve one connection each.
const WORKERS: &str = "20";

/// Settings of a server.
#[derive(Clone, Copy)]
pub struct Setup {
    /// Flags added to those of every server.
    pub flags: &'static [&'static str],
    /// Limit on its descriptors.
    pub descriptors: Option<u32>,
    /// True if its root holds the [`MANY`] files.
    pub many_files: bool,
    /// True if its access log is on a disk of its own, of [`DISK_BYTES`]. Needs root.
    pub own_disk: bool,
    /// True if [`Server::move_clock`] moves its time of day. Needs a C compiler.
    pub own_clock: bool,
}

/// The protocol of a trial's load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Protocol {
    /// HTTP/1.1 in cleartext.
    Http1,
    /// HTTP/1.1 under TLS, with a handshake for each connection.
    Tls,
    /// HTTP/2 in cleartext, with prior knowledge.
    Http2,
}

impl Protocol {
    /// The scheme of its URLs, and the flags of `inrush load`.
    pub fn of_load(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Protocol::Http1 => ("http", &[]),
            // Nobody has signed the certificate.
            Protocol::Tls => ("https", &["--insecure"]),
            Protocol::Http2 => ("http", &["--http2"]),
        }
    }
}

/// By its name on the command line.
impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_possible_value().expect("no protocol is hidden").get_name())
    }
}

/// A disk in memory, until it is dropped.
struct Disk(PathBuf);

impl Disk {
    fn mount(at: PathBuf) -> anyhow::Result<Disk> {
        fs::create_dir(&at)?;
        let size = CString::new(format!("size={DISK_BYTES}"))?;
        let flags = MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::NOSUID;
        mount("campaign", &at, "tmpfs", flags, size.as_c_str()).context("cannot mount a small disk")?;
        Ok(Disk(at))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Detached, because a process that is ending may still have the log open.
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// A running server; killed when dropped.
pub struct Server {
    child: Child,
    /// The process that serves: the first one, or the last that an upgrade has started.
    serving: Arc<AtomicU32>,
    /// Reads its messages until it ends: a full pipe would stop it.
    messages: Option<JoinHandle<std::io::Result<String>>>,
    /// The disk of its access log.
    _disk: Option<Disk>,
    folder: tempfile::TempDir,
    program: PathBuf,
    admin: SocketAddr,
    /// Its HTTP address.
    pub address: SocketAddr,
}

impl Server {
    /// Starts an architecture, and waits until it listens.
    ///
    /// # Errors
    /// The server does not start; the error has its messages.
    pub fn start(
        inrush: &Path,
        architecture: &str,
        protocol: Protocol,
        setup: Setup,
    ) -> anyhow::Result<Server> {
        let folder = tempfile::tempdir()?;
        let site = make_site(folder.path(), setup.many_files)?;
        let config = folder.path().join("serve.toml");
        fs::write(&config, "accept-limit = \"1\"\n")?;
        let limit = setup.descriptors.map_or_else(String::new, |most| format!("ulimit -n {most}; "));
        let mut program = Program::new("sh")
            .arguments(["-c", &format!("{limit}exec \"$0\" \"$@\"")])
            .arguments([inrush])
            .arguments(["serve", "--listen=127.0.0.1:0", "--admin=127.0.0.1:0", "--drain-timeout=3s"])
            .arguments(["--arch", architecture])
            .arguments([Path::new("--config"), &config])
            .arguments(setup.flags);
        if ["mp", "mt"].contains(&architecture) {
            program = program.arguments(["--workers", WORKERS]);
        }
        if protocol == Protocol::Tls {
            let Identity { certificate, key } = Identity::make(folder.path(), TlsKey::P256)?;
            program =
                program.arguments([Path::new("--tls-cert"), &certificate, Path::new("--tls-key"), &key]);
        }
        let disk = setup.own_disk.then(|| Disk::mount(folder.path().join(DISK))).transpose()?;
        if let Some(Disk(disk)) = &disk {
            program = program.arguments([Path::new("--access-log"), &disk.join(LOG)]);
        }
        if setup.own_clock {
            fs::write(folder.path().join(CLOCK), 0i64.to_ne_bytes())?;
            program = program
                .environment("LD_PRELOAD", build_clock(folder.path())?)
                .environment("CAMPAIGN_CLOCK", folder.path().join(CLOCK));
        }
        let mut child = program.arguments([&site]).start().context("cannot start inrush serve")?;
        let mut stderr = BufReader::new(child.stderr.take().context("no stderr")?);
        let (mut said, mut address, mut admin) = (String::new(), None, None);
        while address.is_none() || admin.is_none() {
            let from = said.len();
            ensure!(stderr.read_line(&mut said)? > 0, "it ended at the start:\n{said}");
            let line = said[from..].trim_end();
            address = address.or(line.strip_prefix("listening on ").and_then(|text| text.parse().ok()));
            admin = admin.or(line.strip_prefix("admin on ").and_then(|text| text.parse().ok()));
        }
        let (address, admin) = address.zip(admin).context("it listens nowhere")?;
        let serving = Arc::new(AtomicU32::new(child.id()));
        let upgraded = Arc::clone(&serving);
        let messages = Some(std::thread::spawn(move || read_to_the_end(stderr, &upgraded)));
        let program = inrush.to_owned();
        Ok(Server { child, serving, messages, _disk: disk, folder, program, address, admin })
    }

    /// Starts a guard of its address.
    ///
    /// # Errors
    /// The guard cannot be started. Whether it guards is in its messages.
    pub fn start_guard(&self) -> anyhow::Result<Child> {
        let guard = Program::new(&self.program).arguments(["guard", &self.address.to_string()]);
        guard.start().context("cannot start inrush guard")
    }

    /// Path of a file on the disk of its access log.
    pub fn on_disk(&self, name: &str) -> PathBuf {
        self.folder.path().join(DISK).join(name)
    }

    /// Path of a served file.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join("site").join(name)
    }

    /// Its config file.
    pub fn config(&self) -> PathBuf {
        self.folder.path().join("serve.toml")
    }

    /// The process that serves, or that starts the processes that serve.
    pub fn process(&self) -> Pid {
        Pid::from_raw(self.serving.load(Ordering::Relaxed) as i32).expect("a process has a number")
    }

    /// Processes that this process has started.
    pub fn workers(&self) -> Vec<Pid> {
        // A server that has ended has none.
        let children = proc::children(number(self.process())).unwrap_or_default();
        children.into_iter().filter_map(|pid| Pid::from_raw(pid as i32)).collect()
    }

    /// Number of sockets of the process that serves, without the one to each process that it has started.
    ///
    /// # Errors
    /// The process has ended.
    pub fn sockets(&self) -> anyhow::Result<usize> {
        loop {
            // Processes start and end at any time: counts of two different moments do not belong together.
            let workers = self.workers();
            let sockets = self.open_sockets()?;
            if workers == self.workers() {
                return Ok(sockets.saturating_sub(workers.len()));
            }
        }
    }

    fn open_sockets(&self) -> anyhow::Result<usize> {
        let folder = format!("/proc/{}/fd", number(self.process()));
        let descriptors = fs::read_dir(&folder).with_context(|| format!("cannot read {folder}"))?;
        let names = descriptors.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
        Ok(names.filter(|name| name.to_string_lossy().starts_with("socket:")).count())
    }

    /// Moves its time of day by so many seconds from the machine's, and returns the date that its admin address tells.
    ///
    /// # Errors
    /// The server does not answer there.
    pub fn move_clock(&self, seconds: i64) -> anyhow::Result<String> {
        // Never shorter than that, because a process that reads the mapping of a shorter file gets SIGBUS.
        File::options()
            .write(true)
            .open(self.folder.path().join(CLOCK))?
            .write_all(&seconds.to_ne_bytes())?;
        let reply = self.ask_for_status()?;
        let date = reply.lines().find_map(|line| line.strip_prefix("Date: "));
        Ok(date.context("/status has no date")?.to_owned())
    }

    fn ask_for_status(&self) -> anyhow::Result<String> {
        let mut stream = TcpStream::connect(self.admin)?;
        stream.set_read_timeout(Some(Duration::from(PATIENCE)))?;
        stream.write_all(b"GET /status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply)?;
        Ok(reply)
    }

    fn status(&self) -> anyhow::Result<Value> {
        let reply = self.ask_for_status()?;
        let (_, body) = reply.split_once("\r\n\r\n").context("/status has no end of its head")?;
        serde_json::from_str(body).context("/status is not JSON")
    }

    /// Ends the server, and returns every fault found in it: connections or sockets that stay, an exit code, a panic.
    ///
    /// # Errors
    /// The server's `/status` or `/proc` entries cannot be read.
    pub fn objections(
        &mut self,
        has_to_end: bool,
        sockets_before: usize,
        clock: &impl Clock,
    ) -> anyhow::Result<Vec<String>> {
        let mut objections = Vec::new();
        if !has_to_end {
            if self.has_ended_within(Nanos::ZERO)? {
                objections.push("the server ended by itself".to_owned());
            } else {
                objections.extend(self.leftovers(sockets_before, clock)?);
                kill_process(self.process(), Signal::TERM)?;
            }
        }
        if !self.has_ended_within(PATIENCE)? {
            objections.push(format!("the server did not end within {PATIENCE} of SIGTERM"));
        }
        // `Child::wait` ends the group of the first process, which the process that serves belongs to.
        match self.child.wait(PATIENCE)? {
            Some(exit) if exit.status.success() => {}
            Some(exit) => objections.push(format!("the server ended with {:?}", exit.status)),
            None => objections.push(format!("its first process did not end within {PATIENCE}")),
        }
        self.child.kill()?;
        let reader = self.messages.take().context("the server was ended before")?;
        let said = reader.join().map_err(|_| anyhow!("the reader of stderr panicked"))??;
        objections.extend(said.lines().filter(|line| line.contains("panicked")).map(str::to_owned));
        Ok(objections)
    }

    /// Waits for the end of the process that serves, and tells whether it has come.
    fn has_ended_within(&self, patience: Nanos) -> anyhow::Result<bool> {
        let process = match pidfd_open(self.process(), PidfdFlags::empty()) {
            Err(Errno::SRCH) => return Ok(true),
            process => process?,
        };
        Ok(poll::wait(&mut [PollFd::new(process.as_raw_fd(), bits::IN)], Some(patience))? > 0)
    }

    /// Connections and sockets that stay after every client has gone.
    fn leftovers(&mut self, sockets_before: usize, clock: &impl Clock) -> anyhow::Result<Option<String>> {
        let deadline = clock.now() + PATIENCE;
        loop {
            let connections = self.status()?["connections"].as_u64().context("/status has no connections")?;
            let sockets = self.sockets()?;
            if connections == 0 && sockets <= sockets_before {
                return Ok(None);
            }
            if clock.now() > deadline {
                return Ok(Some(format!(
                    "{connections} connections and {sockets} sockets stay, {sockets_before} were there before"
                )));
            }
            if self.has_ended_within(TICK)? {
                return Ok(Some("the server ended by itself".to_owned()));
            }
        }
    }
}

/// Builds the library that moves the time of day of a process.
fn build_clock(folder: &Path) -> anyhow::Result<PathBuf> {
    let library = folder.join("clock.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/campaign/clock.c");
    let compiler = Program::new("cc")
        .arguments(["-shared", "-fPIC", "-O1", "-Wall", source, "-o"])
        .arguments([&library])
        .start()
        .context("cannot start cc, a C compiler")?;
    let output = compiler.output(TICK, || true)?;
    ensure!(output.exit.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(library)
}

/// The number of a process.
pub fn number(process: Pid) -> u32 {
    process.as_raw_nonzero().get() as u32
}

/// Returns all messages, and takes the process that serves from them.
fn read_to_the_end(mut stderr: impl BufRead, serving: &AtomicU32) -> std::io::Result<String> {
    let mut said = String::new();
    loop {
        let from = said.len();
        if stderr.read_line(&mut said)? == 0 {
            return Ok(said);
        }
        if let Some(process) = successor(&said[from..]) {
            serving.store(process, Ordering::Relaxed);
        }
    }
}

/// Returns the process that a message says serves from now on.
fn successor(message: &str) -> Option<u32> {
    message.strip_prefix("inrush: process ")?.split_once(" serves now")?.0.parse().ok()
}

/// Makes the folder to serve.
fn make_site(folder: &Path, many_files: bool) -> anyhow::Result<PathBuf> {
    let site = folder.join("site");
    fs::create_dir(&site)?;
    fs::write(site.join(SMALL), [b's'; 1024])?;
    fs::write(site.join(LARGE), vec![b'l'; LARGE_BYTES as usize])?;
    for number in 0..if many_files { MANY } else { 0 } {
        fs::write(site.join(format!("{number}.bin")), [b'm'; 32 << 10])?;
    }
    Ok(site)
}
