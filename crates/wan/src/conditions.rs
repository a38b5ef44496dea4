//! The properties of one direction of a path, as configured and as checked.
//!
//! Owns parsing and checking; `impairment` applies the conditions. A value of [`Conditions`] is valid, and no
//! other code checks it again.

use std::fmt;
use std::str::FromStr;

use base::{Bytes, Nanos};
use serde::Serialize;

use crate::units::{BitRate, Share};

/// The longest packet of the links, in bytes: the payload of an Ethernet frame.
pub const MTU: u32 = 1500;
/// The longest one-way delay. No protocol on the Internet waits longer, and the packets on their way would
/// exceed [`MOST_ON_THEIR_WAY`](crate::MOST_ON_THEIR_WAY).
const LONGEST_DELAY: Nanos = Nanos::from_secs(60);
/// The default queue holds what the link carries in this time, as home routers' queues do.
const DEFAULT_QUEUE: Nanos = Nanos::from_millis(100);
/// The default queue holds at least this number of full packets: enough for TCP's initial window (RFC 6928).
const LEAST_DEFAULT_QUEUE_PACKETS: u64 = 10;

/// The settings of one direction; `None` leaves a property unchanged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// The one-way delay.
    pub delay: Option<Nanos>,
    /// The variation of the delay, to both sides.
    pub jitter: Option<Nanos>,
    /// The share of lost packets.
    pub loss: Option<Share>,
    /// The share of packets that are sent ahead, without the delay.
    pub reorder: Option<Share>,
    /// The rate of the bottleneck.
    pub rate: Option<BitRate>,
    /// The length of the bottleneck's queue, in bytes.
    pub queue: Option<Bytes>,
}

/// The reason why conditions are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConditionsError {
    /// The text is not `name=value`, or its name is unknown.
    #[error("'{0}' is not one of delay=, jitter=, loss=, reorder=, rate= and queue=, separated by commas")]
    Unknown(String),
    /// The value of a name cannot be parsed.
    #[error("{0}=: {1}")]
    Value(&'static str, String),
    /// A name occurs twice.
    #[error("{0}= is given twice")]
    Twice(&'static str),
    /// The jitter exceeds the delay: packets would arrive before they were sent.
    #[error("a jitter of {jitter} exceeds the delay of {delay}; expected a jitter up to the delay")]
    JitterAboveDelay {
        /// The configured jitter.
        jitter: Nanos,
        /// The configured delay.
        delay: Nanos,
    },
    /// The delay is above the maximum.
    #[error("a delay of {0} is too long: expected a delay up to {LONGEST_DELAY}")]
    DelayTooLong(Nanos),
    /// Reordering without a delay: reordered packets are those that skip the delay.
    #[error("reordering needs a delay: reordered packets are sent without it")]
    ReorderWithoutDelay,
    /// A queue without a rate: no packet would wait.
    #[error("a queue needs a rate: without one no packet waits")]
    QueueWithoutRate,
}

impl Changes {
    /// These settings; `others` fills in the absent ones.
    pub fn laid_over(&self, others: &Changes) -> Changes {
        Changes {
            delay: self.delay.or(others.delay),
            jitter: self.jitter.or(others.jitter),
            loss: self.loss.or(others.loss),
            reorder: self.reorder.or(others.reorder),
            rate: self.rate.or(others.rate),
            queue: self.queue.or(others.queue),
        }
    }

    /// The checked conditions; absent settings have no effect.
    ///
    /// # Errors
    /// The errors that concern several values, and a delay above the maximum.
    pub fn check(&self) -> Result<Conditions, ConditionsError> {
        let (delay, jitter) = (self.delay.unwrap_or_default(), self.jitter.unwrap_or_default());
        if delay > LONGEST_DELAY {
            return Err(ConditionsError::DelayTooLong(delay));
        }
        if jitter > delay {
            return Err(ConditionsError::JitterAboveDelay { jitter, delay });
        }
        let reorder = self.reorder.unwrap_or_default();
        if reorder > Share::NONE && delay == Nanos::ZERO {
            return Err(ConditionsError::ReorderWithoutDelay);
        }
        let bottleneck = match (self.rate, self.queue) {
            (None, None) => None,
            (None, Some(_)) => return Err(ConditionsError::QueueWithoutRate),
            (Some(rate), queue) => Some(Bottleneck { rate, queue: queue.unwrap_or(default_queue(rate)) }),
        };
        Ok(Conditions { delay, jitter, loss: self.loss.unwrap_or_default(), reorder, bottleneck })
    }
}

fn default_queue(rate: BitRate) -> Bytes {
    let carried = rate.bits_per_second() as f64 / 8.0 * DEFAULT_QUEUE.as_secs_f64();
    let bytes = (carried as u64).max(LEAST_DEFAULT_QUEUE_PACKETS * u64::from(MTU));
    Bytes(bytes.next_multiple_of(1024))
}

impl FromStr for Changes {
    type Err = ConditionsError;
    fn from_str(text: &str) -> Result<Changes, ConditionsError> {
        let mut changes = Changes::default();
        for word in text.split(',') {
            let (name, value) =
                word.split_once('=').ok_or_else(|| ConditionsError::Unknown(word.to_owned()))?;
            match name.trim() {
                "delay" => set("delay", &mut changes.delay, value)?,
                "jitter" => set("jitter", &mut changes.jitter, value)?,
                "loss" => set("loss", &mut changes.loss, value)?,
                "reorder" => set("reorder", &mut changes.reorder, value)?,
                "rate" => set("rate", &mut changes.rate, value)?,
                "queue" => set("queue", &mut changes.queue, value)?,
                _ => return Err(ConditionsError::Unknown(word.to_owned())),
            }
        }
        Ok(changes)
    }
}

fn set<T: FromStr<Err: fmt::Display>>(
    name: &'static str,
    place: &mut Option<T>,
    value: &str,
) -> Result<(), ConditionsError> {
    let value = value.parse().map_err(|error: T::Err| ConditionsError::Value(name, error.to_string()))?;
    if place.replace(value).is_some() { Err(ConditionsError::Twice(name)) } else { Ok(()) }
}

/// The treatment of packets in one direction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Conditions {
    /// The time a packet is on its way without the bottleneck, such as `50ms`.
    pub(crate) delay: Nanos,
    /// At most the delay. The delay of a packet is uniform from delay - jitter to delay + jitter.
    pub(crate) jitter: Nanos,
    /// The share of lost packets, such as `1%`.
    pub(crate) loss: Share,
    /// The share of packets that are sent ahead, without the delay.
    pub(crate) reorder: Share,
    /// The slowest link, if the rate is bounded.
    pub(crate) bottleneck: Option<Bottleneck>,
}

/// A link that sends one packet after the other, and its queue.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Bottleneck {
    /// The rate, such as `100Mbit`: bits per second.
    pub rate: BitRate,
    /// The length of the queue, such as `64KiB`. The packet being sent counts with its unsent part.
    pub queue: Bytes,
}

impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.delay)?;
        if self.jitter > Nanos::ZERO {
            write!(f, " +-{}", self.jitter)?;
        }
        if self.loss > Share::NONE {
            write!(f, ", loss {}", self.loss)?;
        }
        if self.reorder > Share::NONE {
            write!(f, ", reorder {}", self.reorder)?;
        }
        if let Some(Bottleneck { rate, queue }) = self.bottleneck {
            write!(f, ", {rate}, queue {queue}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> Result<Conditions, ConditionsError> {
        text.parse::<Changes>().and_then(|changes| changes.check())
    }

    #[test]
    fn what_is_asked_for_is_had_and_shown() {
        let conditions = checked("delay=50ms,jitter=5ms,loss=1%,reorder=0.5%,rate=100Mbit").unwrap();
        let shown = "50ms +-5ms, loss 1%, reorder 0.5%, 100Mbit, queue 1221KiB";
        assert_eq!(conditions.to_string(), shown);
        assert_eq!(checked("rate=64kbit").unwrap().bottleneck.unwrap().queue, Bytes(15 * 1024));
        assert_eq!(Changes::default().check().unwrap().to_string(), "0s");
    }

    #[test]
    fn one_direction_may_differ() {
        let both: Changes = "delay=50ms,loss=1%".parse().unwrap();
        let up: Changes = "delay=10ms,rate=1Mbit".parse().unwrap();
        assert_eq!(up.laid_over(&both).check(), checked("delay=10ms,loss=1%,rate=1Mbit"));
    }

    #[test]
    fn mistakes_are_named_with_what_is_accepted() {
        for (text, says) in [
            ("", "'' is not one of delay=,"),
            ("delay", "'delay' is not one of delay=,"),
            ("lag=3ms", "'lag=3ms' is not one of delay=,"),
            ("delay=3", "delay=: '3' is not a time such as"),
            ("loss=2", "loss=: '2' is not a share from 0% to 100%"),
            ("delay=3ms,delay=4ms", "delay= is given twice"),
            ("jitter=3ms", "a jitter of 3ms exceeds the delay of 0s"),
            ("reorder=1%", "reordering needs a delay"),
            ("queue=64KiB", "a queue needs a rate"),
            ("delay=2min", "a delay of 2min is too long: expected a delay up to 1min"),
        ] {
            let error = checked(text).unwrap_err().to_string();
            assert!(error.starts_with(says), "{text}: {error}");
        }
    }
}
