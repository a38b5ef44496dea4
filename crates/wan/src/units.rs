//! The two units of a network path: a share of its packets, and bits per second.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// The text is not a number with this unit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{given}' is not {expected}")]
pub struct UnitError {
    given: String,
    expected: &'static str,
}

/// A share of all packets: 0 to 1, written in percent.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Default)]
pub struct Share(f64);

impl Share {
    /// No packet.
    pub const NONE: Share = Share(0.0);

    /// The share as a probability, from 0 to 1.
    pub fn probability(self) -> f64 {
        self.0
    }
}

impl FromStr for Share {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Share, UnitError> {
        let number = text.trim().strip_suffix('%').and_then(|number| plain_number(number.trim_end()));
        match number {
            Some(percent) if percent <= 100.0 => Ok(Share(percent / 100.0)),
            _ if text.trim() == "0" => Ok(Share::NONE),
            _ => {
                let expected = "a share from 0% to 100%, such as 1% or 0.05%";
                Err(UnitError { given: text.to_owned(), expected })
            }
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Rounds away the error of the conversion from percent and back.
        let percent = (self.0 * 1e11).round() / 1e9;
        write!(f, "{percent}%")
    }
}

/// Bits per second, of IP packets with their headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BitRate(u64);

impl BitRate {
    /// Bits per second: at least 1.
    pub fn bits_per_second(self) -> u64 {
        self.0
    }
}

/// The units of rates. The maximum is above any network's rate and keeps products in 64 bits.
const RATES: [(&str, f64); 4] = [("bit", 1.0), ("kbit", 1e3), ("Mbit", 1e6), ("Gbit", 1e9)];
const FASTEST: f64 = 1e12;

impl FromStr for BitRate {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<BitRate, UnitError> {
        let bare = text.trim().strip_suffix("/s").unwrap_or(text.trim());
        let end = bare.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(bare.len());
        let unit = bare[end..].trim_start();
        let size = RATES.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).map(|(_, size)| size);
        match (plain_number(&bare[..end]), size) {
            (Some(number), Some(size)) if (1.0..=FASTEST).contains(&(number * size)) => {
                Ok(BitRate((number * size).round() as u64))
            }
            _ => {
                let expected = "a rate from 1bit to 1000Gbit, such as 512kbit, 100Mbit or 2.5Gbit";
                Err(UnitError { given: text.to_owned(), expected })
            }
        }
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = |(_, size): &&(&str, f64)| self.0.is_multiple_of(*size as u64) && self.0 >= *size as u64;
        let (name, size) = RATES.iter().rfind(whole).unwrap_or(&RATES[0]);
        write!(f, "{}{name}", self.0 / *size as u64)
    }
}

/// Parses digits with at most one point; neither a sign nor an exponent.
fn plain_number(text: &str) -> Option<f64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if plain { text.parse().ok() } else { None }
}

macro_rules! serialize_as_text {
    ($($unit:ty),*) => {$(
        impl Serialize for $unit {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )*};
}

serialize_as_text!(Share, BitRate);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_parse_and_print() {
        for text in ["0%", "1%", "0.05%", "7%", "33.3%", "100%"] {
            assert_eq!(text.parse::<Share>().unwrap().to_string(), text);
        }
        assert_eq!("0".parse(), Ok(Share::NONE));
        assert_eq!("25%".parse::<Share>().unwrap().probability(), 0.25);
        for text in ["1", "101%", "-1%", "%", "1e1%", "nan%", "inf%", ""] {
            let error = text.parse::<Share>().unwrap_err().to_string();
            assert_eq!(error, format!("'{text}' is not a share from 0% to 100%, such as 1% or 0.05%"));
        }
    }

    #[test]
    fn rates_parse_and_print() {
        for (text, bits) in [("1bit", 1), ("512kbit", 512_000), ("100Mbit", 100_000_000)] {
            let rate: BitRate = text.parse().unwrap();
            assert_eq!((rate.bits_per_second(), rate.to_string().as_str()), (bits, text));
        }
        assert_eq!("2.5Gbit".parse::<BitRate>().unwrap().to_string(), "2500Mbit");
        assert_eq!("10mbit/s".parse::<BitRate>().unwrap().to_string(), "10Mbit");
        for text in ["100", "0Mbit", "-1Mbit", "100MB", "1e3bit", "Mbit", "2000Gbit", ""] {
            assert!(text.parse::<BitRate>().is_err(), "{text}");
        }
    }
}
