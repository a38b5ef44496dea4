//! The server of a trial: `inrush serve` on loopback, observed through /proc and its admin address.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use base::{Clock, Nanos};
use rustix::process::Pid;
use serde_json::Value;
use stage::proc;
use sys::process::{Child, Program};

use crate::test_bed::TICK;

/// The file of the load: 1 KiB, held in memory.
pub const SMALL: &str = "small.bin";
/// A file that the server sends in many pieces.
pub const LARGE: &str = "large.bin";
/// The length of [`LARGE`].
pub const LARGE_BYTES: u64 = 8 << 20;
/// Number of files named `0.bin` and so on, 32 KiB each. Together they exceed a small cache.
pub const MANY: usize = 2_000;

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
}

/// A running server; killed when dropped.
pub struct Server {
    child: Child,
    /// Reads its messages until it ends: a full pipe would stop it.
    messages: Option<JoinHandle<std::io::Result<String>>>,
    folder: tempfile::TempDir,
    admin: SocketAddr,
    /// Its HTTP address.
    pub address: SocketAddr,
}

impl Server {
    /// Starts an architecture, and waits until it listens.
    ///
    /// # Errors
    /// The server does not start; the error has its messages.
    pub fn start(inrush: &Path, architecture: &str, setup: Setup) -> anyhow::Result<Server> {
        let folder = tempfile::tempdir()?;
        let site = folder.path().join("site");
        fs::create_dir(&site)?;
        fs::write(site.join(SMALL), [b's'; 1024])?;
        fs::write(site.join(LARGE), vec![b'l'; LARGE_BYTES as usize])?;
        for number in 0..if setup.many_files { MANY } else { 0 } {
            fs::write(site.join(format!("{number}.bin")), [b'm'; 32 << 10])?;
        }
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
        let addresses = address.zip(admin).context("it listens nowhere")?;
        let rest = std::thread::spawn(move || {
            let mut rest = String::new();
            stderr.read_to_string(&mut rest).map(|_| rest)
        });
        Ok(Server { child, messages: Some(rest), folder, address: addresses.0, admin: addresses.1 })
    }

    /// Path of a served file.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join("site").join(name)
    }

    /// Its config file.
    pub fn config(&self) -> PathBuf {
        self.folder.path().join("serve.toml")
    }

    /// The server's first process.
    pub fn child(&self) -> &Child {
        &self.child
    }

    /// Processes that the first process has started.
    pub fn workers(&self) -> Vec<Pid> {
        // A server that has ended has none.
        let children = proc::children(self.child.id()).unwrap_or_default();
        children.into_iter().filter_map(|pid| Pid::from_raw(pid as i32)).collect()
    }

    /// Number of sockets of the first process, without the one to each process that it has started.
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
        let folder = format!("/proc/{}/fd", self.child.id());
        let descriptors = fs::read_dir(&folder).with_context(|| format!("cannot read {folder}"))?;
        let names = descriptors.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
        Ok(names.filter(|name| name.to_string_lossy().starts_with("socket:")).count())
    }

    fn status(&self) -> anyhow::Result<Value> {
        let mut stream = TcpStream::connect(self.admin)?;
        stream.set_read_timeout(Some(Duration::from(PATIENCE)))?;
        stream.write_all(b"GET /status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply)?;
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
            if let Some(exit) = self.child.wait(Nanos::ZERO)? {
                objections.push(format!("the server ended by itself: {:?}", exit.status));
            } else {
                objections.extend(self.leftovers(sockets_before, clock)?);
            }
            self.child.ask_to_end()?;
        }
        match self.child.wait(PATIENCE)? {
            Some(exit) if exit.status.success() => {}
            Some(exit) => objections.push(format!("the server ended with {:?}", exit.status)),
            None => objections.push(format!("the server did not end within {PATIENCE} of SIGTERM")),
        }
        self.child.kill()?;
        let reader = self.messages.take().context("the server was ended before")?;
        let said = reader.join().map_err(|_| anyhow!("the reader of stderr panicked"))??;
        objections.extend(said.lines().filter(|line| line.contains("panicked")).map(str::to_owned));
        Ok(objections)
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
            if self.child.wait(TICK)?.is_some() {
                return Ok(Some("the server ended by itself".to_owned()));
            }
        }
    }
}
