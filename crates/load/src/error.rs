//! What can keep a run from starting or from going on. What the *target* does is never an error: it is
//! an outcome in the ledger.

use std::io;

use base::PerSecond;
use usertcp::LinkError;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A URL that cannot be spoken to.
    #[error("URL '{given}': {why}; accepted is http[s]://HOST[:PORT][/PATH]")]
    Url {
        /// As it was given.
        given: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// No URL at all.
    #[error("no URL given; accepted is http[s]://HOST[:PORT][/PATH]")]
    NoUrl,
    /// A span of time that the run divides by, or would wait for without end.
    #[error("--{setting} is 0; accepted is a time above 0 such as 500ms or 10s")]
    Zero {
        /// The setting's name on the command line.
        setting: &'static str,
    },
    /// One run speaks to one server.
    #[error("URLs '{first}' and '{other}' name different servers; one run measures one server")]
    TwoServers {
        /// The first URL's host and port.
        first: String,
        /// The one that differs.
        other: String,
    },
    /// A workload with paths of its own, and more than one place for them.
    #[error("--workload {workload} names its paths below one URL; give one")]
    TwoRoots {
        /// The workload.
        workload: String,
    },
    /// The name has no address.
    #[error("host '{host}' cannot be resolved: {source}")]
    Resolve {
        /// The name.
        host: String,
        /// What the resolver said.
        source: io::Error,
    },
    /// Overload is for one's own servers.
    #[error(
        "{target} is not a private address, and more than {allowed} there needs the word of its owner: \
         add --i-own-this-server if you are"
    )]
    NotYours {
        /// The address.
        target: String,
        /// The most that is offered unasked.
        allowed: PerSecond,
    },
    /// Two populations that would share a name.
    #[error("--population {population} is given twice; give their sum")]
    TwoPopulations {
        /// The population.
        population: String,
    },
    /// Clients that hold on to a server without asking much are for one's own.
    #[error(
        "{target} is not a private address, and populations there need the word of its owner: add \
         --i-own-this-server if you are"
    )]
    PopulationNotYours {
        /// The address.
        target: String,
    },
    /// Content is expected of replies that have none.
    #[error("--{setting} asks for content, and replies to HEAD have none")]
    NoContent {
        /// The setting's name on the command line.
        setting: &'static str,
    },
    /// Something that a pair of establisher and handler is not made for.
    #[error("--client s-client-pair: {why}")]
    Pair {
        /// What, and what is accepted.
        why: String,
    },
    /// A source address of the wrong family.
    #[error("--source-ip {source_ip} cannot reach {target}: one is IPv4, the other IPv6")]
    SourceFamily {
        /// The first source address.
        source_ip: String,
        /// The target's address.
        target: String,
    },
    /// Something that one of the two TCPs cannot do, or that only the other has.
    #[error("--stack {stack}: {why}")]
    Stack {
        /// The TCP that was asked for.
        stack: &'static str,
        /// What is in the way, and what is accepted.
        why: String,
    },
    /// The link of TCP in user space cannot be opened.
    #[error("--stack user: {0}")]
    Link(#[from] LinkError),
    /// TLS cannot be spoken as it was asked for.
    #[error("TLS: {why}")]
    Tls {
        /// What is wrong, and what is accepted.
        why: String,
    },
    /// The machine refused something that the generator itself needs.
    #[error("{operation}: {source}")]
    System {
        /// What was attempted.
        operation: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl LoadError {
    /// For `map_err` on a system call.
    pub(crate) fn system(operation: &'static str) -> impl FnOnce(io::Error) -> LoadError {
        move |source| LoadError::System { operation, source }
    }
}
