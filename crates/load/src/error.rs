//! The errors that keep a run from starting or from continuing. A failure of the *target* is never an error:
//! it is an outcome in the ledger.

use std::io;
use std::num::NonZeroU32;

use base::PerSecond;
use usertcp::LinkError;

/// The reason why a run has no result.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A URL that the generator cannot request.
    #[error("URL '{given}': {why}; expected http[s]://HOST[:PORT][/PATH] or unix:FILE[:/PATH]")]
    Url {
        /// The URL as given.
        given: String,
        /// The reason.
        why: &'static str,
    },
    /// No URL at all.
    #[error("no URL given; expected http[s]://HOST[:PORT][/PATH] or unix:FILE[:/PATH]")]
    NoUrl,
    /// A time of zero that the run divides by, or that would end every wait.
    #[error("--{setting} is 0; expected a time above 0 such as 500ms or 10s")]
    Zero {
        /// The setting's name on the command line.
        setting: &'static str,
    },
    /// More threads than a machine has use for.
    #[error("--threads {threads}: {cpus}; expected 1 to {most}")]
    Threads {
        /// The number of threads asked for.
        threads: u32,
        /// The CPUs, as half a sentence.
        cpus: String,
        /// The most threads.
        most: u32,
    },
    /// The URLs name several servers; one run measures one server.
    #[error("URLs '{first}' and '{other}' name different servers; one run measures one server")]
    TwoServers {
        /// The first URL's host and port.
        first: String,
        /// The host and port of the first URL that differs.
        other: String,
    },
    /// The workload has paths of its own, and the URLs name more than one root for them.
    #[error("--workload {workload} has its own paths below one URL, and several URLs are given; give one")]
    TwoRoots {
        /// The workload.
        workload: String,
    },
    /// The name has no address.
    #[error("host '{host}' cannot be resolved: {source}")]
    Resolve {
        /// The name.
        host: String,
        /// The resolver's error.
        source: io::Error,
    },
    /// A setting that redirects connections of another server than the run's.
    #[error("{setting} has no effect: {why}")]
    Redirection {
        /// The setting.
        setting: String,
        /// The server that the run has.
        why: String,
    },
    /// A file of requests that does not fit the run.
    #[error("--requests {file}: {}", base::printable(why))]
    Requests {
        /// The file.
        file: String,
        /// The line and the reason.
        why: String,
    },
    /// A setting that requests of a file with values, captures or an order do not support.
    #[error("--requests with values to fill in, captures, sessions or times: {why}")]
    Script {
        /// The setting and the accepted value.
        why: String,
    },
    /// The requests have two Host fields.
    #[error("--header 'Host: ...' is given twice; a request has one host")]
    TwoHosts,
    /// The load is high and the target may belong to others.
    #[error("{target} is not a private address: more than {allowed} requires --i-own-this-server")]
    NotYours {
        /// The address.
        target: String,
        /// The highest rate without that flag.
        allowed: PerSecond,
    },
    /// The same population twice.
    #[error("--population {population} is given twice; give their sum")]
    TwoPopulations {
        /// The population.
        population: String,
    },
    /// Populations hold connections of the target, which may belong to others.
    #[error("{target} is not a private address: --population requires --i-own-this-server")]
    PopulationNotYours {
        /// The address.
        target: String,
    },
    /// The run expects content of replies that have none.
    #[error("--{setting} expects content, but replies to HEAD have none")]
    NoContent {
        /// The setting's name on the command line.
        setting: &'static str,
    },
    /// An open loop never waits between two sessions.
    #[error(
        "--think is the time between two requests of a connection, and each has one; add --requests-per-connection, or \
         leave --think out"
    )]
    Think,
    /// A setting that a pair of establisher and handler does not support.
    #[error("--client s-client-pair: {why}")]
    Pair {
        /// The setting and the accepted value.
        why: String,
    },
    /// Sessions at a rate that never end.
    #[error(
        "--requests-per-connection inf: sessions at a rate would never end; add --connections N or --client closed"
    )]
    Endless,
    /// A setting that connections that requests share do not support.
    #[error("--connections {connections}: {why}")]
    Connections {
        /// The number of connections.
        connections: NonZeroU32,
        /// The setting and the accepted value.
        why: String,
    },
    /// A setting that HTTP/2 does not support.
    #[error("--http2: {why}")]
    Http2 {
        /// The setting and the accepted value.
        why: String,
    },
    /// A source address of the wrong address family.
    #[error("--source-ip {source_ip} cannot reach {target}: one is IPv4, the other IPv6")]
    SourceFamily {
        /// The first source address.
        source_ip: String,
        /// The target's address.
        target: String,
    },
    /// A source address of another machine.
    #[error("--source-ip {source_ip}: this machine does not have the address")]
    SourceNotHere {
        /// The source addresses.
        source_ip: String,
    },
    /// A setting that the chosen stack does not support.
    #[error("--stack {stack}: {why}")]
    Stack {
        /// The chosen stack.
        stack: &'static str,
        /// The reason and the accepted value.
        why: String,
    },
    /// The link of TCP in user space cannot be opened.
    #[error("--stack user: {0}")]
    Link(#[from] LinkError),
    /// The TLS settings cannot be used.
    #[error("TLS: {why}")]
    Tls {
        /// The reason and the accepted value.
        why: String,
    },
    /// The kernel refused an operation that the generator needs.
    #[error("{operation}: {source}")]
    System {
        /// The operation.
        operation: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

impl LoadError {
    /// Wraps the error of a system call, for `map_err`.
    pub(crate) fn system(operation: &'static str) -> impl FnOnce(io::Error) -> LoadError {
        move |source| LoadError::System { operation, source }
    }
}
