//! Checks that the connect timeout is above the round trip: below it no connect could be established, and the
//! run would blame the server.
//!
//! The check makes one connect before the run, which is in no ledger. It runs only for a timeout so short
//! that a round trip may be longer.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use base::{Clock, Nanos};

use crate::plan::Plan;

/// Longer round trips are rare on Earth.
const ROUND_TRIP_MAX: Nanos = Nanos::from_millis(300);

/// A warning for a plan that would abandon every connect too early. With a short timeout and a target on
/// another machine it blocks for one round trip, or for a second without an answer.
pub fn round_trip_warning(plan: &Plan, clock: &impl Clock) -> Option<String> {
    let timeout = plan.config.connect_timeout;
    if timeout >= ROUND_TRIP_MAX || plan.target().is_local() {
        return None;
    }
    remark(timeout, round_trip(plan.target().first()?, clock)?)
}

fn remark(timeout: Nanos, round_trip: Nanos) -> Option<String> {
    (round_trip >= timeout).then(|| {
        format!(
            "--connect-timeout {timeout} is below the round trip of {round_trip}: every connect is abandoned before the \
             server can answer; give at least {}",
            round_trip * 2
        )
    })
}

/// The duration of a connect; `None` without an answer.
fn round_trip(target: SocketAddr, clock: &impl Clock) -> Option<Nanos> {
    let began = clock.now();
    match TcpStream::connect_timeout(&target, Duration::from(Nanos::SECOND)) {
        Ok(_) => Some(clock.now() - began),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Some(clock.now() - began),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::RealClock;

    #[test]
    fn a_time_out_below_the_round_trip_is_told() {
        let ms = Nanos::from_millis;
        assert_eq!(remark(ms(50), ms(49)), None);
        let said = remark(ms(50), ms(200)).unwrap();
        assert!(
            said.starts_with("--connect-timeout 50ms is below the round trip") && said.ends_with("400ms"),
            "{said}"
        );
    }

    #[test]
    fn a_refusal_is_an_answer() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, clock) = (listener.local_addr().unwrap(), RealClock::new());
        assert!(round_trip(address, &clock).is_some());
        drop(listener);
        assert!(round_trip(address, &clock).is_some());
    }
}
