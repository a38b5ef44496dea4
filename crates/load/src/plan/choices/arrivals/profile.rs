//! Arrivals along a planned rate: evenly spaced where the rate is constant, denser where it is higher.
//! Arrival number `n` comes when the integral of the rate reaches `n`. Its time is computed from `n` alone,
//! so that rounding errors do not add up. The lanes take turns.
//!
//! Nothing here is random: every burst is part of the plan.

use base::{Nanos, PerSecond};

use super::Lane;
use crate::plan::terms::window::Window;

/// A stretch of time in which the rate is constant or changes linearly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Piece {
    /// The length; infinite only for a constant rate that nothing follows.
    pub length_s: f64,
    pub from_per_s: f64,
    pub to_per_s: f64,
}

impl Piece {
    /// A stretch at one rate.
    pub(super) fn level(length_s: f64, per_s: f64) -> Piece {
        Piece { length_s, from_per_s: per_s, to_per_s: per_s }
    }

    fn slope(&self) -> f64 {
        (self.to_per_s - self.from_per_s) / self.length_s
    }

    /// The arrivals in the first `elapsed_s` seconds of the piece.
    fn arrivals(&self, elapsed_s: f64) -> f64 {
        (self.from_per_s + self.slope() * elapsed_s / 2.0) * elapsed_s
    }

    /// Seconds from the piece's start to arrival number `arrivals`; `None` when the rate falls to zero before
    /// it.
    fn time_of(&self, arrivals: f64) -> Option<f64> {
        if arrivals <= 0.0 {
            return Some(0.0);
        }
        // The quadratic formula in the form that stays exact for a slope of zero.
        let rate_then = (self.from_per_s.powi(2) + 2.0 * self.slope() * arrivals).sqrt();
        let elapsed_s = 2.0 * arrivals / (self.from_per_s + rate_then);
        elapsed_s.is_finite().then_some(elapsed_s)
    }
}

/// The start of a piece.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Start {
    at_s: f64,
    arrivals_before: f64,
}

/// The rate over time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Profile {
    pieces: Vec<(Start, Piece)>,
    /// The time and the arrivals of one cycle; `None` when the last piece holds for ever.
    cycle: Option<Start>,
}

impl Profile {
    /// At least one piece; the last one holds for ever.
    pub(super) fn once(pieces: impl IntoIterator<Item = Piece>) -> Profile {
        Profile { cycle: None, ..Profile::repeated(pieces) }
    }

    /// At least one piece, repeated for ever.
    pub(super) fn repeated(pieces: impl IntoIterator<Item = Piece>) -> Profile {
        let mut next = Start { at_s: 0.0, arrivals_before: 0.0 };
        let place = |piece: Piece| {
            let start = next;
            next.at_s += piece.length_s;
            next.arrivals_before += (piece.from_per_s + piece.to_per_s) / 2.0 * piece.length_s;
            (start, piece)
        };
        let pieces = pieces.into_iter().map(place).collect();
        Profile { pieces, cycle: Some(next) }
    }

    /// The highest rate.
    pub(super) fn peak(&self) -> PerSecond {
        let rates = self.pieces.iter().map(|(_, piece)| piece.from_per_s.max(piece.to_per_s));
        PerSecond(rates.fold(0.0, f64::max))
    }

    /// The mean rate in a window.
    pub(super) fn mean(&self, window: Window) -> PerSecond {
        let arrivals = self.arrivals_before(window.until.as_secs_f64())
            - self.arrivals_before(window.from.as_secs_f64());
        PerSecond(arrivals / window.length().as_secs_f64())
    }

    /// The number of arrivals before a time.
    fn arrivals_before(&self, at_s: f64) -> f64 {
        let cycles = self.cycle.map_or(0.0, |cycle| (at_s / cycle.at_s).floor());
        let (at_s, before) = match self.cycle {
            Some(cycle) => (at_s - cycles * cycle.at_s, cycles * cycle.arrivals_before),
            None => (at_s, 0.0),
        };
        let (start, piece) = self.piece(|start| start.at_s <= at_s);
        before + start.arrivals_before + piece.arrivals(at_s - start.at_s)
    }

    /// The time of an arrival in seconds; `None` when the rate has fallen to zero for ever.
    fn time_of(&self, arrival: f64) -> Option<f64> {
        let cycles = self.cycle.map_or(0.0, |cycle| (arrival / cycle.arrivals_before).floor());
        let (arrival, before_s) = match self.cycle {
            Some(cycle) => (arrival - cycles * cycle.arrivals_before, cycles * cycle.at_s),
            None => (arrival, 0.0),
        };
        let (start, piece) = self.piece(|start| start.arrivals_before <= arrival);
        let elapsed_s = piece.time_of(arrival - start.arrivals_before)?;
        Some(before_s + start.at_s + elapsed_s)
    }

    /// The last piece that has begun.
    fn piece(&self, has_begun: impl Fn(&Start) -> bool) -> (Start, Piece) {
        let begun = self.pieces.partition_point(|(start, _)| has_begun(start));
        self.pieces[begun.saturating_sub(1)]
    }

    /// A lane's arrivals.
    pub(super) fn arrivals(self, lane: Lane) -> impl Iterator<Item = Nanos> + Send + 'static {
        let numbers = (u64::from(lane.index)..).step_by(lane.count as usize);
        numbers.map_while(move |number| Some(Nanos((self.time_of(number as f64)? * 1e9) as u64)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pieces() -> impl Strategy<Value = Vec<Piece>> {
        let rate = prop_oneof![1 => Just(0.0), 4 => 0.1f64..1e5];
        let piece = (0.01f64..100.0, rate.clone(), rate).prop_map(|(length_s, from_per_s, to_per_s)| Piece {
            length_s,
            from_per_s,
            to_per_s,
        });
        prop::collection::vec(piece, 1..6)
            .prop_filter("no arrivals", |all| all.iter().any(|piece| piece.from_per_s > 0.0))
    }

    proptest! {
        /// `arrivals_before` and `time_of` are inverse functions.
        #[test]
        fn times_and_counts_agree(pieces in pieces(), share in 0.0f64..3.0) {
            let profile = Profile::repeated(pieces);
            let arrival = share * profile.cycle.unwrap().arrivals_before;
            let at_s = profile.time_of(arrival).unwrap();
            let back = profile.arrivals_before(at_s);
            prop_assert!((back - arrival).abs() <= 1e-6 * (1.0 + arrival), "{arrival} at {at_s} is {back}");
        }
    }

    #[test]
    fn a_rate_that_falls_to_zero_ends_the_arrivals() {
        let fall = Profile::once([Piece { length_s: 10.0, from_per_s: 100.0, to_per_s: 0.0 }]);
        let count = fall.arrivals(Lane { index: 0, count: 1 }).count();
        assert_eq!(count, 501, "the integral is 500, and the first is number 0");
    }
}
