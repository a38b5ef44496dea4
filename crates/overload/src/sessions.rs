//! What becomes of open connections while new ones are refused.
//!
//! A driver obeys these values and decides nothing. Idle connections must not take the descriptors that the server
//! needs for those it admits, so they are closed earlier as the server fills up; a client in the middle of its session
//! is not sent away before that. What has become too late for its client is not worth the work, if the work is more
//! than refusing costs.

use base::Nanos;

use crate::law::State;

/// Idle connections are closed earlier from this part of the connection limit on.
const CLOSE_IDLE_FROM: f64 = 0.5;
/// Every response is the last of its connection from this part of the connection limit on.
const CLOSE_ALL_FROM: f64 = 0.75;

/// How long a connection may be idle while the server sheds load, in target delays: 1 s at 20 ms. A browser asks for
/// the parts of a page within that.
const IDLE_TARGETS: u64 = 50;

/// The wait after which a request is too late, in target delays: 200 ms at 20 ms, twice the bound of the queue.
const LATE_TARGETS: u64 = 10;

/// What a 503 on an admitted connection costs the server. Measured, 22 to 26 us, as much as a small file.
const REFUSAL_COST: Nanos = Nanos::from_micros(25);

/// What a driver does with open connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sessions {
    /// Close connections that have been idle for this long, even if they might stay longer otherwise.
    pub idle_timeout: Option<Nanos>,
    /// Answer with `Connection: close`.
    pub close_after_response: bool,
    /// Answer requests that have waited longer than this with 503 and `Retry-After`, if [`Sessions::refuses`] it.
    pub late_after: Option<Nanos>,
}

impl Sessions {
    /// The advice in a state, for a part of the connection limit that is in use.
    pub fn advised(state: State, target: Nanos, occupancy: f64) -> Sessions {
        match state {
            State::Open => Sessions::default(),
            State::Shedding => Sessions {
                idle_timeout: (occupancy >= CLOSE_IDLE_FROM).then_some(target * IDLE_TARGETS),
                close_after_response: occupancy >= CLOSE_ALL_FROM,
                late_after: Some(target * LATE_TARGETS),
            },
        }
    }

    /// Whether to answer 503: for a request that has waited this long, of requests that cost this much each. Work
    /// that costs less than two refusals is done however late it is.
    pub fn refuses(&self, waited: Nanos, cost: Nanos) -> bool {
        self.late_after.is_some_and(|late| waited > late) && cost >= REFUSAL_COST * 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Nanos = Nanos::from_millis(20);

    #[test]
    fn nothing_changes_for_open_connections_while_everybody_is_admitted() {
        let sessions = Sessions::advised(State::Open, TARGET, 0.99);
        assert_eq!(sessions, Sessions::default());
        assert!(!sessions.refuses(Nanos::from_secs(60), Nanos::SECOND));
    }

    #[test]
    fn the_fuller_the_server_the_sooner_connections_are_closed() {
        let at = |occupancy| Sessions::advised(State::Shedding, TARGET, occupancy);
        assert_eq!((at(0.1).idle_timeout, at(0.1).close_after_response), (None, false));
        assert_eq!((at(0.6).idle_timeout, at(0.6).close_after_response), (Some(Nanos::SECOND), false));
        assert_eq!((at(0.8).idle_timeout, at(0.8).close_after_response), (Some(Nanos::SECOND), true));
    }

    #[test]
    fn only_late_and_costly_requests_are_refused() {
        let sessions = Sessions::advised(State::Shedding, TARGET, 0.1);
        assert!(sessions.refuses(Nanos::from_millis(201), Nanos::MILLISECOND));
        assert!(!sessions.refuses(Nanos::from_millis(199), Nanos::MILLISECOND));
        assert!(!sessions.refuses(Nanos::from_millis(201), Nanos::from_micros(20)));
    }
}
