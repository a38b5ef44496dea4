//! The clean rate of this machine (Banga 1997, section 4.3).
//!
//! Above some rate a client machine distorts the result: it is late, or it sends less than the schedule asks
//! for. The paper finds that rate by comparing one machine's curve with the curve of two machines that share
//! the same D.
//!
//! Here the search has two steps. The first uses the figures of the generator itself: everything offered, on
//! time, with a tenth of the processor time to spare. The second compares one process with two that share the
//! rate, by the connects that *arrive*. While two processes deliver more than one, the rate is lowered. A
//! rate that is not clean is tried once more, because other work on the machine may have disturbed the first
//! trial.
//!
//! [`shared_clean_rate`] compares two machines, as the paper does: D grows until two machines that share it bring more
//! connects than one.
//!
//! Owns the searches. The caller offers the load and counts arrivals. Deviation from the paper: [`clean_rate`] has one
//! machine, so its two processes share processors and network.

use record::clean_rate::{SharedTrial, Trial};

/// The first rate tried, in sessions a second.
const FIRST_PER_S: f64 = 2_000.0;

/// The highest rate tried, in sessions a second.
const MOST_PER_S: f64 = 1_000_000.0;

/// The search ends when the ratio of the lowest unclean rate to the highest clean one is at most this.
const CLOSE: f64 = 1.1;

/// The fraction of the processor time of its threads that a clean generator may use.
const CPU_PART_MAX: f64 = 0.9;

/// The fraction by which the connects of two processes may exceed the connects of one and still count as
/// equal.
const SAME: f64 = 0.02;

/// The factor that lowers a rate at which two processes deliver more than one.
const LOWERED: f64 = 0.9;

/// The first D tried.
const FIRST_SOCKETS: u32 = 256;

/// The largest D tried: a machine whose processes may have 20,000 descriptors has enough for it.
const MOST_SOCKETS: u32 = 16_384;

/// The result of one offer.
#[derive(Clone, Copy, Debug)]
pub struct Offered {
    /// Connects a second that arrived.
    pub arrived_per_s: f64,
    /// The 99th percentile of the sessions' lateness, in nanoseconds.
    pub lateness_p99_ns: u64,
    /// CPU time of the generator, in cores.
    pub generator_cpu: f64,
    /// True when the generator's own verdict is that it kept up.
    pub kept_up: bool,
}

/// Finds the clean rate of `threads` threads, in sessions a second, and returns it with all trials. `offer`
/// offers a rate for a moment from the given number of processes. The rate is 0 when even the lowest is not
/// clean.
///
/// # Errors
/// The errors of `offer`.
pub fn clean_rate<E>(
    threads: u32,
    mut offer: impl FnMut(f64, u32) -> Result<Offered, E>,
) -> Result<(f64, Vec<Trial>), E> {
    let mut trials = Vec::new();
    let mut attempt = |per_s: f64, processes: u32| {
        let seen = offer(per_s, processes)?;
        let spare = seen.generator_cpu <= CPU_PART_MAX * f64::from(threads.max(processes));
        let trial = Trial {
            per_s,
            processes,
            arrived_per_s: seen.arrived_per_s,
            lateness_p99_ns: seen.lateness_p99_ns,
            generator_cpu: seen.generator_cpu,
            clean: seen.kept_up && spare,
        };
        trials.push(trial);
        Ok(trial)
    };
    let (mut low, mut high) = (0.0, FIRST_PER_S);
    while high <= MOST_PER_S && (attempt(high, 1)?.clean || attempt(high, 1)?.clean) {
        (low, high) = (high, high * 2.0);
    }
    while low > 0.0 && high < MOST_PER_S && high / low > CLOSE {
        let middle = (low * high).sqrt();
        let clean = attempt(middle, 1)?.clean || attempt(middle, 1)?.clean;
        if clean { low = middle } else { high = middle }
    }
    while low >= FIRST_PER_S {
        let (one, two) = (attempt(low, 1)?, attempt(low, 2)?);
        if two.arrived_per_s <= one.arrived_per_s * (1.0 + SAME) {
            break;
        }
        low *= LOWERED;
    }
    let clean = if low >= FIRST_PER_S { low } else { 0.0 };
    Ok((clean, trials))
}

/// Finds the largest D at which one machine brings as many connects as two that share it, and returns its trial with all
/// trials. There is none if the curves part at the smallest D. `offer(sockets, machines)` returns the connects per second
/// that arrived. A D at which the curves part is tried once more, because other work may have disturbed the first trial.
///
/// # Errors
/// The errors of `offer`.
pub fn shared_clean_rate<E>(
    mut offer: impl FnMut(u32, u32) -> Result<f64, E>,
) -> Result<(Option<SharedTrial>, Vec<SharedTrial>), E> {
    let mut trials = Vec::new();
    let mut attempt = |sockets: u32| {
        let (one_per_s, two_per_s) = (offer(sockets, 1)?, offer(sockets, 2)?);
        let parted = two_per_s > one_per_s * (1.0 + SAME);
        let trial = SharedTrial { sockets, one_per_s, two_per_s, parted };
        trials.push(trial);
        Ok((!parted).then_some(trial))
    };
    let mut same = |sockets: u32| match attempt(sockets)? {
        None => attempt(sockets),
        found => Ok(found),
    };
    let (mut clean, mut high) = (None, FIRST_SOCKETS);
    while high <= MOST_SOCKETS
        && let Some(found) = same(high)?
    {
        (clean, high) = (Some(found), high * 2);
    }
    while let Some(SharedTrial { sockets, .. }) = clean
        && high <= MOST_SOCKETS
    {
        let middle = (f64::from(sockets) * f64::from(high)).sqrt().round() as u32;
        if f64::from(high) / f64::from(sockets) <= CLOSE {
            break;
        }
        match same(middle)? {
            Some(found) => clean = Some(found),
            None => high = middle,
        }
    }
    Ok((clean, trials))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A machine whose one process reaches `limit` at full use of its processor. Above `loses_above` a
    /// process loses the excess of what it sends without noticing.
    fn machine(limit: f64, loses_above: f64) -> impl FnMut(f64, u32) -> Result<Offered, ()> {
        move |per_s, processes| {
            let each = per_s / f64::from(processes);
            let arrived = if each > loses_above { loses_above * f64::from(processes) } else { per_s };
            Ok(Offered {
                arrived_per_s: arrived.min(per_s),
                lateness_p99_ns: 0,
                generator_cpu: per_s / limit,
                kept_up: per_s <= limit,
            })
        }
    }

    proptest! {
        #[test]
        fn it_is_found_by_what_the_processor_has_to_spare(limit in 3_000.0..500_000.0f64) {
            let (clean, trials) = clean_rate(1, machine(limit, f64::MAX)).unwrap();
            prop_assert!(clean <= 0.9 * limit && clean >= 0.9 * limit / 1.11, "{clean} of {limit}: {trials:?}");
            prop_assert!(trials.len() < 30);
        }

        #[test]
        fn it_is_lowered_until_two_bring_no_more_than_one(
            limit in 20_000.0..500_000.0f64, part in 0.2..0.8f64,
        ) {
            let loses_above = limit * part;
            let (clean, trials) = clean_rate(1, machine(limit, loses_above)).unwrap();
            prop_assert!(clean <= loses_above * 1.021 && clean >= loses_above * 0.89, "{clean}: {trials:?}");
        }
    }

    #[test]
    fn a_machine_that_cannot_do_the_least_has_none() {
        assert_eq!(clean_rate(1, machine(100.0, f64::MAX)).unwrap().0, 0.0);
    }

    /// Machines that bring 20 connects a second for each socket, but no more than `limit` each.
    fn machines(limit: f64) -> impl FnMut(u32, u32) -> Result<f64, ()> {
        move |sockets, machines| Ok((20.0 * f64::from(sockets)).min(limit * f64::from(machines)))
    }

    proptest! {
        #[test]
        fn curves_part_where_one_machine_is_at_its_limit(limit in 6_000.0..300_000.0f64) {
            let (clean, trials) = shared_clean_rate(machines(limit)).unwrap();
            let clean = clean.unwrap();
            let (least, most) = (limit / CLOSE / 1.01, limit * (1.0 + SAME) * 1.01);
            prop_assert!((least..=most).contains(&(20.0 * f64::from(clean.sockets))), "{clean:?} of {limit}");
            prop_assert!(trials.len() < 24);
        }
    }

    #[test]
    fn curves_may_part_at_once_or_never() {
        let (clean, trials) = shared_clean_rate(machines(1_000.0)).unwrap();
        assert_eq!((clean, trials.len()), (None, 2));
        let (clean, _) = shared_clean_rate(machines(1e9)).unwrap();
        assert_eq!(clean.unwrap().sockets, MOST_SOCKETS);
    }

    #[test]
    fn nobody_needs_more_than_a_million() {
        let (clean, _) = clean_rate(1, machine(1e12, f64::MAX)).unwrap();
        assert!((500_000.0..=1_000_000.0).contains(&clean));
    }
}
