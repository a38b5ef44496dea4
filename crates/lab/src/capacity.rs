//! The search for a server's capacity.
//!
//! The *capacity* is the highest offered load that the server keeps up with. A server keeps up if it answers at least
//! 95 % of the load correctly and in time, while the load lasts. The method, in requests per second:
//!
//! 1. **Doubling.** From a first guess, the offered load doubles until the server does not keep up. The last load
//!    that it kept up with and the first that it did not enclose the capacity.
//! 2. **Narrowing.** A server past its capacity still answers about as much as it can, so its goodput there is the
//!    best next guess. If the goodput collapsed, the geometric middle is next. This phase ends when the interval is
//!    narrower than 8 %, or the runs are used up. Then 8 % more than the upper end is offered. If the server keeps
//!    up with that, the search goes on above it.
//! 3. **Confirming.** The lower end is offered three more times. If most of the runs do not keep up, it becomes the
//!    upper end, and 8 % less is offered. The capacity is the median goodput of the last three runs; the interval is
//!    widened to hold all three.
//!
//! Owns only the search: the caller chooses the runs and their length, so that the search can be tested on a
//! simulated server. Short runs are noisy, so the search takes four precautions. Keeping up is judged by the load that
//! was really offered, not by the wanted one. A failed run counts only if a second one agrees, because another process
//! on the CPU makes a run worse and never better. The run above the upper end finds out if such a process was there for
//! seconds. The third phase takes back what a lucky run has found: a server with short queues may keep up with a load
//! once, and lose half of it the next time. If the generator is the limit, the result is a lower bound and says so.

use analysis::capacity::OfferedLoad;

/// The ratio at which the interval is narrow enough: the noise of a run of a quarter of a second.
const NARROW: f64 = 1.08;
/// How often the search goes on above an upper end that was too low.
const REOPENINGS: usize = 2;
/// Runs at the end; odd, for the median.
const CONFIRMATIONS: usize = 3;
/// The share of what narrowing found below which the lower end is lowered no more.
const LOWEST: f64 = 0.65;
/// The most doublings; enough to get from the first guess past any machine's capacity.
const DOUBLINGS: usize = 14;

/// Makes one run, or returns the better of two if the first one was not clearly good.
fn measure_fairly<E>(
    rate: f64,
    measure: &mut impl FnMut(f64) -> Result<OfferedLoad, E>,
) -> Result<OfferedLoad, E> {
    let first = measure(rate)?;
    if first.is_clear() {
        return Ok(first);
    }
    let second = measure(rate)?;
    let share = |run: &OfferedLoad| run.goodput_per_s / run.offered_per_s.max(1.0);
    Ok(if second.is_clear() || share(&second) > share(&first) { second } else { first })
}

/// The result of the search, in requests per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capacity {
    /// The capacity.
    pub per_s: f64,
    /// Lower and upper bound of the capacity.
    pub interval_per_s: [f64; 2],
    /// True if the generator was the limit, or no load was too much: the capacity is then at least `per_s`.
    pub lower_bound_only: bool,
}

/// The start and the end of a search.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// The first offered load, in requests per second. It should lie well below the capacity, or a run is wasted.
    pub first_guess_per_s: f64,
    /// The most runs between doubling and confirming.
    pub narrowing_runs: usize,
}

/// Searches with runs of load: `measure` offers a load, in requests per second, and returns the goodput.
///
/// # Errors
/// The first error of `measure`. A server that never answers has a capacity of 0, which is not an error.
pub fn search<E>(
    plan: Search,
    mut measure: impl FnMut(f64) -> Result<OfferedLoad, E>,
) -> Result<Capacity, E> {
    let bracket = enclose(plan, &mut measure)?;
    if bracket.low == 0.0 {
        return Ok(Capacity { per_s: 0.0, interval_per_s: [0.0, bracket.high], lower_bound_only: false });
    }
    confirm(bracket, measure)
}

/// Runs only the first two phases: doubling and narrowing.
///
/// # Errors
/// The first error of `measure`.
pub fn enclose<E>(
    plan: Search,
    measure: &mut impl FnMut(f64) -> Result<OfferedLoad, E>,
) -> Result<Bracket, E> {
    let mut bracket = Bracket::above(0.0);
    let mut rate = plan.first_guess_per_s;
    for reopened in 0.. {
        for _ in 0..DOUBLINGS {
            bracket.note(rate, measure_fairly(rate, measure)?);
            if bracket.high.is_finite() || bracket.limited {
                break;
            }
            rate *= 2.0;
        }
        // A server that kept up with every load can do more than anyone offers.
        bracket.limited |= bracket.high.is_infinite();
        let mut left = plan.narrowing_runs;
        while let Some(rate) = bracket.next().filter(|_| left > 0) {
            // To halve a first load that was too high uses none up.
            left -= usize::from(bracket.low > 0.0);
            bracket.note(rate, measure_fairly(rate, measure)?);
        }
        let is_final = reopened == REOPENINGS || bracket.limited || bracket.low == 0.0;
        if is_final || !measure(bracket.high * NARROW)?.is_clear() {
            break;
        }
        bracket = Bracket::above(bracket.high * NARROW);
        rate = 2.0 * bracket.low;
    }
    Ok(bracket)
}

/// Runs the last phase: lowers the lower end until most runs keep up with it, and takes their median.
fn confirm<E>(
    mut bracket: Bracket,
    mut measure: impl FnMut(f64) -> Result<OfferedLoad, E>,
) -> Result<Capacity, E> {
    let lowest = LOWEST * bracket.low;
    loop {
        let mut runs = (0..CONFIRMATIONS).map(|_| measure(bracket.low)).collect::<Result<Vec<_>, E>>()?;
        runs.sort_by(|one, other| one.goodput_per_s.total_cmp(&other.goodput_per_s));
        let [least, median, most] = [0, CONFIRMATIONS / 2, CONFIRMATIONS - 1].map(|place| runs[place]);
        if median.keeps_up() || bracket.low < lowest {
            let high = if bracket.high.is_finite() { bracket.high } else { bracket.low };
            return Ok(Capacity {
                per_s: median.goodput_per_s,
                interval_per_s: [least.goodput_per_s.min(bracket.low), most.goodput_per_s.max(high)],
                lower_bound_only: bracket.limited,
            });
        }
        bracket = Bracket { low: bracket.low / NARROW, high: bracket.low, guess: None, limited: false };
    }
}

/// The loads that enclose the capacity, in requests per second.
#[derive(Clone, Copy, Debug)]
pub struct Bracket {
    /// The highest load that the server kept up with; 0 if there is none.
    pub low: f64,
    /// The lowest load that the server did not keep up with; infinite if there is none.
    pub high: f64,
    /// The goodput at `high`.
    guess: Option<f64>,
    /// True if the generator was the limit while the server kept up, or the server kept up with every load.
    pub limited: bool,
}

impl Bracket {
    /// Everything above a load that the server kept up with.
    fn above(low: f64) -> Bracket {
        Bracket { low, high: f64::INFINITY, guess: None, limited: false }
    }

    fn note(&mut self, rate: f64, measured: OfferedLoad) {
        if !measured.keeps_up() {
            if rate < self.high {
                (self.high, self.guess) = (rate, Some(measured.goodput_per_s));
            }
        } else if measured.generator_limited {
            self.limited = true;
            self.low = self.low.max(measured.offered_per_s);
        } else {
            self.low = self.low.max(rate);
        }
    }

    /// Returns the load to try next; `None` if the ends are near enough. It is the goodput past the capacity if that
    /// lies well inside, otherwise the middle. A first load that was too high is halved at least.
    fn next(&self) -> Option<f64> {
        if self.limited || self.high <= (self.low * NARROW).max(1.0) {
            return None;
        }
        if self.low == 0.0 {
            return Some(self.guess.unwrap_or(0.0).clamp(self.high / 16.0, self.high / 2.0));
        }
        let middle = (self.low * self.high).sqrt();
        // The next load keeps half the wanted width from either end, because a nearer run could not narrow anything.
        let margin = NARROW.sqrt();
        let [least, most] = [(self.low * margin).min(middle), (self.high / margin).max(middle)];
        Some(self.guess.filter(|guess| *guess > self.low).unwrap_or(middle).clamp(least, most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use analysis::capacity::KEEPS_UP;
    use base::{Rng, Seed};
    use rand::RngExt;

    /// A server that answers all up to its capacity, and past it what its collapse leaves, each
    /// measured with an error of up to `noise`.
    struct Simulated {
        capacity: f64,
        /// Of the capacity, what each multiple of it costs: 0 keeps the peak.
        collapse: f64,
        noise: f64,
        generator_most: f64,
        rng: Rng,
        runs: usize,
    }

    impl Simulated {
        fn new(capacity: f64, collapse: f64, noise: f64, seed: Seed) -> Simulated {
            Simulated { capacity, collapse, noise, generator_most: f64::INFINITY, rng: seed.rng(), runs: 0 }
        }

        fn measure(&mut self, rate: f64) -> Result<OfferedLoad, std::convert::Infallible> {
            self.runs += 1;
            let offered = rate.min(self.generator_most) * self.noisy();
            let beyond = (offered / self.capacity - 1.0).max(0.0);
            let served = self.capacity * (1.0 - self.collapse * beyond).max(0.05) * self.noisy();
            Ok(OfferedLoad {
                offered_per_s: offered,
                goodput_per_s: offered.min(served),
                generator_limited: rate > self.generator_most,
            })
        }

        fn noisy(&mut self) -> f64 {
            1.0 + self.rng.random_range(-1.0..=1.0) * self.noise
        }

        fn search(&mut self) -> Capacity {
            let plan = Search { first_guess_per_s: 2000.0, narrowing_runs: 5 };
            search(plan, |rate| self.measure(rate)).unwrap()
        }
    }

    #[test]
    fn the_capacity_of_a_server_without_noise_is_enclosed() {
        for capacity in [150.0, 2_000.0, 11_000.0, 47_000.0, 300_000.0] {
            for collapse in [0.0, 0.2, 0.9] {
                let mut server = Simulated::new(capacity, collapse, 0.0, Seed(1));
                let found = server.search();
                let ratio = found.per_s / capacity;
                assert!((0.88..=1.06).contains(&ratio), "{capacity} {collapse}: {found:?}");
                let [low, high] = found.interval_per_s.map(|end| end / capacity);
                assert!((0.8..=1.0).contains(&low), "{capacity} {collapse}: {found:?}");
                // Keeping up means 95 %, so a load a little above the capacity counts as kept up with.
                assert!((KEEPS_UP..=1.25).contains(&high), "{capacity} {collapse}: {found:?}");
                assert!(!found.lower_bound_only);
                assert!(server.runs <= 30, "{} runs", server.runs);
            }
        }
    }

    #[test]
    fn noise_moves_the_result_little() {
        for seed in (0..200).map(Seed) {
            let capacity = 5_000.0 + 317.0 * seed.0 as f64;
            let found = Simulated::new(capacity, 0.3, 0.03, seed).search();
            let ratio = found.per_s / capacity;
            assert!((0.80..=1.10).contains(&ratio), "seed {seed}: {capacity}: {found:?}");
            let [low, high] = found.interval_per_s;
            assert!((0.7 * capacity..=found.per_s).contains(&low), "seed {seed}: {capacity}: {found:?}");
            assert!((found.per_s..=1.3 * capacity).contains(&high), "seed {seed}: {capacity}: {found:?}");
        }
    }

    #[test]
    fn seconds_without_cpu_do_not_halve_the_capacity() {
        for (first, count) in (1..16).flat_map(|first| (1..5).map(move |count| (first, count))) {
            let spoilt = first..first + count;
            let mut server = Simulated::new(20_000.0, 0.2, 0.0, Seed(1));
            let plan = Search { first_guess_per_s: 2000.0, narrowing_runs: 5 };
            let mut runs = 0;
            let found = search(plan, |rate| {
                runs += 1;
                let measured = server.measure(rate)?;
                let share = if spoilt.contains(&runs) { 0.3 } else { 1.0 };
                Ok::<_, std::convert::Infallible>(OfferedLoad {
                    goodput_per_s: measured.goodput_per_s * share,
                    ..measured
                })
            });
            let found = found.unwrap();
            assert!(found.per_s >= 17_600.0, "runs {spoilt:?} of {runs} spoilt: {found:?}");
        }
    }

    #[test]
    fn a_load_that_one_lucky_run_kept_up_with_is_lowered() {
        // Keeps up with 16,000/s always, and with up to 20,000/s in one run of three. The others lose half.
        for lucky in 0..3 {
            let mut runs = 0;
            let found = search(Search { first_guess_per_s: 1000.0, narrowing_runs: 5 }, |rate: f64| {
                runs += 1;
                let capacity = if runs % 3 == lucky { 20_000.0 } else { 16_000.0 };
                let goodput = if rate > capacity { capacity / 2.0 } else { rate };
                Ok::<_, ()>(OfferedLoad {
                    offered_per_s: rate,
                    goodput_per_s: goodput,
                    generator_limited: false,
                })
            });
            let found = found.unwrap();
            assert!((14_000.0..=16_000.0).contains(&found.per_s), "lucky {lucky}: {found:?}");
            let [low, high] = found.interval_per_s;
            assert!((12_000.0..=16_000.0).contains(&low), "lucky {lucky}: {found:?}");
            assert!((16_000.0..=21_600.0).contains(&high), "lucky {lucky}: {found:?}");
        }
    }

    #[test]
    fn exhausted_generator_makes_capacity_a_lower_bound() {
        let mut server = Simulated::new(1e6, 0.0, 0.0, Seed(1));
        server.generator_most = 30_000.0;
        let found = server.search();
        assert!(found.lower_bound_only);
        assert!((found.per_s - 30_000.0).abs() < 1.0, "{found:?}");
        assert!(server.runs <= 10, "{} runs", server.runs);
    }

    #[test]
    fn unlimited_server_is_offered_a_finite_load() {
        let mut server = Simulated::new(f64::INFINITY, 0.0, 0.0, Seed(1));
        let found = server.search();
        assert!(found.lower_bound_only && found.per_s.is_finite(), "{found:?}");
        assert_eq!(server.runs, DOUBLINGS + CONFIRMATIONS);
    }

    #[test]
    fn silent_server_has_no_capacity_errors_pass_on() {
        let found = search(Search { first_guess_per_s: 1000.0, narrowing_runs: 5 }, |rate| {
            Ok::<_, ()>(OfferedLoad { offered_per_s: rate, goodput_per_s: 0.0, generator_limited: false })
        });
        assert_eq!(found.unwrap().per_s, 0.0);
        let failed = search(Search { first_guess_per_s: 1000.0, narrowing_runs: 5 }, |_| Err("no client"));
        assert_eq!(failed, Err("no client"));
    }
}
