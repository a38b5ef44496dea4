//! The treatment of open connections while new ones are refused.
//!
//! A driver obeys these values and decides nothing. Idle connections must not take the descriptors that
//! admitted connections need, so they are closed earlier as the server fills up. Until then a client in the
//! middle of its session keeps its connection. A request that is too late for its client is not worth its
//! work, if the work exceeds the cost of a refusal.

use base::Nanos;

use super::State;

/// The fraction of the connection limit from which idle connections are closed earlier.
const CLOSE_IDLE_FROM: f64 = 0.5;
/// The fraction of the connection limit from which every response is the last of its connection.
const CLOSE_ALL_FROM: f64 = 0.75;

/// The idle timeout while the server sheds load, in target delays: 1 s at 20 ms. A browser requests the parts
/// of a page within that time.
const IDLE_TARGETS: u64 = 50;

/// The wait after which a request is too late, in target delays: 200 ms at 20 ms, twice the bound of the
/// queue.
const LATE_TARGETS: u64 = 10;

/// The server's cost of a 503 on an admitted connection. Measured: 22 to 26 us, as much as a small file.
const REFUSAL_COST: Nanos = Nanos::from_micros(25);

/// The instructions for a driver about open connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sessions {
    /// The idle timeout, if it is shorter than the usual one; `None` keeps the usual one.
    pub idle_timeout: Option<Nanos>,
    /// True to answer with `Connection: close`.
    pub close_after_response: bool,
    /// The wait after which requests get 503 and `Retry-After`, if [`Sessions::refuses`] agrees.
    pub late_after: Option<Nanos>,
}

impl Sessions {
    /// The instructions for a state and the used fraction of the connection limit.
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

    /// Returns true if a request should get 503, given its wait and the cost of such a request. Work that
    /// costs less than two refusals is done even if it is late.
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
