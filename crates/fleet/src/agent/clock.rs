//! The offset between an agent's clock and the coordinator's, from several exchanges.
//!
//! The exchange with the shortest round trip waited least on the way, so its offset is the best one (RFC 5905,
//! section 10, the clock filter). Half of its round trip bounds the offset's error.

use base::{Clock, Nanos, RealClock};

use crate::access::Nats;
use crate::error::FleetError;
use crate::messages::{ClockReading, Run};

/// Number of exchanges; they take some ten milliseconds in one data centre.
const EXCHANGES: usize = 32;

/// One exchange: the agent's clock before and after it, and the coordinator's clock between.
#[derive(Clone, Copy)]
struct Exchange {
    asked: Nanos,
    theirs: Nanos,
    answered: Nanos,
}

/// Compares this agent's clock with the coordinator's.
pub(crate) async fn compare(nats: &Nats, run: &Run) -> Result<ClockReading, FleetError> {
    let clock = RealClock::new();
    let mut exchanges = Vec::with_capacity(EXCHANGES);
    for _ in 0..EXCHANGES {
        let asked = clock.now();
        let reply = nats.client.request(run.clock(), Vec::new().into()).await;
        let answered = clock.now();
        let reply = reply.map_err(FleetError::nats("asking for the coordinator's time"))?;
        let theirs = serde_json::from_slice(&reply.payload);
        let theirs = Nanos(theirs.map_err(FleetError::nats("reading the coordinator's time"))?);
        exchanges.push(Exchange { asked, theirs, answered });
    }
    Ok(best(&exchanges))
}

/// The reading of the exchange with the shortest round trip.
fn best(exchanges: &[Exchange]) -> ClockReading {
    let readings = exchanges.iter().map(|Exchange { asked, theirs, answered }| {
        let round_trip = answered.saturating_sub(*asked);
        let middle = *asked + round_trip / 2;
        ClockReading { offset_ns: middle.0 as i64 - theirs.0 as i64, round_trip_ns: round_trip.0 }
    });
    readings.min_by_key(|reading| reading.round_trip_ns).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_exchange_counts() {
        let exchange = |asked, theirs, answered| Exchange {
            asked: Nanos(asked),
            theirs: Nanos(theirs),
            answered: Nanos(answered),
        };
        // The coordinator's clock is 1000 behind.
        let seen = best(&[
            exchange(2_000, 1_300, 2_400),
            exchange(3_000, 2_010, 3_020),
            exchange(4_000, 3_001, 4_100),
        ]);
        assert_eq!(seen, ClockReading { offset_ns: 1_000, round_trip_ns: 20 });
    }
}
