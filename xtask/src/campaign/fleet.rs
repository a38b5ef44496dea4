//! `inrush fleet run` again and again, each machine of the fleet a network namespace with an address of its own.
//!
//! ```text
//!   hub: nats-server, the coordinator
//!     bridge ──┬── server: inrush serve
//!              └── a1 a2 a3 ..: inrush fleet agent
//! ```
//!
//! Owns the namespaces, the links and the judgement. Leaves out agents that fail: the tests of `inrush fleet` end them.
//!
//! Invariant: a run holds if it is valid, offers what was asked to within 0.5 %, and is exactly the sum of its parts.

use std::fmt::Display;
use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use anyhow::{Context, bail, ensure};
use base::{Clock, Nanos, RealClock};
use record::{LoadResult, Verdict};
use sys::netns::NetworkNamespace;
use sys::process::{Child, Program};
use tempfile::TempDir;

use crate::test_bed::{TICK, build_inrush};

/// Flags of `campaign fleet`.
#[derive(clap::Args)]
pub struct FleetOptions {
    /// Runs of the fleet
    #[arg(long, default_value = "20", value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Agents, each in a namespace of its own
    #[arg(long, default_value = "4", value_parser = clap::value_parser!(u32).range(1..=100))]
    agents: u32,
}

/// Requests a second of the whole fleet.
const RATE: u32 = 2_000;
/// Measured time of a run, in seconds.
const SECONDS: u32 = 5;
/// The greatest difference between the asked and the offered rate, as a part of the asked one.
const TOLERANCE: f64 = 0.005;
/// Timeout for the programs to listen.
const PATIENCE: Nanos = Nanos::from_secs(10);

const HUB: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const NATS_PORT: u16 = 4222;
const HTTP_PORT: u16 = 8080;

/// The machines of a fleet with their programs, which end when this is dropped.
struct Machines {
    hub: NetworkNamespace,
    _folder: TempDir,
    _programs: Vec<Child>,
    _members: Vec<NetworkNamespace>,
}

/// Carries out the runs. Blocks.
///
/// # Errors
/// A run does not hold, or this machine lacks network namespaces, `ip` or `nats-server`.
pub fn run(options: &FleetOptions) -> anyhow::Result<()> {
    let inrush = build_inrush()?;
    let machines = Machines::start(&inrush, options.agents)?;
    let (mut skews, mut failed) = (Vec::new(), 0);
    for number in 1..=options.runs {
        let result = machines.offer(&inrush, options.agents)?;
        let objections = objections(&result, options.agents);
        let starts = result.agents.iter().filter_map(|agent| Some(agent.part.as_ref()?.start_late_ns));
        skews.extend(starts);
        failed += u32::from(!objections.is_empty());
        let verdict = if objections.is_empty() { "holds".to_owned() } else { objections.join("; ") };
        println!("run {number} of {}: {} offered, {verdict}", options.runs, result.offered);
    }
    ensure!(!skews.is_empty(), "no agent has taken part");
    skews.sort_unstable();
    let at = |part: f64| Nanos(skews[((skews.len() - 1) as f64 * part).round() as usize]).approximate();
    println!("start skew of {} starts: p50 {}, p99 {}, most {}", skews.len(), at(0.5), at(0.99), at(1.0));
    if failed > 0 {
        bail!("{failed} of {} runs do not hold", options.runs);
    }
    Ok(())
}

/// The reasons why a run does not hold.
fn objections(result: &LoadResult, agents: u32) -> Vec<String> {
    let parts: Vec<_> = result.agents.iter().filter_map(|agent| agent.part.as_ref()).collect();
    let asked = f64::from(RATE * SECONDS);
    let offered: u64 = parts.iter().map(|part| part.offered).sum();
    let samples: u64 = parts.iter().map(|part| part.latency_intended_ns.answered.count).sum();
    let merged = result.latency_intended_ns.answered.count;
    let conditions = [
        (result.verdict == Verdict::Valid, format!("the verdict is {}", result.verdict.name())),
        (parts.len() == agents as usize, format!("{} of {agents} agents have a part", parts.len())),
        ((result.offered as f64 / asked - 1.0).abs() <= TOLERANCE, format!("{asked} were asked for")),
        (result.offered == offered, format!("the parts offered {offered}")),
        (merged == samples, format!("{merged} of {samples} samples are merged")),
    ];
    conditions.into_iter().filter(|(holds, _)| !holds).map(|(_, otherwise)| otherwise).collect()
}

impl Machines {
    fn start(inrush: &Path, agents: u32) -> anyhow::Result<Machines> {
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
        Ok(Machines { hub, _folder: folder, _programs: programs, _members: members })
    }

    /// One run of the whole fleet.
    fn offer(&self, inrush: &Path, agents: u32) -> anyhow::Result<LoadResult> {
        let url = format!("http://{SERVER}:{HTTP_PORT}/");
        let coordinator = Program::new(inrush)
            .arguments(["fleet", "run", "--nats", &nats_url(), "--agents", &agents.to_string(), "--"])
            .arguments(["load", &url, "--rate", &RATE.to_string(), "--warmup", "1s"])
            .arguments(["--duration", &format!("{SECONDS}s"), "--output", "json", "--i-own-this-server"])
            .in_namespace(Some(self.hub.as_fd()));
        let output = coordinator.start().context("cannot start the coordinator")?.output(TICK, || true)?;
        serde_json::from_slice(&output.stdout)
            .with_context(|| format!("no result: {}", String::from_utf8_lossy(&output.stderr).trim()))
    }
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
