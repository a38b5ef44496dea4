//! Doubt whether the requests that wait are a queue.
//!
//! A queue of requests and a slow backend look alike from outside: many requests without an answer. Two differences show:
//!
//! - *A gap.* A server that is overloaded answers at its full rate. If the answers nearly cease while no more requests
//!   arrive than the server has just been able to answer, something behind the server has become slow. Refusing would not
//!   help, so the control believes in no queue for half a second. When answers come again, they show how long they take.
//! - *Draining.* A queue whose arrivals are refused drains within its wait, while the server answers at its full rate. If
//!   the requests stay, and the rate of answers falls with the admitted ones, they are no queue.
//!
//! The control asks about a gap while nothing is refused, and about draining while the law refuses.

use super::history::History;

/// The time over which answers are compared with arrivals, in target delays.
const WINDOW: f64 = 5.0;
/// The fewest expected answers in that time.
const WINDOW_ANSWERS: f64 = 16.0;
/// The longest such time, in seconds.
const LONGEST_WINDOW: f64 = 1.0;
/// The fraction of the expected answers below which there is a gap.
const GAP: f64 = 0.3;
/// The fraction of the expected answers at which a gap ends.
const GAP_ENDS: f64 = 0.75;
/// The arrivals that a server may be expected to answer, in multiples of its best rate of answers.
const EXPECTED: f64 = 1.2;
/// The longest gap in which no queue is believed, in target delays.
const PATIENCE: f64 = 25.0;

/// The fraction of the rate before the refusals below which the answers follow what is admitted.
const FOLLOWS: f64 = 0.75;
/// The longest waits after which a queue that is refused arrivals must have drained.
const DRAINED_AFTER: f64 = 2.0;
/// The longest wait that counts for that, in seconds.
const LONGEST_WAIT: f64 = 1.0;
/// The wait of a drained queue, in target delays, and its requests in a slow server.
const DRAINED: f64 = 1.0;
const DRAINED_REQUESTS: f64 = 8.0;

/// The state of the answers while nothing is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// They come as expected, or something else than a gap keeps them from it.
    Usual,
    /// They nearly ceased.
    Ceased,
    /// They come again after a gap.
    Resumed,
}

/// A span of refusals in which the queue has not drained.
#[derive(Clone, Copy, Debug)]
struct Undrained {
    since: f64,
    /// The longest wait, in seconds.
    wait: f64,
    /// The best rate of answers, per second.
    rate: f64,
}

/// The doubt about one listener's requests. Times are in seconds, rates per second.
#[derive(Clone, Copy, Debug, Default)]
pub struct Doubt {
    /// The time at which the present gap began.
    gap: Option<f64>,
    undrained: Option<Undrained>,
}

impl Doubt {
    /// The state of the answers while nothing is refused. `best` is the best recent rate of answers.
    pub fn answers(&mut self, history: &History, target: f64, best: f64) -> Answers {
        self.undrained = None;
        let window = (WINDOW * target).max((WINDOW_ANSWERS / best.max(1.0)).min(LONGEST_WINDOW));
        let recent = history.last(window);
        let expected = recent.asked.min(best * recent.seconds);
        let can_answer = recent.seconds >= 0.9 * window && recent.asked <= EXPECTED * best * recent.seconds;
        let Some(since) = self.gap else {
            let begins = can_answer && recent.answered < GAP * expected;
            self.gap = begins.then(|| history.now());
            return if begins { Answers::Ceased } else { Answers::Usual };
        };
        if recent.answered >= GAP_ENDS * expected {
            self.gap = None;
            return Answers::Resumed;
        }
        let ceased = can_answer && history.now() - since <= PATIENCE * target;
        if ceased { Answers::Ceased } else { Answers::Usual }
    }

    /// Returns true if the requests that wait are no queue, because they do not drain while the law refuses. `wait` is
    /// their estimated wait, `alone` the time of an answer without a queue, and `rate` the rate of answers.
    pub fn stays(&mut self, history: &History, target: f64, wait: f64, alone: f64, rate: f64) -> bool {
        self.gap = None;
        let now = history.now();
        if wait <= DRAINED * target || wait * rate <= DRAINED_REQUESTS {
            self.undrained = self.undrained.map(|before| Undrained { since: now, wait: 0.0, ..before });
        }
        let before = self.undrained.unwrap_or(Undrained { since: now, wait: 0.0, rate });
        let wait = before.wait.max(wait.min(LONGEST_WAIT));
        let best = before.rate.max(rate);
        let overdue = now - before.since > DRAINED_AFTER * wait + alone + WINDOW * target;
        let stays = overdue && rate < FOLLOWS * best;
        self.undrained = (!stays).then_some(Undrained { since: before.since, wait, rate: best });
        stays
    }
}
