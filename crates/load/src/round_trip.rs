//! Whether the connect time-out is above the round trip: below it no connect would ever be established, and the run
//! would say so of the server.
//!
//! Measured by one connect before the run, which is in no ledger, and only where the time-out is so short that a round
//! trip may be longer.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use base::{Clock, Nanos};

use crate::preflight::Plan;

/// Longer round trips than this are rare on Earth.
const ROUND_TRIP_MAX: Nanos = Nanos::from_millis(300);

/// What to say of a plan whose connects would be abandoned too early. Blocks for a round trip where the time-out is
/// short and the target is not this machine, for a second where nobody answers.
pub fn round_trip_warning(plan: &Plan, clock: &impl Clock) -> Option<String> {
    let timeout = plan.config.connect_timeout;
    if timeout >= ROUND_TRIP_MAX || plan.target().ip().is_loopback() {
        return None;
    }
    remark(timeout, round_trip(plan.target(), clock)?)
}

fn remark(timeout: Nanos, round_trip: Nanos) -> Option<String> {
    (round_trip >= timeout).then(|| {
        format!(
            "--connect-timeout {timeout} is below the round trip, which has just taken {round_trip}: connects are abandoned before \
             the server can answer; give at least {}",
            round_trip * 2
        )
    })
}

/// How long a connect takes; nothing where there is no answer.
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
