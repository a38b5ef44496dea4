//! The flags of `inrush serve`.
//!
//! `clients` has the flags about clients, `site` those about the site, and `host` the settings of one of several hosts.

mod clients;
mod host;
mod site;

use std::net::SocketAddr;
use std::path::PathBuf;

use base::setting::{AnySetting, Chosen};
use base::{Bytes, Limit, Nanos, UnitError};
use clap::builder::StyledStr;
use clap::{Args, FromArgMatches, ValueEnum};
use dispatch::table;
use server::{AcceptLimit, AdminAddress, Driver, OverloadHook, Switch, URING, architecture};

use crate::cli::values::address::{admin_address, host_name, listen_address};
use crate::cli::values::cpus::{CpuList, cpu_list};
use clients::ClientFlags;
pub use host::HostFlags;
use site::SiteFlags;

/// A choice that the server makes for `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Auto<T>(pub Option<T>);

impl<T: std::str::FromStr<Err = String>> std::str::FromStr for Auto<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Auto<T>, String> {
        match text {
            "auto" => Ok(Auto(None)),
            _ => text.parse().map(|named| Auto(Some(named))).map_err(|expected| format!("{expected}, auto")),
        }
    }
}

macro_rules! mechanism_names {
    ($($name:literal => $mechanism:ty,)*) => { &[$($name,)* URING] };
}

/// All event mechanisms, by name, and the completion driver.
pub const MECHANISMS: &[&str] = dispatch::for_each_mechanism!(mechanism_names);

fn architecture_of(name: &str) -> Result<&'static server::Architecture, String> {
    architecture::by_name(name).ok_or_else(|| {
        let known: Vec<&str> = architecture::ALL.iter().map(|known| known.name).collect();
        format!("expected {}", known.join(", "))
    })
}

fn architecture_help() -> String {
    let lines = architecture::ALL.iter().map(|known| format!("{}: {}", known.name, known.summary));
    format!(
        "Architecture: its processes and threads, and which of them accept\n{}",
        lines.collect::<Vec<_>>().join("\n")
    )
}

/// Parses a time above 0, so that a peer has a chance.
fn some_time(text: &str) -> Result<Nanos, String> {
    match text.parse().map_err(|error: UnitError| error.to_string())? {
        Nanos::ZERO => Err("0 would end every request; expected a time above 0, such as 10s".to_owned()),
        time => Ok(time),
    }
}

/// Parses the CPU time of a request. A longer one would stop a loop for good.
fn burn_time(text: &str) -> Result<Nanos, String> {
    match text.parse().map_err(|error: UnitError| error.to_string())? {
        time if time > MOST_BURN => Err(format!("expected a time up to {MOST_BURN}, such as 50us")),
        time => Ok(time),
    }
}

/// The longest CPU time of a request.
const MOST_BURN: Nanos = Nanos::from_secs(10);

/// Parses a size that lets a request pass, with offsets that fit 32 bits.
fn some_bytes(text: &str) -> Result<Bytes, String> {
    match text.parse().map_err(|error: UnitError| error.to_string())? {
        Bytes(0) => {
            Err("0 would refuse every request; expected a size from 1 to 1GiB, such as 16KiB".to_owned())
        }
        Bytes(size) if size > 1 << 30 => Err("expected a size from 1 to 1GiB, such as 16KiB".to_owned()),
        size => Ok(size),
    }
}

/// Formats of the access log.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum LogFormat {
    /// The combined log format
    Combined,
    /// One JSON object a line
    Json,
}

/// Headings of the help text.
const EXPERIMENTS: &str = "Server designs, for experiments";
const FILES: &str = "Files";
const OPERATION: &str = "Operation";

const EXAMPLES: &str = "Examples:
  inrush serve site                                    http://127.0.0.1:8080/, this machine only
  inrush serve site --listen :80 --access-log access.log
  inrush serve site --listing                          folders without an index are listed
  inrush serve site --admin 127.0.0.1:9090             /metrics and /status
  inrush serve site --listen :443 --tls-cert fullchain.pem --tls-key privkey.pem
  inrush serve site --arch sped --dispatch poll --accept-limit inf";

/// Serve a directory over HTTP/1.1 and HTTP/2.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ServeFlags {
    /// Directory to serve [default: .]
    pub root: Option<PathBuf>,

    /// Address to listen on; repeatable
    ///
    /// 8090 and localhost:8090 listen on 127.0.0.1 only, :8090 on every IPv4 address. With port 0 the kernel chooses a
    /// free port.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080", value_parser = listen_address)]
    pub listen: Vec<SocketAddr>,

    /// Address to listen on without TLS, beside the addresses of --listen with TLS; repeatable
    ///
    /// The rule redirect https sends its clients to TLS.
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen_address, help_heading = OPERATION, hide_short_help = true)]
    pub listen_http: Vec<SocketAddr>,

    /// Number of event loops, threads or worker processes
    ///
    /// Default: one event loop per CPU; 150 kernel threads or worker processes; 1000 user-level threads.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub workers: Option<u32>,

    /// Maximum open connections, over all event loops and workers
    ///
    /// At the limit the server closes the connection that has been idle longest for a new one. If none is idle, the new
    /// one is answered 503.
    #[arg(long, value_name = "N", default_value = "15000", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub max_connections: u32,

    /// Maximum length of the kernel's accept queue
    #[arg(long, value_name = "N", default_value = "4096", value_parser = clap::value_parser!(u32).range(1..=65535))]
    pub backlog: u32,

    /// Refuse connections that could not be served in time: on (default) or off
    ///
    /// While more clients come than the server can serve, the kernel drops their SYNs.
    #[arg(long, value_name = "on|off")]
    pub overload: Option<Switch>,

    /// Wait in the accept queue that overload control aims at
    ///
    /// Default: 20ms. Shorter waits refuse more in bursts.
    #[arg(long, value_name = "TIME", value_parser = server::queue_target, hide_short_help = true)]
    pub queue_target: Option<Nanos>,

    /// Place where overload control refuses connections: the socket (sink), the network devices (tc, xdp), or auto
    ///
    /// auto: tc where the server may load it, or else sink; one line at the start names the hook. tc remembers the SYNs that
    /// it refused, and costs less CPU time than sink. tc and xdp need CAP_BPF and CAP_NET_ADMIN. If the kernel refuses a hook
    /// that this flag names, the server says so and uses the sink.
    #[arg(long, value_name = "HOOK", default_value = "auto", hide_short_help = true)]
    pub overload_hook: Auto<OverloadHook>,

    /// Limits of each client.
    #[command(flatten)]
    pub clients: ClientFlags,

    /// Address for a page in a browser, /status, /metrics, /accept-limit and /queue-target
    ///
    /// unix:PATH makes a socket file that only its owner may use. Without this flag there is no such address.
    #[arg(long, value_name = "ADDR:PORT|unix:PATH", value_parser = admin_address, help_heading = OPERATION)]
    pub admin: Option<AdminAddress>,

    /// Host name that clients of --admin may use; repeatable
    ///
    /// IP addresses and localhost are always allowed. Requests with another Host, and requests from other web pages, are
    /// refused.
    #[arg(long, value_name = "NAME", value_parser = host_name, requires = "admin", help_heading = OPERATION, hide_short_help = true)]
    pub admin_host: Vec<String>,

    /// File with the token that clients of --admin must send
    ///
    /// They send it as Authorization: Bearer TOKEN. The server reads the file at the start.
    #[arg(long, value_name = "FILE", requires = "admin", help_heading = OPERATION, hide_short_help = true)]
    pub admin_token_file: Option<PathBuf>,

    /// Address for HAProxy's agent check: tells load balancers the server's weight
    ///
    /// The weight, 1 to 100 %, falls as the load rises. A shutdown says drain there first. Each connection gets one line.
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen_address, help_heading = OPERATION, hide_short_help = true)]
    pub agent_check: Option<SocketAddr>,

    /// Tell the load in responses to requests that ask for it, for Envoy (ORCA): on or off
    ///
    /// Such a request has the field endpoint-load-metrics-format: TEXT.
    #[arg(long, value_name = "on|off", default_value = "off", help_heading = OPERATION, hide_short_help = true)]
    pub load_reports: Switch,

    /// PEM file with a certificate and those that vouch for it: speak TLS; repeatable
    ///
    /// Of several certificates a client gets the one whose names include the host that it asks for, or else the first.
    /// The server reads the files again at SIGHUP and when they change.
    #[arg(long, value_name = "FILE", requires = "tls_key", help_heading = OPERATION)]
    pub tls_cert: Vec<PathBuf>,

    /// PEM file with the private key of the --tls-cert in the same place; repeatable
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = OPERATION)]
    pub tls_key: Vec<PathBuf>,

    /// DER file with an OCSP response about the --tls-cert in the same place, to staple; - is none; repeatable
    #[arg(long, value_name = "FILE|-", requires = "tls_cert", help_heading = OPERATION, hide_short_help = true)]
    pub tls_ocsp: Vec<PathBuf>,

    /// File to append a line to for each response; - is stdout
    #[arg(long, value_name = "FILE|-", help_heading = OPERATION)]
    pub access_log: Option<PathBuf>,

    /// Format of the access log
    #[arg(long, value_name = "FORMAT", default_value = "combined", help_heading = OPERATION, hide_short_help = true)]
    pub log_format: LogFormat,

    /// Read settings from a TOML file; flags override it
    #[arg(long, value_name = "FILE", help_heading = OPERATION)]
    pub config: Option<String>,

    /// Print the settings as a config file and exit
    #[arg(long, help_heading = OPERATION, hide_short_help = true)]
    pub print_config: bool,

    /// Read the settings, open the files that serving needs, print what would be served, and exit
    ///
    /// Opens no address, so it can run beside the server. The exit code is 0, or 2 after one line about a mistake.
    #[arg(long, help_heading = OPERATION, hide_short_help = true)]
    pub check: bool,

    /// User to change to once everything is open: NAME or NAME:GROUP, by name or number
    ///
    /// Only root can change to another user. Without a group, the user has the groups of the user database.
    #[arg(long, value_name = "NAME[:GROUP]", help_heading = OPERATION, hide_short_help = true)]
    pub user: Option<String>,

    /// Give up the files, system calls and capabilities that serving does not need
    ///
    /// Uses Landlock and seccomp where the kernel has them. off is for debugging.
    #[arg(long, value_name = "on|off", default_value = "on", help_heading = OPERATION, hide_short_help = true)]
    pub confine: Switch,

    /// Hand over to a newer program at SIGUSR2, without loss
    ///
    /// The server starts the program at its own path, with the same arguments and its config file read anew, passes its
    /// sockets on, and ends once the new program serves. on keeps a process with the rights of the start.
    #[arg(long, value_name = "on|off", default_value = "off", help_heading = OPERATION, hide_short_help = true)]
    pub upgrade: Switch,

    /// Longest wait for open connections at shutdown
    #[arg(long, value_name = "TIME", default_value = "10s", help_heading = OPERATION, hide_short_help = true)]
    pub drain_timeout: Nanos,

    /// Serve files whose names begin with a dot
    #[arg(long, help_heading = FILES, hide_short_help = true)]
    pub show_dot_files: bool,

    /// Answer requests for hot small files inside the kernel
    ///
    /// Needs CAP_BPF and CAP_NET_ADMIN.
    #[arg(long, value_name = "on|off", default_value = "off", help_heading = FILES, hide_short_help = true)]
    pub kernel_cache: Switch,

    /// Largest file to keep in memory; of larger files the descriptor is kept open
    #[arg(long, value_name = "SIZE", default_value = "64KiB", help_heading = FILES, hide_short_help = true)]
    pub small_file: Bytes,

    /// Memory for cached files, per event loop
    #[arg(long, value_name = "SIZE", default_value = "64MiB", help_heading = FILES, hide_short_help = true)]
    pub cache_memory: Bytes,

    /// Maximum cached descriptors of larger files, per event loop
    #[arg(long, value_name = "N", default_value = "512", value_parser = clap::value_parser!(u16).range(1..), help_heading = FILES, hide_short_help = true)]
    pub cache_open_files: u16,

    /// Another host, as a TOML table with names, a root and rules of its own; repeatable
    ///
    /// In a config file it is [[host]], with the keys names, root, tls-cert, tls-key, tls-ocsp, access-log, cache-memory,
    /// cache-open-files and those of the site. Requests for other names get ROOT, or the first host if there is none.
    #[arg(long, value_name = "TABLE", help_heading = FILES, hide_short_help = true)]
    pub host: Vec<String>,

    /// Timeouts and limits.
    #[command(flatten)]
    pub live: LiveFlags,

    /// Architecture: its processes and threads, and which of them accept
    #[arg(long, value_name = "ARCHITECTURE", default_value = "per-core", value_parser = architecture_of, help = "Architecture: its processes and threads, and which of them accept", long_help = architecture_help(), help_heading = EXPERIMENTS)]
    pub arch: &'static server::Architecture,

    /// Event mechanism [default: that of --driver auto]; uring names --driver completion, and the others readiness
    #[arg(long, value_name = "MECHANISM", value_parser = clap::builder::PossibleValuesParser::new(MECHANISMS), hide_possible_values = false, help_heading = EXPERIMENTS)]
    pub dispatch: Option<String>,

    /// Driver, which moves the bytes of an event loop: readiness, completion, or auto
    ///
    /// completion: the kernel carries out operations from an io_uring (Linux 6.1). It accepts no --dispatch. auto: completion
    /// where the kernel allows io_uring, or else readiness by epoll. --dispatch, --wait, --kernel-cache and
    /// --read-after-accept select readiness.
    #[arg(long, value_name = "DRIVER", default_value = "auto", help_heading = EXPERIMENTS, hide_short_help = true)]
    pub driver: Auto<Driver>,

    /// CPUs for the event loops, such as 0,2 or 0-3 [default: all allowed CPUs]
    #[arg(long, value_name = "LIST", value_parser = cpu_list, help_heading = EXPERIMENTS, hide_short_help = true)]
    pub cpus: Option<CpuList>,

    /// Read from a connection right after accepting it, not in the next turn of the loop
    #[arg(long, help_heading = EXPERIMENTS, hide_short_help = true)]
    pub read_after_accept: bool,

    /// CPU time to burn for each request
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = burn_time, help_heading = EXPERIMENTS, hide_short_help = true)]
    pub burn: Nanos,

    /// Settings of event mechanisms.
    #[command(flatten)]
    pub mechanisms: MechanismFlags,

    /// Settings of architectures.
    #[command(flatten)]
    pub architectures: ArchitectureFlags,
}

/// Adds to the help of each choice the architectures that offer it, and to that of the accept-limit its defaults.
fn with_users(mut command: clap::Command) -> clap::Command {
    for choice in server::Choice::ALL {
        let users = architecture::offering(choice);
        for flag in choice.flags().iter().filter(|_| !users.is_empty()) {
            command = command.mut_arg(id(flag), |arg| {
                let help = arg.get_help().map(plain).unwrap_or_default();
                let full = format!("{help} ({users})");
                let long = arg.get_long_help().map(|long| plain(long).replacen(&help, &full, 1));
                let arg = arg.help(full);
                if let Some(long) = long { arg.long_help(long) } else { arg }
            });
        }
    }
    command.mut_arg(id("--accept-limit"), |arg| {
        let long = arg.get_long_help().map(plain).unwrap_or_default();
        arg.long_help(format!("{long} Default: {}.", accept_limits()))
    })
}

/// Returns a help text, which has no styles. `to_string` would look for styles, and that took most of the time in which a
/// worker read its configuration.
fn plain(help: &StyledStr) -> String {
    help.ansi().to_string()
}

/// Returns the name by which clap knows a flag.
fn id(flag: &str) -> String {
    flag.trim_start_matches('-').replace('-', "_")
}

/// Returns the accept-limits of the architectures, in words: the default architecture's, then the others.
fn accept_limits() -> String {
    let all = architecture::ALL;
    let usual = all[0].accept_limit;
    let mut others: Vec<(AcceptLimit, Vec<&str>)> = Vec::new();
    for known in all.iter().filter(|known| known.accept_limit != usual) {
        match others.iter_mut().find(|(limit, _)| *limit == known.accept_limit) {
            Some((_, names)) => names.push(known.name),
            None => others.push((known.accept_limit, vec![known.name])),
        }
    }
    let others = others.iter().map(|(limit, names)| format!("; {limit} for {}", names.join(", ")));
    let in_flight = architecture::ACCEPTS_IN_FLIGHT;
    format!("{usual}{}; {in_flight} for the completion driver", others.collect::<String>())
}

/// Adds the flags of declared settings, with the names of their users before their help, and the values that each user has
/// after it.
fn declare(
    command: clap::Command,
    settings: Vec<&'static dyn AnySetting>,
    users: impl Fn(&str) -> Vec<&'static str>,
    values: impl Fn(&str) -> Option<String>,
) -> clap::Command {
    command.args(settings.into_iter().map(|setting| {
        let declaration = setting.declaration();
        let users = users(declaration.flag).join(", ");
        let help = if users.is_empty() { String::new() } else { users + ": " } + declaration.help;
        let flag = clap::Arg::new(declaration.flag)
            .long(declaration.flag.trim_start_matches('-'))
            .value_name(declaration.value)
            .help(help.clone())
            .help_heading(EXPERIMENTS)
            .hide_short_help(true)
            .value_parser(|text: &str| setting.check(text).map(|()| text.to_owned()));
        let more = [declaration.more.map(str::to_owned), values(declaration.flag)];
        let more: Vec<String> = more.into_iter().flatten().collect();
        if more.is_empty() { flag } else { flag.long_help(format!("{help}\n\n{}", more.join(" "))) }
    }))
}

/// Returns the declared settings that were given.
fn chosen(matches: &clap::ArgMatches, settings: Vec<&'static dyn AnySetting>) -> Chosen {
    let mut chosen = Chosen::default();
    for setting in settings {
        if let Some(text) = matches.get_one::<String>(setting.declaration().flag) {
            chosen.add(setting, text).expect("the parser has checked it");
        }
    }
    chosen
}

/// Defines flags that other crates declare: a type with the settings that were given.
macro_rules! declared_flags {
    ($(#[$about:meta])* $type:ident, $augment:expr, $settings:path) => {
        $(#[$about])*
        #[derive(Debug)]
        pub struct $type {
            /// The settings that were given.
            pub chosen: Chosen,
        }

        impl Args for $type {
            fn augment_args(command: clap::Command) -> clap::Command {
                $augment(command)
            }

            fn augment_args_for_update(command: clap::Command) -> clap::Command {
                $augment(command)
            }
        }

        impl FromArgMatches for $type {
            fn from_arg_matches(matches: &clap::ArgMatches) -> Result<$type, clap::Error> {
                Ok($type { chosen: chosen(matches, $settings()) })
            }

            fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
                *self = $type::from_arg_matches(matches)?;
                Ok(())
            }
        }
    };
}

declared_flags!(
    /// The flags that event mechanisms declare.
    MechanismFlags,
    |command| declare(command, table::settings(), table::users, |_| None),
    table::settings
);
declared_flags!(
    /// The flags that architectures declare.
    ArchitectureFlags,
    |command| declare(with_users(command), architecture::settings(), architecture::having, architecture::values),
    architecture::settings
);

/// The settings that SIGHUP re-reads from the config file while the server runs.
#[derive(Args, Debug)]
#[command(next_help_heading = "Timeouts and limits, re-read from --config at SIGHUP")]
pub struct LiveFlags {
    /// Maximum connections to accept in one accept phase: a number, inf or adaptive
    ///
    /// adaptive takes as many as the loop's turn has time for, and one where a thread serves what it accepts. Overload
    /// control bounds a number by the same time.
    #[arg(long, value_name = "N|inf|adaptive")]
    pub accept_limit: Option<AcceptLimit>,

    /// Longest wait for a whole request head, and for the first byte of a new connection
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = some_time, hide_short_help = true)]
    pub header_timeout: Nanos,

    /// Longest wait for the content of a request
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = some_time, hide_short_help = true)]
    pub body_timeout: Nanos,

    /// Longest wait for the next request on a connection
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = some_time, hide_short_help = true)]
    pub idle_timeout: Nanos,

    /// Longest time in which a client takes less than 1 KiB of a response
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = some_time, hide_short_help = true)]
    pub write_timeout: Nanos,

    /// Largest request head; a larger one gets 431
    #[arg(long, value_name = "SIZE", default_value = "16KiB", value_parser = some_bytes, hide_short_help = true)]
    pub max_head: Bytes,

    /// Longest request target; a longer one gets 414
    #[arg(long, value_name = "SIZE", default_value = "8KiB", value_parser = some_bytes, hide_short_help = true)]
    pub max_target: Bytes,

    /// Maximum header fields of a request; more get 431
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u16).range(1..=128), hide_short_help = true)]
    pub max_fields: u16,

    /// Largest request content, which the server reads and drops; a larger one gets 413
    #[arg(long, value_name = "SIZE", default_value = "1MiB", hide_short_help = true)]
    pub max_body: Bytes,

    /// Maximum requests on one connection
    #[arg(long, value_name = "N|inf", default_value = "inf", hide_short_help = true)]
    pub max_requests: Limit,

    /// Rules of the site.
    #[command(flatten)]
    pub site: SiteFlags,
}

impl LiveFlags {
    /// The names of these settings.
    pub fn names() -> Vec<String> {
        let command = LiveFlags::augment_args(clap::Command::new("serve"));
        command.get_arguments().filter_map(|flag| flag.get_long().map(str::to_owned)).collect()
    }
}
