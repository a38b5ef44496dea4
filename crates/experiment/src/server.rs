//! The servers of an experiment: `inrush`, other servers that the lab can set up, and any command.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use base::Limit;
use serde::Deserialize;

/// The kind of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServerKind {
    /// `inrush serve` with flags.
    #[default]
    Inrush,
    /// nginx, one event loop, tuned.
    Nginx,
    /// Apache with a pool of processes, each serving one connection at a time.
    ApachePrefork,
    /// Apache with threads, and idle connections watched by one of them.
    ApacheEvent,
    /// lighttpd, one event loop.
    Lighttpd,
    /// h2o, one event loop.
    H2o,
    /// The server of a Debian package in the package's own configuration, with only address and root changed.
    Installed,
    /// Any command.
    Command,
    /// No server: `inrush herd` with flags, whose points are the trial's figures.
    Herd,
}

impl ServerKind {
    /// Tells whether load is offered to it.
    pub fn serves(self) -> bool {
        self != ServerKind::Herd
    }
}

/// A package with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Package {
    /// nginx.
    Nginx,
    /// Apache with the threads of its `event` module.
    Apache2,
    /// lighttpd.
    Lighttpd,
    /// h2o.
    H2o,
    /// HAProxy, in front of an `inrush serve`.
    Haproxy,
}

impl Package {
    /// The name of its program.
    pub fn program(self) -> &'static str {
        match self {
            Package::Nginx => "nginx",
            Package::Apache2 => "apache2",
            Package::Lighttpd => "lighttpd",
            Package::H2o => "h2o",
            Package::Haproxy => "haproxy",
        }
    }
}

/// The most answers that a command must give before it is ready.
const MOST_TIMES: u32 = 10_000;

/// The sign that a command is ready.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Ready {
    /// It takes connections.
    #[default]
    Connects,
    /// It answers a GET of this path so many times in a row with a status below 400. Some need thousands before they are as
    /// fast as they get: their code is compiled while it runs.
    Answers(String, u32),
    /// It writes a line with this text in it.
    Says(String),
}

impl FromStr for Ready {
    type Err = String;
    fn from_str(text: &str) -> Result<Ready, String> {
        let refused = || {
            let forms = format!("connect, GET /PATH [N times] with N up to {MOST_TIMES}, or line TEXT");
            format!("'{text}' is not a readiness check; expected {forms}")
        };
        match text.split_once(' ') {
            None if text == "connect" => Ok(Ready::Connects),
            Some(("GET", rest)) if rest.starts_with('/') => {
                let (path, times) = rest.split_once(' ').unwrap_or((rest, "1 times"));
                let times = times.strip_suffix(" times").and_then(|times| times.parse().ok());
                let times = times.filter(|times| (1..=MOST_TIMES).contains(times));
                times.map(|times| Ready::Answers(path.to_owned(), times)).ok_or_else(refused)
            }
            Some(("line", rest)) if !rest.trim().is_empty() => Ok(Ready::Says(rest.trim().to_owned())),
            _ => Err(refused()),
        }
    }
}

impl fmt::Display for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ready::Connects => f.write_str("connect"),
            Ready::Answers(path, 1) => write!(f, "GET {path}"),
            Ready::Answers(path, times) => write!(f, "GET {path} {times} times"),
            Ready::Says(text) => write!(f, "line {text}"),
        }
    }
}

impl<'de> Deserialize<'de> for Ready {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Ready, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A server with its start.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ServerSpec {
    /// A short name for a legend; unique in the experiment.
    pub name: String,
    /// One sentence about it for the report; empty if the name is enough.
    #[serde(default)]
    pub about: String,
    /// The kind of server.
    #[serde(default)]
    pub kind: ServerKind,
    /// For an installed server: its package.
    pub package: Option<Package>,
    /// Flags of `inrush serve` (also of those behind a command) or `inrush herd`, with the values of axes in braces.
    #[serde(default)]
    pub flags: Vec<String>,
    /// For a command: its words. The lab replaces `{address}`, `{ip}`, `{port}`, `{root}`, `{folder}` (empty, its
    /// own), `{backlog}`, `{connections}`, `{cpus}` and `{apps}` (the folder of the small applications that
    /// come with the program). The first server behind it has the address `{behind1}` and the
    /// agent port `{agent1}`.
    #[serde(default)]
    pub command: Vec<String>,
    /// For HAProxy or a command that is a load balancer: the `inrush serve` behind it, each with the share of a core that it may
    /// use.
    #[serde(default)]
    pub behind: Vec<f64>,
    /// For a command: additional variables of its environment.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// For a command: the sign that it is ready.
    #[serde(default)]
    pub ready: Ready,
    /// Flags of an `inrush guard` that is started beside it, in one text: `""`, `"--queue-target 50ms"`. Absent: it stands
    /// alone.
    pub guard: Option<String>,
    /// For Apache: its processes (prefork) or threads (event).
    pub workers: Option<u32>,
    /// Length of its accept queue; by default the common one.
    pub backlog: Option<u32>,
    /// The share of one core that it may use; by default the common one.
    pub cpu_quota: Option<f64>,
    /// For `inrush serve` in an experiment that repeats a paper: it may end sessions because others wait, as the paper's server
    /// does. Otherwise a trial with such an end is flawed.
    #[serde(default)]
    pub may_cut_sessions: bool,
    /// For `inrush serve`: the worker processes that it must have started; by default as all servers.
    pub started_workers: Option<NonZeroU32>,
    /// For `inrush serve`: the accept-limit that it gets over its admin interface in the middle of the warm-up.
    pub live_accept_limit: Option<Limit>,
}

impl ServerSpec {
    /// Iterates over all its texts, which may hold values of axes.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let lists = self.flags.iter().chain(&self.command).chain(self.environment.values());
        lists.chain(&self.guard).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_signs_are_read_back_as_written() {
        for text in ["connect", "GET /", "GET /a?b 4000 times", "line listening on"] {
            assert_eq!(text.parse::<Ready>().unwrap().to_string(), text);
        }
        for text in ["", "GET a", "GET / 0 times", "GET / 10001 times", "GET / often", "GET / 5", "line "] {
            let refused = text.parse::<Ready>().unwrap_err();
            assert!(refused.contains("GET /PATH [N times] with N up to 10000"), "{text}: {refused}");
        }
    }
}
