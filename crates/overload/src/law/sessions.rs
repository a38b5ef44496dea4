//! The treatment of open connections while new ones are refused.
//!
//! A driver obeys these values and decides nothing. Idle connections must not take the descriptors that
//! admitted connections need, so they are closed earlier as the server fills up. Until then a client in the
//! middle of its session keeps its connection. A request that is too late for its client is not worth its
//! work, if the work exceeds the cost of a refusal.
//!
//! Requests come too late for two reasons. While new connections are refused, some were admitted in the first moments of
//! the rush. And open connections alone may exceed the capacity: then a turn of the loop is longer than the target delay.

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
    /// The wait after which requests get 503 and `Retry-After`; `None` answers all.
    pub late_after: Option<Nanos>,
}

impl Sessions {
    /// The instructions for a state, the used fraction of the connection limit, and the longest turn of the loop since the
    /// last tick.
    pub fn advised(state: State, target: Nanos, occupancy: f64, turn: Nanos) -> Sessions {
        let sheds = state == State::Shedding;
        Sessions {
            idle_timeout: (sheds && occupancy >= CLOSE_IDLE_FROM).then_some(target * IDLE_TARGETS),
            close_after_response: sheds && occupancy >= CLOSE_ALL_FROM,
            late_after: (sheds || turn > target).then_some(target * LATE_TARGETS),
        }
    }

    /// The instructions for requests of this cost. Work that costs less than two refusals is done even if it is late.
    pub fn for_requests(self, cost: Nanos) -> Sessions {
        Sessions { late_after: self.late_after.filter(|_| cost >= REFUSAL_COST * 2), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Nanos = Nanos::from_millis(20);

    #[test]
    fn full_admission_leaves_open_connections_alone() {
        assert_eq!(Sessions::advised(State::Open, TARGET, 0.99, TARGET), Sessions::default());
    }

    #[test]
    fn fuller_server_closes_idle_connections_sooner() {
        let at = |occupancy| Sessions::advised(State::Shedding, TARGET, occupancy, Nanos::ZERO);
        assert_eq!((at(0.1).idle_timeout, at(0.1).close_after_response), (None, false));
        assert_eq!((at(0.6).idle_timeout, at(0.6).close_after_response), (Some(Nanos::SECOND), false));
        assert_eq!((at(0.8).idle_timeout, at(0.8).close_after_response), (Some(Nanos::SECOND), true));
    }

    #[test]
    fn only_late_and_costly_requests_are_refused() {
        let late_after =
            |state, turn, cost| Sessions::advised(state, TARGET, 0.1, turn).for_requests(cost).late_after;
        let late = Some(Nanos::from_millis(200));
        assert_eq!(late_after(State::Shedding, Nanos::ZERO, Nanos::MILLISECOND), late);
        assert_eq!(late_after(State::Shedding, Nanos::ZERO, Nanos::from_micros(20)), None);
        assert_eq!(late_after(State::Open, TARGET, Nanos::MILLISECOND), None);
        assert_eq!(late_after(State::Open, TARGET * 2, Nanos::MILLISECOND), late, "sessions alone");
    }
}
