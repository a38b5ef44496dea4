//! Properties of the processes as streams: mean, dispersion, bursts, and the sum of the lanes.

use super::*;
use proptest::prelude::*;

/// The arrivals of all lanes before `end`, in order.
fn all(process: &Process, rate: f64, lanes: u32, seed: u64, end: Nanos) -> Vec<Nanos> {
    let mut times: Vec<Nanos> = (0..lanes)
        .flat_map(|index| {
            let lane = Lane { index, count: lanes };
            process.arrivals(PerSecond(rate), end, lane, Seed(seed)).take_while(move |at| *at < end)
        })
        .collect();
    times.sort();
    times
}

/// The variance of the counts in equal windows divided by their mean: 0 for a clock, 1 for Poisson.
fn dispersion(times: &[Nanos], window: Nanos, windows: usize) -> f64 {
    let mut counts = vec![0.0; windows];
    for at in times {
        counts[(at.0 / window.0) as usize] += 1.0;
    }
    let mean = counts.iter().sum::<f64>() / windows as f64;
    let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / (windows - 1) as f64;
    variance / mean
}

fn parsed(text: &str) -> Process {
    text.parse().unwrap()
}

fn some_process() -> impl Strategy<Value = Process> {
    let texts = [
        "constant",
        "poisson",
        "on-off:6,5%,1s",
        "on-off:1.5,0.5",
        "pareto:1.4",
        "ramp:0..5k",
        "ramp:500..0",
        "steps:10x1s,0x1s,1kx2s",
    ];
    prop::sample::select(texts.map(parsed).to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn times_never_decrease_and_a_seed_repeats_them(
        process in some_process(), rate in 0.1f64..2e6, lanes in 1u32..8, seed: u64,
    ) {
        let lane = Lane { index: lanes - 1, count: lanes };
        let draw = || process.arrivals(PerSecond(rate), Nanos::from_secs(9), lane, Seed(seed)).take(500).collect::<Vec<_>>();
        let times = draw();
        prop_assert!(times.is_sorted());
        prop_assert_eq!(times, draw());
    }

    /// `rate` x time arrivals to within one, evenly spread, for any number of lanes.
    #[test]
    fn constant_is_exact(rate in 1f64..20_000.0, lanes in 1u32..8) {
        let times = all(&Process::constant(), rate, lanes, 0, Nanos::SECOND);
        prop_assert!((times.len() as f64 - rate).abs() <= 1.0, "{} of {rate}", times.len());
        for pair in times.windows(2) {
            prop_assert!(((pair[1] - pair[0]).0 as f64 - 1e9 / rate).abs() <= 2.0);
        }
    }

    /// Mean and index of dispersion of 20,000 expected arrivals in 1000 windows lie within five standard
    /// errors.
    #[test]
    fn poisson_has_its_mean_and_dispersion(lanes in 1u32..5, seed: u64) {
        let times = all(&parsed("poisson"), 20_000.0, lanes, seed, Nanos::SECOND);
        prop_assert!((times.len() as f64 - 20_000.0).abs() < 5.0 * 20_000f64.sqrt());
        let index = dispersion(&times, Nanos::MILLISECOND, 1000);
        prop_assert!((index - 1.0).abs() < 5.0 * (2.0f64 / 999.0).sqrt(), "dispersion {index}");
    }
}

#[test]
fn constant_has_no_dispersion() {
    let times = all(&Process::constant(), 20_000.0, 3, 0, Nanos::SECOND);
    assert!(dispersion(&times, Nanos::MILLISECOND, 1000) < 0.01);
}

/// The arrivals in bursts and between them, per period, follow the formula.
#[test]
fn bursts_have_their_rate_share_and_phase() {
    for (text, peak, fraction) in [("on-off:6,5%,10s", 6.0, 0.05), ("on-off:3,0.2,10s", 3.0, 0.2)] {
        let times = all(&parsed(text), 1000.0, 3, 0, Nanos::from_secs(100));
        assert!((times.len() as f64 - 100_000.0).abs() <= 1.0, "{text}: {}", times.len());
        let quiet_s = 10.0 * (1.0 - fraction);
        let (bursts, rest): (Vec<f64>, Vec<f64>) =
            times.iter().map(|at| at.as_secs_f64() % 10.0).partition(|at| *at >= quiet_s);
        let off_per_s = 1000.0 * (1.0 - peak * fraction) / (1.0 - fraction);
        assert!((bursts.len() as f64 - 1000.0 * peak * fraction * 100.0).abs() <= 20.0, "{text}");
        assert!((rest.len() as f64 - off_per_s * quiet_s * 10.0).abs() <= 20.0, "{text}");
    }
}

/// In windows far shorter than a period, the variance of the counts is the variance of a two-valued rate:
/// mean^2 (a - 1)^2 b / (1 - b).
#[test]
fn bursts_have_their_dispersion() {
    let times = all(&parsed("on-off:6,5%,10s"), 1000.0, 1, 0, Nanos::from_secs(100));
    let index = dispersion(&times, Nanos::from_millis(100), 1000);
    let expected = 100.0 * 25.0 * 0.05 / 0.95;
    assert!((index / expected - 1.0).abs() < 0.02, "{index}, not {expected}");
}

#[test]
fn pareto_is_the_same_stream_for_any_number_of_lanes() {
    let stream = |lanes| all(&parsed("pareto:1.4"), 2000.0, lanes, 5, Nanos::from_secs(10));
    assert_eq!(stream(1), stream(3));
    let index = dispersion(&stream(1), Nanos::from_millis(100), 100);
    assert!(index > 3.0, "burstier than Poisson: {index}");
}

#[test]
fn a_ramp_grows_linearly_over_the_run() {
    let times = all(&parsed("ramp:100..300"), 0.0, 2, 0, Nanos::from_secs(10));
    assert_eq!(times.len(), 2000);
    let first_half = times.iter().filter(|at| **at < Nanos::from_secs(5)).count();
    assert!(first_half.abs_diff(750) <= 1, "{first_half}");
    let falling = all(&parsed("ramp:300..0"), 0.0, 2, 0, Nanos::from_secs(10));
    assert!(falling.len().abs_diff(1500) <= 1);
}

#[test]
fn steps_hold_their_rates_and_the_last_one_goes_on() {
    let times = all(&parsed("steps:100x1s,0x2s,1kx1s"), 0.0, 3, 0, Nanos::from_secs(5));
    let count = |from, until| {
        times.iter().filter(|at| (Nanos::from_secs(from)..Nanos::from_secs(until)).contains(at)).count()
    };
    assert_eq!(count(0, 1), 100);
    assert_eq!(count(1, 3), 0);
    assert!(count(3, 5).abs_diff(2000) <= 1, "{}", count(3, 5));
}

#[test]
fn means_and_peaks_are_those_of_the_plan() {
    let window = Window { from: Nanos::from_secs(5), until: Nanos::from_secs(15) };
    for (text, mean, peak) in [
        ("constant", 1000.0, 1000.0),
        ("poisson", 1000.0, 1000.0),
        ("on-off:6,5%,10s", 1000.0, 6000.0),
        ("ramp:0..300", 200.0, 300.0),
        ("steps:10x10s,30x1s", 20.0, 30.0),
    ] {
        let process = parsed(text);
        let near = |rate: PerSecond, expected: f64| (rate.0 - expected).abs() < 1e-6 * expected;
        assert!(near(process.mean(PerSecond(1000.0), window), mean), "{text}");
        assert!(near(process.peak(PerSecond(1000.0), window.until, Nanos::SECOND), peak), "{text}");
    }
}

#[test]
fn what_a_window_does_not_show_is_told() {
    let window = Window { from: Nanos::from_secs(5), until: Nanos::from_secs(35) };
    let told = |text| parsed(text).remark(window).unwrap_or_default();
    assert!(told("on-off:6,5%").contains("not a whole number of periods of 100s"), "{}", told("on-off:6,5%"));
    assert!(told("steps:1x60s").contains("ends after 35s"), "{}", told("steps:1x60s"));
    assert!(told("steps:1x5s,2x10s").contains("end after 15s"));
    for fits in ["constant", "on-off:6,5%,10s", "steps:1x5s,2x30s", "ramp:1..2"] {
        assert_eq!(told(fits), "", "{fits}");
    }
}

#[test]
fn hurst_parameter_is_shown_for_long_schedules() {
    let hurst = |text, run_s| parsed(text).hurst(PerSecond(100.0), Nanos::from_secs(run_s), Seed(1));
    assert_eq!(hurst("poisson", 1000), None);
    assert_eq!(hurst("pareto:1.5", 30), Some((None, 0.75)));
    assert!(matches!(hurst("pareto:1.5", 1000), Some((Some(_), 0.75))));
}

#[test]
fn texts_parse_back() {
    for text in [
        "constant",
        "poisson",
        "on-off:6,0.05,100s",
        "pareto:1.4",
        "ramp:0..2000",
        "steps:100x10s,0x5s,1000x5s",
    ] {
        assert_eq!(parsed(text).to_string(), text);
    }
    assert_eq!(parsed("on-off:6,5%"), parsed("on-off:6,0.05,100s"));
}

#[test]
fn what_makes_no_sense_is_refused_and_told_why() {
    for (text, why) in [
        ("bursty", "expected constant, poisson"),
        ("constant:1", "expected"),
        ("on-off:6", "on-off:PEAK,FRACTION"),
        ("on-off:6,20%", "PEAK x FRACTION must be below 1"),
        ("on-off:4,25%", "PEAK x FRACTION must be below 1"),
        ("on-off:1,5%", "above 1"),
        ("on-off:inf,5%", "above 1"),
        ("on-off:6,0%", "FRACTION"),
        ("on-off:6,5", "FRACTION"),
        ("on-off:6,5%,0s", "PERIOD"),
        ("pareto:2", "between 1 and 2"),
        ("pareto:nan", "between 1 and 2"),
        ("ramp:0..0", "ramp:FROM..TO"),
        ("ramp:5", "ramp:FROM..TO"),
        ("steps:", "steps:RATExTIME"),
        ("steps:0x5s", "steps:RATExTIME"),
        ("steps:5x0s", "steps:RATExTIME"),
        ("trace:/no/such/file", "cannot read it"),
    ] {
        let told = text.parse::<Process>().unwrap_err().to_string();
        assert!(
            told.starts_with(&format!("'{text}' is not an arrival process: ")) && told.contains(why),
            "{told}"
        );
    }
}
