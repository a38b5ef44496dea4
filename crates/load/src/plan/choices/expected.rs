//! The replies that count as correct and in time.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use base::Nanos;
use http_semantics::Reply;
use record::Outcome;

use crate::plan::terms::digest::{Digest, Hasher};

/// The properties that a reply must have.
#[derive(Clone, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// The accepted statuses.
    pub status: Statuses,
    /// The length of the content in bytes; `None` accepts any.
    pub length: Option<u64>,
    /// The digest of the content; `None` accepts any.
    pub digest: Option<Digest>,
    /// The time from the intended time to the complete reply; `None` accepts any. A correct reply after the
    /// deadline counts in the outcomes and the latencies, but not in the goodput.
    pub deadline: Option<Nanos>,
}

impl Expected {
    /// The outcome of a request with a complete reply. `digest` is the digest of its content, if one is
    /// expected. `statuses` are those that the request has of its own.
    pub(crate) fn outcome(
        &self,
        reply: &Reply,
        digest: Option<Digest>,
        statuses: Option<&Statuses>,
    ) -> Outcome {
        match reply.status {
            status if statuses.unwrap_or(&self.status).contains(status) => {
                let is_right =
                    self.length.is_none_or(|length| length == reply.body_bytes) && self.digest == digest;
                if is_right { Outcome::Ok } else { Outcome::WrongBody }
            }
            503 => Outcome::Shed,
            _ => Outcome::StatusError,
        }
    }

    /// The hasher for the replies of a connection.
    pub(crate) fn hasher(&self) -> Hasher {
        Hasher::new(self.digest.is_some())
    }

    /// The name of a setting that requires content, if there is one.
    pub(crate) fn content_setting(&self) -> Option<&'static str> {
        match (self.length, self.digest) {
            (Some(1..), _) => Some("expect-length"),
            (_, Some(_)) => Some("expect-digest"),
            _ => None,
        }
    }

    /// Returns true for a latency from the intended time that is within the deadline.
    pub(crate) fn in_time(&self, latency: Nanos) -> bool {
        self.deadline.is_none_or(|deadline| latency <= deadline)
    }
}

/// A set of statuses, by default 2xx and 3xx.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statuses(Vec<RangeInclusive<u16>>);

impl Statuses {
    /// The statuses of success: 2xx.
    pub fn successes() -> Statuses {
        Statuses(vec![200..=299])
    }

    /// True if the status is in the set.
    pub fn contains(&self, status: u16) -> bool {
        self.0.iter().any(|range| range.contains(&status))
    }
}

impl Default for Statuses {
    fn default() -> Statuses {
        Statuses(vec![200..=299, 300..=399])
    }
}

/// The text is not a set of statuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a list of final statuses: expected a list such as 200, 2xx or 200,301,4xx")]
pub struct NotStatuses(String);

impl FromStr for Statuses {
    type Err = NotStatuses;
    fn from_str(text: &str) -> Result<Statuses, NotStatuses> {
        let range = |text: &str| {
            let class = text.strip_suffix("xx").and_then(|class| class.parse::<u16>().ok());
            let (first, last) = match class {
                Some(class) => (class.checked_mul(100)?, class.checked_mul(100)?.checked_add(99)?),
                None => (text.parse().ok()?, text.parse().ok()?),
            };
            (200..=599).contains(&first).then_some(first..=last)
        };
        let ranges: Option<Vec<_>> = text.split(',').map(range).collect();
        ranges.map(Statuses).ok_or_else(|| NotStatuses(text.to_owned()))
    }
}

impl fmt::Display for Statuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, range) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match range.start() {
                single if single == range.end() => write!(f, "{comma}{single}")?,
                first => write!(f, "{comma}{}xx", first / 100)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_parse_back_and_nonsense_is_refused() {
        for text in ["200", "2xx,3xx", "200,301,4xx"] {
            assert_eq!(text.parse::<Statuses>().unwrap().to_string(), text);
        }
        assert_eq!("2xx,3xx".parse(), Ok(Statuses::default()));
        for text in ["", "ok", "100", "1xx", "600", "2x", "200,", "999xx"] {
            assert!(text.parse::<Statuses>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn what_is_expected_is_ok_and_nothing_else() {
        let mut expected = Expected::default();
        let reply = |status| Reply { status, body_bytes: 3, persistent: true };
        let outcomes = |expected: &Expected| {
            [200, 304, 404, 503].map(|status| expected.outcome(&reply(status), expected.digest, None))
        };
        use Outcome::{Ok, Shed, StatusError, WrongBody};
        assert_eq!(outcomes(&expected), [Ok, Ok, StatusError, Shed]);
        expected.status = "404,503".parse().unwrap();
        assert_eq!(outcomes(&expected), [StatusError, StatusError, Ok, Ok]);
        (expected.status, expected.length) = (Statuses::default(), Some(3));
        assert_eq!(outcomes(&expected), [Ok, Ok, StatusError, Shed]);
        expected.length = Some(4);
        assert_eq!(outcomes(&expected), [WrongBody, WrongBody, StatusError, Shed]);
        assert!(expected.in_time(Nanos::MAX));
        expected.deadline = Some(Nanos(5));
        assert!(expected.in_time(Nanos(5)) && !expected.in_time(Nanos(6)));
    }
}
