//! One offered load: its answered share, and the judgement whether the server kept up.

use record::Step;

/// The share of offered requests that a server must answer to keep up.
pub const KEEPS_UP: f64 = 0.95;

/// One offered load with its goodput.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OfferedLoad {
    /// Requests offered per second.
    pub offered_per_s: f64,
    /// Correct replies per second.
    pub goodput_per_s: f64,
    /// True if the generator fell short of its rate.
    pub generator_limited: bool,
}

impl OfferedLoad {
    /// Tells whether the server kept up.
    pub fn keeps_up(&self) -> bool {
        self.goodput_per_s >= KEEPS_UP * self.offered_per_s
    }

    /// Tells whether both the server and the generator kept up.
    pub fn is_clear(&self) -> bool {
        self.keeps_up() && !self.generator_limited
    }
}

/// Returns the load of a step. Its goodput is 0 if the server broke the objective. A lateness of the generator does
/// not count against the server.
pub fn offered_load(step: &Step) -> OfferedLoad {
    let broken_by_server = !step.slo_held && !step.generator_limited;
    OfferedLoad {
        offered_per_s: step.offered_per_s * step.sent_share(),
        goodput_per_s: if broken_by_server { 0.0 } else { step.goodput_per_s },
        generator_limited: step.generator_limited,
    }
}

/// Returns good replies as a share of the step's requests: those that were sent, and ended in it or waited at its
/// end. At most 1, because a run may end with a few replies to requests of its warm-up.
pub fn answered_share(step: &Step) -> f64 {
    let sent = step.offered() as f64 * step.sent_share();
    if sent > 0.0 { (step.goodput_per_s * step.duration_s / sent).min(1.0) } else { 0.0 }
}

/// Groups the steps by load, loads ascending.
pub fn by_load(steps: &[Step]) -> Vec<Vec<&Step>> {
    let mut sorted: Vec<&Step> = steps.iter().collect();
    sorted.sort_by(|one, other| one.asked_per_s.total_cmp(&other.asked_per_s));
    sorted.chunk_by(|one, other| one.asked_per_s == other.asked_per_s).map(<[&Step]>::to_vec).collect()
}

/// Tells whether the generator offered its load; a step need not have a whole number of requests.
pub fn is_brought_about(step: &Step) -> bool {
    let missing_per_s = KEEPS_UP * step.asked_per_s - step.offered_per_s * step.sent_share();
    missing_per_s * step.duration_s <= 1.0
}
