//! The reference capacities of relative rates, found once per run, before its trials.

use analysis::capacity::{OfferedLoad, offered_load};
use anyhow::bail;
use record::experiment::CapacityRecord;
use record::{Step, Verdict};

use super::attempt::{Failure, end_under_load};
use super::test_bed::{Place, TestBed};
use super::{INTERRUPTED, Run, command_lines, schedule};
use crate::capacity::{self, Capacity, Search};
use crate::trial::LoadError;

/// The load of the first run: below the capacity of nearly every server.
const FIRST_GUESS_PER_S: f64 = 4_000.0;
/// The first load for the next server, as a share of the capacity of the one before it.
const NEXT_GUESS: f64 = 0.6;
/// Runs of a slow server's search after which a load counts as too low to find a capacity.
const RUNS_WITHOUT_REQUEST: u32 = 10;

impl Run<'_> {
    /// Finds every capacity that is not known yet. Leaves out a server without a capacity.
    ///
    /// # Errors
    /// On an interruption only.
    pub(super) fn find_capacities(&mut self) -> anyhow::Result<()> {
        let pairs = schedule::searches(self.experiment);
        for (done, (server, load)) in pairs.iter().copied().enumerate() {
            let names = (&self.experiment.servers[server].name, &self.experiment.loads[load].name);
            if self.known(names.0, names.1).is_some() || self.store.run.servers[server].excluded.is_some() {
                continue;
            }
            let trial = schedule::trial_run(self.experiment).total() + self.spent.overhead();
            let left = schedule::search_time(self.form) * (pairs.len() - done) as u64
                + trial * self.plan.len() as u64;
            let left = left.min(self.time_left());
            let what = format!("{}: capacity of {}, {}", self.store.run.name, names.0, names.1);
            self.surroundings.progress.step(&what, left, left);
            match self.search(server, load) {
                Ok(capacity) if capacity.per_s > 0.0 => self.note(server, load, capacity),
                Ok(_) => self.exclude(server, "it answered none of the requests correctly".to_owned()),
                Err(Failure::Interrupted) => bail!("{INTERRUPTED}"),
                Err(Failure::Because(_)) if self.store.run.servers[server].excluded.is_some() => {}
                Err(Failure::Because(reason)) => self.exclude(server, reason),
            }
        }
        self.exclude_without_reference();
        Ok(())
    }

    /// Leaves out each server whose relative rates all lack their reference: none of them has a meaning then.
    fn exclude_without_reference(&mut self) {
        let loads = &self.experiment.loads;
        let relative: Vec<usize> = (0..loads.len()).filter(|load| loads[*load].is_relative()).collect();
        let Some(first) = relative.first().map(|load| &loads[*load]) else { return };
        for (server, spec) in self.experiment.servers.iter().enumerate() {
            let left_out = self.store.run.servers[server].excluded.is_some();
            if spec.kind.serves()
                && !left_out
                && relative.iter().all(|load| self.capacity(server, *load).is_none())
            {
                let (of, _) = self.experiment.capacity.reference(spec, first);
                self.exclude(
                    server,
                    format!("its rates are multiples of the capacity of {of}, which is not known"),
                );
            }
        }
    }

    /// Returns the capacity that a load's relative rates at a server refer to.
    pub(super) fn capacity(&self, server: usize, load: usize) -> Option<f64> {
        let load = &self.experiment.loads[load];
        let (of, under) = self.experiment.capacity.reference(&self.experiment.servers[server], load);
        self.known(of, under).filter(|_| load.is_relative()).map(|capacity| capacity.per_s)
    }

    fn known(&self, server: &str, load: &str) -> Option<&CapacityRecord> {
        self.store.run.capacities.iter().find(|known| known.server == server && known.load == load)
    }

    fn search(&mut self, server: usize, load: usize) -> Result<Capacity, Failure> {
        let axes: command_lines::Axes =
            self.experiment.axes.iter().map(|axis| (axis.name.clone(), axis.values[0].clone())).collect();
        let place = Place { axes: &axes, seed: self.experiment.plan.seed };
        // As in a trial, a start may fail a few times.
        let mut test_bed = loop {
            match self.test_bed(server, place) {
                Err(Failure::Because(_)) if self.store.run.servers[server].excluded.is_none() => {}
                made => break made?,
            }
        };
        let before = self.store.run.capacities.last().map(|capacity| capacity.per_s * NEXT_GUESS);
        let guess = self.experiment.capacity.guess.or(before).unwrap_or(FIRST_GUESS_PER_S);
        let (_, narrowing_runs) = schedule::search_run(self.form);
        let mut runs = 0;
        capacity::search(Search { first_guess_per_s: guess, narrowing_runs }, |per_s| {
            for _ in 0..RUNS_WITHOUT_REQUEST {
                runs += 1;
                if let Some(offered) = self.measure(&mut test_bed, load, &axes, per_s, runs)? {
                    return Ok(offered);
                }
            }
            Err(Failure::Because("no request was due in any run of the search".to_owned()))
        })
    }

    /// Offers a load; `None` if no request was due in the measured time.
    fn measure(
        &self,
        test_bed: &mut TestBed,
        load: usize,
        axes: &command_lines::Axes,
        per_s: f64,
        run: u32,
    ) -> Result<Option<OfferedLoad>, Failure> {
        let (time, _) = schedule::search_run(self.form);
        let offer = command_lines::Offer {
            address: test_bed.running.address,
            tls: self.experiment.common.tls.is_some(),
            capacity_per_s: None,
            rate_per_s: Some(per_s),
            time,
            seed: self.experiment.plan.seed.child(&format!("capacity run {run}")),
        };
        let run = command_lines::load(&self.experiment.loads[load], axes, offer).map_err(Failure::Because)?;
        let (clock, interrupted) = (self.surroundings.clock, self.surroundings.interrupted);
        let cooldown = self.experiment.plan.cooldown;
        let seen = test_bed.offer(run, cooldown, clock, interrupted);
        if matches!(seen, Err(LoadError::Interrupted)) {
            return Err(Failure::Interrupted);
        }
        if let Some(end) = end_under_load(test_bed)? {
            return Err(Failure::Because(end));
        }
        let seen = seen.map_err(|error| Failure::Because(error.to_string()))?;
        let is_measured = seen.load.verdict != Verdict::NotMeasured;
        Ok(is_measured.then(|| offered_load(&Step::of(&seen.load, per_s, true))))
    }

    fn note(&mut self, server: usize, load: usize, found: Capacity) {
        let [low, high] = found.interval_per_s;
        let name = self.experiment.servers[server].name.clone();
        let least = if found.lower_bound_only { "at least " } else { "" };
        self.say(&format!("{name}: capacity {least}{:.0} requests/s ({low:.0} to {high:.0})", found.per_s));
        if found.lower_bound_only {
            self.store.run.warnings.push(format!(
                "The load generator gave out before {name} did: its capacity is at least the one given."
            ));
        }
        self.store.run.capacities.push(CapacityRecord {
            server: name,
            load: self.experiment.loads[load].name.clone(),
            per_s: found.per_s,
            interval_per_s: found.interval_per_s,
            lower_bound_only: found.lower_bound_only,
        });
        self.flush();
    }
}
