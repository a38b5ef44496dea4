//! An architecture decides which loops exist, where they run, and which of them accept. Nothing else.
//!
//! To add one: a file here with a constant of type [`Architecture`] and its settings, and its name in [`ALL`].

mod amped;
mod definition;
mod knot;
mod mp;
mod mt;
mod per_core;
mod seda;
mod smped;
mod sped;
mod tux;

use std::net::SocketAddr;

use base::setting::{AnySetting, add_all};
use side_servers::AdminAddress;

use crate::config::driver::ChosenDriver;
use crate::config::serve::{LogFormat, ServeConfig};
use crate::ground::choices::{Choice, Driver, OverloadHook, Switch, URING, WAKE};
use crate::ground::error::ServeError;
use crate::kernel_cache::IS_BUILT;

pub use definition::{ACCEPTS_IN_FLIGHT, Architecture};

/// All architectures, the default first.
pub const ALL: &[&Architecture] = &[
    &per_core::PER_CORE,
    &sped::SPED,
    &tux::TUX,
    &amped::AMPED,
    &mp::MP,
    &smped::SMPED,
    &mt::MT,
    &knot::KNOT_C,
    &knot::KNOT_A,
    &seda::SEDA,
];

impl Architecture {
    /// Refuses settings that were given explicitly and would have no effect, and those that contradict each other.
    ///
    /// # Errors
    /// [`ServeError::Setting`], with the reason, and the architectures that use the setting.
    fn check(&self, config: &ServeConfig) -> Result<(), ServeError> {
        let asks_for_a_driver = config.driver.is_some() || config.dispatch == Some(URING);
        let given = [
            (Choice::Dispatch, config.dispatch.map(str::to_owned)),
            (Choice::Driver, asks_for_a_driver.then(|| config.driver().to_string())),
            (Choice::ReadAfterAccept, config.read_after_accept.then(|| "true".to_owned())),
            (Choice::LoadReports, config.load_reports.then(|| "on".to_owned())),
            (Choice::KernelCache, config.kernel_cache.then(|| "on".to_owned())),
        ];
        check_addresses(config)?;
        self.check_plain_addresses(config)?;
        check_log(config)?;
        check_driver(config)?;
        check_clients(config, self.uses.contains(&Choice::Overload))?;
        check_overload(config)?;
        check_kernel_cache(config)?;
        let given = given.into_iter().map(|(choice, value)| (choice, choice.flag(), value));
        let control =
            asked_for_control(config).into_iter().map(|(flag, value)| (Choice::Overload, flag, value));
        let limits =
            client_limits(config).into_iter().map(|(flag, value)| (Choice::ClientLimits, flag, value));
        let spins =
            [(Choice::Dispatch, "--wait", dispatch::spins(&config.mechanism).then(|| "spin".to_owned()))];
        for (choice, setting, value) in given.chain(control).chain(limits).chain(spins) {
            if let Some(value) = value.filter(|_| !self.uses.contains(&choice)) {
                let users = |known: &Architecture| known.uses.contains(&choice);
                return Err(self.has_no(setting, value, choice.without(), users));
            }
        }
        for (declaration, value) in config.chosen.iter() {
            let users = |known: &Architecture| known.has(declaration.flag);
            if !users(self) {
                return Err(self.has_no(declaration.flag, value.to_owned(), declaration.without, users));
            }
        }
        (self.fits)(config)
    }

    /// Tells whether the driver depends on the machine, because no setting selects one.
    pub fn leaves_driver_open(&self, config: &ServeConfig) -> bool {
        self.uses.contains(&Choice::Driver) && config.selected_driver().is_none()
    }

    /// Tells whether the hook of overload control depends on the machine, because no setting selects one.
    pub fn leaves_hook_open(&self, config: &ServeConfig) -> bool {
        let controls = self.uses.contains(&Choice::Overload) && config.overload != Some(Switch::Off);
        controls && config.overload_hook.is_none()
    }

    /// Checks the configuration, and enters the choices of the server: the driver that the machine allows, and no program
    /// for an architecture without overload control. Returns the driver; `None` if the architecture has only one.
    ///
    /// # Errors
    /// [`ServeError::Setting`] for settings that have no effect or contradict each other.
    pub(crate) fn settle_config(&self, config: &mut ServeConfig) -> Result<Option<ChosenDriver>, ServeError> {
        self.check(config)?;
        let chosen = self.uses.contains(&Choice::Driver).then(|| ChosenDriver::of(config));
        config.driver = Some(chosen.as_ref().map_or(Driver::Readiness, |chosen| chosen.driver));
        if !self.uses.contains(&Choice::Overload) {
            config.overload_hook = Some(OverloadHook::Sink);
        }
        Ok(chosen)
    }

    /// Refuses addresses without TLS that a server without TLS has no use for, or that worker processes cannot know.
    fn check_plain_addresses(&self, config: &ServeConfig) -> Result<(), ServeError> {
        let Some(first) = config.listen_http.first() else { return Ok(()) };
        let has_open_port = config.listen_http.iter().any(|address| address.port() == 0);
        let accepted = if config.tls.is_empty() {
            "there is no certificate, so every address is without TLS; add --tls-cert, or use --listen"
        } else if has_open_port && self.has_workers() {
            "worker processes cannot know a port that the kernel chooses; expected a port from 1 up"
        } else {
            return Ok(());
        };
        Err(ServeError::Setting {
            setting: "--listen-http",
            given: first.to_string(),
            accepted: accepted.to_owned(),
        })
    }

    fn has_no(
        &self,
        setting: &'static str,
        given: String,
        without: &str,
        has: impl Fn(&Architecture) -> bool,
    ) -> ServeError {
        let users: Vec<&str> = ALL.iter().filter(|known| has(known)).map(|known| known.name).collect();
        let accepted = format!("{} {without}; the setting is for {}", self.name, users.join(", "));
        ServeError::Setting { setting, given, accepted }
    }
}

/// Refuses an address that the server would have to open twice. A port of 0 is a new one each time.
fn check_addresses(config: &ServeConfig) -> Result<(), ServeError> {
    let admin = config.admin.as_ref().and_then(|admin| match admin.address {
        AdminAddress::Internet(address) => Some(("--admin", address)),
        AdminAddress::File(_) => None,
    });
    let agent = config.agent_check.map(|address| ("--agent-check", address));
    let listens = config.listen.iter().map(|address| ("--listen", *address));
    let plain = config.listen_http.iter().map(|address| ("--listen-http", *address));
    let all: Vec<(&'static str, SocketAddr)> = listens.chain(plain).chain(admin).chain(agent).collect();
    for (place, (setting, address)) in all.iter().enumerate() {
        if let Some((other, _)) = all[..place].iter().find(|(_, earlier)| overlap(*earlier, *address)) {
            return Err(ServeError::Setting {
                setting,
                given: address.to_string(),
                accepted: format!("{other} has this address and port already; give each its own"),
            });
        }
    }
    Ok(())
}

/// Refuses a format for lines that nobody writes.
fn check_log(config: &ServeConfig) -> Result<(), ServeError> {
    if config.log_format == LogFormat::Json && config.logs().is_empty() {
        return Err(ServeError::Setting {
            setting: "--log-format",
            given: "json".to_owned(),
            accepted: "nothing is logged; add --access-log".to_owned(),
        });
    }
    Ok(())
}

fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let is_any = one.ip().is_unspecified() || other.ip().is_unspecified();
    let same_address = one.ip() == other.ip() || is_any && one.is_ipv4() == other.is_ipv4();
    one.port() != 0 && one.port() == other.port() && same_address
}

/// Refuses settings that do not fit the driver.
fn check_driver(config: &ServeConfig) -> Result<(), ServeError> {
    let refused = |setting, given, accepted: &str| {
        Err(ServeError::Setting { setting, given, accepted: accepted.to_owned() })
    };
    match (config.driver(), config.dispatch) {
        (Driver::Readiness, Some(URING)) => {
            refused("--dispatch", URING.to_owned(), "it names --driver completion; leave one of the two out")
        }
        (Driver::Completion, Some(mechanism)) if mechanism != URING => refused(
            "--dispatch",
            mechanism.to_owned(),
            "--driver completion waits by its io_uring; leave out --dispatch, or use --driver readiness",
        ),
        (Driver::Completion, _) if dispatch::spins(&config.mechanism) => refused(
            "--wait",
            "spin".to_owned(),
            "--driver completion waits by its io_uring; leave out --wait, or use --driver readiness",
        ),
        (Driver::Completion, _) if config.read_after_accept => refused(
            "--read-after-accept",
            "true".to_owned(),
            "--driver completion receives from an accepted connection at once in any case",
        ),
        _ => Ok(()),
    }
}

/// Refuses settings of overload control where that is off.
fn check_overload(config: &ServeConfig) -> Result<(), ServeError> {
    let settings = asked_for_control(config).into_iter().find_map(|(flag, value)| Some((flag, value?)));
    match settings {
        Some((setting, given)) if config.overload == Some(Switch::Off) => Err(ServeError::Setting {
            setting,
            given,
            accepted: "it has no effect with --overload off; leave one of the two out".to_owned(),
        }),
        _ => Ok(()),
    }
}

/// Refuses a kernel cache that could answer nothing.
fn check_kernel_cache(config: &ServeConfig) -> Result<(), ServeError> {
    let accepted = match config {
        _ if !config.kernel_cache => return Ok(()),
        _ if !IS_BUILT => "this program was built without it; build it with the feature kernel-cache",
        _ if !config.tls.is_empty() => {
            "the kernel cannot answer requests under TLS; leave out --kernel-cache or --tls-cert"
        }
        _ if config.hosts.iter().all(|host| host.site.small_file.0 == 0 || host.site.cache.bytes.0 == 0) => {
            "no file fits; raise --small-file and --cache-memory"
        }
        _ => return Ok(()),
    };
    let (setting, given) = ("--kernel-cache", "on".to_owned());
    Err(ServeError::Setting { setting, given, accepted: accepted.to_owned() })
}

/// Refuses the kernel cache beside client limits, which it would bypass, and exemptions if nothing refuses clients.
fn check_clients(config: &ServeConfig, can_control: bool) -> Result<(), ServeError> {
    let clients = &config.clients;
    let is_controlled = can_control && config.overload != Some(Switch::Off);
    let refused = |setting, given, accepted: &str| {
        Err(ServeError::Setting { setting, given, accepted: accepted.to_owned() })
    };
    if config.kernel_cache && (clients.has_limits() || !clients.proxies.is_empty()) {
        return refused(
            "--kernel-cache",
            "on".to_owned(),
            "the kernel answers before the server knows the client; leave out --kernel-cache, or --client-connections, \
             --client-rate and --proxy-protocol-from",
        );
    }
    match clients.exempt.networks().first() {
        Some(network) if !clients.has_limits() && !is_controlled => refused(
            "--client-exempt",
            network.to_string(),
            "no client is refused; add --client-connections or --client-rate, or use overload control",
        ),
        _ => Ok(()),
    }
}

/// Returns the flags of the client limits, each with its value if it was given.
fn client_limits(config: &ServeConfig) -> [(&'static str, Option<String>); 2] {
    [
        (Choice::ClientLimits.flag(), config.clients.connections.map(|most| most.to_string())),
        ("--client-rate", config.clients.rate_per_s.map(|rate| rate.to_string())),
    ]
}

/// Returns the flags of overload control, each with its value if that asks for control.
fn asked_for_control(config: &ServeConfig) -> [(&'static str, Option<String>); 3] {
    let on = config.overload.filter(|switch| *switch == Switch::On);
    [
        (Choice::Overload.flag(), on.map(|on| on.to_string())),
        ("--queue-target", config.queue_target.map(|target| target.to_string())),
        ("--overload-hook", config.overload_hook.map(|hook| hook.to_string())),
    ]
}

/// Returns the names of the architectures that declare the setting of this flag.
pub fn having(flag: &str) -> Vec<&'static str> {
    ALL.iter().filter(|known| known.has(flag)).map(|known| known.name).collect()
}

/// Returns the architectures that offer a choice, in words for help: those that do, or `not` those that do not if they
/// are fewer. Empty if all do.
pub fn offering(choice: Choice) -> String {
    let (with, without): (Vec<&Architecture>, Vec<&Architecture>) =
        ALL.iter().partition(|known| known.uses.contains(&choice));
    let names = |some: &[&Architecture]| some.iter().map(|known| known.name).collect::<Vec<_>>().join(", ");
    match without.len() {
        0 => String::new(),
        fewer if fewer < with.len() => format!("not {}", names(&without)),
        _ => names(&with),
    }
}

/// Returns the values that each architecture has for the setting of this flag, in words for help; `None` if all have the same.
pub fn values(flag: &str) -> Option<String> {
    if flag != WAKE.declaration().flag {
        return None;
    }
    let some = ALL.iter().filter(|known| !known.wakes.is_empty());
    let words = some.map(|known| {
        let (usual, others) = (known.wakes[0], known.wakes[1..].iter());
        let others: String = others.map(|wake| format!(", {wake}")).collect();
        format!("{}: {usual} (default){others}.", known.name)
    });
    Some(words.collect::<Vec<_>>().join(" "))
}

/// Returns the architecture with this name.
pub fn by_name(name: &str) -> Option<&'static Architecture> {
    ALL.iter().copied().find(|architecture| architecture.name == name)
}

/// Returns the settings of all architectures, without duplicates.
pub fn settings() -> Vec<&'static dyn AnySetting> {
    let mut all = Vec::new();
    ALL.iter().for_each(|known| add_all(&mut all, known.settings));
    all
}
