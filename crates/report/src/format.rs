//! Formats of numbers and dates for readers: three significant digits, a unit, no false precision.

/// `11.8k`, `930`, `0.25`, `1.2M`: three significant digits and a decimal prefix.
pub fn count(value: f64) -> String {
    let rounded = round_to_three(value);
    match rounded.abs() {
        size if size >= 1e9 => format!("{}G", digits(rounded / 1e9)),
        size if size >= 1e6 => format!("{}M", digits(rounded / 1e6)),
        size if size >= 1e3 => format!("{}k", digits(rounded / 1e3)),
        _ => digits(rounded),
    }
}

/// `11.8k/s`.
pub fn rate(per_s: f64) -> String {
    format!("{}/s", count(per_s))
}

/// Nanoseconds as `85 µs`, `140 ms`, `1.2 s`.
pub fn time(ns: f64) -> String {
    let rounded = round_to_three(ns);
    match rounded.abs() {
        size if size >= 1e9 => format!("{} s", digits(rounded / 1e9)),
        size if size >= 1e6 => format!("{} ms", digits(rounded / 1e6)),
        size if size >= 1e3 => format!("{} µs", digits(rounded / 1e3)),
        _ => format!("{} ns", digits(rounded)),
    }
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
        format!("{} %", digits(round_to(value, 1)))
    }
}

/// A multiple as `0.5×`, or as `∞`.
pub fn multiple(factor: f64) -> String {
    if factor.is_infinite() {
        return "∞".to_owned();
    }
    format!("{}×", digits(round_to_three(factor)))
}

/// A plain number with at most three significant digits.
pub fn number(value: f64) -> String {
    digits(round_to_three(value))
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

/// The text with every control character replaced: a name from a record must not steer the terminal.
pub fn printable(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}

fn round_to_three(value: f64) -> f64 {
    round_to(value, 3)
}

fn round_to(value: f64, significant: i32) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let exponent = significant - 1 - value.abs().log10().floor() as i32;
    // Division by a power of ten is exact; multiplication by its inverse is not.
    if exponent >= 0 {
        let scale = 10f64.powi(exponent);
        (value * scale).round() / scale
    } else {
        let scale = 10f64.powi(-exponent);
        (value / scale).round() * scale
    }
}

/// A number already rounded, without trailing zeros.
fn digits(value: f64) -> String {
    let text = format!("{value:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_a_prefix() {
        let shown = [0.0, 0.25, 0.123_45, 42.0, 999.6, 1_000.0, 11_849.0, 250_000.0, 1.25e6].map(count);
        assert_eq!(shown, ["0", "0.25", "0.123", "42", "1k", "1k", "11.8k", "250k", "1.25M"]);
    }

    #[test]
    fn times_pick_their_unit() {
        let shown = [0.0, 999.6, 85_000.0, 140e6, 1.2345e9, 70e9].map(time);
        assert_eq!(shown, ["0 ns", "1 µs", "85 µs", "140 ms", "1.23 s", "70 s"]);
    }

    #[test]
    fn shares_and_multiples() {
        assert_eq!([0.0, 0.004, 0.934, 1.0].map(percent), ["0 %", "0.4 %", "93 %", "100 %"]);
        assert_eq!([0.5, 1.0, 2.25, f64::INFINITY].map(multiple), ["0.5×", "1×", "2.25×", "∞"]);
    }

    #[test]
    fn dates_of_known_instants() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_795_297_448), "2026-11-21 21:44 UTC");
        assert!(date(u64::MAX).ends_with(" UTC"));
    }
}
