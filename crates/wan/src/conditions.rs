//! What one direction of a path does to its packets, as asked for and as checked.
//!
//! Owns parsing and checking; `impairment` does it. A value of [`Conditions`] makes sense, and nobody
//! checks it again.

use std::fmt;
use std::str::FromStr;

use base::{Bytes, Nanos};
use serde::Serialize;

use crate::units::{BitRate, Share};

/// The longest packet of the links, in bytes: what Ethernet carries.
pub const MTU: u32 = 1500;
/// The longest one-way delay: beyond it nothing on the Internet still waits, and the packets on their way
/// would need more memory than [`MOST_ON_THEIR_WAY`](crate::MOST_ON_THEIR_WAY) allows.
const LONGEST_DELAY: Nanos = Nanos::from_secs(60);
/// A queue that nobody chose holds what the link carries in this time, as home routers' do.
const DEFAULT_QUEUE: Nanos = Nanos::from_millis(100);
/// And at least so many packets of full length: enough for TCP's initial window (RFC 6928).
const LEAST_DEFAULT_QUEUE_PACKETS: u64 = 10;

/// What may be asked for one direction; what is absent is not changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// The one-way delay.
    pub delay: Option<Nanos>,
    /// How far the delay varies, to both sides.
    pub jitter: Option<Nanos>,
    /// The share of packets that is lost.
    pub loss: Option<Share>,
    /// The share of packets that goes ahead, without the delay.
    pub reorder: Option<Share>,
    /// How fast the bottleneck sends.
    pub rate: Option<BitRate>,
    /// How much may wait for the bottleneck.
    pub queue: Option<Bytes>,
}

/// Why conditions cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConditionsError {
    /// A word that is not `name=value`.
    #[error("'{0}' is not one of delay=, jitter=, loss=, reorder=, rate= and queue=, separated by commas")]
    Unknown(String),
    /// A value that is none.
    #[error("{0}=: {1}")]
    Value(&'static str, String),
    /// A name that came twice.
    #[error("{0}= is there twice")]
    Twice(&'static str),
    /// A packet cannot come before it was sent.
    #[error("a jitter of {jitter} needs a delay of at least as much, and that is {delay}")]
    JitterAboveDelay {
        /// As asked for.
        jitter: Nanos,
        /// As asked for.
        delay: Nanos,
    },
    /// Longer than we can.
    #[error("a delay of {0} is too long: accepted are delays up to {LONGEST_DELAY}")]
    DelayTooLong(Nanos),
    /// Going ahead means to go without the delay.
    #[error("reordering needs a delay: packets that go ahead are those that are not delayed")]
    ReorderWithoutDelay,
    /// Nothing waits where nothing is slow.
    #[error("a queue needs a rate: without one no packet waits")]
    QueueWithoutRate,
}

impl Changes {
    /// These, and where they are silent the others.
    pub fn over(&self, others: &Changes) -> Changes {
        Changes {
            delay: self.delay.or(others.delay),
            jitter: self.jitter.or(others.jitter),
            loss: self.loss.or(others.loss),
            reorder: self.reorder.or(others.reorder),
            rate: self.rate.or(others.rate),
            queue: self.queue.or(others.queue),
        }
    }

    /// The conditions; what was not asked for does nothing.
    ///
    /// # Errors
    /// Those of the enum that are about several values, and a delay that is too long.
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

/// What one direction does to its packets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Conditions {
    /// How long a packet is on its way, apart from what the bottleneck adds.
    pub(crate) delay: Nanos,
    /// At most the delay: a packet's own delay is uniform from delay - jitter to delay + jitter.
    pub(crate) jitter: Nanos,
    pub(crate) loss: Share,
    pub(crate) reorder: Share,
    pub(crate) bottleneck: Option<Bottleneck>,
}

/// A link that sends one bit after the other, and what waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Bottleneck {
    pub rate: BitRate,
    /// The packet being sent counts with what is still to be sent of it.
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
        assert_eq!(up.over(&both).check(), checked("delay=10ms,loss=1%,rate=1Mbit"));
    }

    #[test]
    fn mistakes_are_named_with_what_is_accepted() {
        for (text, says) in [
            ("", "'' is not one of delay=,"),
            ("delay", "'delay' is not one of delay=,"),
            ("lag=3ms", "'lag=3ms' is not one of delay=,"),
            ("delay=3", "delay=: '3' is not a time such as"),
            ("loss=2", "loss=: '2' is not a share from 0% to 100%"),
            ("delay=3ms,delay=4ms", "delay= is there twice"),
            ("jitter=3ms", "a jitter of 3ms needs a delay of at least as much, and that is 0s"),
            ("reorder=1%", "reordering needs a delay"),
            ("queue=64KiB", "a queue needs a rate"),
            ("delay=2min", "a delay of 2min is too long: accepted are delays up to 1min"),
        ] {
            let error = checked(text).unwrap_err().to_string();
            assert!(error.starts_with(says), "{text}: {error}");
        }
    }
}
