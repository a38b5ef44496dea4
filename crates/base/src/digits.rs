//! Numbers for readers: a few significant digits, and the unit that fits.
//!
//! Owns all rounding for readers. A number is rounded before its unit is chosen, so 999.6 ms is `1 s` everywhere.

/// The notation below this power of ten has an exponent: a row of zeros tells nothing.
const LEAST_POWER: i32 = -9;

/// The number with at most `significant` digits, without trailing zeros: `11.8`, `0.25`, `0.00003`.
pub fn rounded(value: f64, significant: i32) -> String {
    let value = round_to(value, significant);
    if value == 0.0 {
        return "0".to_owned();
    }
    if power(value) < LEAST_POWER {
        return format!("{value:e}");
    }
    let decimals = significant.saturating_sub(1).saturating_sub(power(value)).max(0) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// The number with three significant digits, in the largest of these units that it reaches. Units ascend.
pub fn in_unit(value: f64, units: &[(&str, f64)]) -> String {
    let value = round_to(value, 3);
    let (name, size) = units.iter().rfind(|(_, size)| value.abs() >= *size).unwrap_or(&units[0]);
    format!("{}{name}", rounded(value / size, 3))
}

/// `11.8k`, `930`, `0.25`, `1.2M`: three significant digits and a decimal prefix.
pub fn count(value: f64) -> String {
    in_unit(value, &[("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9)])
}

/// `11.8k/s`.
pub fn rate(per_s: f64) -> String {
    format!("{}/s", count(per_s))
}

fn round_to(value: f64, significant: i32) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    // The powers of ten end soon after this one.
    let exponent = (significant - 1 - power(value)).min(300);
    // Division by a power of ten is exact; multiplication by its inverse is not.
    if exponent >= 0 {
        let scale = 10f64.powi(exponent);
        (value * scale).round() / scale
    } else {
        let scale = 10f64.powi(-exponent);
        (value / scale).round() * scale
    }
}

/// The power of ten of the first digit.
fn power(value: f64) -> i32 {
    value.abs().log10().floor() as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_a_prefix() {
        let shown = [0.0, 0.25, 0.123_45, 42.0, 999.6, 1_000.0, 11_849.0, 250_000.0, 1.25e6].map(count);
        assert_eq!(shown, ["0", "0.25", "0.123", "42", "1k", "1k", "11.8k", "250k", "1.25M"]);
        assert_eq!([-0.0, -2_500.0, 12_345.6].map(rate), ["0/s", "-2.5k/s", "12.3k/s"]);
    }

    #[test]
    fn a_small_number_keeps_its_digits() {
        let shown = [1e-6, 3e-5, 0.000_123_456, 1.5e-12, 5e-324].map(|value| rounded(value, 3));
        assert_eq!(shown, ["0.000001", "0.00003", "0.000123", "1.5e-12", "0"]);
        assert_eq!([f64::INFINITY, f64::NAN].map(|value| rounded(value, 3)), ["inf", "NaN"]);
    }
}
