//! Student's distribution for whole degrees of freedom.
//!
//! The sums are those of Abramowitz and Stegun (1964), 26.7.3 and 26.7.4.

use std::f64::consts::PI;

/// Halvings of the range in which a quantile is searched: enough for every bit of a float.
const HALVINGS: usize = 200;

/// The probability that a variable of this distribution exceeds `t`. `freedom` is at least 1.
pub fn upper_tail(t: f64, freedom: usize) -> f64 {
    let angle = (t / (freedom as f64).sqrt()).atan();
    let (sine, cosine) = angle.sin_cos();
    // Each term is the one before, times cos² and the quotient of two neighbouring numbers.
    let is_odd = freedom % 2 == 1;
    let (mut term, mut sum) = if is_odd { (cosine, 0.0) } else { (1.0, 0.0) };
    for below in (usize::from(is_odd)..freedom.saturating_sub(1)).step_by(2) {
        sum += term;
        term *= cosine * cosine * (below as f64 + 1.0) / (below as f64 + 2.0);
    }
    let within = if is_odd { 2.0 / PI * (angle + sine * sum) } else { sine * sum };
    ((1.0 - within) / 2.0).clamp(0.0, 1.0)
}

/// The value that a variable of this distribution exceeds with probability `tail`, which is above 0 and at
/// most a half.
pub fn exceeded_with(tail: f64, freedom: usize) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while upper_tail(high, freedom) > tail && high < 1e12 {
        high *= 2.0;
    }
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if upper_tail(middle, freedom) > tail { low = middle } else { high = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (freedom, table) in [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (30, 2.042)] {
            let found = exceeded_with(0.025, freedom);
            assert!((found - table).abs() < 6e-4, "{freedom}: {found}");
        }
        assert!((exceeded_with(0.05, 5) - 2.015).abs() < 6e-4);
    }

    #[test]
    fn tails_are_symmetric_and_end_at_nothing() {
        for freedom in 1..40 {
            assert!((upper_tail(0.0, freedom) - 0.5).abs() < 1e-12);
            assert!((upper_tail(1.3, freedom) + upper_tail(-1.3, freedom) - 1.0).abs() < 1e-12);
            assert!(upper_tail(f64::INFINITY, freedom) < 1e-12);
        }
        assert!((upper_tail(1.0, 1) - 0.25).abs() < 1e-12, "Cauchy's distribution");
    }
}
