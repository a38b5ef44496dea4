//! One load that was offered: the share of it that was answered, and whether the server kept up.

use record::Step;

/// Of the offered requests, the share that must be answered for the server to keep up.
pub const KEEPS_UP: f64 = 0.95;

/// One load that was offered, and how much of it was answered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OfferedLoad {
    /// Requests really offered, a second.
    pub offered_per_s: f64,
    /// Correct replies, a second.
    pub goodput_per_s: f64,
    /// Whether the generator fell short of the rate it was asked for.
    pub generator_limited: bool,
}

impl OfferedLoad {
    /// Whether the server answered as much as it must to keep up.
    pub fn keeps_up(&self) -> bool {
        self.goodput_per_s >= KEEPS_UP * self.offered_per_s
    }

    /// Whether the server kept up and the generator did, too.
    pub fn is_clear(&self) -> bool {
        self.keeps_up() && !self.generator_limited
    }
}

/// The load of a step. Its goodput is 0 where the server broke the objective; a lateness of the generator does not count
/// against the server.
pub fn offered_load(step: &Step) -> OfferedLoad {
    let broken_by_server = !step.slo_held && !step.generator_limited;
    OfferedLoad {
        offered_per_s: step.offered_per_s * step.sent_share(),
        goodput_per_s: if broken_by_server { 0.0 } else { step.goodput_per_s },
        generator_limited: step.generator_limited,
    }
}

/// Good replies, as a share of the requests that were sent and ended in the step or were waiting at its end. Not more
/// than 1: a run may end a few replies to requests of its warm-up, which are no requests of its own.
pub fn answered_share(step: &Step) -> f64 {
    let sent = step.offered() as f64 * step.sent_share();
    if sent > 0.0 { (step.goodput_per_s * step.duration_s / sent).min(1.0) } else { 0.0 }
}

/// The steps at each load, loads ascending.
pub fn by_load(steps: &[Step]) -> Vec<Vec<&Step>> {
    let mut sorted: Vec<&Step> = steps.iter().collect();
    sorted.sort_by(|one, other| one.asked_per_s.total_cmp(&other.asked_per_s));
    sorted.chunk_by(|one, other| one.asked_per_s == other.asked_per_s).map(<[&Step]>::to_vec).collect()
}

/// Whether the generator really offered what it was asked to; a step need not have a whole number of requests.
pub fn is_brought_about(step: &Step) -> bool {
    let missing_per_s = KEEPS_UP * step.asked_per_s - step.offered_per_s * step.sent_share();
    missing_per_s * step.duration_s <= 1.0
}
