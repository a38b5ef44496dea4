//! The flags of `inrush load`.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;

use ::load::{
    Body, Digest, Field, Length, Method, Part, Population, Process, Processes, Retry, Sockets, SourceRange,
    Spec, Statuses, Think, Threshold, Url,
};
use base::{Bytes, Nanos, PerSecond, Seed};
use clap::{Args, Subcommand, ValueEnum};

use crate::load::meters::Collector;

/// What decides when sessions begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Client {
    /// Open loop: sessions begin when the arrival process says, whatever the server does
    #[value(name = "s-client")]
    Open,
    /// The same in two processes, to compare: one connects and sends, and gives connections to one that reads
    #[value(name = "s-client-pair")]
    Pair,
    /// Closed loop: each of --sockets clients begins a session when its last one has ended
    Closed,
}

/// What TLS handshakes are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HandshakeKind {
    /// As browsers do: full at first, then resumed
    Resumed,
    /// Every one with a key exchange and a certificate, as new visitors make them
    Full,
}

/// How connections are ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Close {
    /// In order; who closes first keeps the port for a minute
    Fin,
    /// By a reset; the port is free at once
    Rst,
}

/// What is written to stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// A summary to read
    Text,
    /// One object: the result
    Json,
    /// An object for each interval while it runs, then the result
    Ndjson,
    /// The time series: a row for each interval
    Csv,
    /// A page that needs no network: the run in figures and tables
    Html,
}

fn content_length(text: &str) -> Result<u64, String> {
    text.parse().map(|Bytes(bytes)| bytes).map_err(|error: base::UnitError| error.to_string())
}

pub fn positive_time(text: &str) -> Result<Nanos, String> {
    match text.parse::<Nanos>() {
        Ok(Nanos::ZERO) => Err("accepted are times above 0".to_owned()),
        Ok(time) => Ok(time),
        Err(error) => Err(error.to_string()),
    }
}

/// Offer load to an HTTP server, whether it takes it or not.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true
)]
pub struct LoadFlags {
    /// Something else than a run.
    #[command(subcommand)]
    pub command: Option<LoadCommand>,

    /// What to ask for: one or more URLs of one server, chosen uniformly
    #[arg(required_unless_present = "calibrate", value_name = "URL")]
    pub urls: Vec<Url>,

    /// Measure the clean rate of this machine instead, with --threads, and keep it
    ///
    /// The clean rate is that at which the generator still offers everything on time, with processor time to spare, and
    /// two processes bring no more than one. It is measured against a listener of its own on 127.0.0.1, in some
    /// twenty seconds, and kept in $XDG_STATE_HOME/inrush/clean-rate.json. From then on a run that asks for more
    /// is generator-limited.
    #[arg(long, conflicts_with = "urls")]
    pub calibrate: bool,

    /// Sessions to begin a second, on average; a session is one connection. 100 if not given; ramp, steps and
    /// trace have rates of their own
    #[arg(long, short, value_name = "RATE")]
    pub rate: Option<PerSecond>,

    /// How long to measure
    #[arg(long, short, value_name = "TIME", default_value = "30s", value_parser = positive_time)]
    pub duration: Nanos,

    /// How long to run before measuring
    #[arg(long, value_name = "TIME", default_value = "5s")]
    pub warmup: Nanos,

    /// Open or closed loop
    #[arg(long, value_name = "KIND", default_value = "s-client")]
    pub client: Client,

    /// Connects pending at once, from rate and connect time-out if auto; of a closed loop, its clients, 64 if auto
    #[arg(long, value_name = "D|auto", default_value = "auto")]
    pub sockets: Sockets,

    /// When a connect is abandoned; above the round trip
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = positive_time)]
    pub connect_timeout: Nanos,

    /// When a request without a complete reply is abandoned
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = positive_time)]
    pub request_timeout: Nanos,

    /// When sessions begin: constant, poisson, on-off:PEAK,FRACTION[,PERIOD], pareto:ALPHA, ramp:FROM..TO,
    /// steps:RATExTIME,... or trace:FILE
    ///
    /// constant, on-off, ramp and steps are evenly spaced at the rate of the moment. on-off:6,5%,100s: 5 % of each period of 100 s at 6 times --rate, the
    /// rest below it, so that --rate is the mean. pareto:1.4: self-similar bursts, from 100 sources that are on for
    /// 0.1 s and off for 0.9 s on average. ramp:0..2k: over the whole run, warm-up included. steps:100x10s,1kx5s: the
    /// last holds until the end. trace:FILE: a time in seconds a line, or the times of an access log (what is
    /// asked for is the workload's affair); the first session begins with the run.
    #[arg(long, value_name = "PROCESS", default_value = "constant")]
    pub arrivals: Process,

    /// What clients do about a request that failed: none, fixed:DELAY[,MAX] or exponential:BASE[,CAP][,MAX]
    ///
    /// What is retried: 503, refusals, resets, time-outs; at most MAX times (3 if not given; inf). fixed waits for DELAY; exponential for
    /// a random time up to BASE, doubled with each retry up to CAP (20s if not given). Each attempt is offered load with an outcome of
    /// its own; latency and --deadline count from when the first was meant to be sent.
    #[arg(long, value_name = "POLICY", default_value = "none")]
    pub retry: Retry,

    /// What sessions ask for: one-packet (the URLs), specweb99[:DIRECTORIES] (its files under the URL), urls:FILE (the
    /// file's paths under the URL), hot or cold
    ///
    /// urls:FILE: a line is WEIGHT /PATH or only /PATH; or it is an access log, whose GET requests are asked for as
    /// often as they are in it. hot: the URLs, 5 requests a session, 0 to 20 ms of thought between them. cold: the
    /// same with 20 requests and 5 s. The set of specweb99 is written by inrush fileset.
    #[arg(long, value_name = "WORKLOAD", default_value = "one-packet")]
    pub workload: Spec,

    /// Requests a session: 1, N or LO..HI; the workload's if not given
    #[arg(long, value_name = "N|LO..HI")]
    pub requests_per_connection: Option<Length>,

    /// From a reply to the next request of the session: a time, or LO..HI; the workload's if not given
    #[arg(long, value_name = "TIME|LO..HI")]
    pub think: Option<Think>,

    /// The requests' method; GET if not given, or POST with --body
    #[arg(long, value_name = "METHOD")]
    pub method: Option<Method>,

    /// A header field of all requests, such as 'Accept: text/html'; repeatable
    #[arg(long, value_name = "FIELD")]
    pub header: Vec<Field>,

    /// The content of all requests: a text, or @FILE
    #[arg(long, value_name = "TEXT|@FILE")]
    pub body: Option<Body>,

    /// Which statuses are correct, such as 200 or 200,301,4xx
    #[arg(long, value_name = "LIST", default_value = "2xx,3xx")]
    pub expect_status: Statuses,

    /// How many bytes of content a correct reply has
    #[arg(long, value_name = "BYTES", value_parser = content_length)]
    pub expect_length: Option<u64>,

    /// The digest of a correct reply's content: sha256: and what sha256sum prints
    #[arg(long, value_name = "DIGEST")]
    pub expect_digest: Option<Digest>,

    /// When a correct reply is too late to be goodput, from the time its request was meant to be sent; it still counts
    /// as ok, and in the latencies
    #[arg(long, value_name = "TIME", value_parser = positive_time)]
    pub deadline: Option<Nanos>,

    /// Clients beside the measured traffic, repeatable: idle:N, idle:N,half-request, hot:N, cold:N, slow-read:N,BYTES/s
    /// or slow-send:N,BYTES/s
    ///
    /// They connect during the warm-up, ask for what the measured traffic asks for, and are counted apart, from the
    /// start of the run. idle holds connections and says nothing, with half-request after the first half of a
    /// request; what the server closes is opened again a second later. hot: a request each 0 to 20 ms, 5 a
    /// connection; cold: each 5 s, 20 a connection. slow-read and slow-send: a request a connection, read or sent at that
    /// rate; they give up when --request-timeout has passed without a byte.
    #[arg(long, value_name = "POPULATION")]
    pub population: Vec<Population>,

    /// Engine threads, each with its share of the rate
    #[arg(long, value_name = "N", default_value = "1")]
    pub threads: NonZeroU32,

    /// Processes that share the threads, at least one each; auto: as many as the descriptors need that may be open at
    /// once
    #[arg(long, value_name = "N|auto", default_value = "auto")]
    pub processes: Processes,

    /// Be one of them
    #[arg(long, hide = true)]
    pub part: Option<Part>,

    /// Addresses to connect from: A.B.C.D, A.B.C.D-E or A.B.C.D/LEN
    #[arg(long, value_name = "RANGE")]
    pub source_ip: Option<SourceRange>,

    /// How connections are ended
    #[arg(long, value_name = "HOW", default_value = "fin")]
    pub close: Close,

    /// Whose certificates to believe, of an https target: a PEM file; the machine's own roots if not given
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub ca: Option<PathBuf>,

    /// Believe any certificate
    #[arg(long)]
    pub insecure: bool,

    /// What each TLS handshake is: resumed where the server gave a ticket, or always full
    #[arg(long, value_name = "KIND", default_value = "resumed")]
    pub handshakes: HandshakeKind,

    /// What all random draws come from: the same seed gives the same schedule
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: Seed,

    /// Exit with 4 if a threshold is crossed, such as 'p99>300ms' or 'errors>1%'; repeatable
    #[arg(long, value_name = "THRESHOLD")]
    pub fail_if: Vec<Threshold>,

    /// The target is mine: allow more than 100/s to a public address
    #[arg(long)]
    pub i_own_this_server: bool,

    /// Send nothing; say what the run would do and need: schedule, descriptors, ports
    #[arg(long, conflicts_with = "calibrate")]
    pub dry_run: bool,

    /// What to write to stdout
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    pub output: Output,

    /// Who watches the run.
    #[command(flatten)]
    pub watching: WatchFlags,

    /// The same settings as TOML; flags win
    #[arg(long, value_name = "FILE")]
    pub config: Option<String>,
}

/// Where else a run is to be seen while it goes on.
#[derive(Args, Clone, Debug)]
pub struct WatchFlags {
    /// A file for the latencies of each interval, in HdrHistogram's log format
    #[arg(long, value_name = "FILE")]
    pub hdr: Option<PathBuf>,

    /// Where Prometheus finds /metrics while the run goes on; port 0 is any
    #[arg(long, value_name = "ADDR:PORT")]
    pub prometheus: Option<SocketAddr>,

    /// An OpenTelemetry collector to tell of every interval, over HTTP in JSON: http://HOST[:PORT]
    #[arg(long, value_name = "URL")]
    pub otlp: Option<Collector>,
}

/// What is done with results.
#[derive(Debug, Subcommand)]
pub enum LoadCommand {
    /// Set two results side by side, and say which differences are more than chance
    Compare(LoadCompareFlags),
}

/// What a comparison is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LoadCompareOutput {
    /// A table to read
    Text,
    /// One object: the comparison
    Json,
}

/// Set two results side by side, and say which differences are more than chance within the runs. What differs from
/// one run of the same server to the next is not in two results: repeat both in turn before you believe a small
/// difference.
#[derive(Args, Debug)]
pub struct LoadCompareFlags {
    /// What load --output json wrote
    #[arg(value_name = "A.json")]
    pub first: PathBuf,

    /// What it wrote another time
    #[arg(value_name = "B.json")]
    pub second: PathBuf,

    /// What to write to stdout
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    pub output: LoadCompareOutput,
}
