//! Formats of numbers and dates for readers: three significant digits, a unit, no false precision.

pub use base::digits::{count, rate};
use base::digits::{in_unit, rounded};

/// Nanoseconds as `85 µs`, `140 ms`, `1.2 s`.
pub fn time(ns: f64) -> String {
    in_unit(ns, &[(" ns", 1.0), (" µs", 1e3), (" ms", 1e6), (" s", 1e9)])
}

/// A lower bound of a time, in nanoseconds: `> 4 s`.
pub fn longer_than(ns: u64) -> String {
    format!("> {}", time(ns as f64))
}

/// A share of one as `93 %`; under one per cent with the digits that tell it from none.
pub fn percent(share: f64) -> String {
    let value = share * 100.0;
    if value.abs() >= 1.0 || value == 0.0 {
        format!("{value:.0} %")
    } else {
        format!("{} %", rounded(value, 1))
    }
}

/// A multiple as `0.5×`, or as `∞`.
pub fn multiple(factor: f64) -> String {
    if factor.is_infinite() {
        return "∞".to_owned();
    }
    format!("{}×", rounded(factor, 3))
}

/// A title without the unit of time that its numbers themselves have.
pub fn without_unit_of_time(title: &str) -> &str {
    title.trim_end_matches(", ms").trim_end_matches(", us")
}

/// A plain number with at most three significant digits.
pub fn number(value: f64) -> String {
    rounded(value, 3)
}

/// `1 trial`, `2 trials`.
pub fn plural(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Seconds since 1970-01-01 as `2026-11-21 21:44 UTC` (proleptic Gregorian; the algorithm is Howard
/// Hinnant's `civil_from_days`).
pub fn date(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", second / 3_600, second / 60 % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_pick_their_unit() {
        let shown = [0.0, 999.6, 85_000.0, 140e6, 1.2345e9, 70e9].map(time);
        assert_eq!(shown, ["0 ns", "1 µs", "85 µs", "140 ms", "1.23 s", "70 s"]);
    }

    #[test]
    fn shares_and_multiples() {
        assert_eq!(
            [0.0, 2e-7, 0.004, 0.934, 1.0].map(percent),
            ["0 %", "0.00002 %", "0.4 %", "93 %", "100 %"]
        );
        assert_eq!(
            [3e-5, 0.5, 1.0, 2.25, f64::INFINITY].map(multiple),
            ["0.00003×", "0.5×", "1×", "2.25×", "∞"]
        );
    }

    #[test]
    fn dates_of_known_instants() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_795_297_448), "2026-11-21 21:44 UTC");
        assert!(date(u64::MAX).ends_with(" UTC"));
    }
}
