//! A survey's result as text: a table, a legend, and a paragraph in plain words.

mod cause;

use analysis::capacity::judge::{
    IN_FLIGHT, Shortfall, after_effect, bounds, kept, largest_offered, shortfalls,
};
use analysis::capacity::{
    KEEPS_UP, RECOVERY_LOAD, RECOVERY_MOST, answered_share, by_load, estimate, is_brought_about, recovery,
};
use record::{CapacityResult, CapacityVerdict, Outcome, Step};

use crate::columns::aligned;
use crate::format::{multiple, percent, plural, rate, time};

const HEAD: [&str; 8] = ["", "x cap.", "offered", "goodput", "in time", "p50", "p99", ""];
/// The least share of losses that the text mentions. Smaller losses occur at the capacity, too.
const WORTH_A_WORD: f64 = 0.01;
/// A recovery within two watched intervals counts as immediate.
const AT_ONCE_S: f64 = 0.2;

/// The table with a line for each load, a legend, and the paragraph on one line.
pub fn table(result: &CapacityResult) -> String {
    let mut rows = vec![HEAD.map(str::to_owned)];
    let knee = by_load(&result.knee);
    let past = result.past.iter().map(|step| vec![step]);
    let back = result.back.iter().map(|step| vec![step]);
    for (name, loads) in [("knee", knee), ("past", past.collect()), ("back", back.collect())] {
        let names = std::iter::once(name).chain(std::iter::repeat(""));
        rows.extend(loads.iter().zip(names).map(|(trials, name)| row(name, result.capacity_per_s, trials)));
    }
    if result.knee.is_empty() {
        return format!("{}\n", result.text);
    }
    format!("{}\n{}\n\n{}\n", aligned(&rows, &[HEAD.len() - 1]), legend(result), result.text)
}

/// The meaning of the columns, on one line.
fn legend(result: &CapacityResult) -> String {
    format!(
        "Goodput: correct replies within {}. A reply counts in the step it arrives in, even if its request belongs to \
         an earlier one. In time: the share of the step's requests with such a reply. p50 and p99: latency of correct \
         replies, from the intended time.",
        time(result.deadline_ns as f64)
    )
}

/// One load: medians over its steps.
fn row(name: &str, capacity_per_s: f64, steps: &[&Step]) -> [String; 8] {
    let median = |value: &dyn Fn(&Step) -> f64| estimate::median(steps.iter().map(|step| value(step)));
    let of_capacity = match capacity_per_s > 0.0 {
        true => format!("{:.2}", steps[0].asked_per_s / capacity_per_s),
        false => "-".to_owned(),
    };
    let latency = |value: f64| if value > 0.0 { time(value) } else { "-".to_owned() };
    let mark = if !steps.iter().all(|step| is_brought_about(step)) {
        "not all was sent"
    } else if !steps.iter().all(|step| step.slo_held) {
        "objective missed"
    } else {
        ""
    };
    [
        name.to_owned(),
        of_capacity,
        rate(median(&|step| step.offered_per_s)),
        rate(median(&|step| step.goodput_per_s)),
        percent(median(&answered_share)),
        latency(median(&|step| step.latency_intended_ns.p50 as f64)),
        latency(median(&|step| step.latency_intended_ns.p99 as f64)),
        mark.to_owned(),
    ]
}

/// Writes the findings in plain words.
pub fn paragraph(result: &CapacityResult) -> String {
    let sentences = match result.verdict {
        CapacityVerdict::Unreachable => vec![unreachable(result)],
        CapacityVerdict::Interrupted if result.capacity_per_s > 0.0 => {
            vec![interrupted(result), capacity(result), behaviour_so_far(result), losses(result)]
        }
        CapacityVerdict::Interrupted => vec![interrupted(result), capacity_so_far(result)],
        CapacityVerdict::GeneratorLimited => vec![capacity(result), generator(result)],
        _ if result.past.is_empty() => vec![capacity(result)],
        _ => vec![
            capacity(result),
            behaviour(result),
            latency(result),
            losses(result),
            cause::of(result),
            way_back(result),
            recovered(result),
            largest_not_offered(result),
        ],
    };
    sentences.into_iter().filter(|sentence| !sentence.is_empty()).collect::<Vec<_>>().join(" ")
}

fn unreachable(result: &CapacityResult) -> String {
    let ends: Vec<String> =
        result.loss.iter().map(|(name, share)| format!("{name} {}", percent(*share))).collect();
    let ends = if ends.is_empty() { "nothing was offered".to_owned() } else { ends.join(", ") };
    let answered = format!("No request was answered correctly, however few were offered: {ends}.");
    // The reasons explain why no server answered; a late generator is not such a reason.
    let reasons = result.search.iter().flat_map(|step| &step.reasons);
    [&answered].into_iter().chain(reasons).map(String::as_str).collect::<Vec<_>>().join(" ")
}

fn interrupted(result: &CapacityResult) -> String {
    let during = match (result.knee.is_empty(), result.past.is_empty()) {
        (true, _) => "while the capacity was searched for",
        (false, true) => "around the capacity",
        (false, false) => "past the capacity",
    };
    let runs = result.search.len() + result.knee.len();
    format!("It was interrupted after {}, {during}.", plural(runs, "run", "runs"))
}

fn capacity_so_far(result: &CapacityResult) -> String {
    let (kept_up_with, too_much) = bounds(result);
    let kept_up_with = match kept_up_with > 0.0 {
        true => format!("the server kept up with {}", rate(kept_up_with)),
        false => "no load was kept up with".to_owned(),
    };
    match too_much {
        Some(too_much) => format!("So far {kept_up_with}, and {} was too much.", rate(too_much)),
        None => format!("So far {kept_up_with}, and nothing was too much."),
    }
}

fn behaviour_so_far(result: &CapacityResult) -> String {
    largest_offered(&result.past)
        .map_or(String::new(), |largest| format!("So far, {}.", at_the_largest(result, largest)))
}

fn capacity(result: &CapacityResult) -> String {
    let objective = result.slo.as_ref().map_or(String::new(), |slo| format!(" with {slo}"));
    let [low, high] = result.interval_per_s.map(rate);
    if result.verdict == CapacityVerdict::GeneratorLimited && result.past.is_empty() {
        return format!("The server answers at least {}{objective} in full.", rate(result.capacity_per_s));
    }
    if result.capacity_per_s <= 0.0 {
        return format!("The server answers single requests, but no load from {high} up in full{objective}.");
    }
    format!(
        "The capacity is {}{objective}, between {low} and {high}: the highest load that the server \
         answers in full, within {}.",
        rate(result.capacity_per_s),
        time(result.deadline_ns as f64)
    )
}

fn behaviour(result: &CapacityResult) -> String {
    let Some(largest) = largest_offered(&result.past) else { return String::new() };
    let word = match result.verdict {
        CapacityVerdict::Holds => "holds",
        CapacityVerdict::Drops => "drops requests",
        CapacityVerdict::Sags => "sags",
        _ => "collapses",
    };
    let goodput_is_lost = shortfalls(result).contains(&Shortfall::Goodput);
    let others = other_shortfalls(result);
    let others = match (others.is_empty(), goodput_is_lost) {
        (true, _) => String::new(),
        (false, true) => format!("; {others}"),
        (false, false) => format!(", but {others}"),
    };
    format!("Past it the server {word}: {}{others}.", at_the_largest(result, largest))
}

/// `at 3× the capacity it answers 1k/s within 1 s, 96 % of the capacity`.
fn at_the_largest(result: &CapacityResult, largest: &Step) -> String {
    let kept = match kept(result, largest) {
        share if share > 1.0 / KEEPS_UP => "more than at the capacity".to_owned(),
        share if share >= 1.0 => "as much as at the capacity".to_owned(),
        share => format!("{} of the capacity", percent(share)),
    };
    format!(
        "at {} the capacity it answers {} within {}, {kept}",
        multiple(largest.asked_per_s / result.capacity_per_s),
        rate(largest.goodput_per_s),
        time(result.deadline_ns as f64)
    )
}

/// The shortfalls besides lost goodput, as one list.
fn other_shortfalls(result: &CapacityResult) -> String {
    let phrase = |shortfall: Shortfall| match shortfall {
        Shortfall::Goodput => None,
        Shortfall::Objective => result.slo.as_ref().map(|slo| format!("{slo} does not hold")),
        Shortfall::Latency => Some("replies wait in a queue".to_owned()),
        Shortfall::Unanswered(share) => Some(format!("{} of the requests get no answer", percent(share))),
        Shortfall::AfterEffect => Some("the overload has an after-effect".to_owned()),
        Shortfall::Recovery if result.recovery_s.is_none() => Some("it does not recover".to_owned()),
        Shortfall::Recovery => Some("it recovers slowly".to_owned()),
    };
    let phrases: Vec<String> = shortfalls(result).into_iter().filter_map(phrase).collect();
    match phrases.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

fn latency(result: &CapacityResult) -> String {
    let Some(largest) = largest_offered(&result.past) else { return String::new() };
    let there = &largest.latency_intended_ns;
    if there.count == 0 {
        return "Nothing is answered there.".to_owned();
    }
    format!(
        "Correct replies take {} there at the median and {} at the 99th percentile (below the capacity {}).",
        time(there.p50 as f64),
        time(there.p99 as f64),
        time(recovery::usual_p99_ns(&result.knee))
    )
}

fn losses(result: &CapacityResult) -> String {
    let mut lost: Vec<(&str, f64)> = result
        .loss
        .iter()
        .filter(|(_, share)| **share >= WORTH_A_WORD)
        .map(|(name, share)| (name.as_str(), *share))
        .collect();
    lost.sort_by(|one, other| other.1.total_cmp(&one.1));
    if lost.is_empty() {
        return String::new();
    }
    let told: Vec<String> =
        lost.iter().map(|(name, share)| format!("{} {}", percent(*share), ended_as(name))).collect();
    format!("Of the requests offered there {}.", told.join(", "))
}

/// Describes an outcome, with the place where the request was lost.
fn ended_as(name: &str) -> String {
    if name == IN_FLIGHT {
        return "were still waiting when the step ended".to_owned();
    }
    let outcome = Outcome::ALL.into_iter().find(|outcome| outcome.name() == name);
    match outcome {
        Some(Outcome::ConnectTimeout) => {
            "got no connection in time (SYNs dropped: the accept queue or the SYN queue is full)".to_owned()
        }
        Some(Outcome::ResponseTimeout) => "got a connection and no reply in time".to_owned(),
        Some(Outcome::Dropped) => "got a connection that the server had dropped".to_owned(),
        Some(Outcome::Reset) => "were reset or cut off".to_owned(),
        Some(Outcome::Refused) => "were refused a connection".to_owned(),
        Some(Outcome::Shed) => "were turned away with 503".to_owned(),
        Some(Outcome::StatusError) => "got an error status".to_owned(),
        Some(Outcome::TlsFailed) => "came to no TLS with the server".to_owned(),
        Some(Outcome::Malformed) => "got something that is not HTTP".to_owned(),
        Some(Outcome::NotHttp2) => "found no HTTP/2".to_owned(),
        Some(Outcome::StreamReset) => "had their stream reset".to_owned(),
        Some(Outcome::GoAway) => "were left unanswered by GOAWAY".to_owned(),
        Some(Outcome::WrongBody) => "got the wrong content".to_owned(),
        Some(Outcome::Unreachable) => "found no way to the server".to_owned(),
        Some(limit) if limit.is_client_limit() => format!("were never sent by the generator ({name})"),
        _ => format!("ended as {name}"),
    }
}

fn way_back(result: &CapacityResult) -> String {
    match after_effect(&result.past, &result.back) {
        Some((up, down)) => format!(
            "The overload has an after-effect: at {} the capacity the server answered {} on the way up, and {} on the way down.",
            multiple(down.asked_per_s / result.capacity_per_s),
            rate(up.goodput_per_s),
            rate(down.goodput_per_s)
        ),
        None if !result.back.iter().any(|step| is_brought_about(step) && step.goodput_per_s > 0.0) => {
            String::new()
        }
        None => "On the way down the server answers the same loads as on the way up.".to_owned(),
    }
}

fn recovered(result: &CapacityResult) -> String {
    let load = multiple(RECOVERY_LOAD);
    match result.recovery_s {
        Some(seconds) if seconds <= AT_ONCE_S => {
            format!("Then it serves {load} the capacity as before at once.")
        }
        Some(seconds) => format!("Then it serves {load} the capacity as before after {seconds:.1} s."),
        None => format!(
            "Then it still did not serve {load} the capacity as before {} s later.",
            RECOVERY_MOST.as_secs_f64()
        ),
    }
}

fn largest_not_offered(result: &CapacityResult) -> String {
    let short = |step: &&Step| {
        largest_offered(&result.past).is_none_or(|largest| step.asked_per_s > largest.asked_per_s)
    };
    match result.past.iter().rfind(short) {
        Some(step) => format!(
            "{} could not be offered: {}",
            multiple(step.asked_per_s / result.capacity_per_s),
            step.reasons.join(" ")
        ),
        None => String::new(),
    }
}

fn generator(result: &CapacityResult) -> String {
    let mut steps = result.search.iter().chain(&result.knee).chain(&result.past);
    let why = steps.rfind(|step| step.generator_limited).map_or(String::new(), |step| step.reasons.join(" "));
    let what = match result.past.is_empty() {
        true => {
            "The generator was the limit, not the server, so the capacity may be higher and nothing is known past it."
        }
        false => {
            "The generator could offer nothing past it, so nothing is known of what the server does there."
        }
    };
    format!("{what} {why}").trim_end().to_owned()
}
