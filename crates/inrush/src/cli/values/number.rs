//! Numbers and times with a lower bound.

use std::str::FromStr;

use base::Nanos;

/// Parses a number that is not 0.
pub fn from_one_up<N: FromStr>(text: &str) -> Result<N, &'static str> {
    text.parse().map_err(|_| "expected a whole number from 1 up")
}

/// Parses a time that is not 0.
pub fn positive_time(text: &str) -> Result<Nanos, String> {
    match text.parse::<Nanos>() {
        Ok(Nanos::ZERO) => Err("expected a time above 0".to_owned()),
        Ok(time) => Ok(time),
        Err(error) => Err(error.to_string()),
    }
}
