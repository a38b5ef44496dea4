//! The machines of a fleet: network namespaces, the agents' joined to the hub by a link each.
//!
//! ```text
//!   hub 10.77.0.1: nats-server, the coordinator, inrush serve
//!     ├── 10.77.1.2: inrush fleet agent a1
//!     └── 10.77.2.2: inrush fleet agent a2 ..
//! ```
//!
//! All of them share the CPUs of this machine.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;

use base::Nanos;
use rustix::process::Signal;
use serde_json::Value;
use sys::network::netlink::Route;
use sys::network::netns::NetworkNamespace;
use sys::process::{Child, Output, Program};
use tempfile::TempDir;

const INRUSH: &str = env!("CARGO_BIN_EXE_inrush");
const TICK: Nanos = Nanos::from_millis(5);

const HUB: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const NATS_PORT: u16 = 4222;
const HTTP_PORT: u16 = 8080;

/// The machines with their programs, which end when this is dropped.
pub struct Machines {
    hub: NetworkNamespace,
    _folder: TempDir,
    programs: Vec<Child>,
}

impl Machines {
    /// Starts the programs, and waits until they listen. Prints a skip where there are no network namespaces.
    pub fn start(agents: u8) -> Option<Machines> {
        let create = || NetworkNamespace::create().inspect_err(|error| println!("skipped: {error}")).ok();
        let hub = create()?;
        let members = (0..agents).map(|_| create()).collect::<Option<Vec<_>>>()?;
        let mut route = hub.enter(Route::open).unwrap().unwrap();
        set_up(&mut route, "lo", HUB, 32);
        for (number, member) in (1..).zip(&members) {
            let port = format!("port{number}");
            route.create_veth(&port, member.as_fd(), "uplink").unwrap();
            set_up(&mut route, &port, Ipv4Addr::new(10, 77, number, 1), 24);
            // With this length the hub is a neighbour.
            set_up(
                &mut member.enter(Route::open).unwrap().unwrap(),
                "uplink",
                Ipv4Addr::new(10, 77, number, 2),
                16,
            );
        }
        let folder = tempfile::tempdir().unwrap();
        let (store, site) = (folder.path().join("nats"), folder.path().join("site"));
        fs::create_dir(&site).unwrap();
        fs::write(site.join("index.html"), [b'x'; 1024]).unwrap();

        let nats = Program::new("nats-server")
            .arguments(["--jetstream", "--addr", &HUB.to_string(), "--port", &NATS_PORT.to_string()])
            .arguments([Path::new("--store_dir"), &store]);
        let server = Program::new(INRUSH)
            .arguments(["serve", "--listen", &format!("{HUB}:{HTTP_PORT}")])
            .arguments([&site]);
        let mut programs = vec![listening(nats, &hub, NATS_PORT), listening(server, &hub, HTTP_PORT)];
        for (number, member) in (1..).zip(&members) {
            let agent = Program::new(INRUSH)
                .arguments(["fleet", "agent", "--nats", &nats_url(), "--name", &format!("a{number}")])
                .in_namespace(Some(member.as_fd()));
            programs.push(agent.start().unwrap());
        }
        Some(Machines { hub, _folder: folder, programs })
    }

    /// Stops the process of the last agent, as soon as it waits for orders.
    pub fn stop_the_last_agent(&mut self) {
        let agent = self.programs.last_mut().unwrap();
        let mut said = BufReader::new(agent.stderr.take().unwrap()).lines();
        assert!(said.any(|line| line.unwrap().contains("ready for orders")));
        agent.signal(Signal::STOP).unwrap();
    }

    /// One run of `inrush load` by this many agents, with these flags.
    pub fn offer(&self, agents: u8, flags: &[&str]) -> Value {
        result(&self.run(agents, flags))
    }

    /// The end of one run.
    pub fn run(&self, agents: u8, flags: &[&str]) -> Output {
        let url = format!("http://{HUB}:{HTTP_PORT}/");
        let load = ["load", &url, "--output", "json", "--i-own-this-server"];
        let run = ["fleet", "run", "--nats", &nats_url(), "--agents", &agents.to_string(), "--"];
        self.end(Program::new(INRUSH).arguments(run).arguments(load).arguments(flags))
    }

    /// Finds the clean rate of one agent by trials of this length.
    pub fn calibrate(&self, step: &str) -> Value {
        let (listen, nats) = (format!("{HUB}:0"), nats_url());
        let words = ["fleet", "calibrate", "--nats", &nats, "--listen", &listen, "--step", step];
        result(&self.end(Program::new(INRUSH).arguments(words).arguments(["--output", "json"])))
    }

    /// The end of a program of the hub.
    fn end(&self, program: Program<'_>) -> Output {
        let child = program.in_namespace(Some(self.hub.as_fd())).start().unwrap();
        child.output(TICK, || true).unwrap()
    }
}

/// The result that a program has printed.
fn result(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no result: {said}"))
}

fn nats_url() -> String {
    format!("nats://{HUB}:{NATS_PORT}")
}

fn set_up(route: &mut Route, link: &str, address: Ipv4Addr, prefix_length: u8) {
    let link = route.link_index(link).unwrap();
    route.add_address(link, address, prefix_length).unwrap();
    route.set_up(link).unwrap();
}

/// Starts a program of the hub, and waits until it listens on this port.
fn listening(program: Program<'_>, hub: &NetworkNamespace, port: u16) -> Child {
    let connect = || hub.enter(|| TcpStream::connect((HUB, port))).unwrap();
    let what = format!("what should listen on port {port}");
    super::listening::listening(&what, program.in_namespace(Some(hub.as_fd())), connect)
}
