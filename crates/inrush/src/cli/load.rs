//! The flags of `inrush load`.

mod outputs;
pub mod reach;
pub mod request;

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;

use ::load::{
    Assignment, Link, Population, Process, Processes, Retry, Sockets, SourceNet, SourceRange, Threshold, Url,
};
use analysis::load_gates::Gate;
use base::{Nanos, PerSecond, Seed};
use clap::{Args, Subcommand, ValueEnum};

use crate::cli::values::cpus::{CpuList, cpu_list};
use crate::cli::values::number::{from_one_up, positive_time};
use crate::cli::values::text_or_json::TextOrJson;
use crate::exit::Exit;
use crate::meters::Collector;
pub use outputs::{Output, OutputTo};
use reach::{ReachFlags, TlsFlags};
pub use request::RequestFlags;

/// The rule by which sessions begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Client {
    /// Open loop: the arrival process alone decides when sessions begin
    #[value(name = "s-client")]
    Open,
    /// Open loop in two processes: one connects and sends, the other reads
    #[value(name = "s-client-pair")]
    Pair,
    /// Closed loop: each of --sockets clients begins a session when its previous one has ended
    Closed,
}

/// Implementations of TCP for the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Stack {
    /// Kernel sockets
    Kernel,
    /// TCP in user space, with no descriptors or ports; needs CAP_NET_ADMIN
    User,
}

/// The short help of `--rate`.
const RATE_HELP: &str = "Average rate of new sessions a second; a session is one connection [default: 100]";

fn rate_long_help() -> String {
    format!("{RATE_HELP}\n\nThe arrival processes {} have their own rates.", Process::names_with_own_rate())
}

fn arrivals_help() -> String {
    format!("Arrival process: {}", Process::short_forms())
}

fn arrivals_long_help() -> String {
    format!("{}\n\n{}", arrivals_help(), Process::help())
}

/// Headings of the help text.
const LOAD: &str = "Load";
pub const REQUESTS: &str = "Requests and sessions";
pub const REPLIES: &str = "Correct replies";
const OUTPUT: &str = "Output and thresholds";
const GENERATOR: &str = "The generator";

const EXAMPLES: &str = "Examples:
  inrush load http://127.0.0.1:8080/ --rate 2k --duration 10s
  inrush load http://127.0.0.1:8080/ --rate 200 --connections 20
  inrush load http://127.0.0.1:8080/ --rate 500 --fail-if 'p99>300ms' --fail-if 'errors>1%'
  inrush load http://127.0.0.1:8080/ --arrivals on-off:6,5%,10s --requests-per-connection 5
  inrush load http://127.0.0.1:8080/ --client closed --sockets 64    as wrk and hey do
  inrush load https://localhost:8443/ --http2 --streams 32 --rate 20 --requests-per-connection 100
  inrush load http://127.0.0.1:8080/ -o text -o json=run.json -o junit=run.xml
  inrush load compare --fail-if 'p99>1.1x' before-*.json -- after-*.json";

/// Offer load to an HTTP server at a rate that does not depend on the server.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true,
    after_help = EXAMPLES
)]
pub struct LoadFlags {
    /// Another task than a run.
    #[command(subcommand)]
    pub command: Option<LoadCommand>,

    /// URLs to request, all of one server; each request takes one at random
    #[arg(required = true, value_name = "URL")]
    pub urls: Vec<Url>,

    #[arg(long, short, value_name = "RATE", help = RATE_HELP, long_help = rate_long_help(), help_heading = LOAD)]
    pub rate: Option<PerSecond>,

    /// Time to measure
    #[arg(long, short, value_name = "TIME", default_value = "30s", value_parser = positive_time, help_heading = LOAD)]
    pub duration: Nanos,

    /// Time to run before measuring
    #[arg(long, value_name = "TIME", default_value = "5s", help_heading = LOAD)]
    pub warmup: Nanos,

    /// Open or closed loop
    #[arg(long, value_name = "KIND", default_value = "s-client", help_heading = LOAD)]
    pub client: Client,

    /// Maximum unfinished connects (open loop), or number of clients (closed loop)
    ///
    /// auto: rate times connect timeout in an open loop, 64 clients in a closed loop.
    /// A number without --rate keeps that many connects pending, however the server is doing: each one that succeeds,
    /// fails or times out is followed by another. To a server that answers none, N connects offer N a connect timeout.
    #[arg(long, value_name = "N|auto", default_value = "auto", help_heading = LOAD)]
    pub sockets: Sockets,

    #[arg(long, value_name = "PROCESS", default_value = "constant", help = arrivals_help(), long_help = arrivals_long_help(), help_heading = LOAD)]
    pub arrivals: Process,

    /// A rush amid --rate: PEAK,TIME such as 1k,5s; the summary tells whether the server recovers, and after what time
    ///
    /// The run has 10 s at --rate, TIME at PEAK, and 30 s at --rate again. Other steps: --arrivals steps:100x10s,1kx5s,100x30s.
    #[arg(long, value_name = "PEAK,TIME", conflicts_with_all = ["arrivals", "duration"], help_heading = LOAD)]
    pub spike: Option<Spike>,

    /// Clients beside the measured load; repeatable: idle:N, hot:N, cold:N, slow-read:N,BYTES/s, slow-send:N,BYTES/s
    ///
    /// They connect during the warm-up and request the same URLs. The result counts them separately.
    /// idle:N holds connections and sends nothing; idle:N,half-request sends half of a request first. A
    /// connection that the server closes is opened again after 1 s.
    /// hot:N sends a request every 0 to 20 ms, 5 on a connection; cold:N one every 5 s, 20 on a connection.
    /// hot:N,REQUESTS and cold:N,REQUESTS send that many on a connection.
    /// slow-read and slow-send read or send at that rate. They give up after --request-timeout without a byte.
    #[arg(long, value_name = "POPULATION", help_heading = LOAD, hide_short_help = true, verbatim_doc_comment)]
    pub population: Vec<Population>,

    /// Retry failed requests: none, fixed:DELAY[,MAX] or exponential:BASE[,CAP][,MAX]
    ///
    /// A request is retried after 503, refusal, reset and timeout, at most MAX times (default 3; or inf). fixed waits for
    /// DELAY. exponential waits for a random time up to BASE. BASE doubles with each retry, up to CAP (default 20s). A
    /// retry is offered load with its own outcome. Latency and --deadline count from the first attempt.
    #[arg(long, value_name = "POLICY", default_value = "none", help_heading = REQUESTS, hide_short_help = true)]
    pub retry: Retry,

    /// The requests and the correct replies.
    #[command(flatten)]
    pub request: RequestFlags,

    /// The way to the server.
    #[command(flatten)]
    pub reach: ReachFlags,

    /// TLS settings.
    #[command(flatten)]
    pub tls: TlsFlags,

    /// Time within which a correct reply counts as goodput, from the intended time of its request
    ///
    /// A later reply still counts as ok and in the latencies.
    #[arg(long, value_name = "TIME", value_parser = positive_time, help_heading = REPLIES, hide_short_help = true)]
    pub deadline: Option<Nanos>,

    /// Exit with code 4 if a threshold is crossed, such as 'p99>300ms' or 'errors>1%'; repeatable
    #[arg(long, value_name = "THRESHOLD", help_heading = OUTPUT)]
    pub fail_if: Vec<Threshold>,

    /// Output: text, json, ndjson, csv, html, junit or markdown, to standard output or =FILE; repeatable
    ///
    /// One run writes all of them: -o text -o json=run.json -o html=run.html. At most one goes to standard output.
    /// inrush load report FILE takes --output for a stored result.
    #[arg(long, short, value_name = "FORMAT[=FILE]", default_value = "text", help_heading = OUTPUT)]
    pub output: Vec<OutputTo>,

    /// Other outputs of the run.
    #[command(flatten)]
    pub watching: WatchFlags,

    /// Number of engine threads; each offers its share of the rate
    #[arg(long, value_name = "N", default_value = "1", value_parser = from_one_up::<NonZeroU32>)]
    #[arg(help_heading = GENERATOR, hide_short_help = true)]
    pub threads: NonZeroU32,

    /// Number of processes that share the threads; auto starts enough for the descriptors needed
    #[arg(long, value_name = "N|auto", default_value = "auto", help_heading = GENERATOR, hide_short_help = true)]
    pub processes: Processes,

    /// Be one of the processes
    #[arg(long, hide = true)]
    pub part: Option<Assignment>,

    /// TCP of the connections: kernel sockets, or in user space
    ///
    /// user makes a TUN device and a route for the run. It connects from thousands of addresses that the machine does not
    /// own to a server on any address of this network namespace. Device and route vanish with the run.
    #[arg(long, value_name = "STACK", default_value = "kernel", help_heading = GENERATOR)]
    pub stack: Stack,

    /// Link of --stack user: tun, or af-xdp:INTERFACE to a server behind that interface [default: tun]
    #[arg(long, value_name = "LINK", help_heading = GENERATOR, hide_short_help = true)]
    pub link: Option<Link>,

    /// Source addresses of --stack user, which no other host has [default: 10.94.0.0/16 or fd94::/64]
    #[arg(long, value_name = "NET", help_heading = GENERATOR, hide_short_help = true)]
    pub source_net: Option<SourceNet>,

    /// CPUs of the server, where the kernel then receives the packets of --stack user over TUN
    ///
    /// Without this flag the generator keeps as many CPUs as it has threads, and the others are the server's. On the
    /// sender's CPU, the receive work of an overload would cost the server too little.
    #[arg(long, value_name = "LIST", value_parser = cpu_list, help_heading = GENERATOR, hide_short_help = true)]
    pub server_cpus: Option<CpuList>,

    /// True if the program has chosen the server's CPUs.
    #[arg(skip)]
    pub has_chosen_cpus: bool,

    /// Source addresses: A.B.C.D, A.B.C.D-E or A.B.C.D/LEN
    #[arg(long, value_name = "RANGE", help_heading = GENERATOR, hide_short_help = true)]
    pub source_ip: Option<SourceRange>,

    /// Seed of all random choices; the same seed gives the same schedule
    #[arg(long, value_name = "N", default_value = "1", help_heading = GENERATOR, hide_short_help = true)]
    pub seed: Seed,

    /// Allow populations, and more than 100 requests a second, retries included, to a public address
    #[arg(long, help_heading = GENERATOR, hide_short_help = true)]
    pub i_own_this_server: bool,

    /// Send no request; print the schedule, and the descriptors and ports that the run needs
    #[arg(long, help_heading = GENERATOR, hide_short_help = true)]
    pub dry_run: bool,

    /// Read settings from a TOML file; flags override it
    #[arg(long, value_name = "FILE", help_heading = GENERATOR, hide_short_help = true)]
    pub config: Option<String>,
}

/// A rush of this rate for this time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spike {
    peak: PerSecond,
    time: Nanos,
}

/// The time before a spike, in which the server shows its usual latency, and the time after it, in which it may recover.
const AROUND_A_SPIKE: [Nanos; 2] = [Nanos::from_secs(10), Nanos::from_secs(30)];

impl FromStr for Spike {
    type Err = String;

    fn from_str(text: &str) -> Result<Spike, String> {
        let parse = |(peak, time): (&str, &str)| Some((peak.parse().ok()?, positive_time(time).ok()?));
        let (peak, time) = text
            .split_once(',')
            .and_then(parse)
            .ok_or_else(|| format!("'{text}' is not a spike: expected PEAK,TIME such as 1k,5s"))?;
        Ok(Spike { peak, time })
    }
}

impl LoadFlags {
    /// Default sessions per second, if neither --rate nor the arrivals give a rate.
    pub const RATE: PerSecond = PerSecond(100.0);

    /// Puts the spike into the arrivals and the duration.
    ///
    /// # Errors
    /// A peak that is not above the usual rate, or a warm-up that is too long for a step.
    pub fn with_spike(mut self) -> Result<LoadFlags, Exit> {
        let Some(Spike { peak, time }) = self.spike.take() else { return Ok(self) };
        let [before, after] = AROUND_A_SPIKE;
        let usual = self.rate.take().unwrap_or(LoadFlags::RATE);
        if peak.0 <= usual.0 {
            return Err(Exit::Usage(format!(
                "--spike {peak},{time}: expected a peak above --rate, which is {usual}"
            )));
        }
        let quiet = before.saturating_add(self.warmup);
        let steps = format!("steps:{}x{quiet},{}x{time},{}x{after}", usual.0, peak.0, usual.0);
        self.arrivals = steps.parse().map_err(|_| {
            let (warmup, most) = (self.warmup, Nanos::MOST_GIVEN - before);
            Exit::Usage(format!("--spike {peak},{time}: expected a --warmup up to {most}, not {warmup}"))
        })?;
        self.duration = before.saturating_add(time).saturating_add(after);
        Ok(self)
    }
}

/// Other outputs of a run while it goes on.
#[derive(Args, Clone, Debug)]
pub struct WatchFlags {
    /// Write the latencies of each interval to a file in HdrHistogram's log format
    #[arg(long, value_name = "FILE", help_heading = OUTPUT, hide_short_help = true)]
    pub hdr: Option<PathBuf>,

    /// Serve /metrics for Prometheus at this address during the run; port 0 takes any
    #[arg(long, value_name = "ADDR:PORT", help_heading = OUTPUT, hide_short_help = true)]
    pub prometheus: Option<SocketAddr>,

    /// Send each interval to an OpenTelemetry collector, as JSON over HTTP: http://HOST[:PORT]
    #[arg(long, value_name = "URL", help_heading = OUTPUT, hide_short_help = true)]
    pub otlp: Option<Collector>,
}

/// Tasks beside a run.
#[derive(Debug, Subcommand)]
pub enum LoadCommand {
    /// Compare two results and name the differences that exceed chance
    ///
    /// Two results do not show how much runs of the same server differ: repeat both in turn before you believe a small
    /// difference.
    Compare(LoadCompareFlags),
    /// Write a stored result in other formats
    Report(LoadReportFlags),
    /// Measure and keep the clean rate of this machine
    ///
    /// The clean rate is the highest rate at which the generator sends everything on time with CPU time to spare. At
    /// that rate a second process adds nothing. The target is a listener of this program on 127.0.0.1, and the search takes
    /// about 20 s. The rate is kept in $XDG_STATE_HOME/inrush/clean-rate.json, that of --stack user in another file beside
    /// it. Later runs above the clean rate are reported as generator-limited.
    Calibrate(LoadCalibrateFlags),
}

impl LoadCommand {
    /// The task's name on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            LoadCommand::Compare(_) => "compare",
            LoadCommand::Report(_) => "report",
            LoadCommand::Calibrate(_) => "calibrate",
        }
    }
}

/// The flags of `inrush load calibrate`.
#[derive(Args, Debug)]
pub struct LoadCalibrateFlags {
    /// Number of engine threads
    #[arg(long, value_name = "N", default_value = "1", value_parser = from_one_up::<NonZeroU32>)]
    pub threads: NonZeroU32,

    /// TCP of the connections: kernel sockets, or in user space over TUN, which needs CAP_NET_ADMIN
    #[arg(long, value_name = "STACK", default_value = "kernel")]
    pub stack: Stack,

    /// CPUs that receive the packets of --stack user; by default all that the threads leave
    #[arg(long, value_name = "LIST", value_parser = cpu_list)]
    pub server_cpus: Option<CpuList>,

    /// Output format
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    pub output: TextOrJson,
}

/// The flags of `inrush load compare`.
#[derive(Args, Debug)]
pub struct LoadCompareFlags {
    /// Output of inrush load --output json: A.json B.json, or several runs of each: A.json... -- B.json...
    #[arg(value_name = "A.json", required = true)]
    pub first: Vec<PathBuf>,

    /// Outputs of the other runs
    #[arg(value_name = "B.json", last = true)]
    pub second: Vec<PathBuf>,

    /// Exit with code 4 if a ratio of B to A is beyond a threshold, such as 'p99>1.1x' or 'goodput<0.9x'; repeatable
    ///
    /// The 95 % interval decides. It needs two runs of each; an undecided threshold says how many would decide it.
    /// Without this flag any figure that is worse gives exit code 4.
    #[arg(long, value_name = "THRESHOLD")]
    pub fail_if: Vec<Gate>,

    /// Output format
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    pub output: TextOrJson,
}

/// The flags of `inrush load report`.
#[derive(Args, Debug)]
pub struct LoadReportFlags {
    /// Output of inrush load --output json
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Output: text, json, ndjson, csv, html, junit or markdown, to standard output or =FILE; repeatable
    #[arg(long, short, value_name = "FORMAT[=FILE]", default_value = "text")]
    pub output: Vec<OutputTo>,
}
