//! The machines of a fleet: network namespaces with an address each, joined by a bridge.
//!
//! ```text
//!   hub: nats-server, the coordinator
//!     bridge ──┬── server: inrush serve
//!              └── a1 a2 a3 ..: inrush fleet agent
//! ```
//!
//! Owns the namespaces, the links and the programs. All of them share the CPUs of this machine.

use std::fmt::Display;
use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use anyhow::{Context, ensure};
use base::{Clock, Nanos, RealClock};
use record::LoadResult;
use sys::netns::NetworkNamespace;
use sys::process::{Child, Program};
use tempfile::TempDir;

use crate::test_bed::TICK;

/// Timeout for the programs to listen.
const PATIENCE: Nanos = Nanos::from_secs(10);

const HUB: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The server's address.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const NATS_PORT: u16 = 4222;
const HTTP_PORT: u16 = 8080;

/// The machines of a fleet with their programs, which end when this is dropped.
pub struct Machines {
    hub: NetworkNamespace,
    /// The server, then the agents.
    members: Vec<NetworkNamespace>,
    _folder: TempDir,
    _programs: Vec<Child>,
}

impl Machines {
    /// Starts the programs, and waits until they listen.
    ///
    /// # Errors
    /// This machine lacks network namespaces, `ip` or `nats-server`; a program does not start.
    pub fn start(inrush: &Path, agents: u32) -> anyhow::Result<Machines> {
        let create = || NetworkNamespace::create().context("cannot make a network namespace");
        let hub = create()?;
        let members = (0..=agents).map(|_| create()).collect::<anyhow::Result<Vec<_>>>()?;
        join(&hub, &members)?;
        let folder = tempfile::tempdir()?;
        let (store, site) = (folder.path().join("nats"), folder.path().join("site"));
        fs::create_dir(&site)?;
        fs::write(site.join("index.html"), [b'x'; 1024])?;

        let nats = Program::new("nats-server")
            .arguments(["--jetstream", "--addr", &HUB.to_string(), "--port", &NATS_PORT.to_string()])
            .arguments([Path::new("--store_dir"), &store])
            .in_namespace(Some(hub.as_fd()));
        let server = Program::new(inrush)
            .arguments(["serve", "--listen", &format!("{SERVER}:{HTTP_PORT}")])
            .arguments([&site])
            .in_namespace(Some(members[0].as_fd()));
        let mut nats = nats.start().context("cannot start nats-server")?;
        until_it_listens(&mut nats, &hub, HUB, NATS_PORT)?;
        let mut server = server.start().context("cannot start inrush serve")?;
        until_it_listens(&mut server, &hub, SERVER, HTTP_PORT)?;
        let mut programs = vec![nats, server];
        for (number, member) in members.iter().enumerate().skip(1) {
            let agent = Program::new(inrush)
                .arguments(["fleet", "agent", "--nats", &nats_url(), "--name", &format!("a{number}")])
                .in_namespace(Some(member.as_fd()));
            programs.push(agent.start().context("cannot start an agent")?);
        }
        Ok(Machines { hub, _folder: folder, members, _programs: programs })
    }

    /// The namespace of the server.
    pub fn server(&self) -> &NetworkNamespace {
        &self.members[0]
    }

    /// Carries out one run of `agents` agents: `inrush load` with this URL and these flags. Blocks.
    ///
    /// # Errors
    /// The run has no result; the error has its messages.
    pub fn offer(&self, inrush: &Path, agents: u32, load: &[&str]) -> anyhow::Result<LoadResult> {
        let coordinator = Program::new(inrush)
            .arguments(["fleet", "run", "--nats", &nats_url(), "--agents", &agents.to_string(), "--", "load"])
            .arguments(load)
            .arguments(["--output", "json", "--i-own-this-server"])
            .in_namespace(Some(self.hub.as_fd()));
        let output = coordinator.start().context("cannot start the coordinator")?.output(TICK, || true)?;
        serde_json::from_slice(&output.stdout)
            .with_context(|| format!("no result: {}", String::from_utf8_lossy(&output.stderr).trim()))
    }
}

/// The URL of the served page.
pub fn page() -> String {
    format!("http://{SERVER}:{HTTP_PORT}/")
}

fn nats_url() -> String {
    format!("nats://{HUB}:{NATS_PORT}")
}

/// Joins the members to a bridge in the hub. The first has the address after the hub's, and so on.
fn join(hub: &NetworkNamespace, members: &[NetworkNamespace]) -> anyhow::Result<()> {
    ip(hub, "link set lo up")?;
    ip(hub, "link add bridge type bridge")?;
    ip(hub, format_args!("address add {HUB}/24 dev bridge"))?;
    ip(hub, "link set bridge up")?;
    for (address, member) in (u32::from(SERVER)..).zip(members) {
        let port = format!("port{address:x}");
        let place = format!("/proc/{}/fd/{}", std::process::id(), member.as_fd().as_raw_fd());
        ip(hub, format_args!("link add {port} type veth peer name uplink netns {place}"))?;
        ip(hub, format_args!("link set {port} master bridge up"))?;
        ip(member, format_args!("address add {}/24 dev uplink", Ipv4Addr::from(address)))?;
        ip(member, "link set uplink up")?;
    }
    Ok(())
}

/// Runs ip(8) in a namespace.
fn ip(namespace: &NetworkNamespace, words: impl Display) -> anyhow::Result<()> {
    let words = words.to_string();
    let program = Program::new("ip").arguments(words.split(' ')).in_namespace(Some(namespace.as_fd()));
    let output = program.start().context("cannot start ip")?.output(TICK, || true)?;
    ensure!(output.exit.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}

fn until_it_listens(
    program: &mut Child,
    from: &NetworkNamespace,
    address: Ipv4Addr,
    port: u16,
) -> anyhow::Result<()> {
    let clock = RealClock::new();
    let give_up = clock.now() + PATIENCE;
    while from.enter(|| TcpStream::connect((address, port)))?.is_err() {
        ensure!(program.wait(TICK)?.is_none(), "what should listen on {address}:{port} has ended");
        ensure!(clock.now() < give_up, "nobody listens on {address}:{port} after {PATIENCE}");
    }
    Ok(())
}
