//! `inrush serve`: turns flags into a configuration, starts the server, and prints the lines that scripts
//! wait for. `hosts` has the hosts and their certificates, `shown` the lines about them, and `next_step` the errors with
//! the step that follows.

mod hosts;
pub mod next_step;
mod shown;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use server::{
    Account, AdminAddress, AdminSettings, HostConfig, Reread, ServeConfig, ServeError, Server, Switch, Token,
};
use sys::process::{descriptors, memory};
use sys::say;

use crate::cli::{self, LiveFlags, ServeFlags};
use crate::config_file::{self, ConfigFile};
use crate::exit::Exit;
use crate::output;
use next_step::{Occupants, with_next_step};

/// Descriptors beside connections: listeners, mechanism, log, standard streams, and headroom.
const OTHER_DESCRIPTORS: usize = 64;

/// Serves until a signal. The flags were parsed from `arguments`, which have the settings of `file`.
pub fn run(flags: ServeFlags, arguments: &[OsString], file: Option<ConfigFile>) -> Result<(), Exit> {
    let mechanism = flags.dispatch.as_deref().unwrap_or(server::DEFAULT_DISPATCH);
    dispatch::table::check(mechanism, &flags.mechanisms.chosen).map_err(Exit::Usage)?;
    hosts::check_password_files(&hosts::of(&flags)?.0)?;
    if flags.print_config {
        return print(&config_file::effective(arguments)?);
    }
    let (architecture, checks) = (flags.arch, flags.check);
    let text = config_file::effective(arguments)?;
    let rereadable = file.as_ref().and_then(ConfigFile::rereadable);
    if let (Some(file), None, Switch::On) = (&file, rereadable, flags.upgrade) {
        // Its successor would start without settings.
        return Err(file.not_rereadable());
    }
    let token = flags.admin_token_file.as_deref().map(read_token).transpose()?;
    let account = flags.user.as_deref().map(find_account).transpose()?;
    let reads_again = rereadable.iter().map(PathBuf::from).collect();
    let mut config = ServeConfig { account, reads_again, ..configuration(flags)? };
    if let Some(admin) = &mut config.admin {
        admin.token = token;
    }
    if checks {
        let checked = server::check(architecture, config.clone()).map_err(exit)?;
        return output::text("the result", &shown::checked(&config, &checked));
    }
    let hosts = config.hosts.clone();
    let beside = architecture.descriptors(&config)
        + server::REFUSAL_DESCRIPTORS
        + config.logs().len()
        + OTHER_DESCRIPTORS;
    let needed = config.max_connections + beside;
    let warning = provide_descriptors(needed as u64);
    let occupants = Occupants::find(addresses(&config));
    memory::map_large_blocks();
    let mut in_force = InForce { file, text: text.clone(), config: config.clone() };
    let server = Server::start(architecture, config, Some(text));
    let server = server.map_err(|error| exit_beside(error, &occupants))?;
    if let Some(warning) = warning {
        say!("inrush: {warning}");
    }
    announce(&server, &hosts);
    let drained = server.wait(|| in_force.reread()).map_err(exit)?;
    if drained.cut_off > 0 {
        let count = drained.cut_off;
        say!("inrush: {count} connections had not finished within the drain timeout");
    }
    Ok(())
}

/// Looks up the account of --user. Worker processes are started as it.
fn find_account(text: &str) -> Result<Account, Exit> {
    Account::find(text).map_err(|error| Exit::Usage(format!("--user {text}: {error}")))
}

/// Reads the token that clients of the admin interface must send. Worker processes do not need it.
fn read_token(path: &Path) -> Result<Token, Exit> {
    let wrong = |what: String| Exit::Usage(format!("--admin-token-file {}: {what}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|cause| wrong(format!("cannot read it: {cause}")))?;
    Token::parse(&text).map_err(|accepted| wrong(accepted.to_owned()))
}

/// Announces, in lines that scripts wait for, that the server is ready, and prints its URLs.
fn announce(server: &Server, hosts: &[HostConfig]) {
    for address in server.addresses() {
        say!("listening on {address}");
    }
    let names = server.certificate_names();
    let urls = shown::urls(|address| server.is_plain(address), server.addresses());
    say!("serving {} at {}", shown::folder(hosts[0].root.as_deref()), urls.join(" "));
    for line in shown::hosts(hosts) {
        say!("{line}");
    }
    if let Some(names) = names {
        say!("{}", shown::certificates(&names));
    }
    for hint in server.unvouched().into_iter().map(str::to_owned).chain(shown::hints(hosts, &urls)) {
        say!("inrush: {hint}");
    }
    if let Some(driver) = server.driver() {
        say!("driver: {driver}");
    }
    if let Some(overload) = server.overload() {
        let target = overload.target();
        say!(
            "overload control: connections wait about {target} at most, or are refused by {}",
            overload.refuser()
        );
        for failure in overload.failures() {
            say!("inrush: {failure}");
        }
    }
    if let Some(confined) = server.confined() {
        say!("confined: {confined}");
        for warning in confined.warnings() {
            say!("inrush: {warning}");
        }
    }
    if let Some(address) = server.agent_address() {
        say!("agent check on {address}");
    }
    if let Some(address) = server.admin_address() {
        say!("admin on {address}");
    }
}

/// The configuration in force.
struct InForce {
    /// The config file in its last accepted state.
    file: Option<ConfigFile>,
    /// All settings, in the form of [`config_file::effective`].
    text: String,
    /// The same settings, parsed.
    config: ServeConfig,
}

impl InForce {
    /// Reads the config file again and reports the result. A broken or incomplete file changes nothing.
    fn reread(&mut self) -> Reread {
        if let Err(error) = self.take_newest() {
            say!("inrush: the configuration stays as it was: {}", error.into_message());
        }
        Reread { config: self.config.clone(), text: self.text.clone() }
    }

    fn take_newest(&mut self) -> Result<(), Exit> {
        let mut arguments: Vec<OsString> = std::env::args_os().collect();
        let file = self.file.as_ref().map(ConfigFile::read_again).transpose()?;
        if let Some(file) = &file {
            arguments = file.expand(arguments)?;
        }
        let newest = config_file::effective(&arguments)?;
        let (hosts, _) = hosts::of(&config_file::serve_flags(&newest).map_err(Exit::Usage)?)?;
        hosts::check_password_files(&hosts)?;
        let change = config_file::Change::between(&self.text, &newest, &LiveFlags::names());
        // Without what needs a restart, the rest may be a contradiction.
        let config = configured(&change.text)?;
        for (what, names) in [("changed", change.applied), ("needs a restart", change.needs_restart)] {
            if !names.is_empty() {
                say!("inrush: {what}: {}", names.join(", "));
            }
        }
        *self = InForce { file, text: change.text, config };
        Ok(())
    }
}

/// Runs a worker process of a server.
pub fn run_worker() -> Result<(), Exit> {
    server::processes::run(|text| {
        let flags = config_file::serve_flags(text)?;
        Ok((flags.arch.work(), configuration(flags).map_err(Exit::into_message)?))
    })
    .map_err(exit)
}

/// Runs the process that starts the successor of a server.
pub fn run_starter(arguments: &[OsString]) -> Result<(), Exit> {
    server::run_starter(arguments).map_err(exit)
}

fn print(text: &str) -> Result<(), Exit> {
    output::text("the configuration", text)
}

/// The addresses that the server listens on.
fn addresses(config: &ServeConfig) -> impl Iterator<Item = SocketAddr> {
    let admin = config.admin.iter().filter_map(|admin| match admin.address {
        AdminAddress::Internet(address) => Some(address),
        AdminAddress::File(_) => None,
    });
    config.listen.iter().copied().chain(admin).chain(config.agent_check)
}

fn exit(error: ServeError) -> Exit {
    exit_beside(error, &Occupants::default())
}

/// The end of the program for an error, with the next step; `occupants` are those of the server's addresses.
fn exit_beside(error: ServeError, occupants: &Occupants) -> Exit {
    match error {
        ServeError::Setting { .. } | ServeError::Log { .. } | ServeError::Tls(_) | ServeError::NoParent => {
            Exit::Usage(error.to_string())
        }
        ServeError::Root { .. } => Exit::Usage(with_next_step(&error, occupants)),
        _ => Exit::Failed(with_next_step(&error, occupants)),
    }
}

/// Raises the limit of descriptors to `needed`, if the hard limit allows. Otherwise returns a warning: the
/// server will turn connections away instead of failing.
fn provide_descriptors(needed: u64) -> Option<String> {
    let limit = descriptors::raise_limit(needed).filter(|limit| *limit < needed);
    descriptors::make_room(needed);
    let limit = limit?;
    Some(format!(
        "{limit} descriptors are fewer than the {needed} that --max-connections may need; see ulimit -n"
    ))
}

/// Returns the choices, as flags, that these flags leave to the machine.
pub fn left_to_the_machine(flags: ServeFlags) -> Vec<&'static str> {
    let architecture = flags.arch;
    let Ok(config) = configuration(flags) else { return Vec::new() };
    let open = [
        ("--driver", architecture.leaves_driver_open(&config)),
        ("--overload-hook", architecture.leaves_hook_open(&config)),
    ];
    open.into_iter().filter(|(_, is_open)| *is_open).map(|(flag, _)| flag).collect()
}

/// The configuration of settings in the form of [`config_file::effective`].
fn configured(text: &str) -> Result<ServeConfig, Exit> {
    configuration(config_file::serve_flags(text).map_err(Exit::Usage)?)
}

/// The configuration of these flags. Reads no file, so that a worker process can start while a file is broken.
fn configuration(flags: ServeFlags) -> Result<ServeConfig, Exit> {
    let (hosts, tls) = hosts::of(&flags)?;
    let log_format = match flags.log_format {
        cli::LogFormat::Combined => server::LogFormat::Combined,
        cli::LogFormat::Json => server::LogFormat::Json,
    };
    let named = |given: String| cli::MECHANISMS.iter().copied().find(|name| *name == given);
    Ok(ServeConfig {
        mechanism: flags.mechanisms.chosen,
        hosts,
        listen: flags.listen,
        listen_http: flags.listen_http,
        dispatch: flags.dispatch.map(|given| named(given).expect("the parser accepts only these names")),
        driver: flags.driver.0,
        chosen: flags.architectures.chosen,
        accept_limit: flags.live.accept_limit,
        read_after_accept: flags.read_after_accept,
        workers: flags.workers.map(|workers| workers as usize),
        cpus: flags.cpus.map(|list| list.0).unwrap_or_default(),
        max_connections: flags.max_connections as usize,
        clients: flags.clients.settings().map_err(Exit::Usage)?,
        backlog: flags.backlog,
        overload: flags.overload,
        queue_target: flags.queue_target,
        overload_hook: flags.overload_hook.0,
        burn: flags.burn,
        admin: flags.admin.map(|address| AdminSettings { address, hosts: flags.admin_host, token: None }),
        agent_check: flags.agent_check,
        load_reports: flags.load_reports == Switch::On,
        http: http_semantics::server::Settings {
            limits: http_semantics::server::Limits {
                head_bytes: flags.live.max_head.0 as usize,
                target_bytes: flags.live.max_target.0 as usize,
                fields: usize::from(flags.live.max_fields),
                body_bytes: flags.live.max_body.0,
                requests_per_connection: flags.live.max_requests,
                ..http_semantics::server::Limits::default()
            },
            timeouts: http_semantics::server::Timeouts {
                header: flags.live.header_timeout,
                idle: flags.live.idle_timeout,
                body: flags.live.body_timeout,
                write_stall: flags.live.write_timeout,
                ..http_semantics::server::Timeouts::default()
            },
        },
        kernel_cache: flags.kernel_cache == Switch::On,
        tls,
        access_log: flags.access_log.map(hosts::log_target),
        log_format,
        account: None,
        confine: flags.confine,
        upgrade: flags.upgrade,
        reads_again: Vec::new(),
        drain_timeout: flags.drain_timeout,
    })
}
