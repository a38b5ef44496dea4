//! Units with names, and their only notation: `500ms`, `2s`, `1m30s`, `10k`, `64KiB`, `inf`.
//!
//! Every number that crosses a border (a flag, a config file, a crate's interface) has one of these types.
//! They parse from and print to the same text, and serialise as that text.

use std::fmt;
use std::ops::{Add, AddAssign, Div, Mul, Sub};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::digits::{in_unit, rounded};

/// Error: a text is not a number with its unit. The message names the accepted texts, and the likely meaning if
/// there is one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{given}' is not {expected}{}", self.guess())]
pub struct UnitError {
    given: String,
    expected: &'static str,
    meant: Option<String>,
}

impl UnitError {
    /// The error of a text that is not `expected`.
    pub fn new(given: &str, expected: &'static str) -> UnitError {
        UnitError { given: given.to_owned(), expected, meant: None }
    }

    /// The error with a guess at the meaning.
    pub fn meant(self, meant: impl ToString) -> UnitError {
        UnitError { meant: Some(meant.to_string()), ..self }
    }

    /// The error with a guess at the meaning of a number in powers of ten, such as `1e3`.
    fn meant_in_powers(self, number: &str) -> UnitError {
        match number.trim().parse::<f64>() {
            Ok(number) if number.is_finite() && number >= 1.0 => self.meant(number),
            _ => self,
        }
    }

    fn guess(&self) -> String {
        self.meant.as_ref().map_or(String::new(), |meant| format!("; did you mean {meant}?"))
    }
}

/// A span of time, or a point on a [`Clock`](crate::Clock)'s scale, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Zero nanoseconds.
    pub const ZERO: Nanos = Nanos(0);
    /// One millisecond.
    pub const MILLISECOND: Nanos = Nanos(1_000_000);
    /// One second.
    pub const SECOND: Nanos = Nanos(1_000_000_000);
    /// The longest span and the latest time.
    pub const MAX: Nanos = Nanos(u64::MAX);
    /// The longest span that a text may give: 10000 hours, more than a year. Sums of many such spans fit.
    pub const MOST_GIVEN: Nanos = Nanos::from_secs(10_000 * 3600);

    /// A span of whole microseconds.
    pub const fn from_micros(micros: u64) -> Nanos {
        Nanos(micros * 1_000)
    }

    /// A span of whole milliseconds.
    pub const fn from_millis(millis: u64) -> Nanos {
        Nanos(millis * 1_000_000)
    }

    /// A span of whole seconds.
    pub const fn from_secs(seconds: u64) -> Nanos {
        Nanos(seconds * 1_000_000_000)
    }

    /// A span of seconds, rounded to the nearest nanosecond. A negative value counts as zero.
    pub fn from_secs_f64(seconds: f64) -> Nanos {
        Nanos((seconds * 1e9).round() as u64)
    }

    /// The span in seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The span with three significant digits, in the unit that fits: `8.65 ms`, `10.5 s`, `4 s`.
    pub fn approximate(self) -> String {
        in_unit(self.0 as f64, &[(" ns", 1.0), (" us", 1e3), (" ms", 1e6), (" s", 1e9)])
    }

    /// The difference, or zero if `earlier` is later.
    pub fn saturating_sub(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }

    /// The sum, or [`Nanos::MAX`].
    pub fn saturating_add(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(other.0))
    }
}

impl From<Nanos> for Duration {
    fn from(nanos: Nanos) -> Duration {
        Duration::from_nanos(nanos.0)
    }
}

impl Add for Nanos {
    type Output = Nanos;
    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0 + other.0)
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Nanos) {
        self.0 += other.0;
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    fn sub(self, other: Nanos) -> Nanos {
        Nanos(self.0 - other.0)
    }
}

impl Mul<u64> for Nanos {
    type Output = Nanos;
    fn mul(self, times: u64) -> Nanos {
        Nanos(self.0 * times)
    }
}

impl Div<u64> for Nanos {
    type Output = Nanos;
    fn div(self, parts: u64) -> Nanos {
        Nanos(self.0 / parts)
    }
}

/// A rate, in events per second.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Default)]
pub struct PerSecond(pub f64);

impl PerSecond {
    /// The highest rate that a text may give. Above it, events would have no time between them.
    pub const MOST_GIVEN: PerSecond = PerSecond(1e9);
    /// The lowest rate that a text may give: an event in eleven days.
    pub const LEAST_GIVEN: PerSecond = PerSecond(1e-6);

    /// The mean time between two events.
    pub fn interval(self) -> Nanos {
        Nanos::from_secs_f64(1.0 / self.0)
    }

    /// The rate with three significant digits, and whole from 100 up: `8.65/s`, `12346/s`.
    pub fn approximate(self) -> String {
        if self.0 >= 100.0 { format!("{:.0}/s", self.0) } else { format!("{}/s", rounded(self.0, 3)) }
    }

    /// The expected number of events in a span of time.
    pub fn times(self, span: Nanos) -> f64 {
        self.0 * span.as_secs_f64()
    }
}

/// An amount of memory or of transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Bytes(pub u64);

impl Bytes {
    /// The largest size that a text may give: a pebibyte. Sums of many such sizes fit.
    pub const MOST_GIVEN: Bytes = Bytes(1 << 50);
}

/// A bound that may be absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// At most this number, 1 or more.
    AtMost(u32),
    /// No bound: `inf`.
    Infinite,
}

impl Limit {
    /// True if `count` is within the bound.
    pub fn allows(self, count: u64) -> bool {
        match self {
            Limit::AtMost(most) => count <= u64::from(most),
            Limit::Infinite => true,
        }
    }
}

/// Splits `12.5ms` into 12.5 and `ms`.
fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    Some((number, text[end..].trim_start()))
}

/// Prints the value in the largest unit that divides it without remainder, so that printing loses nothing.
fn in_largest_unit(f: &mut fmt::Formatter<'_>, value: u64, units: &[(&str, u64)]) -> fmt::Result {
    let (name, size) =
        units.iter().rfind(|(_, size)| value >= *size && value.is_multiple_of(*size)).unwrap_or(&units[0]);
    write!(f, "{}{}", value / size, name)
}

const TIME: [(&str, u64); 6] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

impl FromStr for Nanos {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Nanos, UnitError> {
        let refuse = || UnitError::new(text, "a time such as 500ms, 2s or 1m30s");
        let (mut total, mut rest, mut larger) = (Nanos::ZERO, text.trim(), u64::MAX);
        while !rest.is_empty() {
            let (number, after) = number_and_unit(rest).ok_or_else(refuse)?;
            let end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
            let unit = match after[..end].trim_end() {
                "" if rest.len() == text.trim().len() => return without_unit(number, rest, refuse()),
                "m" => "min",
                unit => unit,
            };
            let known = TIME.iter().find(|(name, size)| *name == unit && *size < larger);
            let (_, size) = known.ok_or_else(refuse)?;
            total = total.saturating_add(Nanos((number * *size as f64).round() as u64));
            (rest, larger) = (&after[end..], *size);
        }
        match total {
            _ if larger == u64::MAX => Err(refuse()),
            total if total > Nanos::MOST_GIVEN => Err(UnitError::new(text, "a time up to 10000h")),
            total => Ok(total),
        }
    }
}

/// Handles a number without a unit. Zero needs none; for another number the error suggests seconds, the usual
/// meaning.
fn without_unit(number: f64, given: &str, refused: UnitError) -> Result<Nanos, UnitError> {
    if number == 0.0 { Ok(Nanos::ZERO) } else { Err(refused.meant(format!("{given}s"))) }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { f.write_str("0s") } else { in_largest_unit(f, self.0, &TIME) }
    }
}

impl FromStr for PerSecond {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<PerSecond, UnitError> {
        let refuse = || UnitError::new(text, "a rate per second above 0 such as 500, 10k or 1.5M");
        let bare = text.trim().strip_suffix("/s").unwrap_or(text.trim());
        let (number, unit) = number_and_unit(bare).ok_or_else(refuse)?;
        let size = match unit {
            "" => 1.0,
            "k" | "K" => 1e3,
            "M" => 1e6,
            "rps" | "qps" | "req/s" => return Err(refuse().meant(number)),
            _ => return Err(refuse().meant_in_powers(bare)),
        };
        match number * size {
            rate if rate > PerSecond::MOST_GIVEN.0 => {
                Err(UnitError::new(text, "a rate up to 1000M/s, an event each nanosecond"))
            }
            rate if rate >= PerSecond::LEAST_GIVEN.0 => Ok(PerSecond(rate)),
            rate if rate > 0.0 => Err(UnitError::new(text, "a rate of at least 0.000001/s")),
            _ => Err(refuse()),
        }
    }
}

impl fmt::Display for PerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            rate if rate >= 1e6 => write!(f, "{}M/s", rate / 1e6),
            rate if rate >= 1e4 => write!(f, "{}k/s", rate / 1e3),
            rate => write!(f, "{rate}/s"),
        }
    }
}

const SIZES: [(&str, u64); 4] = [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

impl FromStr for Bytes {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Bytes, UnitError> {
        let refuse = || UnitError::new(text, "a size such as 512, 64KiB, 10MB or 1GiB");
        let (number, unit) = number_and_unit(text).ok_or_else(refuse)?;
        let size = match unit {
            "" => 1,
            "kB" | "KB" => 1_000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            "k" | "K" | "M" | "G" => {
                return Err(refuse().meant(format!("{number}{}iB", unit.to_uppercase())));
            }
            _ => {
                let known = SIZES.iter().find(|(name, _)| *name == unit);
                known.ok_or_else(|| refuse().meant_in_powers(text))?.1
            }
        };
        match Bytes((number * size as f64).round() as u64) {
            size if size > Bytes::MOST_GIVEN => Err(UnitError::new(text, "a size up to 1048576GiB")),
            size => Ok(size),
        }
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        in_largest_unit(f, self.0, &SIZES)
    }
}

impl FromStr for Limit {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Limit, UnitError> {
        let refuse = || UnitError::new(text, "a whole number from 1 up, or inf");
        match text.trim() {
            "inf" => Ok(Limit::Infinite),
            number => match number.parse() {
                Ok(most) if most >= 1 => Ok(Limit::AtMost(most)),
                _ => Err(refuse()),
            },
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::AtMost(most) => most.fmt(f),
            Limit::Infinite => f.write_str("inf"),
        }
    }
}

/// Serialises a unit as the text that parses back. Deserialises a bare number if the unit can be omitted.
macro_rules! serde_as_text {
    ($($unit:ty),*) => {$(
        impl Serialize for $unit {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $unit {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$unit, D::Error> {
                struct Text;
                impl serde::de::Visitor<'_> for Text {
                    type Value = $unit;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("a number with its unit, as text")
                    }
                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$unit, E> {
                        text.parse().map_err(E::custom)
                    }
                    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<$unit, E> {
                        self.visit_str(&number.to_string())
                    }
                    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<$unit, E> {
                        self.visit_str(&number.to_string())
                    }
                    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<$unit, E> {
                        self.visit_str(&number.to_string())
                    }
                }
                deserializer.deserialize_any(Text)
            }
        }
    )*};
}

serde_as_text!(Nanos, PerSecond, Bytes, Limit);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_parse_and_print_without_loss() {
        for (text, nanos) in
            [("500ms", 500_000_000), ("2s", 2_000_000_000), ("90s", 90_000_000_000), ("50us", 50_000)]
        {
            let parsed: Nanos = text.parse().unwrap();
            assert_eq!(parsed, Nanos(nanos));
            assert_eq!(parsed.to_string(), text);
        }
        assert_eq!("1.5min".parse::<Nanos>(), Ok(Nanos::from_secs(90)));
        assert_eq!("0".parse::<Nanos>(), Ok(Nanos::ZERO));
    }

    #[test]
    fn approximate_times_have_three_digits_and_a_unit() {
        let shown = [0, 999, 1_500, 23_456_000, 512_000_000, 2_000_000_000, 10_500_000_000, 600_000_000_000];
        let shown = shown.map(|nanos| Nanos(nanos).approximate());
        assert_eq!(shown, ["0 ns", "999 ns", "1.5 us", "23.5 ms", "512 ms", "2 s", "10.5 s", "600 s"]);
        assert_eq!([999_600, 999_600_000].map(|nanos| Nanos(nanos).approximate()), ["1 ms", "1 s"]);
        let shown = [0.0, 8.654, 12.04, 12_345.6].map(|rate| PerSecond(rate).approximate());
        assert_eq!(shown, ["0/s", "8.65/s", "12/s", "12346/s"]);
    }

    #[test]
    fn times_of_several_units_add_up_in_order() {
        for (text, nanos) in [
            ("1m30s", Nanos::from_secs(90)),
            ("1h30m", Nanos::from_secs(5_400)),
            ("2min 5s", Nanos::from_secs(125)),
            ("1s500ms", Nanos::from_millis(1_500)),
        ] {
            assert_eq!(text.parse::<Nanos>(), Ok(nanos), "{text}");
        }
        for text in ["30s1m", "1s1s", "1m30", "1m-30s", "m", "", "1m30q"] {
            assert!(text.parse::<Nanos>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn rates_sizes_and_limits_parse() {
        assert_eq!("50k".parse::<PerSecond>(), Ok(PerSecond(50_000.0)));
        assert_eq!("1.5M/s".parse::<PerSecond>(), Ok(PerSecond(1_500_000.0)));
        assert_eq!("64KiB".parse::<Bytes>(), Ok(Bytes(65_536)));
        assert_eq!("10MB".parse::<Bytes>(), Ok(Bytes(10_000_000)));
        assert_eq!("inf".parse::<Limit>(), Ok(Limit::Infinite));
        assert_eq!("12".parse::<Limit>(), Ok(Limit::AtMost(12)));
        assert_eq!(Bytes(65_536).to_string(), "64KiB");
        assert_eq!(PerSecond(50_000.0).to_string(), "50k/s");
    }

    #[test]
    fn what_is_wrong_is_named_with_what_is_accepted() {
        assert_eq!(
            "10".parse::<Nanos>().unwrap_err().to_string(),
            "'10' is not a time such as 500ms, 2s or 1m30s; did you mean 10s?"
        );
        assert_eq!(
            "0".parse::<Limit>().unwrap_err().to_string(),
            "'0' is not a whole number from 1 up, or inf"
        );
        let refused = |text: &str| text.parse::<Nanos>().unwrap_err().to_string();
        assert_eq!(refused("99999999999999999s"), "'99999999999999999s' is not a time up to 10000h");
        assert_eq!("10000h".parse::<Nanos>(), Ok(Nanos::MOST_GIVEN));
        assert!("10000h1ns".parse::<Nanos>().is_err());
        assert!("1000M".parse::<PerSecond>().is_ok() && "1001M".parse::<PerSecond>().is_err());
        assert!("0.0000001".parse::<PerSecond>().is_err());
        assert!("1048576GiB".parse::<Bytes>().is_ok() && "1048577GiB".parse::<Bytes>().is_err());
        assert!("-5".parse::<PerSecond>().is_err());
        assert!("0".parse::<PerSecond>().is_err());
        assert!("5 parsecs".parse::<Nanos>().is_err());
        assert!("1e3".parse::<Bytes>().is_err());
    }

    #[test]
    fn a_limit_allows_up_to_itself() {
        assert!(Limit::AtMost(10).allows(10));
        assert!(!Limit::AtMost(10).allows(11));
        assert!(Limit::Infinite.allows(u64::MAX));
    }
}
