//! A path that is there: two networks, and whatever makes the conditions between them.
//!
//! Owns starting and ending the engine, and the report of what it did. Who uses the path is `session`'s
//! and `check`'s.

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

/// What makes the conditions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// Our router in user space.
    #[default]
    Router,
    /// The kernel's network emulator, through `tc`.
    Netem,
}

impl Engine {
    /// As it is written.
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
        engine.ok_or_else(|| "accepted are router and netem".to_owned())
    }
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct PathConfig {
    /// From the client to the server.
    pub up: Conditions,
    /// From the server to the client.
    pub down: Conditions,
    /// What makes them.
    pub engine: Engine,
    /// Where the router's draws come from; netem has its own.
    pub seed: Seed,
    /// Ties the router to this processor, and has the packets it delivers worked on by the others.
    pub router_cpu: Option<usize>,
}

enum Running {
    Router { thread: JoinHandle<io::Result<Routed>>, stop: Stop },
    Netem,
}

/// What a router did, and its CPU time.
struct Routed {
    up: Passed,
    down: Passed,
    cpu: Nanos,
}

/// A path between two networks. Dropping it ends it.
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

    /// Whether the engine still works; a router ends early only by an error, which [`end`](Self::end) tells.
    pub fn works(&self) -> bool {
        match &self.running {
            Running::Router { thread, .. } => !thread.is_finished(),
            Running::Netem => true,
        }
    }

    /// Ends the path, and says what it did.
    ///
    /// # Errors
    /// `System`: the router failed, or counters cannot be read.
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
                // Before the devices vanish with the router.
                let counters = system("read the links' counters");
                let client = self.network.client.statistics().map_err(&counters)?;
                let server = self.network.server.statistics().map_err(&counters)?;
                stop.request();
                let routed = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                let routed = routed.map_err(system("route packets"))?;
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
        // A wire does not wait for a scheduler. Who may make networks may do this too, but for containers
        // that say otherwise: then the router is as late as it reports.
        let _ = sys::thread::set_real_time();
        let (up, down) = router.run()?;
        Ok(Routed { up, down, cpu: sys::cpu::thread_time() })
    };
    let thread = std::thread::Builder::new().name("router".into()).spawn(route);
    let thread = thread.map_err(system("start the router's thread"))?;
    Ok((network, Running::Router { thread, stop }))
}

/// Has packets that the router delivers worked on by every processor but its own; with one processor there
/// is no other.
fn steer_away(network: &Network, cpu: usize) -> Result<(), WanError> {
    let wrong = |source| WanError::NoProcessor { cpu, source };
    // The kernel is asked on a thread of its own, for the answer is that it is tied.
    let tied = std::thread::scope(|scope| scope.spawn(|| sys::cpu::pin(&[cpu])).join());
    tied.unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map_err(wrong)?;
    let mut others = sys::cpu::allowed().map_err(wrong)?;
    others.retain(|other| *other != cpu);
    for side in [&network.client, &network.server] {
        side.namespace.set_receive_cpus(LINK, &others).map_err(wrong)?;
    }
    Ok(())
}
