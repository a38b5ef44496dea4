//! The configuration of a run, in types that leave little to check; [`crate::prepare`] does the rest.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use base::{Nanos, PerSecond, Seed};
use usertcp::SourceNet;

use crate::arrivals::Process;
use crate::expected::Expected;
use crate::ledger::Window;
use crate::population::Population;
use crate::retry::Retry;
use crate::sources::SourceRange;
use crate::target::Url;
use crate::tls::{TlsOptions, Trust};
use crate::workload::{Field, Form, Length, Spec, Think};

/// How long a connect may take: above any round trip, below the kernel's first retransmission (1 s), so
/// that an attempt is one SYN (Banga 1997, section 3.1).
pub const CONNECT_TIMEOUT: Nanos = Nanos::from_millis(500);

/// How long a reply may take before the client gives up (SYSTEMS.md, section 1).
pub const REQUEST_TIMEOUT: Nanos = Nanos::from_secs(10);

/// The most processes of one generator: more than a machine has use for.
pub const PROCESSES_MAX: u32 = 64;

/// How many connects may be pending at once: D of Banga 1997, section 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Sockets {
    /// As many as the rate and the connect time-out need.
    #[default]
    Auto,
    /// So many; a session that is due while all are pending ends as `no_descriptor`.
    AtMost(NonZeroU32),
}

/// How the client ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Close {
    /// In order (FIN): the side that closes first keeps the port for a minute.
    #[default]
    Fin,
    /// With a reset (RST): the port is free at once, and what the server was still sending is lost.
    Reset,
}

/// The TCP that carries the connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Stack {
    /// The kernel's sockets.
    #[default]
    Kernel,
    /// TCP in user space, over a link of its own for each thread.
    User {
        /// The way for its packets.
        link: Link,
        /// The addresses that connections come from; [`SOURCE_NET`] or [`SOURCE_NET_V6`] where none are given.
        net: Option<SourceNet>,
    },
}

/// The way for packets of TCP in user space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Link {
    /// A TUN device, to a server in this network namespace.
    #[default]
    Tun,
    /// AF_XDP sockets on that interface, to a server behind it.
    AfXdp(String),
}

/// The source net for an IPv4 target.
pub const SOURCE_NET: &str = "10.94.0.0/16";

/// The source net for an IPv6 target.
pub const SOURCE_NET_V6: &str = "fd94::/64";

/// Text that names no link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a link: tun, or af-xdp:INTERFACE")]
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

/// How many processes the generator is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Processes {
    /// As many as the descriptors need that it may open at once.
    #[default]
    Auto,
    /// So many.
    Count(NonZeroU32),
    /// The paper's pair: an establisher and a handler, of a thread each (Banga 1997, section 3). For the S-client in
    /// plain HTTP with a request a connection and no retries.
    Pair,
}

/// What decides when sessions begin.
#[derive(Clone, Debug, PartialEq)]
pub enum Client {
    /// The S-client: sessions begin when the arrival process says, whatever the server does.
    SClient {
        /// Sessions a second, all threads together; unused where the process has rates of its own.
        rate: PerSecond,
        /// When they begin.
        arrivals: Process,
        /// The bound on pending connects, all threads together.
        sockets: Sockets,
    },
    /// The simple client: each begins a session when its last one has ended.
    Closed {
        /// How many there are, all threads together.
        clients: NonZeroU32,
    },
}

impl Client {
    /// Its settings as text.
    fn describe(&self) -> Vec<(&'static str, String)> {
        match self {
            Client::SClient { rate, arrivals, sockets } => {
                let rate = (!arrivals.has_own_rate()).then(|| ("rate", rate.to_string()));
                let always = [
                    ("client", "s-client".to_owned()),
                    ("arrivals", arrivals.to_string()),
                    ("sockets", sockets.to_string()),
                ];
                always.into_iter().chain(rate).collect()
            }
            Client::Closed { clients } => {
                vec![("client", "closed".to_owned()), ("sockets", clients.to_string())]
            }
        }
    }
}

/// One run.
#[derive(Clone, Debug)]
pub struct Config {
    /// What is asked for: at least one URL, all of one server ([`crate::prepare`] checks both).
    pub urls: Vec<Url>,
    /// When sessions begin.
    pub client: Client,
    /// Engine threads; each has its share of the rate or of the clients.
    pub threads: NonZeroU32,
    /// Processes that share the threads, at least one each, where [`crate::run_in_processes`] carries it out.
    pub processes: Processes,
    /// The measured time. The run takes this and the warm-up.
    pub duration: Nanos,
    /// What goes before and is not measured.
    pub warmup: Nanos,
    /// A connect that is still pending after this is abandoned; not zero.
    pub connect_timeout: Nanos,
    /// A request without a complete reply after this is abandoned, with its connection; not zero.
    pub request_timeout: Nanos,
    /// What sessions ask for.
    pub workload: Spec,
    /// Requests a session, where not as the workload has it.
    pub requests_per_connection: Option<Length>,
    /// The time from a reply to the session's next request, of a closed client also to its next session,
    /// where not as the workload has it.
    pub think: Option<Think>,
    /// Method, header fields and content of all requests.
    pub form: Form,
    /// What a client does about a request that failed; closed-loop clients and populations of them too.
    pub retry: Retry,
    /// Which replies are correct and in time; a deadline is not zero.
    pub expected: Expected,
    /// Clients beside the measured traffic, each population once.
    pub populations: Vec<Population>,
    /// How to speak TLS, where the URLs are https.
    pub tls: TlsOptions,
    /// What all draws of the run come from.
    pub seed: Seed,
    /// The addresses to connect from; by default the kernel's choice, or enough of 127.0.0.0/8.
    pub source: Option<SourceRange>,
    /// The TCP that carries the connections.
    pub stack: Stack,
    /// How connections are ended.
    pub close: Close,
    /// The length of an interval of the time series; not zero.
    pub interval: Nanos,
    /// The clean rate of this machine with so many threads, where it was measured: a run that asks for more
    /// sessions a second is generator-limited.
    pub clean_rate: Option<PerSecond>,
    /// The user's word that the target is theirs, which is asked for above
    /// [`RATE_UNASKED`](crate::preflight::RATE_UNASKED) to a public address.
    pub own_this_server: bool,
}

impl Config {
    /// A run with the defaults: one thread, 30 s after 5 s of warm-up, intervals of 1 s, one request a
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
            requests_per_connection: None,
            think: None,
            form: Form::default(),
            retry: Retry::Never,
            expected: Expected::default(),
            populations: Vec::new(),
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

    /// The measured window.
    pub fn window(&self) -> Window {
        Window { from: self.warmup, until: self.warmup + self.duration }
    }

    /// Every setting as text, for the manifest.
    pub fn describe(&self) -> BTreeMap<String, String> {
        let urls: Vec<String> = self.urls.iter().map(Url::to_string).collect();
        let mut settings = vec![
            ("urls", urls.join(" ")),
            ("threads", self.threads.to_string()),
            ("processes", self.processes.to_string()),
            ("close", self.close.to_string()),
            ("duration", self.duration.to_string()),
            ("warmup", self.warmup.to_string()),
            ("connect_timeout", self.connect_timeout.to_string()),
            ("request_timeout", self.request_timeout.to_string()),
            ("workload", self.workload.to_string()),
            ("method", self.form.method().to_owned()),
            ("retry", self.retry.to_string()),
            ("expect_status", self.expected.status.to_string()),
            ("seed", self.seed.to_string()),
            ("interval", self.interval.to_string()),
        ];
        settings.extend(self.client.describe());
        if self.processes == Processes::Pair {
            settings.push(("client", "s-client-pair".to_owned()));
        }
        if let Some(length) = &self.requests_per_connection {
            settings.push(("requests_per_connection", length.to_string()));
        }
        if let Some(think) = &self.think {
            settings.push(("think", think.to_string()));
        }
        if let Some(length) = &self.expected.length {
            settings.push(("expect_length", length.to_string()));
        }
        if let Some(digest) = &self.expected.digest {
            settings.push(("expect_digest", digest.to_string()));
        }
        if let Some(deadline) = &self.expected.deadline {
            settings.push(("deadline", deadline.to_string()));
        }
        if self.urls.iter().any(Url::is_secure) {
            let trust = match &self.tls.trust {
                Trust::System => "system".to_owned(),
                Trust::Roots(path) => path.display().to_string(),
                Trust::Anybody => "anybody".to_owned(),
            };
            settings.push(("tls_trust", trust));
            settings.push(("tls_resume", self.tls.resume.to_string()));
        }
        if !self.form.fields.is_empty() {
            let fields: Vec<String> = self.form.fields.iter().map(Field::to_string).collect();
            settings.push(("headers", fields.join("; ")));
        }
        if let Some(body) = &self.form.body {
            settings.push(("body", body.to_string()));
        }
        if !self.populations.is_empty() {
            let populations: Vec<String> = self.populations.iter().map(Population::to_string).collect();
            settings.push(("populations", populations.join(" ")));
        }
        if let Some(source) = &self.source {
            settings.push(("source_ip", source.to_string()));
        }
        if let Stack::User { link, net } = &self.stack {
            settings.push(("stack", "user".to_owned()));
            settings.push(("link", link.to_string()));
            settings.extend(net.map(|net| ("source_net", net.to_string())));
        }
        settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// Not a number of sockets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a number of sockets from 1 up, or auto")]
pub struct NotSockets(String);

impl FromStr for Sockets {
    type Err = NotSockets;
    fn from_str(text: &str) -> Result<Sockets, NotSockets> {
        match text {
            "auto" => Ok(Sockets::Auto),
            number => number.parse().map(Sockets::AtMost).map_err(|_| NotSockets(text.to_owned())),
        }
    }
}

/// Not a number of processes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a number of processes from 1 to {PROCESSES_MAX}, or auto")]
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
            "'65' is not a number of processes from 1 to 64, or auto"
        );
        assert_eq!(
            "0".parse::<Sockets>().unwrap_err().to_string(),
            "'0' is not a number of sockets from 1 up, or auto"
        );
    }

    #[test]
    fn links_parse_back() {
        for text in ["tun", "af-xdp:eth0"] {
            assert_eq!(text.parse::<Link>().unwrap().to_string(), text);
        }
        for text in ["", "tun:x", "af-xdp", "af-xdp:"] {
            let told = text.parse::<Link>().unwrap_err().to_string();
            assert_eq!(told, format!("'{text}' is not a link: tun, or af-xdp:INTERFACE"));
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
