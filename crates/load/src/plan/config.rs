//! The configuration of a run, in types that leave few checks to [`crate::prepare`].

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use base::{Nanos, PerSecond, Seed, UnitError};
use serde::{Deserialize, Serialize};
use usertcp::SourceNet;

use crate::plan::choices::arrivals::Process;
use crate::plan::choices::expected::Expected;
use crate::plan::choices::population::Population;
use crate::plan::choices::retry::Retry;
use crate::plan::choices::source_addresses::SourceRange;
use crate::plan::choices::tls::TlsOptions;
use crate::plan::choices::workload::{DataFile, DataOrder, Form, Length, RequestFile, Spec, Think};
use crate::plan::terms::target::Url;
use crate::plan::terms::target::addressing::Addressing;
use crate::plan::terms::window::Window;

/// The default connect timeout: above any round trip, below the kernel's first retransmission (1 s), so that
/// an attempt is one SYN (Banga 1997, section 4.2).
pub const CONNECT_TIMEOUT: Nanos = Nanos::from_millis(500);

/// The default timeout of a request: the client gives up without a complete reply by then.
pub const REQUEST_TIMEOUT: Nanos = Nanos::from_secs(10);

/// The most engine threads of one machine, for each CPU that this process may use. A thread keeps a CPU busy, so more
/// threads only wait for each other.
pub const THREADS_PER_CPU: u32 = 8;

/// The most engine threads of an agent, whose CPUs the coordinator does not know.
pub const AGENT_THREADS_MAX: u32 = 1024;

/// The most processes of one generator: more than any machine needs.
pub const PROCESSES_MAX: u32 = 64;

/// The most agents of one fleet: their presence and intervals still pass through one coordinator with ease.
pub const AGENTS_MAX: u32 = 256;

/// The most connects pending at once: D of Banga 1997, section 4.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Sockets {
    /// The bound follows from the rate and the connect timeout.
    #[default]
    Auto,
    /// A fixed bound; a session that is due while all are pending ends as `no_descriptor`.
    AtMost(NonZeroU32),
}

/// The way the client ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Close {
    /// Orderly close (FIN); the side that closes first keeps the port for a minute.
    #[default]
    Fin,
    /// Reset (RST): the port is free at once, and data on its way from the server is lost.
    Reset,
}

/// The TCP that carries the connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Stack {
    /// The kernel's sockets.
    #[default]
    Kernel,
    /// TCP in user space; each thread has its own link.
    User {
        /// The link for its packets.
        link: Link,
        /// The addresses that connections come from; `None` selects [`SOURCE_NET`] or [`SOURCE_NET_V6`].
        net: Option<SourceNet>,
        /// The server's CPUs, where the kernel receives the packets of a TUN device; the sender's if empty.
        server_cpus: Vec<usize>,
        /// False if a run without these CPUs is better than none: the kernel may refuse to steer.
        must_steer: bool,
    },
}

/// The link that carries the packets of TCP in user space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Link {
    /// A TUN device, to a server in this network namespace.
    #[default]
    Tun,
    /// AF_XDP sockets on this interface, to a server behind it. The interface's queues belong to one thread, so
    /// populations connect through the kernel.
    AfXdp(String),
}

/// The source net for an IPv4 target.
pub const SOURCE_NET: &str = "10.94.0.0/16";

/// The source net for an IPv6 target.
pub const SOURCE_NET_V6: &str = "fd94::/64";

/// The text names no link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a link: expected tun or af-xdp:INTERFACE")]
pub struct NotALink(String);

impl FromStr for Link {
    type Err = NotALink;

    fn from_str(text: &str) -> Result<Link, NotALink> {
        match text.split_once(':') {
            None if text == "tun" => Ok(Link::Tun),
            Some(("af-xdp", interface)) if !interface.is_empty() => Ok(Link::AfXdp(interface.to_owned())),
            _ => Err(NotALink(text.to_owned())),
        }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Link::Tun => f.write_str("tun"),
            Link::AfXdp(interface) => write!(f, "af-xdp:{interface}"),
        }
    }
}

/// The number of generator processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Processes {
    /// Enough processes for the descriptors that the run may open at once.
    #[default]
    Auto,
    /// A fixed number.
    Count(NonZeroU32),
    /// The agents of a fleet, at most [`AGENTS_MAX`]. Each has [`Config::threads`] threads on its own machine.
    Agents(NonZeroU32),
    /// The paper's pair: an establisher and a handler with one thread each (Banga 1997, section 4.2). Requires
    /// the S-client, plain HTTP, one request per connection and no retries.
    Pair,
}

/// The rule that begins sessions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Client {
    /// The S-client (open loop): the arrival process begins sessions, whatever the server does.
    SClient {
        /// Sessions per second of all threads together; ignored by processes with rates of their own.
        rate: PerSecond,
        /// The arrival process of the sessions.
        arrivals: Process,
        /// The bound on pending connects, all threads together.
        sockets: Sockets,
    },
    /// The S-client without a rate: this many connects are pending, all threads together. Another one begins when one has
    /// succeeded, failed or timed out, whatever becomes of the request (Banga 1997, section 4.2).
    Pending {
        /// D of the paper.
        connects: NonZeroU32,
    },
    /// The simple client (closed loop): each begins a session when its last one has ended.
    Closed {
        /// The number of clients of all threads together.
        clients: NonZeroU32,
    },
}

/// The configuration of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The URLs to request: at least one, all of one server ([`crate::prepare`] checks both).
    pub urls: Vec<Url>,
    /// The rule that begins sessions.
    pub client: Client,
    /// Engine threads, of each agent in a fleet; each has an equal share of the rate or of the clients.
    pub threads: NonZeroU32,
    /// Processes that share the threads, at least one thread each; only [`crate::run_in_processes`] reads
    /// this.
    #[serde(skip)]
    pub processes: Processes,
    /// The measured time. A run takes `warmup` plus `duration`.
    pub duration: Nanos,
    /// The time before the measured window.
    pub warmup: Nanos,
    /// Timeout of a connect, after which it is abandoned; not zero.
    pub connect_timeout: Nanos,
    /// Timeout of a request; the client abandons request and connection without a complete reply by then; not
    /// zero.
    pub request_timeout: Nanos,
    /// The requests that sessions make.
    pub workload: Spec,
    /// Requests from a file, in place of the workload's. A file belongs to one machine and does not travel.
    #[serde(skip)]
    pub requests: Option<RequestFile>,
    /// Values for the requests of the file.
    #[serde(skip)]
    pub data: Option<DataFile>,
    /// The order in which sessions take the rows of the data.
    #[serde(skip)]
    pub data_order: DataOrder,
    /// Requests per session; `None` leaves them to the workload.
    pub requests_per_connection: Option<Length>,
    /// The kept connections of all threads that the requests of an open loop share: the rate is then of requests.
    /// `None` gives each session a connection of its own.
    #[serde(default)]
    pub connections: Option<NonZeroU32>,
    /// The most requests of a session under way at once, over HTTP/2; `None` speaks HTTP/1.1.
    pub streams: Option<NonZeroU32>,
    /// The time from a reply to the session's next request; a closed client also waits before its next
    /// session. `None` leaves it to the workload.
    pub think: Option<Think>,
    /// Method, header fields and content of every request.
    pub form: Form,
    /// True to follow redirects to the same server.
    #[serde(default)]
    pub follow: bool,
    /// The retry policy for failed requests; applies to closed-loop clients and populations too.
    pub retry: Retry,
    /// The replies that count as correct and in time; a deadline is not zero.
    pub expected: Expected,
    /// Clients beside the measured traffic; each population at most once.
    pub populations: Vec<Population>,
    /// The addresses that connections go to.
    #[serde(default)]
    pub addressing: Addressing,
    /// TLS settings for https URLs.
    pub tls: TlsOptions,
    /// The seed of every random draw in the run.
    pub seed: Seed,
    /// The addresses to connect from; `None` selects the kernel's choice, or enough addresses of 127.0.0.0/8.
    #[serde(skip)]
    pub source: Option<SourceRange>,
    /// The TCP that carries the connections.
    #[serde(skip)]
    pub stack: Stack,
    /// The way the client ends connections.
    pub close: Close,
    /// The interval of the time series; not zero.
    pub interval: Nanos,
    /// The measured clean rate of this machine with this many threads. A run that asks for more sessions per
    /// second is generator-limited.
    #[serde(skip)]
    pub clean_rate: Option<PerSecond>,
    /// The user's statement that the target server is theirs. Loads above
    /// [`RATE_UNASKED`](crate::plan::preflight::RATE_UNASKED) on a public address require it.
    pub own_this_server: bool,
}

impl Config {
    /// A run with the defaults: one thread, 30 s after 5 s of warm-up, intervals of 1 s, one request per
    /// session, seed 1.
    pub fn new(urls: Vec<Url>, client: Client) -> Config {
        Config {
            urls,
            client,
            threads: NonZeroU32::MIN,
            processes: Processes::Count(NonZeroU32::MIN),
            duration: Nanos::from_secs(30),
            warmup: Nanos::from_secs(5),
            connect_timeout: CONNECT_TIMEOUT,
            request_timeout: REQUEST_TIMEOUT,
            workload: Spec::OnePacket,
            requests: None,
            data: None,
            data_order: DataOrder::default(),
            requests_per_connection: None,
            connections: None,
            follow: false,
            streams: None,
            think: None,
            form: Form::default(),
            retry: Retry::Never,
            expected: Expected::default(),
            populations: Vec::new(),
            addressing: Addressing::default(),
            tls: TlsOptions::default(),
            seed: Seed(1),
            source: None,
            stack: Stack::Kernel,
            close: Close::Fin,
            interval: Nanos::SECOND,
            clean_rate: None,
            own_this_server: false,
        }
    }

    /// The threads of all agents, or of this machine's processes.
    pub(crate) fn threads_in_all(&self) -> u32 {
        match self.processes {
            Processes::Agents(agents) => self.threads.get().saturating_mul(agents.get()),
            Processes::Auto | Processes::Count(_) | Processes::Pair => self.threads.get(),
        }
    }

    /// The measured window.
    pub fn window(&self) -> Window {
        Window { from: self.warmup, until: self.warmup.saturating_add(self.duration) }
    }

    /// The highest rate of sessions over any span of length `span`; `None` for a client without a rate.
    pub(crate) fn sessions_peak(&self, span: Nanos) -> Option<PerSecond> {
        match &self.client {
            Client::SClient { rate, arrivals, .. } => Some(arrivals.peak(*rate, self.window().until, span)),
            Client::Pending { .. } | Client::Closed { .. } => None,
        }
    }
}

/// The text is not a number of sockets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotSockets(UnitError);

impl NotSockets {
    fn of(text: &str) -> NotSockets {
        let refused = UnitError::new(text, "a number of sockets: expected 1 or more, or auto");
        // Rates have such units, and numbers of sockets have none.
        NotSockets(match text.parse::<PerSecond>() {
            Ok(PerSecond(number)) if number.fract() == 0.0 => refused.meant(number),
            _ => refused,
        })
    }
}

impl FromStr for Sockets {
    type Err = NotSockets;
    fn from_str(text: &str) -> Result<Sockets, NotSockets> {
        match text {
            "auto" => Ok(Sockets::Auto),
            number => number.parse().map(Sockets::AtMost).map_err(|_| NotSockets::of(text)),
        }
    }
}

/// The text is not a number of processes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a number of processes: expected 1 to {PROCESSES_MAX}, or auto")]
pub struct NotProcesses(String);

impl FromStr for Processes {
    type Err = NotProcesses;
    fn from_str(text: &str) -> Result<Processes, NotProcesses> {
        match (text, text.parse::<NonZeroU32>()) {
            ("auto", _) => Ok(Processes::Auto),
            (_, Ok(count)) if count.get() <= PROCESSES_MAX => Ok(Processes::Count(count)),
            _ => Err(NotProcesses(text.to_owned())),
        }
    }
}

impl fmt::Display for Processes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Processes::Auto => f.write_str("auto"),
            Processes::Count(count) => count.fmt(f),
            Processes::Agents(agents) => write!(f, "{agents} agents"),
            Processes::Pair => f.write_str("2"),
        }
    }
}

impl fmt::Display for Close {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Close::Fin => "fin",
            Close::Reset => "rst",
        })
    }
}

impl fmt::Display for Sockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sockets::Auto => f.write_str("auto"),
            Sockets::AtMost(most) => most.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_parse_back() {
        for text in ["auto", "1", "20000"] {
            assert_eq!(text.parse::<Sockets>().unwrap().to_string(), text);
        }
        for text in ["auto", "1", "64"] {
            assert_eq!(text.parse::<Processes>().unwrap().to_string(), text);
        }
        assert_eq!(
            "65".parse::<Processes>().unwrap_err().to_string(),
            "'65' is not a number of processes: expected 1 to 64, or auto"
        );
        assert_eq!(
            "0".parse::<Sockets>().unwrap_err().to_string(),
            "'0' is not a number of sockets: expected 1 or more, or auto"
        );
    }

    #[test]
    fn links_parse_back() {
        for text in ["tun", "af-xdp:eth0"] {
            assert_eq!(text.parse::<Link>().unwrap().to_string(), text);
        }
        for text in ["", "tun:x", "af-xdp", "af-xdp:"] {
            let told = text.parse::<Link>().unwrap_err().to_string();
            assert_eq!(told, format!("'{text}' is not a link: expected tun or af-xdp:INTERFACE"));
        }
    }

    #[test]
    fn the_window_follows_the_warm_up() {
        let url = "http://localhost/".parse().unwrap();
        let config = Config::new(vec![url], Client::Closed { clients: NonZeroU32::MIN });
        let window = config.window();
        assert_eq!((window.from, window.length()), (Nanos::from_secs(5), Nanos::from_secs(30)));
        let described = config.describe();
        assert_eq!(described["client"], "closed");
        assert_eq!(described["urls"], "http://localhost/");
    }
}
