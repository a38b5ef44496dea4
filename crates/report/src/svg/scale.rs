//! Scales from values to pixels, with ticks at 1, 2 and 5 times a power of ten.

use crate::format;

/// Records are read from files and may hold anything: within these bounds no tick overflows.
const SMALLEST: f64 = 1e-300;
const LARGEST: f64 = 1e300;

/// The quantity of an axis, which decides the notation of its ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Something a second: `10k`.
    Count,
    /// Nanoseconds, written as time: `100 ms`.
    Time,
    /// A share of one: `50 %`.
    Share,
    /// Times something: `1.5×`.
    Multiple,
}

impl Unit {
    /// A value in this unit.
    pub fn show(self, value: f64) -> String {
        match self {
            Unit::Count => format::count(value),
            Unit::Time => format::time(value),
            Unit::Share => format::percent(value),
            Unit::Multiple => format::multiple(value),
        }
    }
}

/// An axis: its domain in values, its range in pixels, its ticks.
#[derive(Clone, Debug)]
pub struct Axis {
    low: f64,
    high: f64,
    from_px: f64,
    to_px: f64,
    logarithmic: bool,
    /// The values of the ticks, ascending; all within the domain.
    pub ticks: Vec<f64>,
}

impl Axis {
    /// Over zero and the least and the largest value, from one round number to another, in about `count` steps.
    pub fn to_round(ends: (f64, f64), count: usize, px: (f64, f64)) -> Axis {
        let (low, high) = with_zero(ends);
        let step = nice_at_least((high - low) / count as f64);
        let round = |size: f64| (size / step - 1e-9).ceil() * step;
        Axis::linear((-round(-low), round(high)), step, px)
    }

    /// Over zero and a little more than the least and the largest value, so that no room is wasted.
    pub fn to_value(ends: (f64, f64), count: usize, px: (f64, f64)) -> Axis {
        let (low, high) = with_zero(ends);
        Axis::linear((low * 1.02, high * 1.02), nice_at_least((high - low) / count as f64), px)
    }

    fn linear((low, high): (f64, f64), step: f64, (from_px, to_px): (f64, f64)) -> Axis {
        let (first, last) = ((low / step - 1e-9).ceil() as i32, (high / step + 1e-9).floor() as i32);
        let ticks = (first..=last).map(|index| f64::from(index) * step).collect();
        Axis { low, high, from_px, to_px, logarithmic: false, ticks }
    }

    /// Makes `count` equal steps, with a tick in the middle of each.
    pub fn places(count: usize, (from_px, to_px): (f64, f64)) -> Axis {
        let count = u32::try_from(count.max(1)).unwrap_or(u32::MAX);
        let ticks = (0..count).map(f64::from).collect();
        Axis { low: -0.5, high: f64::from(count) - 0.5, from_px, to_px, logarithmic: false, ticks }
    }

    /// Logarithmic, over the given positive values widened to round ones; others are left out, and
    /// without any the axis spans one decade from 1.
    pub fn log(values: impl Iterator<Item = f64>, (from_px, to_px): (f64, f64)) -> Axis {
        let shown = values.filter(|value| value.is_finite() && *value > 0.0);
        let (min, max) = shown
            .map(|value| value.clamp(SMALLEST, LARGEST))
            .fold((f64::INFINITY, 0.0_f64), |(min, max), value| (value.min(min), value.max(max)));
        let (min, max) = if max > 0.0 { (min, max) } else { (1.0, 10.0) };
        let low = nice_at_most(min);
        let high = nice_at_least(max).max(nice_at_least(low * 1.5));
        let decades = (high / low).log10();
        let steps: &[f64] = if decades > 2.5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let first = low.log10().floor() as i32;
        let last = high.log10().ceil() as i32;
        let ticks = (first..=last)
            .flat_map(|exponent| steps.iter().map(move |step| step * 10f64.powi(exponent)))
            .filter(|tick| *tick >= low * (1.0 - 1e-9) && *tick <= high * (1.0 + 1e-9))
            .collect();
        Axis { low, high, from_px, to_px, logarithmic: true, ticks }
    }

    /// Returns the pixel of a value. A value beyond the domain's end is clamped. `None` for zero on a logarithmic
    /// axis, which has no place for it.
    pub fn place(&self, value: f64) -> Option<f64> {
        if !value.is_finite() || (self.logarithmic && value <= 0.0) {
            return None;
        }
        let along = if self.logarithmic {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        Some(self.from_px + along.clamp(0.0, 1.0) * (self.to_px - self.from_px))
    }

    /// Returns the begin and the end of the axis, in pixels.
    pub fn range_px(&self) -> (f64, f64) {
        (self.from_px, self.to_px)
    }
}

/// Returns the least and the largest value with zero among them. The domain needs a width even where nothing was
/// measured.
fn with_zero((least, largest): (f64, f64)) -> (f64, f64) {
    let drawn = |value: f64| if value.is_finite() { value.clamp(-LARGEST, LARGEST) } else { 0.0 };
    let (low, high) = (drawn(least).min(0.0), drawn(largest).max(0.0));
    if high - low >= SMALLEST { (low, high) } else { (0.0, 1.0) }
}

/// The least of 1, 2, 5 times a power of ten that is not below a positive value.
fn nice_at_least(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let digit = value / power;
    let step = [1.0, 2.0, 5.0].into_iter().find(|step| digit <= step * (1.0 + 1e-9));
    step.unwrap_or(10.0) * power
}

/// The greatest of 1, 2, 5 times a power of ten that is not above a positive value.
fn nice_at_most(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let digit = value / power;
    let step = [5.0, 2.0].into_iter().find(|step| digit >= step * (1.0 - 1e-9));
    step.unwrap_or(1.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    const PX: (f64, f64) = (0.0, 100.0);

    fn shown(axis: &Axis, unit: Unit) -> Vec<String> {
        axis.ticks.iter().map(|tick| unit.show(*tick)).collect()
    }

    #[test]
    fn linear_ticks_are_round_and_reach_the_largest_value() {
        let ticks = |max| shown(&Axis::to_round((0.0, max), 5, PX), Unit::Count);
        assert_eq!(ticks(11_800.0), ["0", "5k", "10k", "15k"]);
        assert_eq!(ticks(10_000.0), ["0", "2k", "4k", "6k", "8k", "10k"]);
        assert_eq!(ticks(0.07), ["0", "0.02", "0.04", "0.06", "0.08"]);
        assert_eq!(ticks(3.0), ["0", "1", "2", "3"]);
    }

    #[test]
    fn a_negative_value_has_a_place_below_zero() {
        let axis = Axis::to_round((-300.0, 1_100.0), 5, PX);
        assert_eq!(shown(&axis, Unit::Count), ["-500", "0", "500", "1k", "1.5k"]);
        assert_eq!((axis.place(-500.0), axis.place(0.0)), (Some(0.0), Some(25.0)));
        let below = Axis::to_value((-300.0, -200.0), 5, PX);
        assert_eq!(shown(&below, Unit::Count), ["-300", "-200", "-100", "0"]);
        assert_eq!(below.place(0.0), Some(100.0));
    }

    #[test]
    fn a_tight_axis_ends_just_after_the_last_value() {
        let axis = Axis::to_value((0.0, 36_000.0), 6, PX);
        assert_eq!(shown(&axis, Unit::Count), ["0", "10k", "20k", "30k"]);
        assert!(axis.place(36_000.0).unwrap() > 97.0);
    }

    #[test]
    fn nothing_measured_still_makes_an_axis() {
        for max in [0.0, -1.0, f64::NAN, f64::INFINITY, f64::MAX, 5e-324] {
            let axis = Axis::to_round((0.0, max), 5, PX);
            assert_eq!(axis.place(0.0), Some(0.0));
            assert!(axis.ticks.len() > 1);
        }
        assert!(Axis::to_round((f64::MIN, f64::MAX), 5, PX).ticks.iter().all(|tick| tick.is_finite()));
        assert_eq!(Axis::log([].into_iter(), PX).ticks, [1.0, 2.0, 5.0, 10.0]);
    }

    #[test]
    fn log_ticks_thin_out_over_many_decades() {
        let few = Axis::log([0.8e6, 40e6].into_iter(), PX);
        assert_eq!(shown(&few, Unit::Time), ["500 µs", "1 ms", "2 ms", "5 ms", "10 ms", "20 ms", "50 ms"]);
        let many = Axis::log([90e3, 3e9].into_iter(), PX);
        assert_eq!(shown(&many, Unit::Time), ["100 µs", "1 ms", "10 ms", "100 ms", "1 s"]);
        let small = Axis::log([1e-6, 1e-3].into_iter(), PX);
        assert_eq!(shown(&small, Unit::Count), ["0.000001", "0.00001", "0.0001", "0.001"]);
    }

    #[test]
    fn log_axis_excludes_zero_and_takes_one_value() {
        let axis = Axis::log([0.0, 1.0].into_iter(), PX);
        assert_eq!(axis.place(0.0), None);
        assert_eq!(axis.place(-1.0), None);
        assert_eq!(axis.place(f64::NAN), None);
        assert_eq!(axis.place(1.0), Some(0.0));
        assert_eq!(axis.ticks, [1.0, 2.0]);
    }

    #[test]
    fn values_beyond_the_domain_stay_on_the_paper() {
        let axis = Axis::to_round((0.0, 10.0), 5, (200.0, 0.0));
        assert_eq!(axis.place(1e300), Some(0.0));
        assert_eq!(axis.place(5.0), Some(100.0));
    }
}
