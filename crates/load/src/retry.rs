//! Clients that try again: what turns an overload into a storm.
//!
//! A request that was refused, lost or not answered in time is offered once more after a delay. Each attempt
//! is offered load with an outcome of its own, so the ledger adds up as before; those that are retries are
//! counted among the others and, once more, apart. The load that was scheduled is what users want, the
//! offered load is what the server sees of it, and their quotient is the amplification.
//!
//! The latency of a retry is from the time that the *first* attempt was meant to be sent: the user has been
//! waiting since then, and so has the deadline.
//!
//! What is retried is what a client cannot know to be final: 503, refusals, resets, time-outs. A status error or
//! a wrong reply is final, and a limit of the generator is nothing that a real client would see. A delay is
//! that of the policy for `fixed`; for `exponential` it is uniform from 0 to the least of the cap and the
//! base doubled with each retry ("full jitter").

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::fmt;
use std::str::FromStr;

use base::{Limit, Nanos};
use record::Outcome;

use crate::draws::Draws;
use crate::workload::RequestId;

/// Retries of a request where no number is given.
const MOST: Limit = Limit::AtMost(3);

/// The longest exponential delay where none is given.
const CAP: Nanos = Nanos::from_secs(20);

/// Retries of one thread that may wait for their time at once: some 64 MiB. A client whose retry finds no
/// room gives up, which is counted.
const WAITING_MAX: usize = 1 << 20;

/// What a client does about a request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Retry {
    /// It gives up.
    #[default]
    Never,
    /// It tries again after a delay, at most so many times.
    Fixed {
        /// The delay.
        delay: Nanos,
        /// The most retries of one request.
        most: Limit,
    },
    /// It tries again after a random delay whose bound doubles each time, at most so many times.
    Exponential {
        /// The first bound; not zero.
        base: Nanos,
        /// The last.
        cap: Nanos,
        /// The most retries of one request.
        most: Limit,
    },
}

impl Retry {
    /// How long a request that was retried so often, and failed again, waits for its next attempt; nothing
    /// where it is given up.
    pub(crate) fn delay(&self, retries: u32, draws: &mut Draws) -> Option<Nanos> {
        if !self.most().allows(u64::from(retries) + 1) {
            return None;
        }
        match *self {
            Retry::Never => None,
            Retry::Fixed { delay, .. } => Some(delay),
            Retry::Exponential { base, cap, .. } => {
                let doubled = base.0.saturating_mul(1u64.checked_shl(retries).unwrap_or(u64::MAX));
                Some(Nanos(draws.between(0, doubled.min(cap.0))))
            }
        }
    }

    /// The most attempts that one request can make in a span of time when each takes so long to fail.
    pub(crate) fn attempts_max(&self, span: Nanos, to_fail: Nanos) -> f64 {
        let pause = match self {
            Retry::Fixed { delay, .. } => *delay,
            Retry::Never | Retry::Exponential { .. } => Nanos::ZERO,
        };
        let in_time = span.as_secs_f64() / (to_fail + pause).as_secs_f64();
        match self.most() {
            Limit::AtMost(most) => 1.0 + (most as f64).min(in_time),
            Limit::Infinite => 1.0 + in_time,
        }
    }

    /// Whether a request that ended so is worth another attempt.
    pub(crate) fn is_worth_it(outcome: Outcome) -> bool {
        matches!(
            outcome,
            Outcome::Shed
                | Outcome::Refused
                | Outcome::Unreachable
                | Outcome::Reset
                | Outcome::ConnectTimeout
                | Outcome::ResponseTimeout
                | Outcome::Dropped
        )
    }

    fn most(&self) -> Limit {
        match self {
            Retry::Never => Limit::AtMost(0),
            Retry::Fixed { most, .. } | Retry::Exponential { most, .. } => *most,
        }
    }
}

/// Not a retry policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not a retry policy: none, fixed:DELAY[,MAX] or exponential:BASE[,CAP][,MAX], such as fixed:1s,inf or \
     exponential:100ms,20s,5"
)]
pub struct NotARetry(String);

impl FromStr for Retry {
    type Err = NotARetry;

    fn from_str(text: &str) -> Result<Retry, NotARetry> {
        parse(text).ok_or_else(|| NotARetry(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Retry> {
    if text == "none" {
        return Some(Retry::Never);
    }
    let (kind, rest) = text.split_once(':')?;
    let mut parts = rest.split(',').map(str::trim);
    let first: Nanos = parts.next()?.parse().ok()?;
    let rest: Vec<&str> = parts.collect();
    match (kind, rest.as_slice()) {
        ("fixed", []) => Some(Retry::Fixed { delay: first, most: MOST }),
        ("fixed", [most]) => Some(Retry::Fixed { delay: first, most: most.parse().ok()? }),
        ("exponential", rest) if first > Nanos::ZERO => {
            let (cap, most) = match rest {
                [] => (CAP, MOST),
                // A time has a unit, a number has none.
                [one] => match (one.parse(), one.parse()) {
                    (_, Ok(most)) => (CAP, most),
                    (Ok(cap), _) => (cap, MOST),
                    _ => return None,
                },
                [cap, most] => (cap.parse().ok()?, most.parse().ok()?),
                _ => return None,
            };
            (cap >= first).then_some(Retry::Exponential { base: first, cap, most })
        }
        _ => None,
    }
}

impl fmt::Display for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Retry::Never => f.write_str("none"),
            Retry::Fixed { delay, most } => write!(f, "fixed:{delay},{most}"),
            Retry::Exponential { base, cap, most } => write!(f, "exponential:{base},{cap},{most}"),
        }
    }
}

/// What is to be offered again.
#[derive(Debug)]
pub(crate) struct Again {
    /// How many requests: what its session had left.
    pub requests: u32,
    /// The first of them.
    pub request: RequestId,
    /// The session's draws, for those that follow.
    pub draws: Draws,
    /// When the first attempt was meant to be sent.
    pub intended: Nanos,
    /// How many retries of it there will have been.
    pub retries: u32,
    /// Whether a client of a closed loop is free again when this is over.
    pub frees_client: bool,
}

struct Waiting {
    due: Nanos,
    /// In which order they were put in: those due together keep it.
    number: u64,
    again: Again,
}

/// The retries of one thread that wait for their time.
#[derive(Default)]
pub(crate) struct Queue {
    waiting: BinaryHeap<Reverse<Waiting>>,
    put_in: u64,
    given_up: u64,
}

impl Queue {
    /// Puts one in; says whether there was room.
    pub fn push(&mut self, due: Nanos, again: Again) -> bool {
        let room = self.waiting.len() < WAITING_MAX;
        if room {
            self.waiting.push(Reverse(Waiting { due, number: self.put_in, again }));
            self.put_in += 1;
        } else {
            self.given_up += u64::from(again.requests);
        }
        room
    }

    /// When the next one is due.
    pub fn next(&self) -> Option<Nanos> {
        self.waiting.peek().map(|Reverse(waiting)| waiting.due)
    }

    /// Takes the next one if it is due, with the time it was due.
    pub fn take(&mut self, now: Nanos) -> Option<(Nanos, Again)> {
        self.next().filter(|due| *due <= now)?;
        self.waiting.pop().map(|Reverse(waiting)| (waiting.due, waiting.again))
    }

    /// All that wait, in no order.
    pub fn waiting(&self) -> impl Iterator<Item = &Again> {
        self.waiting.iter().map(|Reverse(waiting)| &waiting.again)
    }

    /// Requests that were not retried because too many were waiting.
    pub fn given_up(&self) -> u64 {
        self.given_up
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Waiting) -> Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Waiting) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Waiting) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Waiting {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn policies_parse_back_with_their_defaults() {
        for (text, shown) in [
            ("none", "none"),
            ("fixed:1s", "fixed:1s,3"),
            ("fixed:0,inf", "fixed:0s,inf"),
            ("exponential:100ms", "exponential:100ms,20s,3"),
            ("exponential:100ms,5", "exponential:100ms,20s,5"),
            ("exponential:100ms,1s", "exponential:100ms,1s,3"),
            ("exponential:100ms,1s,inf", "exponential:100ms,1s,inf"),
        ] {
            let retry: Retry = text.parse().unwrap();
            assert_eq!((retry.to_string().as_str(), shown.parse()), (shown, Ok(retry)));
        }
        for text in
            ["", "fixed", "fixed:1", "fixed:1s,0", "exponential:0", "exponential:1s,100ms", "linear:1s"]
        {
            let told = text.parse::<Retry>().unwrap_err().to_string();
            assert!(
                told.starts_with(&format!("'{text}' is not a retry policy: none, fixed:DELAY")),
                "{told}"
            );
        }
    }

    #[test]
    fn attempts_are_bounded_by_number_and_by_time() {
        let most = |text: &str| {
            let retry: Retry = text.parse().unwrap();
            retry.attempts_max(Nanos::from_secs(10), Nanos::from_millis(500))
        };
        assert_eq!(most("none"), 1.0);
        assert_eq!(most("fixed:1s,3"), 4.0);
        assert_eq!(most("fixed:500ms,inf"), 11.0);
        assert_eq!(most("exponential:1s,50"), 21.0);
    }

    #[test]
    fn those_due_together_keep_their_order() {
        let mut queue = Queue::default();
        let workload = crate::workload::tests::workload(&["http://a/"], Default::default(), None);
        let mut draws = Draws::new(1);
        let again = |requests| Again {
            requests,
            request: workload.pick(&mut draws.clone()),
            draws: Draws::new(0),
            intended: Nanos::ZERO,
            retries: 1,
            frees_client: true,
        };
        for (due, requests) in [(7, 1), (5, 2), (5, 3)] {
            assert!(queue.push(Nanos(due), again(requests)));
        }
        draws.bits();
        assert_eq!(queue.next(), Some(Nanos(5)));
        assert!(queue.take(Nanos(4)).is_none());
        let taken = std::iter::from_fn(|| queue.take(Nanos(9))).map(|(due, again)| (due.0, again.requests));
        assert_eq!(taken.collect::<Vec<_>>(), [(5, 2), (5, 3), (7, 1)]);
    }

    proptest! {
        #[test]
        fn delays_have_their_bounds_and_their_end(seed: u64, retries in 0u32..80) {
            let mut draws = Draws::new(seed);
            let exponential: Retry = "exponential:10ms,2s,50".parse().unwrap();
            match exponential.delay(retries, &mut draws) {
                Some(delay) => {
                    let bound = 10f64 * 2f64.powi(retries as i32);
                    prop_assert!(retries < 50);
                    prop_assert!(delay.as_secs_f64() * 1e3 <= bound.min(2_000.0));
                }
                None => prop_assert!(retries >= 50),
            }
            let fixed: Retry = "fixed:30ms,2".parse().unwrap();
            prop_assert_eq!(fixed.delay(retries, &mut draws), (retries < 2).then_some(Nanos::from_millis(30)));
        }
    }
}
