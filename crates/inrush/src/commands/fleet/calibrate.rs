//! `inrush fleet calibrate`: compares one agent with two that share the same D (Banga 1997, section 4.3).
//!
//! The target is a [`FullListener`] of this process, so the agents offer load to nobody else. Deviation from the paper:
//! a connect is abandoned after 50 ms in place of 500 ms, so that a tenth of the sockets reaches the same rate.

use std::fmt::Write as _;
use std::num::NonZeroU32;

use ::fleet::Access;
use ::load::Stop;
use ::load::calibrate::shared_clean_rate;
use base::{Clock, Nanos, RealClock, Seed};
use clap::Parser;
use record::Manifest;
use record::clean_rate::{SHARED_SCHEMA, SharedCleanRate, SharedTrial};

use super::{access, exit};
use crate::cli::{Cli, Command, FleetCalibrateFlags};
use crate::commands::load::{self, FullListener, stop_at_signal, summary::rate};
use crate::exit::Exit;
use crate::output;

/// Time after which a connect is abandoned.
const CONNECT_TIMEOUT: Nanos = Nanos::from_millis(50);

/// Measures and prints the clean rate.
pub fn run(flags: FleetCalibrateFlags) -> Result<(), Exit> {
    let step = Step {
        access: access(flags.nats)?,
        listener: FullListener::listen(flags.listen)?,
        duration: flags.step,
        stop: stop_at_signal()?,
    };
    let (clean, trials) = shared_clean_rate(|sockets, agents| step.offer(sockets, agents))?;
    let found = SharedCleanRate {
        schema: SHARED_SCHEMA.to_owned(),
        clean_per_s: clean.map_or(0.0, |trial| trial.one_per_s),
        sockets: clean.map_or(0, |trial| trial.sockets),
        connect_timeout_ns: CONNECT_TIMEOUT.0,
        trials,
        manifest: Manifest::of_this_machine(RealClock::new().wall(), Default::default(), None::<Seed>),
    };
    output::result("the result", flags.output, &found, || text(&found))
}

/// A run for a moment.
struct Step {
    access: Access,
    listener: FullListener,
    duration: Nanos,
    stop: Stop,
}

impl Step {
    /// Lets this many agents share `sockets` pending connects, and returns the connects per second that arrived.
    fn offer(&self, sockets: u32, agents: u32) -> Result<f64, Exit> {
        let words = [
            "inrush".to_owned(),
            "load".to_owned(),
            format!("http://{}/", self.listener.address()?),
            format!("--sockets={sockets}"),
            format!("--connect-timeout={CONNECT_TIMEOUT}"),
            format!("--duration={}", self.duration),
            "--warmup=0s".to_owned(),
            // The listener is this process's own.
            "--i-own-this-server".to_owned(),
        ];
        let Command::Load(flags) = Cli::try_parse_from(words)?.command else {
            unreachable!("the words are those of load")
        };
        let agents = NonZeroU32::new(agents).unwrap_or(NonZeroU32::MIN);
        let (config, plan) = load::prepare_for_fleet(*flags, agents)?;
        let before = self.listener.dropped()?;
        let result =
            ::fleet::run(&self.access, &config, &plan, &mut |_: &::load::Snapshot<'_>| {}, &self.stop)
                .map_err(exit)?;
        if self.stop.is_requested() {
            return Err(Exit::Failed("interrupted before the clean rate was found".to_owned()));
        }
        if result.agents.iter().any(|agent| agent.part.is_none()) {
            return Err(Exit::Failed(result.reasons.join(" ")));
        }
        let arrived = self.listener.dropped()?.wrapping_sub(before);
        if arrived == 0 {
            let address = self.listener.address()?;
            return Err(Exit::Unreachable(format!(
                "no connect of an agent arrived at {address}; expected --listen with an address that the agents reach"
            )));
        }
        Ok(f64::from(arrived) / self.duration.as_secs_f64())
    }
}

fn text(found: &SharedCleanRate) -> String {
    let mut out = format!("{:>7} {:>13} {:>13}\n", "D", "one machine", "two machines");
    for SharedTrial { sockets, one_per_s, two_per_s, parted } in &found.trials {
        let remark = if *parted { "  two bring more" } else { "" };
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{sockets:>7} {:>13} {:>13}{remark}", rate(*one_per_s), rate(*two_per_s));
    }
    let _ = match found.sockets {
        0 => writeln!(out, "\nclean rate   none: two machines bring more at every D"),
        sockets => {
            writeln!(out, "\nclean rate   {} from one machine, at D = {sockets}", rate(found.clean_per_s))
        }
    };
    out
}
