//! The experiments that come with the program: the parts of a report on all of them, in its order, and the
//! demonstration.

use experiment::Experiment;

/// One of these experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The name of its file, without `.toml`.
    pub name: &'static str,
    /// The file.
    pub text: &'static str,
}

macro_rules! known {
    ($($name:literal),* $(,)?) => {
        &[$(Known { name: $name, text: include_str!(concat!("../../../experiments/", $name, ".toml")) }),*]
    };
}

/// The experiments of a report on all of them.
pub const ALL: &[Known] = known![
    "brecht-userver",
    "brecht-select",
    "brecht-knot",
    "brecht-tux",
    "brecht-tuned",
    "brecht-drops",
    "brecht-tls",
    "adaptive-limit",
    "molloy-micro",
    "molloy-macro",
    "fdm-8",
    "fdm-9",
    "fdm-10-11",
    "fdm-adaptive",
    "banga-5",
    "banga-6-7",
    "banga-8",
    "banga-wan",
    "smped-2",
    "smped-5",
    "smped-6",
    "smped-disk",
    "handoff",
    "past-saturation",
];

/// Questions about Inrush itself, which are no part of a report on all.
const OWN: &[Known] = known![
    "elbow",
    "fleet-outage",
    "fleet-smped",
    "guard-apps",
    "guard-calm",
    "guard-harm",
    "overload-calm",
    "overload-echo",
    "overload-hooks",
    "overload-open",
    "overload-recovery",
    "overload-rush",
    "overload-sessions",
    "overload-two-cpus",
    "overload-wan",
    "overload-work",
    "stacks"
];

/// The demonstration, which is not part of a report on all.
pub const DEMO: Known = Known { name: "demo", text: include_str!("../../../experiments/demo.toml") };

/// The small applications for servers of others, by their file names. The word `{apps}` of a command is their folder.
pub const APPS: [(&str, &str); 7] = [
    ("app.py", include_str!("../../../experiments/apps/app.py")),
    ("server.js", include_str!("../../../experiments/apps/server.js")),
    ("server.go", include_str!("../../../experiments/apps/server.go")),
    ("Server.java", include_str!("../../../experiments/apps/Server.java")),
    ("config.ru", include_str!("../../../experiments/apps/config.ru")),
    ("apache.sh", include_str!("../../../experiments/apps/apache.sh")),
    ("work.cgi", include_str!("../../../experiments/apps/work.cgi")),
];

/// Every experiment, the demonstration first.
pub fn each() -> impl Iterator<Item = Known> {
    [DEMO].into_iter().chain(OWN.iter().chain(ALL).copied())
}

/// Returns the experiment of that name.
pub fn by_name(name: &str) -> Option<Known> {
    each().find(|known| known.name == name)
}

/// Returns the number of claims that the document judges in which an experiment of that name stands. The report on all judges the claims
/// of all its experiments together; another experiment has a report of its own.
pub fn claims_together(name: &str, experiment: &Experiment) -> usize {
    if !ALL.iter().any(|known| known.name == name) {
        return judged(experiment);
    }
    ALL.iter().map(|known| Experiment::parse(known.text).map_or(0, |experiment| judged(&experiment))).sum()
}

/// The number of claims that are not declared untested.
fn judged(experiment: &Experiment) -> usize {
    experiment.claims.iter().filter(|claim| claim.not_tested.is_none()).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::schedule;
    use base::Nanos;
    use record::experiment::Form;

    #[test]
    fn every_file_is_listed_and_every_one_is_right() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments");
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                continue;
            }
            let name = path.file_stem().unwrap().to_str().unwrap();
            assert!(by_name(name).is_some(), "{name} is not in the list");
        }
        for known in each() {
            let parsed = Experiment::parse(known.text);
            assert!(parsed.is_ok(), "{}: {}", known.name, parsed.unwrap_err());
        }
    }

    #[test]
    fn servers_with_our_configuration_are_called_tuned() {
        use experiment::ServerKind::{ApacheEvent, ApachePrefork, H2o, Lighttpd, Nginx};
        for known in each() {
            let experiment = Experiment::parse(known.text).unwrap();
            for server in &experiment.servers {
                let is_ours = matches!(server.kind, Nginx | Lighttpd | H2o | ApachePrefork | ApacheEvent);
                assert!(!is_ours || server.name.contains("tuned"), "{}: {}", known.name, server.name);
            }
        }
    }

    #[test]
    fn demo_fits_five_minutes_and_quick_demo_one() {
        for (form, most) in [(Form::Full, 300), (Form::Quick, 60)] {
            let experiment = Experiment::parse(DEMO.text).unwrap().in_form(form);
            let time = schedule::estimate(&experiment, form).at_most;
            assert!(time <= Nanos::from_secs(most), "{time}");
        }
    }

    #[test]
    fn library_fits_eight_hours_or_ten_minutes_reduced() {
        let of = |form: Form| {
            let each = ALL.iter().map(|known| {
                let experiment = Experiment::parse(known.text).unwrap().in_form(form);
                schedule::estimate(&experiment, form).at_most
            });
            each.fold(Nanos::ZERO, |sum, time| sum + time)
        };
        let (full, quick) = (of(Form::Full), of(Form::Quick));
        println!("full {full}, quick {quick}");
        assert!(quick <= Nanos::from_secs(600) && full <= Nanos::from_secs(8 * 3600), "{quick}, {full}");
    }
}
