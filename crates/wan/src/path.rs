//! A running path: two networks, and the engine that applies the conditions between them.
//!
//! Owns starting and ending the engine, and the report of its work. `session` and `check` use the path.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::thread::JoinHandle;

use base::{Clock, Nanos, RealClock, Seed};

use crate::conditions::Conditions;
use crate::error::{WanError, system};
use crate::netem;
use crate::network::{LINK, Network};
use crate::report::{Direction, Report};
use crate::router::{Passed, Router, Stop};

/// The engine that applies the conditions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// The router in user space.
    #[default]
    Router,
    /// The kernel's network emulator, through `tc`.
    Netem,
}

impl Engine {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Router => "router",
            Engine::Netem => "netem",
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Engine {
    type Err = String;
    fn from_str(text: &str) -> Result<Engine, String> {
        let known = [Engine::Router, Engine::Netem];
        let engine = known.into_iter().find(|engine| engine.name() == text);
        engine.ok_or_else(|| "expected router or netem".to_owned())
    }
}

/// The configuration of a path.
#[derive(Clone, Debug)]
pub struct PathConfig {
    /// Conditions from the client to the server.
    pub up: Conditions,
    /// Conditions from the server to the client.
    pub down: Conditions,
    /// The engine that applies them.
    pub engine: Engine,
    /// The seed of the router's draws; netem has its own generator.
    pub seed: Seed,
    /// Pins the router to this processor, and leaves the packets it delivers to the others.
    pub router_cpu: Option<usize>,
}

enum Running {
    Router { thread: JoinHandle<io::Result<Routed>>, stop: Stop },
    Netem,
}

/// The packets of a router, and its CPU time.
struct Routed {
    up: Passed,
    down: Passed,
    cpu: Nanos,
}

/// A path between two networks. Dropping a path ends it.
pub struct Path {
    /// The two sides.
    pub network: Network,
    running: Running,
    config: PathConfig,
    clock: RealClock,
    since: Nanos,
}

impl Path {
    /// Makes the networks and starts the engine.
    ///
    /// # Errors
    /// `NoNetwork`, `NoNetem`, `NoProcessor`, `System`.
    pub fn start(config: PathConfig) -> Result<Path, WanError> {
        let clock = RealClock::new();
        let (network, running) = match config.engine {
            Engine::Router => start_router(&config, clock)?,
            Engine::Netem => {
                netem::available()?;
                let network = Network::with_veth().map_err(WanError::NoNetwork)?;
                netem::apply(&network.client, &config.up)?;
                netem::apply(&network.server, &config.down)?;
                (network, Running::Netem)
            }
        };
        Ok(Path { network, running, config, clock, since: clock.now() })
    }

    /// Returns true while the engine works. A router ends early only by an error, which [`end`](Self::end)
    /// returns.
    pub fn works(&self) -> bool {
        match &self.running {
            Running::Router { thread, .. } => !thread.is_finished(),
            Running::Netem => true,
        }
    }

    /// Ends the path and reports its work.
    ///
    /// # Errors
    /// `System` when the router failed, or counters cannot be read.
    pub fn end(mut self) -> Result<Report, WanError> {
        let duration = self.clock.now() - self.since;
        let PathConfig { up, down, engine, seed, .. } = self.config.clone();
        match std::mem::replace(&mut self.running, Running::Netem) {
            Running::Netem => {
                let up = netem::passed(&self.network.client, up)?;
                let down = netem::passed(&self.network.server, down)?;
                Ok(Report::new(engine.name(), duration, up, down))
            }
            Running::Router { thread, stop } => {
                // The devices vanish with the router, so their counters come first.
                let counters = system("read the links' counters");
                let links = (self.network.client.statistics(), self.network.server.statistics());
                stop.request();
                let routed = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                let routed = routed.map_err(system("route packets"))?;
                let (client, server) = (links.0.map_err(&counters)?, links.1.map_err(&counters)?);
                let up = Direction::routed(up, &routed.up, client, server);
                let down = Direction::routed(down, &routed.down, server, client);
                let mut report = Report::new(engine.name(), duration, up, down);
                report.seed = Some(seed);
                report.router_cpu_s = Some(routed.cpu.as_secs_f64());
                Ok(report)
            }
        }
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        if let Running::Router { stop, .. } = &self.running {
            stop.request();
        }
    }
}

fn start_router(config: &PathConfig, clock: RealClock) -> Result<(Network, Running), WanError> {
    let (network, client, server) = Network::with_devices().map_err(WanError::NoNetwork)?;
    if let Some(cpu) = config.router_cpu {
        steer_away(&network, cpu)?;
    }
    let (up, down) = (config.up.clone(), config.down.clone());
    let router =
        Router::new(clock, client, server, up, down, config.seed).map_err(system("prepare the router"))?;
    let stop = router.stop();
    let cpu = config.router_cpu;
    let route = move || {
        if let Some(cpu) = cpu {
            sys::cpu::pin(&[cpu])?;
        }
        // A wire does not wait for a scheduler. A process that may make networks may also make a thread
        // real-time, except in some containers; there the router reports its lateness.
        let _ = sys::thread::set_real_time();
        let (up, down) = router.run()?;
        Ok(Routed { up, down, cpu: sys::cpu::thread_time() })
    };
    let thread = std::thread::Builder::new().name("router".into()).spawn(route);
    let thread = thread.map_err(system("start the router's thread"))?;
    Ok((network, Running::Router { thread, stop }))
}

/// Assigns the packets that the router delivers to every processor but its own; with one processor there is
/// no other.
fn steer_away(network: &Network, cpu: usize) -> Result<(), WanError> {
    let wrong = |source| WanError::NoProcessor { cpu, source };
    // Pins a thread of its own to check the processor, because a successful check leaves the thread pinned.
    let tied = std::thread::scope(|scope| scope.spawn(|| sys::cpu::pin(&[cpu])).join());
    tied.unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map_err(wrong)?;
    let mut others = sys::cpu::allowed().map_err(wrong)?;
    others.retain(|other| *other != cpu);
    for side in [&network.client, &network.server] {
        side.namespace.set_receive_cpus(LINK, &others).map_err(wrong)?;
    }
    Ok(())
}
