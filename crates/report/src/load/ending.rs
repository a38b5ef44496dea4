//! The end of an offered request, with the name and the colour that every page gives it.

use record::Outcome;

/// The end of an offered request, or its absence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The request ended.
    Ended(Outcome),
    /// The request had not ended when the run did.
    InFlight,
}

impl Ending {
    /// Returns the name that reports show.
    pub fn name(self) -> &'static str {
        match self {
            Ending::Ended(Outcome::Ok) => "correct reply",
            Ending::Ended(Outcome::StatusError) => "error status",
            Ending::Ended(Outcome::Shed) => "turned away (503)",
            Ending::Ended(Outcome::Refused) => "connection refused",
            Ending::Ended(Outcome::Unreachable) => "unreachable",
            Ending::Ended(Outcome::Reset) => "reset or cut short",
            Ending::Ended(Outcome::TlsFailed) => "no TLS",
            Ending::Ended(Outcome::Malformed) => "malformed reply",
            Ending::Ended(Outcome::NotHttp2) => "no HTTP/2",
            Ending::Ended(Outcome::StreamReset) => "stream reset",
            Ending::Ended(Outcome::GoAway) => "left by GOAWAY",
            Ending::Ended(Outcome::WrongBody) => "wrong content",
            Ending::Ended(Outcome::ConnectTimeout) => "connect timeout",
            Ending::Ended(Outcome::ResponseTimeout) => "response timeout",
            Ending::Ended(Outcome::Dropped) => "dropped by the server",
            Ending::Ended(Outcome::NoPort) => "client: no port",
            Ending::Ended(Outcome::NoDescriptor) => "client: no descriptor",
            Ending::Ended(Outcome::NoTime) => "client: too late",
            Ending::InFlight => "in flight at the end",
        }
    }

    /// Returns the CSS class of its colour. All outcomes that are the generator's fault share one.
    pub fn class(self) -> &'static str {
        match self {
            Ending::Ended(Outcome::Ok) => "o-ok",
            Ending::Ended(Outcome::StatusError) => "o-status",
            Ending::Ended(Outcome::Shed) => "o-shed",
            Ending::Ended(Outcome::Refused) => "o-refused",
            Ending::Ended(Outcome::Unreachable) => "o-unreachable",
            Ending::Ended(Outcome::Reset | Outcome::StreamReset | Outcome::GoAway) => "o-reset",
            Ending::Ended(
                Outcome::TlsFailed | Outcome::Malformed | Outcome::NotHttp2 | Outcome::WrongBody,
            ) => "o-malformed",
            Ending::Ended(Outcome::ConnectTimeout) => "o-connect",
            Ending::Ended(Outcome::ResponseTimeout | Outcome::Dropped) => "o-response",
            Ending::Ended(Outcome::NoPort | Outcome::NoDescriptor | Outcome::NoTime) => "o-client",
            Ending::InFlight => "o-flight",
        }
    }
}
