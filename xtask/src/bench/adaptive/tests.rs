use super::*;

fn sample(round: u32, cpu_us: f64, response_ms: f64) -> Sample {
    Sample {
        round,
        replies_per_s: 1000.0,
        response_ms_p50: response_ms,
        response_ms_mean: response_ms,
        cpu_us_per_request: Some(cpu_us),
        process_us_per_request: None,
        overflows: 0,
        generator_limited: false,
    }
}

#[test]
fn the_best_fixed_is_the_one_of_least_cost_and_ratios_are_within_a_round() {
    let settings = &SETTINGS[..1];
    let mut points = points(&[2, 10], settings);
    // Cheapest in time of the processor, and dear in delay: 20 + 0.05 x 2000 us.
    points[1].samples = vec![sample(1, 20.0, 2.0), sample(2, 20.0, 2.0)];
    points[0].samples = vec![sample(1, 40.0, 0.2), sample(2, 90.0, 0.2)];
    points[2].samples = vec![sample(1, 44.0, 0.2), sample(2, 90.0, 0.2)];
    let compared = comparisons(&points);
    assert_eq!((compared.len(), compared[0].best_fixed), (1, 2));
    assert!((compared[0].cost.max - 1.08).abs() < 1e-9 && (compared[0].cost.min - 1.0).abs() < 1e-9);
    let kept: Vec<bool> = promises(&compared).iter().map(|promise| promise.kept).collect();
    assert_eq!(kept, [true, true]);
}

#[test]
fn one_server_for_each_contender_figure_and_number_of_idle_connections() {
    let mut points = points(&[2, 3], &SETTINGS);
    let lengths: Vec<usize> = cases(&mut points).iter().map(|case| case.len()).collect();
    assert_eq!(lengths, [1, 1, 1, 1, 1, 3].repeat(3));
}

#[test]
fn a_quick_run_has_every_figure_and_takes_no_time_to_speak_of() {
    let quick: Vec<Setting> = SETTINGS.into_iter().filter(|setting| setting.quick).collect();
    let figures: Vec<u32> = quick.iter().map(|setting| setting.figure).collect();
    assert_eq!(figures, [8, 9, 11]);
    assert!(duration(&points(&[3, 10], &quick), 1, 1) < Nanos::from_secs(120));
}
