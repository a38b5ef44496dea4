//! Two runs of the same experiment, one of them of a changed server.

use analysis::experiment_runs::{Change, Row, compare};
use base::Seed;
use experiment::Experiment;
use record::experiment::{Flaw, Form, RunDirectory};
use report::experiment_runs::{of_folders, text};

use super::fixture::{TEXT, run_with, write};

fn changes(faster: fn(&str) -> f64) -> Vec<(String, String, Change)> {
    let experiment = Experiment::parse(TEXT).unwrap();
    let (first, second) = (run_with(5, Seed(1), |_| 1.0), run_with(5, Seed(2), faster));
    let comparison = compare(&experiment, (&first, &second), 0.02);
    let changed = comparison.rows.into_iter().filter(|row| row.change != Change::Same);
    changed.map(|row| (row.server, row.metric, row.change)).collect()
}

#[test]
fn equal_builds_are_equal() {
    assert_eq!(changes(|_| 1.0), []);
}

#[test]
fn a_slower_build_is_worse_and_a_faster_one_better() {
    let slower = changes(|server| if server == "ten" { 0.9 } else { 1.0 });
    assert!(slower.contains(&("ten".to_owned(), "replies_per_s".to_owned(), Change::Worse)), "{slower:?}");
    assert!(slower.iter().all(|(server, _, _)| server == "ten"), "{slower:?}");
    let faster = changes(|server| if server == "inf" { 1.2 } else { 1.0 });
    assert!(faster.contains(&("inf".to_owned(), "replies_per_s".to_owned(), Change::Better)), "{faster:?}");
    assert!(faster.iter().all(|(_, _, change)| *change != Change::Worse), "{faster:?}");
}

#[test]
fn fall_to_zero_is_worse_and_rise_from_zero_better() {
    let experiment = Experiment::parse(TEXT).unwrap();
    let (some, mut none) = (run_with(12, Seed(1), |_| 1.0), run_with(12, Seed(1), |_| 1.0));
    for trial in none.trials.iter_mut().filter(|trial| trial.server == "ten") {
        trial.metrics.entry("replies_per_s".to_owned()).and_modify(|replies| *replies = 0.0);
    }
    let compared = |first, second| {
        let mut comparison = compare(&experiment, (first, second), 0.02);
        let is_changed = |row: &Row| (row.server.as_str(), row.metric.as_str()) == ("ten", "replies_per_s");
        comparison.rows.retain(is_changed);
        comparison
    };
    let falls = compared(&some, &none);
    assert_eq!((falls.rows[0].ratio, falls.rows[0].change), (0.0, Change::Worse));
    let rises = compared(&none, &some);
    assert_eq!((rises.rows[0].ratio, rises.rows[0].change), (f64::INFINITY, Change::Better));
    assert!(text(&rises).contains("∞ to ∞"), "{}", text(&rises));
    assert!(serde_json::to_value(&rises).unwrap()["rows"][0]["ratio"].is_null());
    let neither = compared(&none, &none);
    assert_eq!((neither.rows[0].ratio, neither.rows[0].change), (1.0, Change::Same));
}

/// One repetition on a machine a little slower is one measurement, however many points it has.
#[test]
fn the_points_of_a_repetition_are_one_measurement() {
    let experiment = Experiment::parse(TEXT).unwrap();
    let (first, second) = (run_with(1, Seed(1), |_| 1.0), run_with(1, Seed(1), |_| 0.9));
    let comparison = compare(&experiment, (&first, &second), 0.02);
    assert!(comparison.rows.iter().all(|row| row.repetitions == 1 && row.change == Change::Same));
    assert!(comparison.rows.iter().any(|row| row.ratio < 0.95), "{comparison:?}");
}

#[test]
fn short_curves_keep_all_repetitions_of_claims() {
    let experiment = Experiment::parse(TEXT).unwrap();
    let slower = |server: &str| if server == "ten" { 0.8 } else { 1.0 };
    let (mut first, mut second) = (run_with(10, Seed(1), |_| 1.0), run_with(10, Seed(2), slower));
    let curve = first.trials.iter().find(|trial| trial.server == "ten").unwrap().axes.clone();
    for run in [&mut first, &mut second] {
        run.trials.retain(|trial| trial.repeat < 3 || trial.axes != curve);
    }
    let comparison = compare(&experiment, (&first, &second), 0.02);
    let is_it = |row: &&Row| (row.server.as_str(), row.metric.as_str()) == ("ten", "replies_per_s");
    let row = comparison.rows.iter().find(is_it).unwrap();
    assert_eq!((row.repetitions, row.change), (10, Change::Worse), "{row:?}");
    assert!(comparison.warnings.iter().any(|warning| warning.contains("few repetitions")), "{comparison:?}");
}

#[test]
fn what_makes_runs_hard_to_compare_is_said() {
    let experiment = Experiment::parse(TEXT).unwrap();
    let (first, mut second) = (run_with(3, Seed(1), |_| 1.0), run_with(3, Seed(1), |_| 1.0));
    second.run.manifest.kernel = "7.0".to_owned();
    second.run.finished = false;
    second.run.text.push('\n');
    let comparison = compare(&experiment, (&first, &second), 0.02);
    assert_eq!(comparison.warnings.len(), 3, "{:?}", comparison.warnings);
    assert_eq!(comparison.worse().count(), 0);
    second.trials.clear();
    assert_eq!(compare(&experiment, (&first, &second), 0.02).rows, []);
}

#[test]
fn what_the_second_run_has_lost_is_said() {
    let experiment = Experiment::parse(TEXT).unwrap();
    let (first, mut second) = (run_with(3, Seed(1), |_| 1.0), run_with(3, Seed(1), |_| 1.0));
    let lost = |second: &RunDirectory| {
        let comparison = compare(&experiment, (&first, second), 0.02);
        assert_eq!(text(&comparison).contains("no valid trial"), !comparison.lost.is_empty());
        let found = comparison.lost.into_iter().map(|lost| (lost.server, lost.load, lost.points, lost.of));
        found.collect::<Vec<_>>()
    };
    assert_eq!(lost(&second), []);
    second.trials.iter_mut().filter(|trial| trial.server == "ten").for_each(|trial| {
        trial.flaws = vec![Flaw::ServerDied];
    });
    let all_of_ten = [("ten".to_owned(), Some("one-packet".to_owned()), 7, 7)];
    assert_eq!(lost(&second), all_of_ten);
    second.trials.retain(|trial| trial.server != "ten");
    assert_eq!(lost(&second), all_of_ten);
    second.run.form = Form::Quick;
    assert_eq!(lost(&second), [], "the quick form does without");
    second.run.servers.iter_mut().for_each(|server| server.excluded = Some("no start".to_owned()));
    assert_eq!(lost(&second), all_of_ten);
}

#[test]
fn the_table_for_the_terminal() {
    let experiment = Experiment::parse(TEXT).unwrap();
    let slower = |server: &str| if server == "ten" { 0.9 } else { 1.0 };
    let (first, second) = (run_with(5, Seed(1), |_| 1.0), run_with(5, Seed(2), slower));
    let mut comparison = compare(&experiment, (&first, &second), 0.02);
    comparison.rows.retain(|row| row.metric == "replies_per_s");
    insta::assert_snapshot!(text(&comparison));
}

#[test]
fn folders_compare_run_by_run_and_name_strangers() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("a"), folder.path().join("b"));
    for out in [&first, &second] {
        for name in ["one", "two"] {
            write(&run_with(3, Seed(1), |_| 1.0), &out.join(name));
        }
    }
    assert_eq!(of_folders(&first, &second, 0.02).unwrap().len(), 2);
    assert_eq!(of_folders(&first.join("one"), &second.join("two"), 0.02).unwrap().len(), 1);
    let error = of_folders(&first, &second.join("two"), 0.02).unwrap_err().to_string();
    assert!(error.starts_with("one folder holds a run, the other does not"), "{error}");
    std::fs::create_dir(folder.path().join("c")).unwrap();
    let error = of_folders(&first, &folder.path().join("c"), 0.02).unwrap_err().to_string();
    assert!(error.ends_with("have no point in common: nothing can be compared"), "{error}");
}
