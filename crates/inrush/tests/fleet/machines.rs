//! The machines of a fleet: network namespaces with an address each, joined by a bridge.
//!
//! ```text
//!   hub: nats-server, the coordinator
//!     bridge ──┬── server: inrush serve
//!              └── a1 a2 a3 ..: inrush fleet agent
//! ```
//!
//! All of them share the CPUs of this machine.

use std::fmt::Display;
use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use base::{Clock, Nanos, RealClock};
use record::LoadResult;
use sys::netns::NetworkNamespace;
use sys::process::{Child, Program, find_program};
use tempfile::TempDir;

const INRUSH: &str = env!("CARGO_BIN_EXE_inrush");
const TICK: Nanos = Nanos::from_millis(5);
/// Longer than anything takes but a failure.
const PATIENCE: Nanos = Nanos::from_secs(30);

const HUB: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const NATS_PORT: u16 = 4222;
const HTTP_PORT: u16 = 8080;

/// The machines with their programs, which end when this is dropped.
pub struct Machines {
    hub: NetworkNamespace,
    _folder: TempDir,
    _programs: Vec<Child>,
    _members: Vec<NetworkNamespace>,
}

impl Machines {
    /// Starts the programs, and waits until they listen. Prints a skip where there is no ip(8) or no network
    /// namespaces.
    pub fn start(agents: u32) -> Option<Machines> {
        if find_program("ip").is_none() {
            println!("skipped: ip is not on PATH");
            return None;
        }
        let create = || NetworkNamespace::create().inspect_err(|error| println!("skipped: {error}")).ok();
        let hub = create()?;
        let members = (0..=agents).map(|_| create()).collect::<Option<Vec<_>>>()?;
        join(&hub, &members);
        let folder = tempfile::tempdir().unwrap();
        let (store, site) = (folder.path().join("nats"), folder.path().join("site"));
        fs::create_dir(&site).unwrap();
        fs::write(site.join("index.html"), [b'x'; 1024]).unwrap();

        let nats = Program::new("nats-server")
            .arguments(["--jetstream", "--addr", &HUB.to_string(), "--port", &NATS_PORT.to_string()])
            .arguments([Path::new("--store_dir"), &store])
            .in_namespace(Some(hub.as_fd()));
        let mut nats = nats.start().unwrap();
        until_it_listens(&mut nats, &hub, HUB, NATS_PORT);
        let server = Program::new(INRUSH)
            .arguments(["serve", "--listen", &format!("{SERVER}:{HTTP_PORT}")])
            .arguments([&site])
            .in_namespace(Some(members[0].as_fd()));
        let mut server = server.start().unwrap();
        until_it_listens(&mut server, &hub, SERVER, HTTP_PORT);
        let mut programs = vec![nats, server];
        for (number, member) in members.iter().enumerate().skip(1) {
            let agent = Program::new(INRUSH)
                .arguments(["fleet", "agent", "--nats", &nats_url(), "--name", &format!("a{number}")])
                .in_namespace(Some(member.as_fd()));
            programs.push(agent.start().unwrap());
        }
        Some(Machines { hub, _folder: folder, _programs: programs, _members: members })
    }

    /// One run of `inrush load` by this many agents, with these flags.
    pub fn offer(&self, agents: u32, flags: &[&str]) -> LoadResult {
        let url = format!("http://{SERVER}:{HTTP_PORT}/");
        let coordinator = Program::new(INRUSH)
            .arguments(["fleet", "run", "--nats", &nats_url(), "--agents", &agents.to_string(), "--"])
            .arguments(["load", &url, "--output", "json", "--i-own-this-server"])
            .arguments(flags)
            .in_namespace(Some(self.hub.as_fd()));
        let output = coordinator.start().unwrap().output(TICK, || true).unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no result: {said}"))
    }
}

fn nats_url() -> String {
    format!("nats://{HUB}:{NATS_PORT}")
}

/// Joins the members to a bridge in the hub. The first has the address after the hub's, and so on.
fn join(hub: &NetworkNamespace, members: &[NetworkNamespace]) {
    ip(hub, "link set lo up");
    ip(hub, "link add bridge type bridge");
    ip(hub, format_args!("address add {HUB}/24 dev bridge"));
    ip(hub, "link set bridge up");
    for (address, member) in (u32::from(SERVER)..).zip(members) {
        let port = format!("port{address:x}");
        let place = format!("/proc/{}/fd/{}", std::process::id(), member.as_fd().as_raw_fd());
        ip(hub, format_args!("link add {port} type veth peer name uplink netns {place}"));
        ip(hub, format_args!("link set {port} master bridge up"));
        ip(member, format_args!("address add {}/24 dev uplink", Ipv4Addr::from(address)));
        ip(member, "link set uplink up");
    }
}

/// Runs ip(8) in a namespace.
fn ip(namespace: &NetworkNamespace, words: impl Display) {
    let words = words.to_string();
    let program = Program::new("ip").arguments(words.split(' ')).in_namespace(Some(namespace.as_fd()));
    let output = program.start().and_then(|child| child.output(TICK, || true)).unwrap();
    assert!(output.exit.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
}

fn until_it_listens(program: &mut Child, from: &NetworkNamespace, address: Ipv4Addr, port: u16) {
    let clock = RealClock::new();
    let give_up = clock.now() + PATIENCE;
    while from.enter(|| TcpStream::connect((address, port))).unwrap().is_err() {
        assert!(program.wait(TICK).unwrap().is_none(), "what should listen on port {port} has ended");
        assert!(clock.now() < give_up, "nobody listens on {address}:{port}");
    }
}
