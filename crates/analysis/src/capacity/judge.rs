//! The verdict of a survey, and how requests are lost past the capacity.
//!
//! The verdict follows from the largest load past the capacity that the generator brought about, from the way back and
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

/// The least goodput at the largest load of a server that holds, as a share of its capacity. Event-driven servers
/// with a bounded accept queue keep 80 to 90 % of their peak at 1.2 times their capacity (Brecht 2004, section 6, and
/// our own measurements of the usual servers); to hold is to be better than that.
const HOLDS: f64 = 0.9;
/// The least goodput of a server that sags: with less than half, most of the work is done for nobody.
const SAGS: f64 = 0.5;
/// The least goodput on the way down, as a share of the goodput at the same load on the way up, without an after-effect:
/// twice the noise of a step.
const AFTER_EFFECT: f64 = 0.9;
/// A median latency above this multiple of the 99th percentile below the capacity means a queue.
const SLOWER: f64 = 2.0;
/// A median latency below this is no queue worth the name: users take 0.1 s for instantaneous (Nielsen, Usability
/// Engineering, 1993, section 5.5).
const QUEUE_LEAST_NS: f64 = 100e6;
/// The largest share of unanswered requests of a server that holds. It cannot serve the excess, but it can refuse it.
const UNANSWERED_MOST: f64 = 0.1;
/// The longest recovery of a server that holds, in seconds.
const RECOVERS_S: f64 = 1.0;

/// The name of requests that had not ended, beside the outcomes'.
pub const IN_FLIGHT: &str = "in_flight_at_end";

/// One way in which a server is worse past its capacity than at it.
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
    /// Less is answered on the way down than at the same load on the way up.
    AfterEffect,
    /// The recovery takes more than a second, or more than the survey waited for.
    Recovery,
}

/// Of all single runs, the highest load that was kept up with below the lowest that was too much, and that one.
pub fn bounds(result: &CapacityResult) -> (f64, Option<f64>) {
    let steps = || result.search.iter().chain(&result.knee);
    let kept_up_with = |step: &&Step| offered_load(step).is_clear();
    let lost = steps().filter(|step| !kept_up_with(step) && !step.generator_limited);
    let too_much = lost.map(|step| step.asked_per_s).reduce(f64::min);
    let below = |step: &&Step| too_much.is_none_or(|too_much| step.asked_per_s < too_much);
    let kept = steps().filter(kept_up_with).filter(below).map(|step| step.asked_per_s).fold(0.0, f64::max);
    (kept, too_much)
}

/// The verdict of a survey whose loads are all there.
pub fn verdict(result: &CapacityResult) -> CapacityVerdict {
    if result.capacity_per_s <= 0.0 {
        // It answered a probe, and no load that was tried.
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

/// The goodput of a step as a share of the capacity.
pub fn kept(result: &CapacityResult, step: &Step) -> f64 {
    step.goodput_per_s / result.capacity_per_s
}

/// Every shortfall of the server past its capacity; none where no load was brought about there.
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

/// Requests without a reply or a refusal, as a share of the requests that the generator sent.
fn unanswered_share(step: &Step) -> f64 {
    let silent = [Outcome::ConnectTimeout, Outcome::ResponseTimeout, Outcome::Dropped];
    let unanswered =
        step.in_flight_at_end + silent.map(|outcome| step.outcomes.get(outcome)).iter().sum::<u64>();
    let sent = step.offered() as f64 * step.sent_share();
    if sent > 0.0 { unanswered as f64 / sent } else { 0.0 }
}

/// The step with the largest load that the generator really brought about.
pub fn largest_offered(past: &[Step]) -> Option<&Step> {
    past.iter()
        .filter(|step| is_brought_about(step))
        .max_by(|one, other| one.asked_per_s.total_cmp(&other.asked_per_s))
}

/// The first load on the way down at which markedly less was answered than on the way up, and both steps:
/// up, down. Loads that the generator did not bring about are no comparison.
pub fn after_effect<'a>(past: &'a [Step], back: &'a [Step]) -> Option<(&'a Step, &'a Step)> {
    back.iter().find_map(|down| {
        let up = past.iter().find(|up| up.asked_per_s == down.asked_per_s)?;
        let comparable = is_brought_about(up) && is_brought_about(down);
        (comparable && down.goodput_per_s < AFTER_EFFECT * up.goodput_per_s).then_some((up, down))
    })
}

/// The ends of requests other than a correct reply, as shares of the requests offered.
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
