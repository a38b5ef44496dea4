//! The test bed of every benchmark: two sides, the program under test, and the settings that all servers have.

use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use base::{Nanos, RealClock};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use stage::owner::temporary_folder;
use stage::topology::Topology;
use sys::process::{Program, this_program};
use tempfile::TempDir;

/// The size of the file that is asked for.
pub const FILE_LENGTH: usize = 1024;
/// Its name in the folder to serve.
pub const FILE: &str = "1k.html";
/// The accept queue of every server.
pub const BACKLOG: u32 = 4096;
/// The time between two looks at a running program.
pub const TICK: Nanos = Nanos::from_millis(5);

/// The place where a benchmark runs.
pub struct TestBed {
    /// The two sides.
    pub topology: Topology,
    /// The inrush program, built just now.
    pub inrush: PathBuf,
    /// Another build of it, to be compared.
    pub before: Option<PathBuf>,
    /// The time.
    pub clock: RealClock,
}

impl TestBed {
    /// Builds inrush and sets up the two sides. Moves this process to the client's CPUs, because its own work must
    /// not take time from the server.
    pub fn prepare(before: Option<PathBuf>) -> anyhow::Result<TestBed> {
        let inrush = build_inrush()?;
        let topology = Topology::best().context("cannot find out which CPUs there are")?;
        for warning in &topology.warnings {
            eprintln!("warning: {warning}");
        }
        sys::cpu::pin(&topology.client.cpus).context("cannot move to the client's CPUs")?;
        Ok(TestBed { topology, inrush, before, clock: RealClock::new() })
    }

    /// A contestant of the other build, if there is that build.
    pub fn of_before<T>(&self, contestant: &'static T) -> Option<&'static T> {
        self.before.as_ref().map(|_| contestant)
    }

    /// Opens a listener on the server's side that never accepts. A backlog of 1 is full after two connections.
    pub fn silent_listener(&self, backlog: i32) -> anyhow::Result<(OwnedFd, SocketAddr)> {
        let address = SocketAddr::from((self.topology.server.addresses[0], 0));
        let listener = self.topology.server.enter(|| {
            let flags = SocketFlags::CLOEXEC;
            let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
            rustix::net::bind(&socket, &address)?;
            rustix::net::listen(&socket, backlog)?;
            let address = rustix::net::getsockname(&socket)?.try_into().map_err(std::io::Error::from)?;
            Ok((socket, address))
        });
        listener.context("cannot listen on the server's side")
    }
}

/// Makes a folder to serve, with files of these names and lengths.
///
/// # Errors
/// The folder or a file cannot be written.
pub fn folder_to_serve(files: &[(&str, usize)]) -> anyhow::Result<TempDir> {
    let folder = temporary_folder().context("cannot make a folder to serve")?;
    for (name, length) in files {
        fs::write(folder.path().join(name), vec![b'x'; *length])?;
    }
    Ok(folder)
}

/// Raises our descriptor limit as far as it goes.
///
/// # Errors
/// The limit is below `needed`.
pub fn allow_descriptors(what: &str, needed: usize) -> anyhow::Result<()> {
    let most = sys::process::descriptors::raise_limit(u64::MAX).unwrap_or(u64::MAX);
    ensure!(most >= needed as u64, "{what} needs {needed} descriptors, and ulimit -Hn is {most}");
    Ok(())
}

/// A program without the variables of `cargo run`. Build scripts read these, so that a cargo below it would build ring and
/// all that stands on it anew, and the next `cargo run` once more.
pub fn outside_cargo(program: impl Into<OsString>) -> Program<'static> {
    let is_of_this_run = |name: &OsString| {
        ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|start| name.to_string_lossy().starts_with(start))
    };
    let names = std::env::vars_os().map(|(name, _)| name).filter(is_of_this_run);
    let unset = names.flat_map(|name| ["-u".into(), name]);
    Program::new("env").arguments(unset).arguments([program.into()])
}

/// Cargo of the nightly compiler, which rustup chooses.
pub fn nightly_cargo() -> Program<'static> {
    outside_cargo("rustup").arguments(["run", "nightly", "cargo"])
}

/// Cargo, as a shell starts it.
pub fn cargo() -> Program<'static> {
    outside_cargo(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Builds the measured program, so that it is never an old one. Returns its path, beside this program.
pub fn build_inrush() -> anyhow::Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
    let program = cargo()
        .arguments(["build", "--release", "--quiet", "--package", "inrush", "--manifest-path"])
        .arguments([root]);
    let output = program.start().context("cannot start cargo")?.output(TICK, || true)?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.exit.status.success(), "cannot build inrush:\n{}", errors.trim());
    let inrush = this_program()?.with_file_name("inrush");
    ensure!(inrush.is_file(), "no {}: run the benchmarks as cargo xtask bench", inrush.display());
    Ok(inrush)
}
