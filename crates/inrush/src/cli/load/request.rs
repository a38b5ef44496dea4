//! The flags of the requests and of their correct replies, which `load` and `capacity` share.

use std::num::NonZeroU32;

use ::load::{
    Body, Config, DataFile, Digest, Expected, Field, Form, Length, Method, RequestFile, Spec, Statuses, Think,
};
use base::{Bytes, Nanos};
use clap::{Args, ValueEnum};

use super::{REPLIES, REQUESTS};
use crate::cli::values::number::positive_time;
use crate::exit::Exit;

/// Default streams of a session over HTTP/2: as for a page of a few dozen files.
const STREAMS: NonZeroU32 = NonZeroU32::new(32).expect("32 is not 0");

/// Orders of the rows of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DataOrder {
    /// One after the other, and the first again after the last
    Sequential,
    /// A random one for each session
    Random,
}

/// Ways to close a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Close {
    /// With FIN; the side that closes first keeps the port for a minute
    Fin,
    /// With RST; the port is free at once
    Rst,
}

fn content_length(text: &str) -> Result<u64, String> {
    text.parse().map(|Bytes(bytes)| bytes).map_err(|error: base::UnitError| error.to_string())
}

/// The requests of a run, and what their replies have to be.
#[derive(Args, Clone, Debug)]
pub struct RequestFlags {
    /// Workload: one-packet (the URLs), specweb99[:DIRECTORIES], urls:FILE, hot or cold
    ///
    /// specweb99: the files that inrush fileset wrote, below the URL.
    /// urls:FILE: paths below the URL. A line is /PATH or WEIGHT /PATH. From an access log the workload takes the GET
    /// requests, as often as they occur.
    /// hot: the URLs, 5 requests a session, 0 to 20 ms between a reply and the next request.
    /// cold: the same with 20 requests and 5 s.
    #[arg(long, value_name = "WORKLOAD", default_value = "one-packet", help_heading = REQUESTS, verbatim_doc_comment)]
    pub workload: Spec,

    /// Requests from a file: JSON Lines (a request {...} or a session [{...}, ...] on each), FILE.har, or an access log
    ///
    /// A request has a path below the URL, and may have method, headers, body (text, @FILE or JSON), weight, expect (statuses),
    /// expect_text, think, at and capture. vegeta's JSON targets have a url. capture takes values from a reply for later requests
    /// of the session: {"token": "/auth/token", "next": "header:Location"}. A session keeps its cookies.
    /// at is a time in seconds: the requests are made at their times, in place of --rate. An HTTP archive (FILE.har) and an
    /// access log have times too; with --rate they are drawn at random, as other requests.
    /// {{NAME}} in a path, header or body is a captured value, a column of --data, counter, random, random:1..100, now or
    /// now_ms.
    #[arg(long, value_name = "FILE", conflicts_with = "body", help_heading = REQUESTS, verbatim_doc_comment)]
    pub requests: Option<RequestFile>,

    /// CSV file of values for {{NAME}} in --requests: names in the first line, then a row for each session
    #[arg(long, value_name = "FILE.csv", requires = "requests", help_heading = REQUESTS)]
    pub data: Option<DataFile>,

    /// Order in which sessions take the rows of --data
    #[arg(long, value_name = "ORDER", default_value = "sequential", help_heading = REQUESTS, hide_short_help = true)]
    pub data_order: DataOrder,

    /// Requests of a session: N, LO..HI, or inf for a closed loop or --connections [default: 1, or the workload's]
    #[arg(long, value_name = "N|LO..HI|inf", help_heading = REQUESTS)]
    pub requests_per_connection: Option<Length>,

    /// HTTP/2: requests of a session are streams of its connection; over TLS by ALPN, in cleartext by prior knowledge
    ///
    /// In an open loop a request waits for no reply. The first is due with its session, and each further one a --think
    /// time later. A request that waits for a stream counts from its due time. In a closed loop each stream is one user,
    /// who thinks after a reply.
    #[arg(long, help_heading = REQUESTS)]
    pub http2: bool,

    /// Maximum requests under way at once on a connection with --http2; the server may allow fewer [default: 32]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000), help_heading = REQUESTS, hide_short_help = true)]
    pub streams: Option<u32>,

    /// Think time between a reply and the next request: TIME or LO..HI [default: the workload's]
    #[arg(long, value_name = "TIME|LO..HI", help_heading = REQUESTS, hide_short_help = true)]
    pub think: Option<Think>,

    /// Request method [default: GET, or POST with --body]
    #[arg(long, short = 'X', value_name = "METHOD", help_heading = REQUESTS, hide_short_help = true)]
    pub method: Option<Method>,

    /// Header field of every request, such as 'Accept: text/html'; repeatable
    ///
    /// 'Host: NAME' replaces the URL's host in the request, and not the server that it goes to.
    #[arg(long, short = 'H', value_name = "FIELD", help_heading = REQUESTS, hide_short_help = true)]
    pub header: Vec<Field>,

    /// Content of every request: text, or @FILE
    #[arg(long, value_name = "TEXT|@FILE", help_heading = REQUESTS, hide_short_help = true)]
    pub body: Option<Body>,

    /// Follow redirects to the same server, at most 10 for a request
    ///
    /// A redirected request is one request: its latency covers all replies, and its outcome is that of the last one. 303
    /// changes the method to GET, and so do 301 and 302 after POST; 307 and 308 keep method and content. A redirect to
    /// another server is not followed.
    #[arg(long, short = 'L', visible_alias = "location", help_heading = REQUESTS, hide_short_help = true)]
    pub follow: bool,

    /// Kept connections that requests share: --rate then counts requests, and each takes a free connection
    ///
    /// The first N requests open a connection each. Later ones take the connection that has been idle for longest. If all
    /// are busy, a request waits, and its latency counts from its due time. A connection that the server closes is opened
    /// again by the next request. With --http2 a connection is free while it has fewer than --streams requests under way.
    #[arg(long, value_name = "N", help_heading = REQUESTS)]
    pub connections: Option<NonZeroU32>,

    /// Time after which a connect is abandoned; must exceed the round-trip time
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = positive_time, help_heading = REQUESTS, hide_short_help = true)]
    pub connect_timeout: Nanos,

    /// Time after which a request without a complete reply is abandoned
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = positive_time, help_heading = REQUESTS, hide_short_help = true)]
    pub request_timeout: Nanos,

    /// Way to close connections
    #[arg(long, value_name = "HOW", default_value = "fin", help_heading = REQUESTS, hide_short_help = true)]
    pub close: Close,

    /// Correct status codes, such as 200 or 200,301,4xx [default: 2xx,3xx, or 2xx with --follow]
    #[arg(long, value_name = "LIST", help_heading = REPLIES, hide_short_help = true)]
    pub expect_status: Option<Statuses>,

    /// Length of a correct reply's content, in bytes
    #[arg(long, value_name = "BYTES", value_parser = content_length, help_heading = REPLIES, hide_short_help = true)]
    pub expect_length: Option<u64>,

    /// Digest of a correct reply's content: sha256:HEX, as sha256sum prints it
    #[arg(long, value_name = "DIGEST", help_heading = REPLIES, hide_short_help = true)]
    pub expect_digest: Option<Digest>,
}

impl RequestFlags {
    /// Adds these settings to the settings of a run.
    pub fn apply(self, config: Config) -> Config {
        Config {
            workload: self.workload,
            requests: self.requests,
            data: self.data,
            data_order: match self.data_order {
                DataOrder::Sequential => ::load::DataOrder::Sequential,
                DataOrder::Random => ::load::DataOrder::Random,
            },
            requests_per_connection: self.requests_per_connection,
            connections: self.connections,
            follow: self.follow,
            streams: self.http2.then(|| self.streams.and_then(NonZeroU32::new).unwrap_or(STREAMS)),
            think: self.think,
            form: Form { method: self.method, fields: self.header, body: self.body },
            connect_timeout: self.connect_timeout,
            request_timeout: self.request_timeout,
            close: match self.close {
                Close::Fin => ::load::Close::Fin,
                Close::Rst => ::load::Close::Reset,
            },
            expected: Expected {
                status: self.expect_status.unwrap_or_else(|| match self.follow {
                    true => Statuses::successes(),
                    false => Statuses::default(),
                }),
                length: self.expect_length,
                digest: self.expect_digest,
                ..config.expected
            },
            ..config
        }
    }

    /// Refuses settings of HTTP/2 without it.
    pub fn check(&self) -> Result<(), Exit> {
        match self.streams {
            Some(streams) if !self.http2 => {
                Err(Exit::Usage(format!("--streams {streams} is for HTTP/2; add --http2")))
            }
            _ => Ok(()),
        }
    }
}
