//! Idle connections: established, and then left alone. Each measurement has a process of its own, because memory that an
//! earlier one has freed would be used again.

use std::io;
use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, ensure};
use base::{Clock, Nanos, PerSecond, RealClock, Seed};
use dispatch::Token;
use serde::{Deserialize, Serialize};
use stage::memory::anonymous_memory;
use stage::topology::{CLIENT_NET, LINK};
use usertcp::link::{AfXdp, Tun};
use usertcp::{Config, Kind, Link, LinkError, SourceNet, Stack, Window};

/// The addresses of connections over TUN. The topology has others for AF_XDP.
const TUN_NET: &str = "10.94.0.0/16";
/// The server's kernel takes connections at this rate without dropping any.
const OPENING: PerSecond = PerSecond(30_000.0);
/// The wait for the last connections. The kernel repeats a lost SYN-ACK after one, three and seven seconds.
const PATIENCE: Nanos = Nanos::from_secs(20);

/// The settings of one measurement.
#[derive(clap::Args)]
pub struct IdleOptions {
    /// The server
    pub server: SocketAddr,
    /// Connections
    pub connections: u32,
    /// The time for which they are left alone
    pub duration: Nanos,
    /// Connect over AF_XDP, not over TUN
    #[arg(long)]
    pub af_xdp: bool,
}

/// The costs of idle connections.
#[derive(Serialize, Deserialize)]
pub struct Costs {
    /// Memory of the stack for each connection.
    pub bytes_each: f64,
    /// CPU time of the process per second.
    pub cores: f64,
}

/// Measures, and prints the costs as JSON.
///
/// # Errors
/// There is no such link, or the server takes fewer connections.
pub fn run(options: &IdleOptions) -> anyhow::Result<()> {
    let costs = match options.af_xdp {
        true => measure(options, open_af_xdp(options.server.ip())?, af_xdp_net()),
        false => measure(options, open_tun(options.server.ip())?, tun_net()),
    };
    println!("{}", serde_json::to_string(&costs?)?);
    Ok(())
}

/// Opens a TUN device to a server in this thread's namespace.
///
/// # Errors
/// Those of the link.
pub fn open_tun(server: IpAddr) -> Result<Tun, LinkError> {
    Tun::open(server, tun_net())
}

/// Opens AF_XDP sockets on the topology's link, on the client's side.
///
/// # Errors
/// Those of the link.
pub fn open_af_xdp(server: IpAddr) -> Result<AfXdp, LinkError> {
    AfXdp::open(LINK, server, af_xdp_net(), true, &RealClock::new())
}

fn tun_net() -> SourceNet {
    TUN_NET.parse().expect("the constant is a net")
}

fn af_xdp_net() -> SourceNet {
    let (address, length) = CLIENT_NET;
    SourceNet::new(address.into(), length).expect("the constant is a net")
}

fn measure<L: Link>(options: &IdleOptions, link: L, net: SourceNet) -> anyhow::Result<Costs> {
    let clock = RealClock::new();
    let config =
        Config { server: options.server, net, seed: Seed(1), epoch: Nanos::ZERO, syn_linear_timeouts: 4 };
    let mut stack = Stack::new(link, config, clock.now());
    let before = anonymous_memory(std::process::id())?;
    open(&mut stack, &clock, options.connections)?;
    let after = anonymous_memory(std::process::id())?;
    // The handshakes' timers run for another second.
    while let Some(due) = stack.next_due() {
        hold(&mut stack, &clock, due)?;
    }
    let (start, cpu) = (clock.now(), sys::cpu::thread_time());
    hold(&mut stack, &clock, start + options.duration)?;
    let (cpu, span) = (sys::cpu::thread_time() - cpu, clock.now() - start);
    let held = stack.len();
    ensure!(held == options.connections as usize, "only {held} connections are still open");
    stack.reset_all(clock.now())?;
    Ok(Costs {
        bytes_each: (after.0 - before.0) as f64 / held as f64,
        cores: cpu.as_secs_f64() / span.as_secs_f64(),
    })
}

fn open<L: Link>(stack: &mut Stack<L>, clock: &RealClock, connections: u32) -> anyhow::Result<()> {
    let start = clock.now();
    let deadline = start + OPENING.interval() * u64::from(connections) + PATIENCE;
    let (mut begun, mut established) = (0, 0);
    while established < connections {
        let now = clock.now();
        ensure!(now < deadline, "the server took {established} of {connections} connections");
        while begun < connections && OPENING.times(now - start) as u32 >= begun {
            stack.connect(Token(begun.into()), Window::Open, now).context("no name is free")?;
            begun += 1;
        }
        established += turn(stack, clock)?;
    }
    Ok(())
}

/// Attends to the connections until `end`, and at least once, because a timer may be due at that time.
fn hold<L: Link>(stack: &mut Stack<L>, clock: &RealClock, end: Nanos) -> anyhow::Result<()> {
    loop {
        turn(stack, clock)?;
        let now = clock.now();
        if now >= end {
            return Ok(());
        }
        let due = stack.next_due().unwrap_or(end).min(end);
        stack.wait(due.saturating_sub(now))?;
    }
}

/// Sends and receives all packets; returns the number of connections that were established.
fn turn<L: Link>(stack: &mut Stack<L>, clock: &RealClock) -> io::Result<u32> {
    let now = clock.now();
    stack.flush(now)?;
    stack.expire(now);
    let mut established = 0;
    while let Some(event) = stack.next(now)? {
        established += u32::from(event.kind == Kind::Established);
    }
    Ok(established)
}
