//! `inrush capacity`: turns flags into a survey of a server, with the load generator as the survey's target.
//!
//! `lab::survey` decides on the loads and judges them. A step is a run of the load generator in this process. `witness`
//! looks at a server on this machine meanwhile.

mod witness;

use std::io::{self, IsTerminal};
use std::net::SocketAddr;

use ::load::preflight::RATE_UNASKED;
use ::load::{Client, Config, LoadError, Process, Snapshot, Sockets, Stop, Threshold};
use base::{Clock, Nanos, PerSecond, RealClock};
use lab::survey::{self, Level, Offer, PROBE_PER_S, Phase, Survey, Target};
use record::capacity::ServerSide;
use record::{CapacityResult, CapacityVerdict, LoadResult, Manifest, Outcome, Point, Step};

use crate::cli::{CapacityFlags, CapacityOutput};
use crate::commands::load::{check_cleartext, check_names, stop_at_signal};
use crate::exit::Exit;
use crate::output;
use witness::Witness;

/// Interval of the observed points of a watched run.
const WATCH_INTERVAL: Nanos = Nanos::from_millis(100);
/// The announced time is an estimate, rounded up to this number of seconds.
const ROUND_S: f64 = 5.0;

/// Surveys the server and prints the result. Returns an error if the result is not valid.
pub fn run(flags: CapacityFlags) -> Result<(), Exit> {
    check_cleartext(flags.tls.first_setting(), &flags.urls)?;
    flags.request.check()?;
    let output = flags.output;
    let slo = flags.slo.as_ref().map(Threshold::to_string);
    let mut config = configuration(&flags);
    // The check comes first: a step that is refused halfway would already have been load.
    config.client = s_client(PerSecond(RATE_UNASKED.0 * 2.0));
    let plan = ::load::prepare(config.clone()).map_err(exit)?;
    check_names("--slo", flags.slo.as_slice(), &plan)?;
    let (session_length, thinking) = plan.session();
    let settings = settings(&config, &flags, slo.as_deref());
    let manifest = Manifest::of_this_machine(RealClock::new().wall(), settings, Some(flags.seed));
    let mut server = Server {
        config,
        session_length,
        slo: flags.slo,
        stop: stop_at_signal()?,
        watched: None,
        failure: None,
        address: None,
        side: None,
        runs: 0,
    };
    let probe = survey::probe(&mut server, flags.request.request_timeout)?;
    let result = if probe.outcomes.get(Outcome::Ok) == 0 {
        let mut result = survey::unreachable(&probe, slo, manifest);
        if let Some(cause) = server.failure.take() {
            result.text = format!("{} {cause}", result.text);
        }
        result
    } else {
        if let Some(slo) = slo.as_ref().filter(|_| !probe.slo_held) {
            return Err(Exit::Failed(format!(
                "--slo '{slo}' does not hold even at {PROBE_PER_S}/s: there is nothing to search"
            )));
        }
        let deadline = survey::deadline(&probe, server.slo.as_ref().and_then(Threshold::latency_bound));
        server.config.expected.deadline = Some(deadline);
        let plan = Survey {
            trials: flags.trials.get(),
            step: flags.step_time,
            past: flags.past,
            deadline,
            session_length,
            thinking,
            seed: flags.seed,
        };
        let seconds = plan.expected_time(&probe).as_secs_f64();
        sys::say!("inrush: this takes about {:.0} s", (seconds / ROUND_S).ceil() * ROUND_S);
        let (findings, ended) = survey::carry_out(&plan, &probe, &mut server);
        match ended {
            Ok(()) => survey::conclude(findings, slo, manifest),
            Err(Ended::Interrupted) => survey::interrupted(findings, slo, manifest),
            Err(Ended::Load(error)) => return Err(exit(error)),
        }
    };
    let result = with_side(result, server.side);
    print(&result, output)?;
    judge(&result)
}

/// Adds the server's side to a result, and to its sentences.
fn with_side(mut result: CapacityResult, side: Option<ServerSide>) -> CapacityResult {
    if side.is_some() {
        result.server = side;
        result.text = report::capacity::paragraph(&result);
    }
    result
}

/// The exit for a result that is not valid.
fn judge(result: &CapacityResult) -> Result<(), Exit> {
    match result.verdict {
        CapacityVerdict::Unreachable => Err(Exit::Unreachable(result.text.clone())),
        CapacityVerdict::GeneratorLimited => Err(Exit::GeneratorLimited(
            "the generator was the limit, so the result is a lower bound at most".to_owned(),
        )),
        CapacityVerdict::Interrupted => {
            Err(Exit::Failed("interrupted, so the result is of a part of the survey".to_owned()))
        }
        CapacityVerdict::Holds
        | CapacityVerdict::Drops
        | CapacityVerdict::Sags
        | CapacityVerdict::Collapses => Ok(()),
    }
}

/// A client with constant arrivals, so that two steps differ only in their load.
fn s_client(rate: PerSecond) -> Client {
    Client::SClient { rate, arrivals: Process::constant(), sockets: Sockets::Auto }
}

fn configuration(flags: &CapacityFlags) -> Config {
    Config {
        threads: flags.threads,
        seed: flags.seed,
        source: flags.source_ip,
        own_this_server: flags.i_own_this_server,
        addressing: flags.reach.addressing(),
        tls: flags.tls.options(),
        ..flags.request.clone().apply(Config::new(flags.urls.clone(), s_client(RATE_UNASKED)))
    }
}

/// Every setting as text: the survey's and the generator's, without those that differ between steps.
fn settings(
    config: &Config,
    flags: &CapacityFlags,
    slo: Option<&str>,
) -> std::collections::BTreeMap<String, String> {
    let mut settings = config.describe();
    for of_a_step in ["rate", "duration", "warmup", "interval"] {
        settings.remove(of_a_step);
    }
    let of_the_survey = [
        ("past", format!("{}x", flags.past)),
        ("step_time", flags.step_time.to_string()),
        ("trials", flags.trials.to_string()),
        ("slo", slo.unwrap_or("none").to_owned()),
    ];
    settings.extend(of_the_survey.map(|(name, value)| (name.to_owned(), value)));
    settings
}

fn print(result: &CapacityResult, form: CapacityOutput) -> Result<(), Exit> {
    match form {
        CapacityOutput::Text => output::text("the result", &report::capacity::table(result)),
        CapacityOutput::Html => output::text("the result", &report::capacity::html(result)),
        CapacityOutput::Json => output::json("the result", result),
    }
}

/// The reason why a survey ended early.
enum Ended {
    Load(LoadError),
    Interrupted,
}

impl From<Ended> for Exit {
    fn from(ended: Ended) -> Exit {
        match ended {
            Ended::Load(error) => exit(error),
            Ended::Interrupted => Exit::Failed("interrupted before anything was measured".to_owned()),
        }
    }
}

fn exit(error: LoadError) -> Exit {
    match error {
        LoadError::NotYours { .. } => {
            Exit::Usage(format!("a search for the capacity overloads the server on purpose: {error}"))
        }
        other => crate::commands::load::exit(other),
    }
}

/// A server and the generator that loads it.
struct Server {
    config: Config,
    /// The mean number of requests of a session.
    session_length: f64,
    slo: Option<Threshold>,
    stop: Stop,
    /// The result of the last watched run.
    watched: Option<LoadResult>,
    /// The reason why every request of the last offered load failed.
    failure: Option<String>,
    /// The server's address; `None` for a socket file, and before the first run.
    address: Option<SocketAddr>,
    /// The server's side of the loads past the capacity.
    side: Option<ServerSide>,
    /// Number of runs so far. Each run has its own random draws.
    runs: u64,
}

impl Server {
    /// Makes one run, which `stop` ends early.
    fn load(
        &mut self,
        client: Client,
        times: [Nanos; 3],
        stop: &Stop,
        observe: &mut dyn FnMut(&Snapshot<'_>),
    ) -> Result<LoadResult, Ended> {
        self.runs += 1;
        let [warmup, duration, interval] = times;
        let seed = self.config.seed.child(&format!("run {}", self.runs));
        let config = Config { client, warmup, duration, interval, seed, ..self.config.clone() };
        let plan = ::load::prepare(config).map_err(Ended::Load)?;
        self.address = plan.target().first();
        let mut observer = |seen: &Snapshot<'_>| observe(seen);
        let result = ::load::run(&plan, &mut observer, stop).map_err(Ended::Load)?;
        if self.stop.is_requested() { Err(Ended::Interrupted) } else { Ok(result) }
    }

    /// True if the objective held.
    fn held(&self, result: &LoadResult) -> bool {
        self.slo.as_ref().is_none_or(|slo| slo.is_met_by(result))
    }

    /// The session rate that gives this rate of requests.
    fn sessions(&self, per_s: f64) -> PerSecond {
        PerSecond(per_s / self.session_length)
    }

    fn in_steps(&self, levels: &[Level]) -> Client {
        let step = |level: &Level| format!("{}x{}", self.sessions(level.per_s).0, level.time);
        let steps = levels.iter().map(step).collect::<Vec<_>>().join(",");
        let arrivals = format!("steps:{steps}").parse().expect("rates and times are above 0");
        Client::SClient { rate: self.sessions(most_of(levels)), arrivals, sockets: Sockets::Auto }
    }
}

impl Target for Server {
    type Error = Ended;

    fn offer(&mut self, offer: Offer) -> Result<Step, Ended> {
        print_offer(offer);
        let stop = self.stop.clone();
        let times = [offer.warmup, offer.time, Nanos::SECOND];
        let result = self.load(s_client(self.sessions(offer.per_s)), times, &stop, &mut |_| {})?;
        self.failure = result.total_failure().map(str::to_owned);
        Ok(Step::of(&result, offer.per_s, self.held(&result)))
    }

    fn watch(
        &mut self,
        levels: &[Level],
        enough: &mut dyn FnMut(&[Point]) -> bool,
    ) -> Result<Vec<Point>, Ended> {
        if levels.len() > 1 {
            say(&format!("past the capacity and back: up to {:.0}/s", most_of(levels)));
        }
        let (interrupted, stop) = (self.stop.clone(), Stop::new());
        let clock = RealClock::new();
        let is_past = levels.len() > 1;
        let mut witness =
            self.address.filter(|_| is_past).and_then(|address| Witness::of(address, clock.now()));
        let mut points = Vec::new();
        let mut observe = |seen: &Snapshot<'_>| {
            points.push(seen.point.clone());
            if let Some(witness) = &mut witness {
                witness.read_again(clock.now());
            }
            if interrupted.is_requested() || enough(&points) {
                stop.request();
            }
        };
        let client = self.in_steps(levels);
        let duration = levels.iter().fold(Nanos::ZERO, |sum, level| sum + level.time);
        let times = [Nanos::ZERO, duration, WATCH_INTERVAL];
        self.watched = Some(self.load(client, times, &stop, &mut observe)?);
        let requests = self.config.connections.is_none().then_some(self.session_length);
        self.side = witness.map(|witness| witness.end(requests)).or(self.side.take());
        Ok(points)
    }

    fn slo_held(&self, step: &Step) -> bool {
        let Some(watched) = &self.watched else { return true };
        // A part of a run lacks some figures, such as connect times, so it takes those of the whole run.
        let part = LoadResult {
            offered: step.offered(),
            in_flight_at_end: step.in_flight_at_end,
            offered_per_s: step.offered_per_s,
            goodput_per_s: step.goodput_per_s,
            latency_intended_ns: step.latency_intended_ns.into(),
            outcomes: step.outcomes.clone(),
            ..watched.clone()
        };
        self.held(&part)
    }
}

fn most_of(levels: &[Level]) -> f64 {
    levels.iter().map(|level| level.per_s).fold(0.0, f64::max)
}

/// Writes one line for each load to a terminal.
fn print_offer(offer: Offer) {
    let what = match offer.phase {
        Phase::Probe => "a few requests first",
        Phase::Search => "searching",
        Phase::Knee => "around the capacity",
    };
    say(&format!("{what}: {:.0}/s", offer.per_s));
}

fn say(what: &str) {
    if io::stderr().is_terminal() {
        sys::say!("inrush: {what}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::Distribution;
    use record::load::{Connections, Outcomes};

    /// A run of a minute, past the capacity for the most part.
    fn watched() -> LoadResult {
        serde_json::from_value(serde_json::json!({
            "schema": record::load::SCHEMA, "duration_s": 60.0, "offered": 60_000, "in_flight_at_end": 5_000,
            "outcomes": { "ok": 20_000, "reset": 35_000 },
            "connections": Connections::default(), "target_per_s": null, "offered_per_s": 1_000.0,
            "sent_per_s": 1_000.0, "replies_per_s": 333.0, "goodput_per_s": 333.0, "content_bytes_per_s": 0.0,
            "generator_cpu": 0.0, "latency_intended_ns": Distribution::default(),
            "latency_sent_ns": Distribution::default(), "connect_ns": Distribution::default(),
            "lateness_ns": Distribution::default(), "populations": {}, "verdict": "valid", "reasons": [],
            "series": [], "manifest": Manifest::default(),
        }))
        .unwrap()
    }

    #[test]
    fn objective_is_judged_by_the_steps_requests() {
        let url = "http://127.0.0.1:1/".parse().unwrap();
        let mut server = Server {
            config: Config::new(vec![url], s_client(RATE_UNASKED)),
            session_length: 1.0,
            slo: None,
            stop: Stop::new(),
            watched: Some(watched()),
            failure: None,
            address: None,
            side: None,
            runs: 0,
        };
        let mut outcomes = Outcomes::default();
        outcomes.add(Outcome::Ok, 990);
        outcomes.add(Outcome::Reset, 6);
        let step = Step {
            asked_per_s: 1_000.0,
            offered_per_s: 1_000.0,
            goodput_per_s: 990.0,
            duration_s: 1.0,
            latency_intended_ns: Distribution::default(),
            outcomes,
            in_flight_at_end: 4,
            slo_held: true,
            generator_limited: false,
            reasons: Vec::new(),
        };
        for (slo, held) in [("errors<2%", true), ("errors<=10", true), ("errors<10", false), ("ok>98%", true)]
        {
            server.slo = Some(slo.parse().unwrap());
            assert_eq!(server.slo_held(&step), held, "{slo}");
        }
    }
}
