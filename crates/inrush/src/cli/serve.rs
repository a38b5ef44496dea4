//! The flags of `inrush serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use base::{Bytes, Limit, Nanos, UnitError};
use clap::{Args, ValueEnum};
use dispatch::mechanism::RtFetch;
use server::{AdminAddress, Batch, Schedule, SedaSettings, SmpedSettings, Threads, Wake};

use super::address::{admin_address, host_name, listen_address};

macro_rules! mechanism_names {
    ($($name:literal => $mechanism:ty,)*) => { &[$($name),*] };
}

/// The names of all event mechanisms.
pub const MECHANISMS: &[&str] = dispatch::for_each_mechanism!(mechanism_names);

fn architecture(name: &str) -> Result<&'static server::Architecture, String> {
    server::architecture::by_name(name).ok_or_else(|| {
        let known: Vec<&str> = server::architecture::ALL.iter().map(|known| known.name).collect();
        format!("accepted are {}", known.join(", "))
    })
}

fn architecture_help() -> String {
    let lines = server::architecture::ALL.iter().map(|known| format!("{}: {}", known.name, known.summary));
    format!("Which threads exist, who accepts and who serves:\n{}", lines.collect::<Vec<_>>().join(";\n"))
}

fn cpu_list(text: &str) -> Result<CpuList, String> {
    let wrong = || "accepted are processors such as 0, 0,2 or 0-3".to_owned();
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) =
            (first.trim().parse().map_err(|_| wrong())?, last.trim().parse().map_err(|_| wrong())?);
        if first > last || last >= 1024 {
            return Err(wrong());
        }
        cpus.extend(first..=last);
    }
    Ok(CpuList(cpus))
}

/// A time that leaves a peer a chance.
fn some_time(text: &str) -> Result<Nanos, String> {
    match text.parse().map_err(|error: UnitError| error.to_string())? {
        Nanos::ZERO => Err("0 would end every request; accepted are times above 0, such as 10s".to_owned()),
        time => Ok(time),
    }
}

/// A size that lets a request pass, and whose offsets fit 32 bits.
fn some_bytes(text: &str) -> Result<Bytes, String> {
    match text.parse().map_err(|error: UnitError| error.to_string())? {
        Bytes(0) => {
            Err("0 would refuse every request; accepted are sizes from 1 to 1GiB, such as 16KiB".to_owned())
        }
        Bytes(size) if size > 1 << 30 => Err("accepted are sizes from 1 to 1GiB, such as 16KiB".to_owned()),
        size => Ok(size),
    }
}

fn rt_fetch(text: &str) -> Result<RtFetch, String> {
    match text {
        "batch" => Ok(RtFetch::Batch),
        "sigtimedwait" => Ok(RtFetch::One),
        _ => Err("accepted are batch and sigtimedwait".to_owned()),
    }
}

/// A number that may tune itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tunable {
    /// Stays as it is.
    Fixed(u32),
    /// Begins at its default and is adjusted while the server runs.
    Adaptive,
}

fn tunable(text: &str) -> Result<Tunable, String> {
    match text {
        "adaptive" => Ok(Tunable::Adaptive),
        number => match number.parse() {
            Ok(number) if (2..=1_000_000).contains(&number) => Ok(Tunable::Fixed(number)),
            _ => Err("accepted are whole numbers from 2 to 1000000, and adaptive".to_owned()),
        },
    }
}

/// Processors by number.
#[derive(Clone, Debug)]
pub struct CpuList(pub Vec<usize>);

/// How access log lines are written.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum LogFormat {
    /// The combined log format
    Combined,
    /// One JSON object a line
    Json,
}

/// Serve a directory over HTTP/1.1.
#[derive(Args, Debug)]
pub struct ServeFlags {
    /// The directory to serve
    #[arg(default_value = ".")]
    pub root: PathBuf,

    /// Address to listen on; repeatable; port 0 lets the kernel choose. 8090 and localhost:8090 are for this machine
    /// only, :8090 is every IPv4 address
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080", value_parser = listen_address)]
    pub listen: Vec<SocketAddr>,

    /// Which processes and threads exist, who accepts and who serves
    #[arg(long, value_name = "ARCHITECTURE", default_value = "per-core", value_parser = architecture, help = architecture_help())]
    pub arch: &'static server::Architecture,

    /// Event mechanism; epoll if not given
    #[arg(long, value_name = "MECHANISM", value_parser = clap::builder::PossibleValuesParser::new(MECHANISMS))]
    pub dispatch: Option<String>,

    /// How rt-signals, rt-signals-select and rt-per-fd fetch their queue: batch (if not given) or sigtimedwait
    #[arg(long, value_name = "HOW", value_parser = rt_fetch)]
    pub rt_fetch: Option<RtFetch>,

    /// Polling sets of fdm; 3 if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=8))]
    pub fdm_sets: Option<u8>,

    /// N of fdm: set k is polled every N^k calls; 3 if not given, adaptive to let it tune itself
    #[arg(long, value_name = "N|adaptive", value_parser = tunable)]
    pub fdm_live_counter: Option<Tunable>,

    /// Empty waits of fdm before it sleeps; 100 if not given, adaptive to let it tune itself
    #[arg(long, value_name = "N|adaptive", value_parser = tunable)]
    pub sleep_threshold: Option<Tunable>,

    /// Which of those who wait for connections wakes: mt has exclusive (if not given), one, mutex, all and reuseport;
    /// mp exclusive (if not given), mutex and all; per-core reuseport (if not given) and steered, by the processor
    /// that receives the connection
    #[arg(long, value_name = "HOW")]
    pub wake: Option<Wake>,

    /// How a thread serves the connections of one accept phase: serial (if not given), interleaved
    #[arg(long, value_name = "HOW")]
    pub batch: Option<Batch>,

    /// Where threads come from: pool (if not given), per-connection
    #[arg(long, value_name = "WHENCE")]
    pub threads: Option<Threads>,

    /// Worker processes of mp that wait in reserve: with fewer more are started, up to --workers; 5 if only the maximum is given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub min_spare: Option<u32>,

    /// With more in reserve one is ended each second; 10 if only the minimum is given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=10_001))]
    pub max_spare: Option<u32>,

    /// Numbers of smped's dispatcher; if not given
    /// c-max=256,p-min=2,p-max=32,initial=10,alpha=0.2,period=100ms,idle=5s
    #[arg(long, value_name = "NAME=VALUE,...")]
    pub smped: Option<SmpedSettings>,

    /// By what smped's dispatcher chooses the worker of a new connection: smped (if not given),
    /// least-connections, round-robin, random
    #[arg(long, value_name = "BY")]
    pub schedule: Option<Schedule>,

    /// Helper processes of amped, which wait for the disk; 8 if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=30))]
    pub helpers: Option<u32>,

    /// The controllers of seda: target=100ms,max-threads=20,queue-threshold=16 if not given, or some of them
    #[arg(long, value_name = "K=V,...")]
    pub seda: Option<SedaSettings>,

    /// Read from a connection as soon as it is accepted, instead of in the next turn
    #[arg(long)]
    pub read_after_accept: bool,

    /// Event loops (as many as processors if not given), kernel threads or worker processes (150), or user-level threads (1000)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub workers: Option<u32>,

    /// Processors to tie the loops to, such as 0,2 or 0-3; all that are allowed if not given
    #[arg(long, value_name = "LIST", value_parser = cpu_list)]
    pub cpus: Option<CpuList>,

    /// Connections open at once
    #[arg(long, value_name = "N", default_value = "15000", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_connections: u32,

    /// Length of the kernel's accept queue
    #[arg(long, value_name = "N", default_value = "4096", value_parser = clap::value_parser!(u32).range(1..=65535))]
    pub backlog: u32,

    /// CPU time to spend on each request, for experiments
    #[arg(long, value_name = "TIME", default_value = "0s")]
    pub burn: Nanos,

    /// Address of /status, /metrics and /accept-limit, or unix:PATH for a socket file that its owner alone may use; none
    /// if not given
    #[arg(long, value_name = "ADDR:PORT|unix:PATH", value_parser = admin_address)]
    pub admin: Option<AdminAddress>,

    /// A name by which --admin may be addressed, beside IP addresses and localhost; repeatable. Other names in Host, and
    /// requests of other web pages, are refused
    #[arg(long, value_name = "NAME", value_parser = host_name, requires = "admin")]
    pub admin_host: Vec<String>,

    /// A file with a token that every request to --admin has to show: Authorization: Bearer TOKEN. Read at the start
    #[arg(long, value_name = "FILE", requires = "admin")]
    pub admin_token_file: Option<PathBuf>,

    /// The same settings as TOML; flags win
    #[arg(long, value_name = "FILE")]
    pub config: Option<String>,

    /// Print what file and flags amount to, as such a file, and do not serve
    #[arg(long)]
    pub print_config: bool,

    /// Append a line for each response to a file, or to stdout: -
    #[arg(long, value_name = "FILE|-")]
    pub access_log: Option<PathBuf>,

    /// How access log lines are written
    #[arg(long, value_name = "FORMAT", default_value = "combined")]
    pub log_format: LogFormat,

    /// How long a shutdown waits for connections to finish
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub drain_timeout: Nanos,

    /// The file that stands for its directory
    #[arg(long, value_name = "NAME", default_value = "index.html")]
    pub index: String,

    /// Serve files whose name begins with a dot
    #[arg(long)]
    pub show_dot_files: bool,

    /// Files up to this size are kept in memory, larger ones are kept open
    #[arg(long, value_name = "SIZE", default_value = "64KiB")]
    pub small_file: Bytes,

    /// Memory for small files, per loop
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    pub cache_memory: Bytes,

    /// Larger files kept open, per loop
    #[arg(long, value_name = "N", default_value = "512", value_parser = clap::value_parser!(u16).range(1..))]
    pub cache_open_files: u16,

    /// What may change while the server runs.
    #[command(flatten)]
    pub live: LiveFlags,
}

/// What may change while the server runs: in the config file, followed by SIGHUP.
#[derive(Args, Debug)]
#[command(next_help_heading = "Re-read from --config at SIGHUP")]
pub struct LiveFlags {
    /// Connections accepted each time the listener is ready: 1, 2, ... or inf; if not given, what suits the
    /// architecture: 10 for event loops, inf for tux, 1 where threads serve what they accept
    #[arg(long, value_name = "N|inf")]
    pub accept_limit: Option<Limit>,

    /// For a whole request head, and for the first byte of a new connection
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = some_time)]
    pub header_timeout: Nanos,

    /// For the content of a request
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = some_time)]
    pub body_timeout: Nanos,

    /// For the next request on a connection
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = some_time)]
    pub idle_timeout: Nanos,

    /// For the peer to take another byte of a response
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = some_time)]
    pub write_timeout: Nanos,

    /// For the peer to read a refusal and close
    #[arg(long, value_name = "TIME", default_value = "2s")]
    pub linger_timeout: Nanos,

    /// Size of a request head; beyond: 431
    #[arg(long, value_name = "SIZE", default_value = "16KiB", value_parser = some_bytes)]
    pub max_head: Bytes,

    /// Size of a request target; beyond: 414
    #[arg(long, value_name = "SIZE", default_value = "8KiB", value_parser = some_bytes)]
    pub max_target: Bytes,

    /// Header fields of a request; beyond: 431
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u16).range(1..=128))]
    pub max_fields: u16,

    /// Size of the content of a request, which is read and dropped; beyond: 413
    #[arg(long, value_name = "SIZE", default_value = "1MiB")]
    pub max_body: Bytes,

    /// Requests answered on one connection
    #[arg(long, value_name = "N|inf", default_value = "inf")]
    pub max_requests: Limit,
}

impl LiveFlags {
    /// Their names.
    pub fn names() -> Vec<String> {
        let command = LiveFlags::augment_args(clap::Command::new("serve"));
        command.get_arguments().filter_map(|flag| flag.get_long().map(str::to_owned)).collect()
    }
}
