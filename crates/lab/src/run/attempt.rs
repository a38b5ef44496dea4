//! One attempt at a trial.

use anyhow::bail;
use base::{Nanos, Seed};
use experiment::{Claim, Experiment, ServerKind, Stack};
use record::experiment::{Flaw, TRIAL_SCHEMA, TrialRecord};
use record::{Speed, Verdict};

use super::schedule::PlanPoint;
use super::test_bed::{Place, TestBed, TestBedError};
use super::{INTERRUPTED, Run, START_FAILURES, command_lines, metrics, speed};
use crate::trial::{LoadError, RunTime, Seen};
use stage::server_under_test::StartError;
use stage::topology::Topology;

/// The time between two checks whether a herd has ended.
const TICK: Nanos = Nanos::from_millis(20);

impl Run<'_> {
    /// Runs a trial of the plan once, with load of that duration. Records every failure of the trial.
    ///
    /// # Errors
    /// On an interruption only.
    pub(super) fn attempt(&mut self, order: usize, time: RunTime) -> anyhow::Result<TrialRecord> {
        let mut trial = self.empty_record(order);
        let point = self.plan[order].point.clone();
        let outcome = match self.experiment.servers[point.server].kind {
            ServerKind::Herd => self.herd(order, &mut trial),
            _ => self.load(order, time, &mut trial),
        };
        match outcome {
            Ok(()) => {}
            Err(Failure::Interrupted) => bail!("{INTERRUPTED}"),
            Err(Failure::Because(reason)) => {
                trial.flaws.push(Flaw::Failed);
                trial.failure = Some(reason);
            }
        }
        Ok(trial)
    }

    fn empty_record(&self, order: usize) -> TrialRecord {
        let planned = &self.plan[order];
        let point = &planned.point;
        TrialRecord {
            schema: TRIAL_SCHEMA.to_owned(),
            server: self.experiment.servers[point.server].name.clone(),
            load: point.load.map(|load| self.experiment.loads[load].name.clone()),
            axes: point.axes.clone(),
            repeat: planned.repeat,
            order: order as u32,
            attempt: self.store.known(order as u32).attempts + 1,
            capacity_per_s: point.load.and_then(|load| self.capacity(point.server, load)),
            started_unix_s: self.surroundings.clock.wall().seconds,
            ..TrialRecord::default()
        }
    }

    fn herd(&self, order: usize, trial: &mut TrialRecord) -> Result<(), Failure> {
        let point = &self.plan[order].point;
        let seed = seed_of_repetition(self.experiment, trial.repeat);
        let arguments = command_lines::herd(&self.experiment.servers[point.server], &point.axes, seed);
        let program = sys::process::Program::new(sys::process::this_program()?).arguments(arguments);
        // The herd's waiters need all CPUs. This process is pinned to the client's, and a child would inherit
        // that.
        let child = program.on_cpus(&self.cpus).start()?;
        let output = child.output(TICK, || !(self.surroundings.interrupted)())?;
        if (self.surroundings.interrupted)() {
            return Err(Failure::Interrupted);
        }
        if !output.exit.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            let said = stderr.lines().last().unwrap_or("it wrote nothing").to_owned();
            return Err(Failure::Because(format!("the herd failed, {}: {said}", output.exit.status)));
        }
        let points: serde_json::Value = serde_json::from_slice(&output.stdout)
            .map_err(|error| Failure::Because(format!("the herd's points cannot be read: {error}")))?;
        trial.metrics = metrics::of_herd(&points).ok_or_else(|| {
            Failure::Because("a herd is one point a trial: one --wait and one number of --waiters".to_owned())
        })?;
        trial.herd = Some(points);
        Ok(())
    }

    fn load(&mut self, order: usize, time: RunTime, trial: &mut TrialRecord) -> Result<(), Failure> {
        let point = self.plan[order].point.clone();
        let seed = seed_of_repetition(self.experiment, trial.repeat);
        let place = Place { axes: &point.axes, seed };
        let mut test_bed = self.test_bed(point.server, place)?;
        let load = &self.experiment.loads[point.load.expect("a server that serves has a load")];
        let offer = command_lines::Offer {
            address: test_bed.running.address,
            tls: self.experiment.common.tls.is_some(),
            capacity_per_s: trial.capacity_per_s,
            rate_per_s: None,
            time,
            seed: place.seed,
        };
        let run = command_lines::load(load, &point.axes, offer).map_err(Failure::Because)?;
        self.note_conditions(trial, &point, &test_bed);
        let spin = |test_bed: &TestBed| speed::spin_us(&test_bed.topology.server.cpus);
        let spin_us_before = spin(&test_bed)?;
        let restart = self.experiment.plan.restart;
        let cooldown = if restart { Nanos::ZERO } else { self.experiment.plan.cooldown };
        let surroundings = self.surroundings;
        let seen = test_bed.offer(run, cooldown, surroundings.clock, surroundings.interrupted);
        let end = end_under_load(&mut test_bed)?;
        let seen = match (seen, &end) {
            (Err(LoadError::Interrupted), _) => return Err(Failure::Interrupted),
            (Err(error), Some(end)) => {
                trial.flaws.push(Flaw::ServerDied);
                return Err(Failure::Because(format!("{end}; {error}")));
            }
            (Err(error), None) => return Err(Failure::Because(error.to_string())),
            (Ok(seen), _) => seen,
        };
        let (spin_us_after, steal_share) = (spin(&test_bed)?, seen.elapsed.steal_share);
        trial.speed = Some(Speed { spin_us_before, spin_us_after, steal_share });
        if let Some(end) = end {
            trial.flaws.push(Flaw::ServerDied);
            trial.failure = Some(end);
        } else if !restart {
            self.kept = Some((point.server, point.axes, test_bed));
        }
        self.fill(trial, seen);
        let spec = &self.experiment.servers[point.server];
        if self.experiment.paper.is_some() && !spec.may_cut_sessions && trial.sessions_cut() > 0 {
            trial.flaws.push(Flaw::SessionsCut);
        }
        Ok(())
    }

    /// Notes the conditions in force, and those that differ from the experiment's as a flaw.
    fn note_conditions(&self, trial: &mut TrialRecord, point: &PlanPoint, test_bed: &TestBed) {
        trial.in_force = Some(test_bed.in_force.clone());
        let mut differences = test_bed.differences.clone();
        differences.extend(other_client(self.experiment, point, &test_bed.topology));
        if !differences.is_empty() {
            trial.flaws.push(Flaw::SettingsDiffer);
            trial.failure = Some(differences.join("; "));
        }
    }

    /// Fills the record with the result of a load run.
    fn fill(&self, trial: &mut TrialRecord, seen: Seen) {
        trial.metrics = metrics::of_load(&seen, trial.capacity_per_s);
        match seen.load.verdict {
            Verdict::Valid | Verdict::Degraded => {}
            Verdict::GeneratorLimited => trial.flaws.push(Flaw::GeneratorLimited),
            Verdict::NotMeasured => {
                trial.flaws.push(Flaw::Failed);
                trial.failure.get_or_insert_with(|| "no request was due in the measured time".to_owned());
            }
            Verdict::Unreachable => {
                trial.flaws.push(Flaw::Failed);
                trial.failure.get_or_insert_with(|| "the generator could not reach the server".to_owned());
            }
        }
        // Hot and cold clients have no connection between two sessions.
        let holds = |name: &str| !name.starts_with("hot:") && !name.starts_with("cold:");
        if seen.load.populations.iter().any(|(name, found)| holds(name) && found.is_short()) {
            trial.flaws.push(Flaw::ClientsMissing);
        }
        if metrics::foreign(&seen) > self.experiment.plan.noise {
            trial.flaws.push(Flaw::Noisy);
        }
        trial.kernel = Some(seen.elapsed.drops);
        trial.cpu_busy = seen.elapsed.cpu_busy;
        trial.queue = seen.queue;
        trial.server_status = seen.status;
        trial.client = Some(seen.load);
    }

    /// Returns the test bed for a server at a place: the last trial's if it may be kept, otherwise a new one.
    pub(super) fn test_bed(&mut self, server: usize, place: Place<'_>) -> Result<TestBed, Failure> {
        let spec = &self.experiment.servers[server];
        let texts = |axes: &command_lines::Axes| {
            let texts = spec.texts().chain(self.experiment.stage_texts());
            texts.map(|text| command_lines::filled(text, axes)).collect::<Vec<_>>()
        };
        if let Some((kept, of, mut test_bed)) = self.kept.take()
            && kept == server
            && texts(&of) == texts(place.axes)
            && test_bed.running.end()?.is_none()
        {
            return Ok(test_bed);
        }
        let prepared = TestBed::prepare(
            self.experiment,
            spec,
            place,
            &self.settings,
            self.surroundings.cpus,
            self.surroundings.clock,
        );
        match prepared {
            Ok(test_bed) => {
                self.failed_starts[server] = 0;
                self.store.run.servers[server].command.clone_from(&test_bed.running.command);
                Ok(test_bed)
            }
            Err(error) => {
                self.failed_starts[server] += 1;
                let hopeless = matches!(error, TestBedError::Start(StartError::NotInstalled(_)));
                if hopeless || self.failed_starts[server] >= START_FAILURES {
                    self.exclude(server, error.to_string());
                }
                Err(Failure::Because(error.to_string()))
            }
        }
    }
}

/// Returns the seed of a repetition. It is the same for all servers and values, so all get the same load.
fn seed_of_repetition(experiment: &Experiment, repeat: u32) -> Seed {
    experiment.plan.seed.child(&format!("repeat {repeat}"))
}

/// Describes a client that is too unlike the one of the file for a verdict. AF_XDP has no substitute. Kernel sockets
/// may stand for TUN, unless a claim compares the load with another that would then have the same client.
fn other_client(experiment: &Experiment, point: &PlanPoint, topology: &Topology) -> Option<String> {
    let load = &experiment.loads[point.load?];
    let (asked, had) = (load.stack, topology.stack(load.stack));
    let server = &experiment.servers[point.server].name;
    let is_about = |claim: &Claim, load: &str| claim.is_about(server, Some(load), &point.axes);
    let is_compared_with = |other: &str| {
        experiment.claims.iter().any(|claim| is_about(claim, &load.name) && is_about(claim, other))
    };
    let mut alike =
        experiment.loads.iter().filter(|other| other.stack != asked && topology.stack(other.stack) == had);
    let has_other = asked == Stack::AfXdp || alike.any(|other| is_compared_with(&other.name));
    (had != asked && has_other).then(|| format!("the client has {} and not {}", had.words(), asked.words()))
}

/// Returns the end of a server under load, if it has ended. Does not block.
///
/// # Errors
/// The path between client and server has ended.
pub(super) fn end_under_load(test_bed: &mut TestBed) -> Result<Option<String>, Failure> {
    let end = test_bed.running.end()?;
    if !test_bed.topology.is_whole()? {
        return Err(Failure::Because("the path between client and server ended".to_owned()));
    }
    Ok(end.map(|end| format!("the server ended under load ({end})")))
}

/// The reason why a trial has no result.
pub(super) enum Failure {
    /// A reason for the record.
    Because(String),
    /// The run was interrupted.
    Interrupted,
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::Because(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stage::topology::TopologyOptions;

    #[test]
    fn each_repetition_has_a_seed_of_its_own() {
        let text = |seed| {
            format!(
                "title = 't'\nplan = {{ seed = {seed} }}\nserver = [{{ name = 's' }}]\nload = [{{ name = 'l', rate = '9' }}]"
            )
        };
        let seed = |of_plan, repeat| seed_of_repetition(&Experiment::parse(&text(of_plan)).unwrap(), repeat);
        assert_eq!(seed(1, 1), seed(1, 1), "attempts of one repetition get the same load");
        assert_ne!(seed(1, 0), seed(1, 1));
        assert_ne!(seed(1, 0), seed(2, 0));
    }

    /// Describes the client of the second load over loopback, where every connection is a kernel socket.
    fn over_loopback(asked: &str, claim: &str) -> Option<String> {
        let text = format!(
            "title = 't'\nserver = [{{ name = 's' }}]\n{claim}\n\
             load = [{{ name = 'plain', rate = '9' }}, {{ name = 'asked', rate = '9', stack = '{asked}' }}]"
        );
        let experiment = Experiment::parse(&text).unwrap();
        let topology =
            Topology::with(&TopologyOptions { loopback: true, ..TopologyOptions::default() }).unwrap();
        let point = PlanPoint { server: 0, load: Some(1), axes: Default::default() };
        other_client(&experiment, &point, &topology)
    }

    #[test]
    fn load_without_its_af_xdp_is_flawed() {
        let said = over_loopback("af-xdp", "");
        assert_eq!(said.as_deref(), Some("the client has kernel sockets and not TCP over AF_XDP"));
        assert_eq!(over_loopback("kernel", ""), None);
    }

    #[test]
    fn compared_loads_on_one_client_are_flawed() {
        let claim = |over: &str| {
            format!(
                "claim = [{{ text = 'c', at-least = 1, ratio = {{ metric = 'replies_per_s', \
                 of = {{ load = 'asked' }}, over = {{ load = '{over}' }} }} }}]"
            )
        };
        let said = over_loopback("user", &claim("plain"));
        assert_eq!(said.as_deref(), Some("the client has kernel sockets and not TCP over TUN"));
        assert_eq!(over_loopback("user", &claim("asked")), None, "a warning is enough");
    }
}
