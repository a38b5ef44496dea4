//! The share of intervals that hold the truth, at the numbers of trials that experiments have. Prints the
//! table of `docs/method.md`: `cargo test -p statistics --test simulated -- --nocapture`.

use base::{Rng, Seed};
use rand::RngExt;
use statistics::{
    Interval, Sample, interval, log_slope_through, mean, mean_with_interval, median, median_with_interval,
    resample,
};

/// The numbers of trials.
const COUNTS: [usize; 5] = [3, 5, 6, 10, 20];

/// Simulated experiments for each share. A share of 0.95 is then known to 0.01 (two standard errors).
const RUNS: u32 = 2_000;

/// A log-normal noise of one tenth.
fn even(rng: &mut Rng) -> f64 {
    0.1 * normal(rng)
}

/// A time that is sometimes much longer, and never much shorter.
fn slow_tail(rng: &mut Rng) -> f64 {
    -0.1 * (1.0 - rng.random::<f64>()).ln()
}

/// One trial in ten is 1.65 times slower than the others, which differ by 3 %.
fn stalls(rng: &mut Rng) -> f64 {
    let stall = if rng.random::<f64>() < 0.1 { 0.5 } else { 0.0 };
    0.03 * normal(rng) + stall
}

/// A normal variable by Box and Muller (1958).
fn normal(rng: &mut Rng) -> f64 {
    let (radius, angle): (f64, f64) = (rng.random(), rng.random());
    (-2.0 * (1.0 - radius).ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

type Noise = fn(&mut Rng) -> f64;
const NOISES: [(&str, Noise); 3] = [("even", even), ("slow tail", slow_tail), ("stalls", stalls)];

fn draws(count: usize, rng: &mut Rng, noise: Noise) -> Vec<f64> {
    (0..count).map(|_| noise(rng).exp()).collect()
}

/// Ratios whose halves have noise of their own, and a truth of 1.
fn pairs(count: usize, rng: &mut Rng, (of, over): (Noise, Noise)) -> Vec<f64> {
    (0..count).map(|_| (of(rng) - over(rng)).exp()).collect()
}

/// The truth about a noise: a statistic of very many draws.
fn truth(noise: Noise, statistic: fn(&[f64]) -> f64) -> f64 {
    statistic(&draws(100_000, &mut Seed(99).rng(), noise))
}

/// The share of simulated experiments in which the interval holds the truth, for each number of trials.
fn coverage(name: &str, truth: f64, runs: u32, estimate: impl Fn(usize, &mut Rng) -> Interval) -> [f64; 5] {
    let shares = COUNTS.map(|count| {
        let mut rng = Seed(count as u64).child(name).rng();
        let held = (0..runs).filter(|_| {
            let ci95 = estimate(count, &mut rng);
            ci95.low <= truth && truth <= ci95.high
        });
        held.count() as f64 / f64::from(runs)
    });
    println!("| {name} | {} |", shares.map(|share| format!("{share:.3}")).join(" | "));
    shares
}

fn by_student(values: Vec<f64>) -> Interval {
    Sample::Products(values).estimate().unwrap().ci95
}

#[test]
fn median_intervals_cover_the_truth_at_their_level() {
    for (name, noise) in NOISES {
        let shares = coverage(&format!("median, {name}"), truth(noise, median), RUNS, |count, rng| {
            median_with_interval(&draws(count, rng, noise)).ci95
        });
        assert!((shares[0] - 0.75).abs() < 0.03 && (shares[1] - 0.9375).abs() < 0.02, "{shares:?}");
        assert!(shares[2..].iter().all(|share| *share >= 0.94), "{shares:?}");
    }
}

#[test]
fn paired_ratios_cover_the_truth_despite_shared_noise() {
    for (name, noise) in NOISES {
        let shares = coverage(&format!("paired ratio, {name}"), 1.0, RUNS, |count, rng| {
            by_student(pairs(count, rng, (noise, noise)))
        });
        assert!(shares.iter().all(|share| *share >= 0.94), "{shares:?}");
    }
}

/// Holm's method divides 5 % among the claims of a document, so the tail must be right as well.
#[test]
fn three_pairs_are_rarely_one_in_a_thousand() {
    for (name, noise) in NOISES {
        let mut rng = Seed(7).child(name).rng();
        let is_rare =
            |_: &u32| Sample::Products(pairs(3, &mut rng, (noise, noise))).chance_above(1.0) <= 0.001;
        let share = (0..20_000).filter(is_rare).count() as f64 / 20_000.0;
        println!("three pairs, {name}, p of at most 0.001: {share:.4}");
        assert!(share <= 0.002, "{share}");
    }
}

/// The weakness of the method: no few trials tell what the rare ones do. The page on the method names it.
#[test]
fn a_stall_of_one_half_alone_is_seen_too_late() {
    let calm: Noise = |rng| 0.03 * normal(rng);
    let shares = coverage("paired ratio, one half stalls", 0.05_f64.exp(), RUNS, |count, rng| {
        by_student(pairs(count, rng, (stalls, calm)))
    });
    assert!(shares[2] < 0.9 && shares[4] > shares[2], "{shares:?}");
}

#[test]
fn a_slope_of_each_repetition_holds_the_truth() {
    let shares = coverage("slope, slow tail", 1.0, RUNS, |count, rng| {
        let slope = |_| {
            let points: Vec<(f64, f64)> =
                [100.0, 300.0, 1_000.0].map(|x: f64| (x, x * slow_tail(rng).exp())).to_vec();
            log_slope_through(&points).unwrap()
        };
        Sample::Sums((0..count).map(slope).collect()).estimate().unwrap().ci95
    });
    assert!(shares.iter().all(|share| *share >= 0.94), "{shares:?}");
}

/// Three loads with effects of their own around 1, in repetitions that share a state of the machine.
#[test]
fn loads_of_one_repetition_are_not_repetitions() {
    let ratios = |count: usize, rng: &mut Rng| -> Vec<Vec<f64>> {
        let repetition = |_| {
            let shared = 0.1 * normal(rng);
            [-0.1, 0.0, 0.1].map(|of_load| of_load + shared + 0.03 * normal(rng)).to_vec()
        };
        (0..count).map(repetition).collect()
    };
    let each = coverage("three loads as repetitions", 1.0, RUNS, |count, rng| {
        by_student(ratios(count, rng).concat().iter().map(|log| log.exp()).collect())
    });
    let mean_of_each = coverage("three loads, one mean a repetition", 1.0, RUNS, |count, rng| {
        by_student(ratios(count, rng).iter().map(|logs| mean(logs).exp()).collect())
    });
    assert!(each.iter().all(|share| *share < 0.92), "{each:?}");
    assert!(mean_of_each.iter().all(|share| *share >= 0.93), "{mean_of_each:?}");
}

/// The reasons for the choice of methods: what was used before, and what would be simpler.
#[test]
fn other_methods_promise_more_than_they_hold() {
    let bootstrap = coverage("paired ratio, even, by percentile bootstrap", 1.0, 300, |count, rng| {
        let ratios = pairs(count, rng, (even, even));
        interval(rng, |rng| median(&resample(&ratios, rng)))
    });
    assert!(bootstrap[0] < 0.85, "{bootstrap:?}");
    let student =
        coverage("value, stalls, by Student's method", truth(stalls, log_mean), RUNS, |count, rng| {
            by_student(draws(count, rng, stalls))
        });
    assert!(student[..4].iter().all(|share| *share < 0.85), "{student:?}");
}

fn log_mean(values: &[f64]) -> f64 {
    mean(&values.iter().map(|value| value.ln()).collect::<Vec<_>>()).exp()
}

/// A herd has hundreds of settle times at each point.
#[test]
fn means_of_hundreds_are_resampled() {
    // The mean of exp(0.1 E) for an exponential E of mean 1.
    let mean_of_tail = 1.0 / 0.9;
    let mut rng = Seed(3).rng();
    let held = (0..1_000).filter(|_| {
        let ci95 = mean_with_interval(&draws(200, &mut rng, slow_tail), &mut rng).ci95;
        ci95.low <= mean_of_tail && mean_of_tail <= ci95.high
    });
    let share = held.count() as f64 / 1_000.0;
    println!("mean of 200, slow tail, by percentile bootstrap: {share:.3}");
    assert!((0.93..=0.97).contains(&share), "{share}");
}
