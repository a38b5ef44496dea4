//! The checks of an experiment that parses: contradictions between its parts.

use std::collections::BTreeSet;

use base::{Bytes, Nanos};
use record::experiment::{FAMILIES, Form, METRICS, Value, metric};

use super::claim::{Claim, Measure};
use super::load::OF_CAPACITY;
use super::mistake::proposal;
use super::template::{CAPACITY, Matcher, Selection, placeholders};
use super::{Experiment, Figure, LoadSpec, LogAxes, Package, Rate, ServerKind, ServerSpec, fill};

/// Names in braces that the lab replaces in a command.
const OF_A_COMMAND: [&str; 9] =
    ["address", "ip", "port", "root", "folder", "backlog", "connections", "cpus", "apps"];

/// Most trials of an experiment, all combinations counted; those that come with the program have up to 1200. A file of a
/// few lines could otherwise ask for more points than memory holds.
const MOST_TRIALS: usize = 100_000;

/// A server with less than this does not start.
const MEMORY_LEAST: Bytes = Bytes(16 << 20);

/// Returns all mistakes, one sentence each.
pub(super) fn mistakes(experiment: &Experiment) -> Vec<String> {
    let mut check = Check { experiment, mistakes: Vec::new() };
    check.size();
    if !check.mistakes.is_empty() {
        // The other checks, as a run does, would go through every point.
        return check.mistakes;
    }
    check.plan();
    check.common();
    check.names();
    check.servers();
    check.loads();
    check.metrics();
    check.placeholders();
    check.quick();
    for figure in &experiment.figures {
        check.figure(figure);
    }
    for claim in &experiment.claims {
        check.claim(claim);
    }
    let mut seen = BTreeSet::new();
    check.mistakes.retain(|mistake| seen.insert(mistake.clone()));
    check.mistakes
}

struct Check<'a> {
    experiment: &'a Experiment,
    mistakes: Vec<String>,
}

impl<'a> Check<'a> {
    fn require(&mut self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.mistakes.push(otherwise());
        }
    }

    fn server_names(&self) -> Vec<&'a str> {
        self.experiment.servers.iter().map(|server| server.name.as_str()).collect()
    }

    fn load_names(&self) -> Vec<&'a str> {
        self.experiment.loads.iter().map(|load| load.name.as_str()).collect()
    }

    fn axis_names(&self) -> Vec<&'a str> {
        self.experiment.axes.iter().map(|axis| axis.name.as_str()).collect()
    }

    fn size(&mut self) {
        let Experiment { servers, loads, axes, plan, .. } = self.experiment;
        let values = axes.iter().map(|axis| axis.values.len()).fold(1, usize::saturating_mul);
        let lines = servers.len().saturating_mul(loads.len().max(1));
        let trials = values.saturating_mul(lines).saturating_mul(plan.trials as usize);
        self.require(trials <= MOST_TRIALS, || {
            format!(
                "servers, loads, values of axes and trials: expected at most {MOST_TRIALS} trials, found {trials}; leave \
                 some out"
            )
        });
    }

    fn plan(&mut self) {
        let (plan, quick) = (&self.experiment.plan, &self.experiment.quick);
        let counts = [Some(plan.trials), plan.curve_trials, quick.trials];
        self.require(counts.iter().flatten().all(|trials| (1..=1000).contains(trials)), || {
            "trials and curve-trials: expected a whole number from 1 to 1000".to_owned()
        });
        self.require(plan.curve_trials.is_none_or(|trials| trials <= plan.trials), || {
            format!("curve-trials: expected at most the {} of trials", plan.trials)
        });
        let times = [Some(plan.duration), quick.duration];
        self.require(times.iter().flatten().all(|time| *time > Nanos::ZERO), || {
            "duration: expected a time above 0".to_owned()
        });
        let budgets = [plan.budget, quick.budget];
        self.require(budgets.iter().flatten().all(|time| *time > Nanos::ZERO), || {
            "budget: expected a time above 0".to_owned()
        });
        self.require(plan.noise > 0.0, || "noise: expected a number of cores above 0".to_owned());
    }

    fn names(&mut self) {
        self.require(!self.experiment.servers.is_empty(), || "there is no [[server]]".to_owned());
        let figures = self.experiment.figures.iter().map(|figure| figure.id.as_str()).collect();
        let kinds = [
            ("server", self.server_names()),
            ("load", self.load_names()),
            ("axis", self.axis_names()),
            ("figure", figures),
        ];
        for (kind, names) in kinds {
            let mut seen = BTreeSet::new();
            for name in names {
                self.require(!name.is_empty(), || format!("a {kind} without a name"));
                self.require(seen.insert(name), || format!("there are two {kind}s called '{name}'"));
            }
        }
        for axis in &self.experiment.axes {
            let name = &axis.name;
            self.require(!["server", "load"].contains(&name.as_str()) && metric(name).is_none(), || {
                format!("axis '{name}': server, load and the names of metrics are taken; choose another name")
            });
            self.require(!axis.values.is_empty(), || format!("axis '{name}' has no values"));
            // JSON has no such numbers: the records of a run could not be read again.
            for value in axis.values.iter().chain(axis.quick.iter().flatten()) {
                self.require(value.number().is_none_or(f64::is_finite), || {
                    format!("axis '{name}': {value} is not a finite number; write it as text: \"{value}\"")
                });
            }
            let twice = axis.values.iter().enumerate().find(|(at, value)| axis.values[..*at].contains(value));
            self.require(twice.is_none(), || format!("axis '{name}' has a value twice"));
            for value in axis.quick.iter().flatten() {
                self.require(axis.values.contains(value), || {
                    format!("axis '{name}': the quick value {value} is none of its values")
                });
            }
            self.require(axis.quick.as_ref().is_none_or(|quick| !quick.is_empty()), || {
                format!("axis '{name}' has no quick values")
            });
        }
    }

    fn servers(&mut self) {
        for server in &self.experiment.servers {
            let name = &server.name;
            let is_command = server.kind == ServerKind::Command;
            let is_inrush = server.kind == ServerKind::Inrush;
            self.require(is_command != server.command.is_empty(), || {
                format!("server '{name}': a command goes with kind = \"command\" and with no other")
            });
            let others = !server.environment.is_empty() || server.ready != super::Ready::Connects;
            self.require(is_command || !others, || {
                format!("server '{name}': environment and ready go with kind = \"command\"")
            });
            let ours = is_inrush || server.kind == ServerKind::Herd;
            let fronts = !server.behind.is_empty();
            self.require(ours || fronts || server.flags.is_empty(), || {
                format!("server '{name}': flags go with behind, kind = \"inrush\" and kind = \"herd\"")
            });
            let is_proxy = is_command || server.package == Some(Package::Haproxy);
            self.require(is_proxy || !fronts, || {
                format!("server '{name}': behind goes with kind = \"command\" and package = \"haproxy\"")
            });
            self.package(server);
            self.require(is_inrush || server.live_accept_limit.is_none(), || {
                format!("server '{name}': live-accept-limit goes with kind = \"inrush\"")
            });
            let is_nginx = server.kind == ServerKind::Nginx || server.package == Some(Package::Nginx);
            self.require(is_inrush || is_nginx || self.experiment.common.tls.is_none(), || {
                format!("server '{name}': tls goes with inrush and nginx")
            });
            self.require(server.backlog.is_none_or(|length| (1..=65535).contains(&length)), || {
                format!("server '{name}': backlog: expected a whole number from 1 to 65535")
            });
            let apache = matches!(server.kind, ServerKind::ApachePrefork | ServerKind::ApacheEvent);
            self.require(apache || server.workers.is_none(), || {
                format!(
                    "server '{name}': workers go with apache-prefork and apache-event; ours has --workers"
                )
            });
        }
        let own = |server: &'a ServerSpec| server.cpu_quota.into_iter().chain(server.behind.iter().copied());
        let quotas = self.experiment.servers.iter().flat_map(own);
        for quota in quotas.chain(self.experiment.common.cpu_quota) {
            self.require((0.01..=64.0).contains(&quota), || {
                format!("cpu-quota {quota}: expected a number of cores from 0.01 to 64")
            });
        }
        let memory = self.experiment.common.memory;
        self.require(memory.is_none_or(|memory| memory >= MEMORY_LEAST), || {
            format!("memory: expected at least {MEMORY_LEAST}")
        });
        if let Some(of) = &self.experiment.capacity.of {
            self.known("capacity: server", of, self.server_names());
        }
        if let Some(load) = &self.experiment.capacity.load {
            self.known("capacity: load", load, self.load_names());
            let fixed = |spec: &&LoadSpec| spec.name == *load && !spec.is_relative();
            self.require(!self.experiment.loads.iter().any(|spec| fixed(&spec)), || {
                format!("capacity: load '{load}' has no rate that is a multiple of the capacity")
            });
        }
    }

    /// A packaged server keeps what its package says.
    fn package(&mut self, server: &ServerSpec) {
        let (name, is_installed) = (&server.name, server.kind == ServerKind::Installed);
        self.require(is_installed == server.package.is_some(), || {
            format!("server '{name}': a package goes with kind = \"installed\" and with no other")
        });
        self.require(!is_installed || server.backlog.is_none(), || {
            format!("server '{name}': backlog goes with other kinds; an installed server has its package's")
        });
        let needs_one = server.package == Some(Package::Haproxy) && server.behind.is_empty();
        self.require(!needs_one, || {
            format!("server '{name}': package = \"haproxy\" needs a server behind it: behind = [1.0]")
        });
        self.require(server.kind.serves() || server.guard.is_none(), || {
            format!("server '{name}': a herd serves nobody; leave guard out")
        });
        self.require(server.kind == ServerKind::Inrush || !server.may_cut_sessions, || {
            format!("server '{name}': may-cut-sessions goes with kind = \"inrush\"")
        });
    }

    fn loads(&mut self) {
        let serving = self.experiment.servers.iter().filter(|server| server.kind.serves()).count();
        let none = self.experiment.loads.is_empty();
        self.require(serving == 0 || !none, || "there is no [[load]]".to_owned());
        self.require(serving > 0 || none, || "a herd is offered no [[load]]".to_owned());
        let points = self.experiment.sample_points();
        for load in &self.experiment.loads {
            let Some(rate) = &load.rate else { continue };
            for rate in points.iter().map(|point| fill(rate, |axis| point.get(axis))) {
                let wrong = match Rate::parse(&rate) {
                    Ok(Rate::OfCapacity(_)) if !load.is_relative() => {
                        format!("'{rate}' is not a rate; write {OF_CAPACITY} in the load, not in the axis")
                    }
                    Err(wrong) => wrong,
                    Ok(_) => continue,
                };
                self.mistakes.push(format!("load '{}': rate: {wrong}", load.name));
            }
        }
        for load in &self.experiment.loads {
            let Some(of) = &load.capacity_of else { continue };
            self.known(&format!("load '{}': capacity-of: server", load.name), of, self.server_names());
            self.require(load.is_relative(), || {
                format!(
                    "load '{}': capacity-of goes with a rate that is a multiple of the capacity",
                    load.name
                )
            });
        }
        for load in &self.experiment.loads {
            let searched = self.experiment.capacity.load.as_ref().unwrap_or(&load.name);
            let can_search = *searched != load.name || load.can_search();
            self.require(can_search, || {
                format!(
                    "load '{}': {{{CAPACITY}}}: name in [capacity] a load that does without it",
                    load.name
                )
            });
        }
        self.outages();
        let passes_by = self.experiment.loads.iter().any(|load| load.stack.is_in_user_space());
        self.require(!passes_by || self.experiment.network.is_none(), || {
            "network: packets of TCP in user space do not pass it; leave stack out".to_owned()
        });
        let specweb = self.experiment.loads.iter().any(|load| load.workload.starts_with("specweb99"));
        let files = &self.experiment.files;
        self.require(!specweb || files.specweb99 > 0 || files.root.is_some(), || {
            "a specweb99 workload needs files: specweb99 = 20 under [files]".to_owned()
        });
    }

    fn outages(&mut self) {
        let (plan, quick) = (&self.experiment.plan, &self.experiment.quick);
        let has_budget = plan.budget.or(quick.budget).is_some();
        let shortest = plan.duration.min(quick.duration.unwrap_or(plan.duration));
        for (load, outage) in self.experiment.loads.iter().filter_map(|load| Some((&load.name, load.outage?)))
        {
            let has_it = |server: &ServerSpec| (1..=server.behind.len()).contains(&outage.of);
            self.require(self.experiment.servers.iter().all(has_it), || {
                format!(
                    "load '{load}': outage of {}: expected the number of a server behind each server",
                    outage.of
                )
            });
            self.require(outage.from < outage.to, || {
                format!("load '{load}': outage: expected from before to")
            });
            self.require(outage.to <= shortest, || {
                format!("load '{load}': outage: `to` must lie within the duration, at most {shortest}")
            });
            self.require(!has_budget, || {
                format!("load '{load}': outage: a budget may shorten the trials; leave one of the two out")
            });
        }
    }

    /// Every name in braces is an axis, and every axis is used.
    fn placeholders(&mut self) {
        let axes = self.axis_names();
        let mut used = BTreeSet::new();
        for server in &self.experiment.servers {
            for name in server.texts().flat_map(placeholders) {
                used.insert(name);
                let behind = |number: usize| [format!("behind{number}"), format!("agent{number}")];
                let behind = (1..=server.behind.len()).flat_map(behind);
                let own = server.kind == ServerKind::Command
                    && (OF_A_COMMAND.contains(&name) || behind.into_iter().any(|known| known == name));
                if !own {
                    self.known(&format!("server '{}': {{{name}}}: axis", server.name), name, axes.clone());
                }
            }
        }
        for load in &self.experiment.loads {
            for name in load.texts().flat_map(placeholders).filter(|name| *name != CAPACITY) {
                used.insert(name);
                self.known(&format!("load '{}': {{{name}}}: axis", load.name), name, axes.clone());
            }
        }
        for name in self.experiment.stage_texts().flat_map(placeholders) {
            used.insert(name);
            self.known(&format!("network or sysctls: {{{name}}}: axis"), name, axes.clone());
        }
        for axis in axes {
            self.require(axis != CAPACITY, || {
                format!("axis '{axis}': the name is that of the measured capacity")
            });
            self.require(used.contains(axis), || {
                format!("axis '{axis}': no server, load, network or sysctl mentions {{{axis}}}")
            });
        }
    }

    fn quick(&mut self) {
        let quick = &self.experiment.quick;
        for name in quick.servers.iter().flatten() {
            self.known("quick: server", name, self.server_names());
        }
        for name in quick.loads.iter().flatten() {
            self.known("quick: load", name, self.load_names());
        }
        for (what, names) in [("servers", &quick.servers), ("loads", &quick.loads)] {
            self.require(names.as_ref().is_none_or(|names| !names.is_empty()), || {
                format!("quick: {what}: expected at least one name")
            });
        }
        let reduced = self.experiment.in_form(Form::Quick);
        for load in reduced.loads.iter().filter(|load| load.is_relative()) {
            for (of, under) in reduced.servers.iter().map(|server| reduced.capacity.reference(server, load)) {
                self.require(reduced.servers.iter().any(|server| server.name == of), || {
                    format!("quick: servers: rates are multiples of the capacity of '{of}'; keep it")
                });
                self.require(reduced.loads.iter().any(|load| load.name == under), || {
                    format!("quick: loads: rates are multiples of the capacity under '{under}'; keep it")
                });
            }
        }
    }

    fn common(&mut self) {
        let Experiment { common, topology, .. } = self.experiment;
        for (what, number) in [("backlog", common.backlog), ("connections", common.connections)] {
            self.require(number > 0, || format!("{what}: expected a whole number from 1 up"));
        }
        for (what, cpus) in [("server-cpus", &topology.server_cpus), ("client-cpus", &topology.client_cpus)] {
            self.require(cpus.as_ref().is_none_or(|cpus| !cpus.is_empty()), || {
                format!("{what}: expected at least one CPU")
            });
        }
    }

    fn known(&mut self, what: &str, name: &str, known: Vec<&str>) {
        self.require(known.contains(&name), || {
            format!("{what} '{name}' is not known{}", proposal(name, known.clone()))
        });
    }

    fn metrics(&mut self) {
        for (place, derived) in self.experiment.metrics.iter().enumerate() {
            let name = &derived.name;
            let earlier = &self.experiment.metrics[..place];
            let taken = metric(name).is_some()
                || FAMILIES.iter().any(|family| name.starts_with(family))
                || self.axis_names().contains(&name.as_str())
                || earlier.iter().any(|other| other.name == *name);
            self.require(!name.is_empty() && !taken, || {
                format!("metric '{name}': another metric or an axis has this name; choose another")
            });
            self.require(!derived.sum.is_empty(), || format!("metric '{name}': its sum has no terms"));
            for (term, factor) in &derived.sum {
                let is_derived = self.experiment.metric(term).is_some();
                self.require(!is_derived, || {
                    format!("metric '{name}': '{term}' is derived itself; expected a metric of trials")
                });
                self.metric(&format!("metric '{name}'"), term);
                self.require(factor.is_finite(), || {
                    format!("metric '{name}': {term} = {factor} is not a number")
                });
            }
        }
    }

    fn metric(&mut self, place: &str, name: &str) {
        let family = FAMILIES.iter().any(|family| name.starts_with(family));
        let derived = self.experiment.metrics.iter().map(|metric| metric.name.as_str());
        let names = METRICS.iter().map(|metric| metric.name).chain(derived);
        let is_known = family || metric(name).is_some() || self.experiment.metric(name).is_some();
        self.require(is_known, || format!("{place}: metric '{name}' is not known{}", proposal(name, names)));
    }

    fn axis_or_metric(&mut self, place: &str, name: &str) {
        if !self.axis_names().contains(&name) {
            self.metric(place, name);
        }
    }

    fn selection(&mut self, place: &str, selection: &Selection) {
        for (name, matcher) in &selection.0 {
            let mut known = self.axis_names();
            known.extend(["server", "load"]);
            self.known(&format!("{place}: selection by"), name, known);
            let Matcher::AnyOf(values) = matcher else { continue };
            for value in values {
                let there = match name.as_str() {
                    "server" => {
                        self.server_names().iter().map(|name| Value::Text((*name).to_owned())).collect()
                    }
                    "load" => self.load_names().iter().map(|name| Value::Text((*name).to_owned())).collect(),
                    axis => {
                        self.experiment.axis(axis).map_or(vec![value.clone()], |axis| axis.values.clone())
                    }
                };
                self.require(there.contains(value), || {
                    let texts: Vec<String> = there.iter().map(Value::to_string).collect();
                    let text = value.to_string();
                    let meant = proposal(&text, texts.iter().map(String::as_str));
                    format!("{place}: no {name} is '{text}'{meant}")
                });
            }
        }
    }

    fn figure(&mut self, figure: &Figure) {
        let place = format!("figure '{}'", figure.id);
        let fit = |c: char| c.is_ascii_alphanumeric() || c == '-';
        self.require(!figure.id.is_empty() && figure.id.chars().all(fit), || {
            format!("{place}: its id becomes a file name; expected letters, digits and hyphens")
        });
        self.require(!figure.y.is_empty(), || format!("{place} has no y"));
        self.axis_or_metric(&place, &figure.x);
        for name in figure.y.iter().chain(&figure.x_over).chain(&figure.y_over) {
            self.metric(&place, name);
        }
        for series in &figure.series {
            let mut known = vec!["server", "load"];
            known.extend(self.axis_names());
            self.known(&format!("{place}: series"), series, known);
        }
        self.require(!figure.stacked || (figure.log == LogAxes::None && figure.published.is_empty()), || {
            format!("{place}: stacked bars have neither logarithmic axes nor published points")
        });
        if let Some(headline) = &figure.headline {
            self.require(headline.contains("{y}"), || format!("{place}: headline: {{y}} is missing"));
            self.require(!figure.stacked && figure.y.len() == 1, || {
                format!("{place}: a headline goes with lines of one y")
            });
        }
        self.selection(&place, &figure.selection);
    }

    fn claim(&mut self, claim: &Claim) {
        let place = format!("claim '{}'", claim.text);
        let terms = claim.measure.terms();
        self.metric(&place, terms.metric);
        match (&claim.measure, terms.x) {
            // The curves are compared at the same x, and measured numbers are never the same.
            (Measure::Crossing(_), Some(x)) => self.known(&format!("{place}: x"), x, self.axis_names()),
            (_, Some(x)) => self.axis_or_metric(&place, x),
            (_, None) => {}
        }
        for selection in terms.groups.into_iter().chain(terms.at) {
            self.selection(&place, selection);
        }
        if let Measure::Best(best) = &claim.measure {
            self.require(!best.expected.is_empty(), || format!("{place}: expected names no server"));
            for name in best.among.iter().chain(&best.expected) {
                self.known(&format!("{place}: server"), name, self.server_names());
            }
        }
        self.require((0.0..=1.0).contains(&claim.tolerance), || {
            format!("{place}: tolerance: expected a share from 0 to 1")
        });
        self.require(claim.expected.at_least <= claim.expected.at_most, || {
            format!("{place}: at-least is above at-most")
        });
    }
}
