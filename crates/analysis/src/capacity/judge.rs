//! The verdict of a survey, and the loss of requests past the capacity.
//!
//! The verdict follows from the largest load that the generator reached past the capacity, from the way back, and
//! from the recovery. Each [`Shortfall`] there rules out that the server "holds":
//!
//! ```text
//!   goodput below half of the capacity, or no recovery   collapses
//!   any other shortfall but `Unanswered`                 sags
//!   `Unanswered` alone                                   drops
//!   none                                                 holds
//! ```

use std::collections::BTreeMap;

use record::{CapacityResult, CapacityVerdict, Outcome, Step};

use super::recovery;
use super::step::{is_brought_about, offered_load};

/// The least goodput of a server that holds, as a share of its capacity, at the largest load. Event-driven servers
/// with a bounded accept queue keep 80 to 90 % of their peak at 1.2 times their capacity. Sources: Brecht 2004,
/// section 6, and our own measurements. A server that holds must do better.
const HOLDS: f64 = 0.9;
/// The least goodput of a server that sags. With less than half, the server does most of its work in vain.
const SAGS: f64 = 0.5;
/// The ratio of goodput on the way down to goodput on the way up, at the same load, below which there is an
/// after-effect. It allows twice the noise of a step.
const AFTER_EFFECT: f64 = 0.9;
/// A median latency above this multiple of the 99th percentile below the capacity means a queue.
const SLOWER: f64 = 2.0;
/// The least median latency that counts as a queue: users take 0.1 s for instantaneous (Nielsen, Usability
/// Engineering, 1993, section 5.5).
const QUEUE_LEAST_NS: f64 = 100e6;
/// The largest share of unanswered requests of a server that holds. It cannot serve the excess, but it can refuse it.
const UNANSWERED_MOST: f64 = 0.1;
/// The longest recovery of a server that holds, in seconds.
const RECOVERS_S: f64 = 1.0;

/// The key of requests that had not ended, beside those of the outcomes.
pub const IN_FLIGHT: &str = "in_flight_at_end";

/// A way in which a server is worse past its capacity than at it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shortfall {
    /// Goodput is lost.
    Goodput,
    /// The objective does not hold.
    Objective,
    /// Replies wait in a queue.
    Latency,
    /// This share of the requests got neither a reply nor a refusal.
    Unanswered(f64),
    /// The server answers less on the way down than at the same load on the way up.
    AfterEffect,
    /// The recovery takes more than a second, or more than the survey waited for.
    Recovery,
}

/// Returns the highest load that the server kept up with, and the lowest that was too much, of all single runs. The
/// first lies below the second.
pub fn bounds(result: &CapacityResult) -> (f64, Option<f64>) {
    let steps = || result.search.iter().chain(&result.knee);
    let kept_up_with = |step: &&Step| offered_load(step).is_clear();
    let lost = steps().filter(|step| !kept_up_with(step) && !step.generator_limited);
    let too_much = lost.map(|step| step.asked_per_s).reduce(f64::min);
    let below = |step: &&Step| too_much.is_none_or(|too_much| step.asked_per_s < too_much);
    let kept = steps().filter(kept_up_with).filter(below).map(|step| step.asked_per_s).fold(0.0, f64::max);
    (kept, too_much)
}

/// Returns the verdict of a complete survey.
pub fn verdict(result: &CapacityResult) -> CapacityVerdict {
    if result.capacity_per_s <= 0.0 {
        // The server answered a probe, but no load.
        return CapacityVerdict::Collapses;
    }
    let Some(largest) = largest_offered(&result.past) else { return CapacityVerdict::GeneratorLimited };
    if kept(result, largest) < SAGS || result.recovery_s.is_none() {
        return CapacityVerdict::Collapses;
    }
    match shortfalls(result).as_slice() {
        [] => CapacityVerdict::Holds,
        [Shortfall::Unanswered(_)] => CapacityVerdict::Drops,
        _ => CapacityVerdict::Sags,
    }
}

/// Returns the goodput of a step as a share of the capacity.
pub fn kept(result: &CapacityResult, step: &Step) -> f64 {
    step.goodput_per_s / result.capacity_per_s
}

/// Returns every shortfall of the server past its capacity; none if the generator reached no load there.
pub fn shortfalls(result: &CapacityResult) -> Vec<Shortfall> {
    let Some(largest) = largest_offered(&result.past) else { return Vec::new() };
    let slow_ns = (recovery::usual_p99_ns(&result.knee) * SLOWER).max(QUEUE_LEAST_NS);
    let unanswered = unanswered_share(largest);
    let found = [
        (kept(result, largest) < HOLDS, Shortfall::Goodput),
        (!largest.slo_held, Shortfall::Objective),
        (largest.latency_intended_ns.p50 as f64 > slow_ns, Shortfall::Latency),
        (unanswered > UNANSWERED_MOST, Shortfall::Unanswered(unanswered)),
        (after_effect(&result.past, &result.back).is_some(), Shortfall::AfterEffect),
        (result.recovery_s.is_none_or(|seconds| seconds > RECOVERS_S), Shortfall::Recovery),
    ];
    found.into_iter().filter(|(is_there, _)| *is_there).map(|(_, shortfall)| shortfall).collect()
}

/// Returns the share of requests without a reply or a refusal among those that the generator sent.
fn unanswered_share(step: &Step) -> f64 {
    let silent = [Outcome::ConnectTimeout, Outcome::ResponseTimeout, Outcome::Dropped];
    let unanswered =
        step.in_flight_at_end + silent.map(|outcome| step.outcomes.get(outcome)).iter().sum::<u64>();
    let sent = step.offered() as f64 * step.sent_share();
    if sent > 0.0 { unanswered as f64 / sent } else { 0.0 }
}

/// Returns the step with the largest load that the generator reached.
pub fn largest_offered(past: &[Step]) -> Option<&Step> {
    past.iter()
        .filter(|step| is_brought_about(step))
        .max_by(|one, other| one.asked_per_s.total_cmp(&other.asked_per_s))
}

/// Finds the first load on the way down with markedly less goodput than on the way up. Returns both steps: up, down.
/// Leaves out loads that the generator did not reach.
pub fn after_effect<'a>(past: &'a [Step], back: &'a [Step]) -> Option<(&'a Step, &'a Step)> {
    back.iter().find_map(|down| {
        let up = past.iter().find(|up| up.asked_per_s == down.asked_per_s)?;
        let comparable = is_brought_about(up) && is_brought_about(down);
        (comparable && down.goodput_per_s < AFTER_EFFECT * up.goodput_per_s).then_some((up, down))
    })
}

/// Returns the ends of requests other than a correct reply, as shares of the requests offered.
pub fn loss(step: &Step) -> BTreeMap<String, f64> {
    let lost = step.outcomes.iter().filter(|(outcome, _)| *outcome != Outcome::Ok);
    let named =
        lost.map(|(outcome, count)| (outcome.name(), count)).chain([(IN_FLIGHT, step.in_flight_at_end)]);
    let offered = step.offered().max(1) as f64;
    named
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| (name.to_owned(), count as f64 / offered))
        .collect()
}
