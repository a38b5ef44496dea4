//! Clients that retry, and so turn an overload into a storm.
//!
//! A request that was refused, lost or not answered in time is offered again after a delay. Each attempt is
//! offered load with its own outcome, so the ledger still balances; retries count among all requests and also
//! separately. The scheduled load is the demand, the offered load is what the server receives, and their
//! quotient is the amplification.
//!
//! The latency of a retry counts from the intended time of the *first* attempt. The user has waited since
//! then, and so has the deadline.
//!
//! Only failures that a client cannot know to be final are retried: 503, refusals, resets, GOAWAY, timeouts. A status
//! error or a wrong reply is final, and a limit of the generator is invisible to a real client. The delay is
//! constant for `fixed`. For `exponential` it is uniform from 0 to a bound: the base doubled with each retry,
//! at most the cap ("full jitter").

use std::fmt;
use std::str::FromStr;

use base::{Limit, Nanos};
use record::Outcome;

use crate::plan::terms::draws::Draws;

/// The default number of retries of one request.
const MOST: Limit = Limit::AtMost(3);

/// The default cap of an exponential delay.
const CAP: Nanos = Nanos::from_secs(20);

/// The retry policy for failed requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Retry {
    /// No retries.
    #[default]
    Never,
    /// Retries after a constant delay, at most `most` times.
    Fixed {
        /// The delay.
        delay: Nanos,
        /// The most retries of one request.
        most: Limit,
    },
    /// Retries after a random delay whose bound doubles each time, at most `most` times.
    Exponential {
        /// The first bound; not zero.
        base: Nanos,
        /// The last bound.
        cap: Nanos,
        /// The most retries of one request.
        most: Limit,
    },
}

impl Retry {
    /// The delay before the next attempt of a request that failed again after `retries` retries; `None` gives
    /// up.
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

    /// The most attempts of one request in a span of time, if each takes `to_fail` to fail.
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

    /// Returns true for an outcome that may be retried.
    pub(crate) fn is_worth_it(outcome: Outcome) -> bool {
        matches!(
            outcome,
            Outcome::Shed
                | Outcome::Refused
                | Outcome::Unreachable
                | Outcome::Reset
                | Outcome::StreamReset
                | Outcome::GoAway
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

/// The text is not a retry policy.
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
                // A time has a unit; a number of retries has none.
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
    fn exponential_delays_come_near_their_bound() {
        let exponential: Retry = "exponential:10ms,2s,50".parse().unwrap();
        let mut draws = Draws::new(1);
        for (retries, bound_ms) in [(0, 10), (3, 80), (20, 2_000)] {
            let longest = (0..200).filter_map(|_| exponential.delay(retries, &mut draws)).max();
            assert!(longest > Some(Nanos::from_millis(bound_ms) / 2), "{retries} retries: {longest:?}");
        }
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
