use record::experiment::Value;

use super::*;

const SMALL: &str = r#"
title = "limits"
[[axis]]
name = "offered"
values = [0.5, 1, 1.5]
quick = [1.5]
[[server]]
name = "one"
flags = ["--accept-limit", "1"]
[[server]]
name = "inf"
flags = ["--accept-limit", "inf"]
[[load]]
name = "one-packet"
rate = "{offered} x capacity"
[quick]
trials = 1
servers = ["inf"]
[[figure]]
id = "2"
title = "replies"
x = "offered"
y = "goodput_per_s"
[[claim]]
text = "inf beats one"
ratio = { metric = "goodput_per_s", of = { server = "inf" }, over = { server = "one" }, at = { offered = 1.5 } }
at-least = 1.2
"#;

fn mistake(from: &str, to: &str) -> String {
    assert!(SMALL.contains(from), "{from}");
    Experiment::parse(&SMALL.replacen(from, to, 1)).unwrap_err().to_string()
}

#[test]
fn a_small_experiment_is_read_with_its_defaults() {
    let experiment = Experiment::parse(SMALL).unwrap();
    assert_eq!(experiment.plan, Plan::default());
    assert_eq!(experiment.figures[0].series, ["server"]);
    assert!(experiment.loads[0].is_relative());
    assert_eq!(experiment.axes[0].values[1], Value::Number(1.0));
}

#[test]
fn the_quick_form_has_fewer_values_servers_and_trials() {
    let quick = Experiment::parse(SMALL).unwrap().in_form(Form::Quick);
    assert_eq!((quick.plan.trials, quick.servers.len()), (1, 1));
    assert_eq!(quick.axes[0].values, [Value::Number(1.5)]);
}

#[test]
fn unknown_key_names_its_line_and_the_nearest_key() {
    assert_eq!(mistake("quick = ", "quik = "), "line 6: unknown key 'quik'; did you mean 'quick'?");
    assert_eq!(
        mistake("[quick]\ntrials", "[quick]\ntrails"),
        "line 17: unknown key 'trails'; did you mean 'trials'?"
    );
    assert_eq!(mistake("at-least", "at_least"), "line 27: unknown key 'at_least'; did you mean 'at-least'?");
    let wrong = mistake("flags = [\"--accept-limit\", \"1\"]", "kind = \"nginks\"");
    assert_eq!(wrong, "line 9: unknown word 'nginks'; did you mean 'nginx'?");
}

#[test]
fn derived_metric_sums_the_metrics_of_a_trial() {
    const COST: &str = "[[metric]]\nname = 'cost'\ntitle = 'cost'\nunit = 'microseconds'\n";
    let with = |sum: &str| {
        let drawn = SMALL.replace("y = \"goodput_per_s\"", "y = \"cost\"");
        Experiment::parse(&format!("{drawn}{COST}sum = {{ {sum} }}\n"))
    };
    let experiment = with("server_us_per_reply = 1, latency_ms_mean = 50").unwrap();
    let of = |metrics: &[(&str, f64)]| {
        experiment.metrics[0].of(&metrics.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect())
    };
    assert_eq!(of(&[("server_us_per_reply", 10.0), ("latency_ms_mean", 0.2)]), Some(20.0));
    assert_eq!(of(&[("latency_ms_mean", 0.2), ("replies_per_s", 7.0)]), Some(10.0));
    assert_eq!(of(&[("replies_per_s", 7.0)]), None);
    for (sum, expected) in [
        ("", "metric 'cost': its sum has no terms"),
        ("cost = 2", "'cost' is derived itself"),
        ("latency_ms_meen = 1", "did you mean 'latency_ms_mean'?"),
    ] {
        let wrong = with(sum).unwrap_err().to_string();
        assert!(wrong.contains(expected), "{wrong}");
    }
}

#[test]
fn names_that_do_not_exist_are_named_with_the_nearest() {
    for (from, to, expected) in [
        (
            "server = \"inf\" }",
            "server = \"imf\" }",
            "claim 'inf beats one': no server is 'imf'; did you mean 'inf'?",
        ),
        (
            "y = \"goodput_per_s\"",
            "y = \"goodputs\"",
            "figure '2': metric 'goodputs' is not known; did you mean 'goodput_per_s'?",
        ),
        ("\"{offered} x", "\"{ofered} x", "axis 'ofered' is not known; did you mean 'offered'?"),
        ("{ offered = 1.5 }", "{ offered = 3 }", "no offered is '3'; known are 0.5, 1, 1.5"),
        ("x = \"offered\"", "x = \"oferred\"", "metric 'oferred' is not known"),
    ] {
        let wrong = mistake(from, to);
        assert!(wrong.contains(expected), "{wrong}");
    }
}

#[test]
fn curves_have_no_more_trials_than_claims() {
    let wrong = mistake("quick = [1.5]", "quick = [1.5]\n[plan]\ntrials = 2\ncurve-trials = 3");
    assert!(wrong.contains("curve-trials: expected at most the 2 of trials"), "{wrong}");
}

#[test]
fn what_does_not_fit_together_is_said() {
    for (from, to, expected) in [
        ("at-least = 1.2", "", "the claim 'inf beats one' needs at-least or at-most"),
        (
            "\"{offered} x capacity\"",
            "\"{offered} fast\"",
            "load 'one-packet': rate: '0.5 fast' is not a rate",
        ),
        ("name = \"inf\"", "name = \"one\"", "there are two servers called 'one'"),
        ("quick = [1.5]", "quick = [7]", "axis 'offered': the quick value 7 is none of its values"),
        ("flags = [\"--accept-limit\", \"1\"]", "kind = \"command\"", "server 'one': a command goes with"),
        ("flags = [\"--accept-limit\", \"1\"]", "behind = [0.1]", "server 'one': behind goes with"),
        (
            "flags = [\"--accept-limit\", \"1\"]",
            "kind = \"nginx\"\nlive-accept-limit = 1",
            "server 'one': live-accept-limit goes with kind",
        ),
        ("flags = [\"--accept-limit\", \"1\"]", "live-accept-limit = 0", "a whole number from 1 up, or inf"),
        (
            "flags = [\"--accept-limit\", \"1\"]",
            "kind = \"command\"\ncommand = [\"x\", \"{behind2}\"]\nbehind = [0.1]",
            "server 'one': {behind2}: axis 'behind2' is not known",
        ),
        (
            "flags = [\"--accept-limit\", \"1\"]",
            "kind = \"command\"\ncommand = [\"x\", \"{behind1}\", \"{agent1}\"]\nbehind = [0]",
            "cpu-quota 0: expected a number of cores from 0.01 to 64",
        ),
        (
            "rate = \"{offered} x capacity\"",
            "rate = \"{offered} x capacity\"\noutage = { of = 1, from = \"2s\", to = \"1s\" }",
            "load 'one-packet': outage of 1: expected the number of a server behind each server",
        ),
        (
            "rate = \"{offered} x capacity\"",
            "rate = \"{offered} x capacity\"\noutage = { of = 1, from = \"2s\", to = \"1s\" }",
            "load 'one-packet': outage: expected from before to",
        ),
        (
            "y = \"goodput_per_s\"",
            "y = \"goodput_per_s\"\nstacked = true\nlog = \"y\"",
            "figure '2': stacked bars have",
        ),
        (
            "y = \"goodput_per_s\"",
            "y = \"goodput_per_s\"\nheadline = \"all\"",
            "figure '2': headline: {y} is missing",
        ),
        ("[quick]\ntrials = 1", "[quick]\nbudget = \"0s\"", "budget: expected a time above 0"),
        ("[quick]", "[capacity]\nload = \"two\"\n[quick]", "capacity: load 'two' is not known"),
        (
            "\"{offered} x capacity\"",
            "\"2k\"\n[capacity]\nload = \"one-packet\"",
            "capacity: load 'one-packet' has no rate that",
        ),
        ("[quick]\ntrials = 1", "[quick]\ntrials = 0", "trials: expected a whole number from 1 to 1000"),
    ] {
        let wrong = mistake(from, to);
        assert!(wrong.contains(expected), "{wrong}");
    }
}

#[test]
fn nothing_of_something_needed_is_refused() {
    for (from, to, expected) in [
        ("servers = [\"inf\"]", "servers = []", "quick: servers: expected at least one name"),
        ("[quick]", "[common]\nbacklog = 0\n[quick]", "backlog: expected a whole number from 1 up"),
        ("[quick]", "[common]\nconnections = 0\n[quick]", "connections: expected a whole number from 1 up"),
        ("[quick]", "[topology]\nserver-cpus = []\n[quick]", "server-cpus: expected at least one CPU"),
    ] {
        let wrong = mistake(from, to);
        assert!(wrong.contains(expected), "{wrong}");
    }
}

#[test]
fn the_quick_form_keeps_what_rates_multiply() {
    let wrong = mistake("[quick]", "[capacity]\nof = \"one\"\n[quick]");
    assert!(
        wrong.contains("quick: servers: rates are multiples of the capacity of 'one'; keep it"),
        "{wrong}"
    );
    let second =
        "[[load]]\nname = \"second\"\nrate = \"{offered} x capacity\"\n[capacity]\nload = \"one-packet\"\n";
    let wrong = mistake("[quick]", &format!("{second}[quick]\nloads = [\"second\"]"));
    assert!(
        wrong.contains("quick: loads: rates are multiples of the capacity under 'one-packet'"),
        "{wrong}"
    );
}

#[test]
fn each_value_of_an_axis_makes_a_rate() {
    let wrong = mistake("values = [0.5, 1, 1.5]", "values = [0.5, 0, 1.5]");
    assert!(wrong.contains("load 'one-packet': rate: '0 x capacity' is not a rate"), "{wrong}");
}

#[test]
fn numbers_that_no_record_holds_are_refused() {
    for (number, shown) in [("inf", "inf"), ("-inf", "-inf"), ("nan", "NaN")] {
        let wrong = mistake("[0.5, 1, 1.5]", &format!("[0.5, {number}, 1.5]"));
        let expected =
            format!("axis 'offered': {shown} is not a finite number; write it as text: \"{shown}\"");
        assert!(wrong.contains(&expected), "{wrong}");
    }
    let quick = mistake("quick = [1.5]", "quick = [inf]");
    assert!(quick.contains("inf is not a finite number"), "{quick}");
}

#[test]
fn a_multiple_of_the_capacity_is_told_by_the_load() {
    let by_axis =
        SMALL.replace("[0.5, 1, 1.5]", "[\"1.5 x capacity\"]").replace("[1.5]", "[\"1.5 x capacity\"]");
    let by_axis = by_axis
        .replace("offered = 1.5", "offered = \"1.5 x capacity\"")
        .replace("{offered} x capacity", "{offered}");
    let wrong = Experiment::parse(&by_axis).unwrap_err().to_string();
    assert!(wrong.contains("write x capacity in the load, not in the axis"), "{wrong}");
}

#[test]
fn outage_ends_within_a_trial_of_fixed_length() {
    let behind = SMALL.replacen(
        "[[server]]",
        "[[server]]\nbehind = [0.1]\nkind = \"command\"\ncommand = [\"x\", \"{behind1}\"]",
        2,
    );
    let behind = behind
        .replace("flags = [\"--accept-limit\", \"1\"]\n", "")
        .replace("flags = [\"--accept-limit\", \"inf\"]\n", "");
    let with = |to: &str, plan: &str| {
        let outage = format!("x capacity\"\noutage = {{ of = 1, from = \"1s\", to = \"{to}\" }}\n{plan}");
        Experiment::parse(&behind.replace("x capacity\"", &outage))
            .map(drop)
            .map_err(|wrong| wrong.to_string())
    };
    assert_eq!(with("2s", ""), Ok(()));
    assert!(with("4s", "").unwrap_err().contains("`to` must lie within the duration, at most 3s"));
    assert!(with("2s", "[plan]\nbudget = \"1min\"").unwrap_err().contains("a budget may shorten the trials"));
}

#[test]
fn a_user_stack_passes_no_network() {
    for (name, stack) in [("user", Stack::User), ("af-xdp", Stack::AfXdp)] {
        let user = SMALL.replace("rate = ", &format!("stack = \"{name}\"\nrate = "));
        assert_eq!(Experiment::parse(&user).unwrap().loads[0].stack, stack);
        let far = user.replace("[quick]", "[network]\ndelay = \"10ms\"\n[quick]");
        let wrong = Experiment::parse(&far).unwrap_err().to_string();
        assert_eq!(wrong, "network: packets of TCP in user space do not pass it; leave stack out");
    }
}

#[test]
fn a_file_with_too_many_points_is_refused() {
    let values = (0..10).map(|value| value.to_string()).collect::<Vec<_>>().join(", ");
    let axes: String =
        (0..30).map(|axis| format!("[[axis]]\nname = \"a{axis}\"\nvalues = [{values}]\n")).collect();
    let wrong = Experiment::parse(&format!("{SMALL}{axes}")).unwrap_err().to_string();
    assert!(wrong.contains("expected at most 100000 trials"), "{wrong}");
}

#[test]
fn an_installed_server_keeps_its_packages_settings() {
    for (from, to, expected) in [
        ("flags = [\"--accept-limit\", \"1\"]", "package = \"nginx\"", "server 'one': a package goes with"),
        (
            "flags = [\"--accept-limit\", \"1\"]",
            "kind = \"installed\"\npackage = \"nginx\"\nbacklog = 511",
            "server 'one': backlog goes with other kinds",
        ),
        (
            "flags = [\"--accept-limit\", \"1\"]",
            "kind = \"installed\"\npackage = \"haproxy\"",
            "server 'one': package = \"haproxy\" needs a server behind it",
        ),
    ] {
        let wrong = mistake(from, to);
        assert!(wrong.contains(expected), "{wrong}");
    }
}
