//! The command lines of an experiment's programs.
//!
//! Owns the command line of `inrush load`, of a server and of a herd for one point of an experiment.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use base::Seed;
use experiment::{
    CAPACITY, Experiment, LoadSpec, Network, Package, Rate, Ready, ServerKind, ServerSpec, fill, placeholders,
};
use record::experiment::Value;

use super::schedule;
use crate::trial::{LoadRun, RunTime};
use stage::server_under_test::installed;
use stage::server_under_test::recipe::{self, Readiness, Recipe};
use stage::server_under_test::{Settings, StartError};
use stage::topology::Topology;

/// The flag for the number of requests of a session.
const SESSION_LENGTH: &str = "--requests-per-connection";

/// The values of a point's axes.
pub type Axes = BTreeMap<String, Value>;

/// Fills a text's placeholders with the values of the axes.
pub fn filled(text: &str, axes: &Axes) -> String {
    fill(text, |name| axes.get(name))
}

fn all_filled<'a>(texts: &'a [String], axes: &'a Axes) -> impl Iterator<Item = String> + 'a {
    texts.iter().map(|text| filled(text, axes))
}

/// Returns the flags of our server at a point, the common ones first.
pub fn flags(experiment: &Experiment, server: &ServerSpec, axes: &Axes) -> Vec<String> {
    experiment.common.flags.iter().cloned().chain(all_filled(&server.flags, axes)).collect()
}

/// Returns the flags of the guard beside a server at a point; `None` for a server that stands alone.
pub fn guard(server: &ServerSpec, axes: &Axes) -> Option<Vec<String>> {
    let flags = filled(server.guard.as_ref()?, axes);
    Some(flags.split_whitespace().map(str::to_owned).collect())
}

/// Returns the recipe of a server at a point. `behind` has names for the arguments of a load balancer, with their
/// values.
///
/// # Errors
/// [`StartError`] if the server is not installed or cannot be prepared.
pub fn recipe(
    experiment: &Experiment,
    server: &ServerSpec,
    axes: &Axes,
    topology: &Topology,
    settings: &Settings,
    behind: &[(String, String)],
) -> Result<Recipe, StartError> {
    match server.kind {
        ServerKind::Inrush | ServerKind::Herd => {
            recipe::inrush(topology, settings, &flags(experiment, server, axes))
        }
        ServerKind::Command => {
            let arguments: Vec<String> = all_filled(&server.command, axes).collect();
            let ready = |address| match &server.ready {
                Ready::Connects => Readiness::Connects(address),
                Ready::Answers(path, times) => Readiness::Answers(address, path.clone(), *times),
                Ready::Says(text) => Readiness::Says(address, text.clone()),
            };
            let mut recipe = recipe::command(topology, settings, behind, &arguments, ready)?;
            let variables =
                server.environment.iter().map(|(name, value)| (name.clone(), filled(value, axes)));
            recipe.environment = variables.collect();
            Ok(recipe)
        }
        ServerKind::Installed => {
            let package = server.package.expect("an installed server has a package");
            installed::installed(package, topology, settings, behind)
        }
        ServerKind::Nginx => recipe::nginx(topology, settings),
        ServerKind::ApachePrefork => recipe::apache_prefork(topology, settings, server.workers),
        ServerKind::ApacheEvent => recipe::apache_event(topology, settings, server.workers),
        ServerKind::Lighttpd => recipe::lighttpd(topology, settings),
        ServerKind::H2o => recipe::h2o(topology, settings),
    }
}

/// Returns the flags of `inrush wan run` at a point. The seed decides which packets are lost, and how long others take.
pub fn path(network: &Network, axes: &Axes, seed: Seed) -> Vec<String> {
    let flags = [
        ("--delay", &network.delay),
        ("--jitter", &network.jitter),
        ("--loss", &network.loss),
        ("--rate", &network.rate),
    ];
    let given = flags.into_iter().filter_map(|(flag, text)| Some((flag, text.as_ref()?)));
    let given = given.map(|(flag, text)| (flag, filled(text, axes)));
    given.chain([("--seed", seed.to_string())]).flat_map(|(flag, text)| [flag.to_owned(), text]).collect()
}

/// Returns the arguments of `inrush herd` at a point.
pub fn herd(server: &ServerSpec, axes: &Axes, seed: Seed) -> Vec<String> {
    let ours = ["herd", "--output", "json", "--seed"].map(str::to_owned);
    ours.into_iter().chain([seed.to_string()]).chain(all_filled(&server.flags, axes)).collect()
}

/// Returns the command lines of Inrush in an experiment, each with the name of its server or load, or what is wrong with
/// a load. Varies each axis alone.
pub fn command_lines(experiment: &Experiment) -> Vec<(String, Result<Vec<String>, String>)> {
    let mut lines = Vec::new();
    for axes in experiment.sample_points() {
        for server in &experiment.servers {
            if let Some(flags) = guard(server, &axes) {
                let arguments = ["guard", "127.0.0.1:80"].map(str::to_owned).into_iter().chain(flags);
                lines.push((format!("guard of '{}'", server.name), Ok(arguments.collect())));
            }
            let arguments = match server.kind {
                ServerKind::Herd => herd(server, &axes, experiment.plan.seed),
                kind if kind != ServerKind::Inrush && server.behind.is_empty() => continue,
                _ => ["serve".to_owned()].into_iter().chain(flags(experiment, server, &axes)).collect(),
            };
            lines.push((format!("server '{}'", server.name), Ok(arguments)));
        }
        if let Some(network) = &experiment.network {
            let flags = path(network, &axes, experiment.plan.seed);
            let arguments = ["wan", "run"].map(str::to_owned).into_iter().chain(flags);
            let arguments = arguments.chain(["--", "true"].map(str::to_owned));
            lines.push(("network".to_owned(), Ok(arguments.collect())));
        }
        for spec in &experiment.loads {
            let offer = Offer {
                address: SocketAddr::from(([127, 0, 0, 1], 80)),
                tls: experiment.common.tls.is_some(),
                capacity_per_s: Some(1000.0),
                rate_per_s: None,
                time: schedule::trial_run(experiment),
                seed: experiment.plan.seed,
            };
            let run = load(spec, &axes, offer).map(|run| run.arguments);
            lines.push((format!("load '{}'", spec.name), run));
        }
    }
    lines.sort();
    lines.dedup();
    lines
}

/// Returns an experiment's programs that are not installed here. A run leaves out their servers.
pub fn not_installed(experiment: &Experiment) -> Vec<&str> {
    let programs = experiment.servers.iter().filter_map(|server| match server.kind {
        ServerKind::Installed => server.package.map(Package::program),
        ServerKind::Nginx => Some("nginx"),
        ServerKind::ApachePrefork | ServerKind::ApacheEvent => Some("apache2"),
        ServerKind::Lighttpd => Some("lighttpd"),
        ServerKind::H2o => Some("h2o"),
        ServerKind::Command => {
            server.command.first().map(String::as_str).filter(|program| !program.contains(['/', '{']))
        }
        ServerKind::Inrush | ServerKind::Herd => None,
    });
    let programs: BTreeSet<&str> = programs.collect();
    programs.into_iter().filter(|name| sys::process::find_program(name).is_none()).collect()
}

/// The parameters of a load run that its texts do not hold.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// The address of the server.
    pub address: SocketAddr,
    /// The server speaks TLS.
    pub tls: bool,
    /// The capacity that a relative rate refers to.
    pub capacity_per_s: Option<f64>,
    /// A rate in place of the load's own, in requests per second.
    pub rate_per_s: Option<f64>,
    /// Its length.
    pub time: RunTime,
    /// The seed of the run.
    pub seed: Seed,
}

/// Returns the run of `inrush load` at a point.
///
/// # Errors
/// One sentence if a text is invalid with these values, or the capacity is unknown.
pub fn load(load: &LoadSpec, axes: &Axes, offer: Offer) -> Result<LoadRun, String> {
    if load.is_relative() && offer.capacity_per_s.or(offer.rate_per_s).is_none() {
        return Err(unknown_capacity());
    }
    if load.flags.iter().any(|flag| flag.split('=').next() == Some(SESSION_LENGTH)) {
        // The rate of sessions follows from it.
        return Err(format!("{SESSION_LENGTH} in flags: write it as requests-per-connection of the load"));
    }
    let axes = &with_capacity(axes, offer.capacity_per_s);
    let workload = filled(&load.workload, axes);
    let usual = if workload.starts_with("specweb99") { "/" } else { "/index.html" };
    let paths: Vec<String> = match load.path.is_empty() {
        true => vec![usual.to_owned()],
        false => all_filled(&load.path, axes).collect(),
    };
    let length = load.requests_per_connection.as_ref().map(|length| filled(length, axes));
    let mut arguments = vec!["load".to_owned()];
    let scheme = if offer.tls { "https" } else { "http" };
    arguments.extend(paths.iter().map(|path| format!("{scheme}://{}{path}", offer.address)));
    if offer.tls {
        arguments.extend(tls_flags(load));
    }
    let mut add = |flag: &str, value: String| arguments.extend([flag.to_owned(), value]);
    if let Some(rate) = requests_per_s(load, axes, offer)? {
        let sessions = rate / requests_per_session(&workload, length.as_deref())?;
        add("--rate", format!("{sessions:.3}"));
        let arrivals = load.arrivals.as_ref().map(|text| filled(text, axes));
        // The search for the capacity has even arrivals in place of multiples of it.
        let known = arrivals.filter(|text| placeholders(text).all(|name| name != CAPACITY));
        add("--arrivals", known.unwrap_or_else(|| "poisson".to_owned()));
    } else if let Some(text) = &load.arrivals {
        add("--arrivals", filled(text, axes));
    }
    add("--duration", offer.time.measured.to_string());
    add("--warmup", offer.time.warmup.to_string());
    add("--workload", workload);
    add("--seed", offer.seed.to_string());
    add("--output", "json".to_owned());
    if let Some(length) = length {
        add(SESSION_LENGTH, length);
    }
    for population in all_filled(&load.populations, axes).filter(|population| !is_nobody(population)) {
        add("--population", population);
    }
    arguments.extend(all_filled(&load.flags, axes));
    Ok(LoadRun { arguments, stack: load.stack, time: offer.time, outage: load.outage })
}

/// Returns the flags of a load under TLS. All servers get the key exchange that all have: the hybrid would give more work
/// to the servers that know it, and to the generator beside them (docs/decisions/0075).
fn tls_flags(load: &LoadSpec) -> Vec<String> {
    let mut flags = vec!["--insecure".to_owned()];
    if !load.flags.iter().any(|flag| flag.split('=').next() == Some("--key-exchange")) {
        flags.extend(["--key-exchange", "classical"].map(str::to_owned));
    }
    flags
}

fn unknown_capacity() -> String {
    "the capacity is not known".to_owned()
}

/// The values of the axes, and the capacity under its own name.
fn with_capacity(axes: &Axes, capacity_per_s: Option<f64>) -> Axes {
    let mut axes = axes.clone();
    axes.extend(capacity_per_s.map(|capacity| (CAPACITY.to_owned(), Value::Number(capacity.round()))));
    axes
}

fn requests_per_s(load: &LoadSpec, axes: &Axes, offer: Offer) -> Result<Option<f64>, String> {
    let Some(text) = &load.rate else { return Ok(offer.rate_per_s) };
    if offer.rate_per_s.is_some() {
        return Ok(offer.rate_per_s);
    }
    match (Rate::parse(&filled(text, axes))?, offer.capacity_per_s) {
        (Rate::PerSecond(rate), _) => Ok(Some(rate)),
        (Rate::OfCapacity(factor), Some(capacity)) => Ok(Some(factor * capacity)),
        (Rate::OfCapacity(_), None) => Err(unknown_capacity()),
    }
}

/// Tells whether a population has no clients, such as `idle:0`, which `inrush load` refuses.
fn is_nobody(population: &str) -> bool {
    let count = population.split_once(':').map_or("", |(_, rest)| rest);
    count.split(',').next() == Some("0")
}

/// Returns the mean number of requests per session. It converts a rate of requests into a rate of sessions.
fn requests_per_session(workload: &str, length: Option<&str>) -> Result<f64, String> {
    let Some(length) = length else {
        return Ok(match workload.split(':').next() {
            // 30 % make one request, 70 % make 5 to 15 (Brecht 2004, section 5).
            Some("specweb99") => 7.3,
            Some("hot") => 5.0,
            Some("cold") => 20.0,
            _ => 1.0,
        });
    };
    let (low, high) = length.split_once("..").unwrap_or((length, length));
    match (low.parse::<f64>(), high.parse::<f64>()) {
        (Ok(low), Ok(high)) if low >= 1.0 && high >= low && high.is_finite() => Ok(f64::midpoint(low, high)),
        _ => Err(format!("'{length}' is not a number of requests; expected 1, N or LO..HI")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Nanos;

    fn spec(text: &str) -> LoadSpec {
        toml::from_str(text).unwrap()
    }

    fn offer(capacity_per_s: Option<f64>) -> Offer {
        let time = RunTime { warmup: Nanos::SECOND, measured: Nanos::from_secs(3) };
        Offer {
            address: "10.77.0.1:80".parse().unwrap(),
            tls: false,
            capacity_per_s,
            rate_per_s: None,
            time,
            seed: Seed(7),
        }
    }

    fn axes(values: &[(&str, f64)]) -> Axes {
        values.iter().map(|(name, value)| ((*name).to_owned(), Value::Number(*value))).collect()
    }

    #[test]
    fn a_relative_rate_becomes_one_of_sessions() {
        let spec = spec("name = 'a'\nworkload = 'specweb99:20'\nrate = '{offered} x capacity'");
        let run = load(&spec, &axes(&[("offered", 1.5)]), offer(Some(7300.0))).unwrap();
        let expected = "load http://10.77.0.1:80/ --rate 1500.000 --arrivals poisson --duration 3s --warmup 1s \
                        --workload specweb99:20 --seed 7 --output json";
        assert_eq!(run.arguments.join(" "), expected);
        assert_eq!(
            load(&spec, &axes(&[("offered", 1.5)]), offer(None)).err().unwrap(),
            "the capacity is not known"
        );
    }

    #[test]
    fn texts_of_a_load_may_name_the_capacity() {
        let spec = spec(
            "name = 'a'\narrivals = 'steps:9x1s,{n*capacity}x1s'\nflags = ['--sockets', '{capacity*0.05}']",
        );
        let of = |offer| load(&spec, &axes(&[("n", 2.0)]), offer).unwrap().arguments.join(" ");
        let known = of(offer(Some(12_345.4)));
        assert!(
            known.contains("--arrivals steps:9x1s,24690x1s") && known.ends_with("--sockets 617"),
            "{known}"
        );
        let search = of(Offer { rate_per_s: Some(500.0), ..offer(None) });
        assert!(search.contains("--rate 500.000 --arrivals poisson"), "{search}");
    }

    #[test]
    fn arrivals_with_rates_of_their_own_need_no_rate() {
        let spec = spec("name = 'a'\narrivals = 'steps:100x1s,{rate}x1s'");
        let run = load(&spec, &axes(&[("rate", 4000.0)]), offer(None)).unwrap();
        let arguments = run.arguments.join(" ");
        assert!(
            arguments.contains("--arrivals steps:100x1s,4000x1s") && !arguments.contains("--rate"),
            "{arguments}"
        );
    }

    #[test]
    fn closed_loop_has_no_rate_and_needs_a_population() {
        let spec = spec(
            "name = 'a'\npopulations = ['idle:{idle}', 'cold:30']\nrequests-per-connection = '2..4'\n\
             flags = ['--client', 'closed', '--sockets', '{idle}']",
        );
        let arguments =
            |idle| load(&spec, &axes(&[("idle", idle)]), offer(None)).unwrap().arguments.join(" ");
        assert!(!arguments(0.0).contains("--rate") && !arguments(0.0).contains("idle"), "{}", arguments(0.0));
        assert!(arguments(0.0).ends_with("--population cold:30 --client closed --sockets 0"));
        assert!(arguments(6000.0).contains("--population idle:6000"));
    }

    #[test]
    fn tls_load_offers_a_key_exchange_that_all_have() {
        let arguments = |flags: &str| {
            let spec = spec(&format!("name = 'a'\nrate = '9'\nflags = [{flags}]"));
            load(&spec, &axes(&[]), Offer { tls: true, ..offer(None) }).unwrap().arguments.join(" ")
        };
        let usual = arguments("");
        assert!(usual.starts_with("load https://10.77.0.1:80/index.html --insecure"), "{usual}");
        assert!(usual.contains("--key-exchange classical"), "{usual}");
        let hybrid = arguments("'--key-exchange', 'hybrid'");
        assert!(hybrid.ends_with("--key-exchange hybrid") && !hybrid.contains("classical"), "{hybrid}");
        let hybrid = arguments("'--key-exchange=hybrid'");
        assert!(hybrid.ends_with("--key-exchange=hybrid") && !hybrid.contains("classical"), "{hybrid}");
    }

    #[test]
    fn a_path_loses_other_packets_in_each_repetition() {
        let network: Network = toml::from_str("delay = '{delay}ms'\nloss = '1%'").unwrap();
        let flags = |seed| path(&network, &axes(&[("delay", 5.0)]), Seed(seed)).join(" ");
        assert_eq!(flags(7), "--delay 5ms --loss 1% --seed 7");
        assert_eq!(flags(8), "--delay 5ms --loss 1% --seed 8");
    }

    #[test]
    fn a_command_line_tells_what_is_wrong_with_a_load() {
        let text = "title = 'x'\n[[server]]\nname = 'a'\n[[load]]\nname = 'b'\nrate = '9'\n\
                    requests-per-connection = 'many'\n[[figure]]\nid = 'f'\ntitle = 'f'\nx = 'offered_per_s'\n\
                    y = 'goodput_per_s'";
        let lines = command_lines(&Experiment::parse(text).unwrap());
        let wrong = lines.into_iter().find_map(|(_, line)| line.err());
        assert_eq!(wrong.unwrap(), "'many' is not a number of requests; expected 1, N or LO..HI");
    }

    #[test]
    fn session_length_in_flags_is_refused() {
        for flags in ["'--requests-per-connection', '5'", "'--requests-per-connection=5'"] {
            let spec = spec(&format!("name = 'a'\nrate = '9'\nflags = [{flags}]"));
            let wrong = load(&spec, &axes(&[]), offer(None)).err().unwrap();
            assert!(wrong.ends_with("write it as requests-per-connection of the load"), "{wrong}");
        }
    }

    #[test]
    fn session_length_is_the_workloads_or_as_given() {
        assert_eq!(requests_per_session("hot", None), Ok(5.0));
        assert_eq!(requests_per_session("one-packet", None), Ok(1.0));
        assert_eq!(requests_per_session("hot", Some("2..4")), Ok(3.0));
        assert!(requests_per_session("hot", Some("inf")).is_err());
    }
}
