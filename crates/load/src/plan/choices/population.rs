//! Populations: clients of one kind beside the measured traffic, in the same run.
//!
//! A server has other clients beside the measured ones. Most connections are idle most of the time (FDM,
//! figures 9 to 11). Some clients ask seldom (SMPED, figure 6), some are slow. Each population has its own
//! thread, ledger and random draws, so it does not change the schedule of the measured traffic. It requests
//! the same URLs as the measured traffic and is counted separately.
//!
//! | text | each client |
//! |---|---|
//! | `idle:N` | holds a connection and sends nothing |
//! | `idle:N,half-request` | holds a connection after sending the first half of a request |
//! | `hot:N[,REQUESTS]` | sends a request every 0 to 20 ms, REQUESTS per connection, otherwise five (SMPED) |
//! | `cold:N[,REQUESTS]` | sends a request every 5 s, REQUESTS per connection, otherwise twenty (SMPED) |
//! | `slow-read:N,RATE` | sends one request per connection and reads the reply at RATE bytes per second |
//! | `slow-send:N,RATE` | sends one request per connection at RATE bytes per second and reads the reply |
//!
//! Hot and cold clients are closed-loop clients of the ordinary engine. For the others, which hold
//! connections, the engine has loops of its own. All connect during the warm-up, as far as its length allows.
//! Hot and cold clients begin in the middle of a session: the first session has from one request to all of them.

use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};
use std::str::FromStr;

use base::{Bytes, Nanos};

use crate::plan::choices::workload::{COLD, HOT, Length, Think};

/// Clients of one kind and their number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Population {
    pub(crate) clients: NonZeroU32,
    pub(crate) manner: Manner,
}

/// The behaviour of a population's clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    Idle { half_request: bool },
    Hot { requests: Option<NonZeroU32> },
    Cold { requests: Option<NonZeroU32> },
    SlowRead { bytes_per_s: NonZeroU64 },
    SlowSend { bytes_per_s: NonZeroU64 },
}

impl Population {
    /// The number of clients; each has one connection at a time.
    pub fn clients(&self) -> u32 {
        self.clients.get()
    }

    /// Session length and think time of clients that the ordinary engine runs; `None` for holders.
    pub(crate) fn sessions(&self) -> Option<(Length, Think)> {
        let ((length, think), requests) = match self.manner {
            Manner::Hot { requests } => (HOT, requests),
            Manner::Cold { requests } => (COLD, requests),
            Manner::Idle { .. } | Manner::SlowRead { .. } | Manner::SlowSend { .. } => return None,
        };
        Some((requests.map_or(length, |requests| Length::Uniform(requests.get()..=requests.get())), think))
    }

    /// A warning for connections that were missing when the measured time began, for whatever reason. Hot and cold clients
    /// have no connection between two sessions.
    pub(crate) fn missing(&self, found: &record::Population) -> Option<String> {
        (self.sessions().is_none() && found.is_short()).then(|| {
            format!(
                "Only {} of the {} connections of population {self} were open when the measured time began; raise \
                 --warmup, or the server's connection limit.",
                found.open_at_start, found.clients
            )
        })
    }

    /// The time from the run's start over which the clients connect: at most the warm-up. Cold clients are
    /// spread over their think time, because otherwise all of them would ask at the same moments for ever.
    pub(crate) fn spread(&self, warmup: Nanos) -> Nanos {
        match self.sessions() {
            Some((_, think)) => think.longest().min(warmup),
            None => warmup / 2,
        }
    }
}

/// The text is not a population.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not a population: expected idle:6000, idle:500,half-request, hot:50, cold:300, slow-read:50,1KiB/s, \
     slow-send:20,10B/s and the like"
)]
pub struct NotAPopulation(String);

impl FromStr for Population {
    type Err = NotAPopulation;

    fn from_str(text: &str) -> Result<Population, NotAPopulation> {
        parse(text).ok_or_else(|| NotAPopulation(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Population> {
    let (kind, rest) = text.split_once(':')?;
    let (clients, detail) = match rest.split_once(',') {
        Some((clients, detail)) => (clients, Some(detail.trim())),
        None => (rest, None),
    };
    let manner = match (kind, detail) {
        ("idle", None) => Manner::Idle { half_request: false },
        ("idle", Some("half-request")) => Manner::Idle { half_request: true },
        ("hot", requests) => Manner::Hot { requests: requests.map(str::parse).transpose().ok()? },
        ("cold", requests) => Manner::Cold { requests: requests.map(str::parse).transpose().ok()? },
        ("slow-read", Some(rate)) => Manner::SlowRead { bytes_per_s: byte_rate(rate)? },
        ("slow-send", Some(rate)) => Manner::SlowSend { bytes_per_s: byte_rate(rate)? },
        _ => return None,
    };
    Some(Population { clients: clients.trim().parse().ok()?, manner })
}

/// Bytes per second, with or without `/s`.
fn byte_rate(text: &str) -> Option<NonZeroU64> {
    let Bytes(bytes) = text.strip_suffix("/s").unwrap_or(text).parse().ok()?;
    NonZeroU64::new(bytes)
}

impl fmt::Display for Population {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clients = self.clients;
        match self.manner {
            Manner::Idle { half_request: false } => write!(f, "idle:{clients}"),
            Manner::Idle { half_request: true } => write!(f, "idle:{clients},half-request"),
            Manner::Hot { requests: None } => write!(f, "hot:{clients}"),
            Manner::Hot { requests: Some(requests) } => write!(f, "hot:{clients},{requests}"),
            Manner::Cold { requests: None } => write!(f, "cold:{clients}"),
            Manner::Cold { requests: Some(requests) } => write!(f, "cold:{clients},{requests}"),
            Manner::SlowRead { bytes_per_s } => {
                write!(f, "slow-read:{clients},{}/s", Bytes(bytes_per_s.get()))
            }
            Manner::SlowSend { bytes_per_s } => {
                write!(f, "slow-send:{clients},{}/s", Bytes(bytes_per_s.get()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn populations_parse_back() {
        for text in [
            "idle:6000",
            "idle:1,half-request",
            "hot:50",
            "hot:50,1",
            "cold:300",
            "cold:300,1000",
            "slow-read:50,1KiB/s",
            "slow-send:20,10B/s",
        ] {
            assert_eq!(text.parse::<Population>().unwrap().to_string(), text);
        }
        let plain: Population = "slow-send:20, 10".parse().unwrap();
        assert_eq!(plain.to_string(), "slow-send:20,10B/s");
        assert_eq!(plain.clients(), 20);
        let [usual, long] =
            ["cold:3", "cold:3,1000"].map(|text| text.parse::<Population>().unwrap().sessions());
        assert_eq!(usual, Some(COLD));
        assert_eq!(long, Some((Length::Uniform(1000..=1000), COLD.1)));
    }

    #[test]
    fn what_is_none_is_refused_with_those_there_are() {
        for text in [
            "",
            "idle",
            "idle:0",
            "idle:x",
            "idle:5,whole-request",
            "hot:5,1KiB/s",
            "hot:5,",
            "cold:5,0",
            "slow-read:5",
            "slow-send:5,0",
            "busy:5",
        ] {
            let told = text.parse::<Population>().unwrap_err().to_string();
            assert!(told.starts_with(&format!("'{text}' is not a population: expected idle:6000")), "{told}");
        }
    }
}
