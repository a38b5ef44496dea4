//! The loads of an experiment: rate, arrivals, workload, and populations beside them.

use base::{Nanos, PerSecond};
use serde::Deserialize;

use super::figure::one_or_many;
use super::template::{CAPACITY, placeholders};

/// Requests per second, once the axes have their values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// A number per second.
    PerSecond(f64),
    /// A multiple of the capacity.
    OfCapacity(f64),
}

/// The ending of a multiple of the capacity.
pub(super) const OF_CAPACITY: &str = "x capacity";

impl Rate {
    /// Reads `1.5 x capacity`, `2k` or `400`.
    ///
    /// # Errors
    /// One sentence that names the accepted forms.
    pub fn parse(text: &str) -> Result<Rate, String> {
        let refuse =
            || format!("'{text}' is not a rate; expected a rate such as 2k, 400 or 1.5 {OF_CAPACITY}");
        match text.trim().strip_suffix(OF_CAPACITY) {
            Some(factor) => match factor.trim().parse() {
                Ok(factor) if factor > 0.0 && f64::is_finite(factor) => Ok(Rate::OfCapacity(factor)),
                _ => Err(refuse()),
            },
            None => text.parse::<PerSecond>().map(|rate| Rate::PerSecond(rate.0)).map_err(|_| refuse()),
        }
    }
}

/// The TCP that carries a load's connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stack {
    /// Kernel sockets.
    #[default]
    Kernel,
    /// TCP in user space over a TUN device in the server's namespace: a client that is rarely the limit.
    User,
    /// TCP in user space over AF_XDP, on the client's end of the link between both namespaces. The link is there when the
    /// server starts, so that a server can attach programs to it. One thread.
    AfXdp,
}

impl Stack {
    /// Tells whether the connections are in user space.
    pub fn is_in_user_space(self) -> bool {
        self != Stack::Kernel
    }

    /// Returns the place of the connections, in words.
    pub fn words(self) -> &'static str {
        match self {
            Stack::Kernel => "kernel sockets",
            Stack::User => "TCP over TUN",
            Stack::AfXdp => "TCP over AF_XDP",
        }
    }
}

/// A server behind a load balancer is killed during the measured time, and started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Outage {
    /// The number of the server, from 1 up, as in `{behind1}`.
    pub of: usize,
    /// The time of its end, since the beginning of the measured time.
    pub from: Nanos,
    /// The time when it is started again.
    pub to: Nanos,
}

/// A load. Texts may hold the values of axes in braces.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LoadSpec {
    /// A short name for a legend; unique in the experiment.
    pub name: String,
    /// `--workload` of `inrush load`.
    #[serde(default = "one_packet")]
    pub workload: String,
    /// The requested paths, one or several. By default `/` for a SPECweb99-like workload and `/index.html` for
    /// others.
    #[serde(default, deserialize_with = "one_or_many")]
    pub path: Vec<String>,
    /// Requests per second: `{offered} x capacity` or `1000`; absent for a closed loop, and for arrivals that
    /// have rates of their own.
    pub rate: Option<String>,
    /// The server whose capacity its rate is a multiple of, so that all servers are offered the same; by default that of
    /// `[capacity]`.
    pub capacity_of: Option<String>,
    /// `--requests-per-connection`; by default the workload's.
    pub requests_per_connection: Option<String>,
    /// `--arrivals`; by default `poisson` for a load with a rate.
    pub arrivals: Option<String>,
    /// The client's TCP; kernel sockets where absent.
    #[serde(default)]
    pub stack: Stack,
    /// Clients beside the measured ones, `--population` each: `idle:{idle}`. One of 0 clients is left out.
    #[serde(default)]
    pub populations: Vec<String>,
    /// All other flags of `inrush load`.
    #[serde(default)]
    pub flags: Vec<String>,
    /// A server that is gone for a part of the measured time.
    pub outage: Option<Outage>,
}

fn one_packet() -> String {
    "one-packet".to_owned()
}

impl LoadSpec {
    /// Tells whether it depends on the capacity.
    pub fn is_relative(&self) -> bool {
        self.rate.as_ref().is_some_and(|rate| rate.trim_end().ends_with(OF_CAPACITY)) || self.names_capacity()
    }

    /// Tells whether it can be offered at any rate while the capacity is not known: its arrivals alone may name the capacity,
    /// and the search has others.
    pub fn can_search(&self) -> bool {
        !LoadSpec { arrivals: None, ..self.clone() }.names_capacity()
    }

    fn names_capacity(&self) -> bool {
        self.texts().flat_map(placeholders).any(|name| name == CAPACITY)
    }

    /// Iterates over all its texts, which may hold values of axes.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let single = [Some(&self.workload), self.rate.as_ref()];
        let more = [self.requests_per_connection.as_ref(), self.arrivals.as_ref()];
        let lists = self.path.iter().chain(&self.populations).chain(&self.flags);
        single.into_iter().chain(more).flatten().chain(lists).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_absolute_or_multiples_of_the_capacity() {
        assert_eq!(Rate::parse("1.5 x capacity"), Ok(Rate::OfCapacity(1.5)));
        assert_eq!(Rate::parse("2x capacity"), Ok(Rate::OfCapacity(2.0)));
        assert_eq!(Rate::parse("2k"), Ok(Rate::PerSecond(2000.0)));
        for wrong in ["", "0", "0 x capacity", "inf x capacity", "x capacity", "fast"] {
            let error = Rate::parse(wrong).unwrap_err();
            assert!(
                error.ends_with("is not a rate; expected a rate such as 2k, 400 or 1.5 x capacity"),
                "{error}"
            );
        }
    }
}
