//! The parts of a guard in the kernel: the programs at the cgroup, and the hook.
//!
//! ```text
//!              program at the cgroup         hook
//!   auto       if kernel and rights allow    cgroup, or sink without the program
//!   cgroup     yes                           the bucket in the same program
//!   tc, xdp    if requests are counted       the bucket on each device that brings packets
//!   sink       if requests are counted       a socket beside the listener
//! ```
//!
//! Owns the choice, and keeps up with listeners that are opened and closed. The law uses it through its
//! [`Parts`](crate::parts::Parts), which may be in another process.
//!
//! Invariant: dropping an [`Attachment`] detaches everything, and so does the end of this process.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use bpf::Exempt;
use bpf::admission::{self, Admission, ReachingDevice};
use bpf::device::Bound;
use bpf::guard::Guard as Programs;
use overload::foreign::PROMPT;
use sys::network::netlink::Listener;

use crate::GuardError;
use crate::parts::{Description, HookKind, in_order, signal_name};
use crate::search::cgroup::{Cgroup, Hierarchy};
use crate::search::owner::{Holding, cgroup_of};
use crate::search::target::Place;
use crate::sink::Joined;

/// The signals that the user wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SignalChoice {
    /// Requests if the machine allows it, and the accept queue.
    #[default]
    Auto,
    /// Requests and the accept queue, or an error.
    Requests,
    /// The accept queue alone.
    Queue,
}

/// The hook that the user wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HookChoice {
    /// The cgroup if the machine allows it, or a sink.
    #[default]
    Auto,
    /// The cgroup of the listener.
    Cgroup,
    /// Traffic control on devices.
    Tc,
    /// XDP on devices.
    Xdp,
    /// A socket beside the listener.
    Sink,
}

impl HookChoice {
    /// The hook that refuses so; traffic control where any hook may be taken.
    ///
    /// # Errors
    /// [`GuardError::CannotReset`].
    fn able_to(self, refusal: Refusal) -> Result<HookChoice, GuardError> {
        match (self, refusal) {
            (hook, Refusal::Drop) | (hook @ HookChoice::Tc, Refusal::Reset) => Ok(hook),
            (HookChoice::Auto, Refusal::Reset) => Ok(HookChoice::Tc),
            _ => Err(GuardError::CannotReset),
        }
    }
}

/// The answer to a refused SYN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Refusal {
    /// None: the client's kernel tries again after a second.
    #[default]
    Drop,
    /// A reset: the client fails at once, as at a closed port. Only traffic control can send one.
    Reset,
}

/// The choices behind an attachment.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The signals.
    pub signal: SignalChoice,
    /// The hook; `None` refuses nothing.
    pub hook: Option<HookChoice>,
    /// The answer to a refused SYN.
    pub refusal: Refusal,
    /// Clients that are never refused.
    pub exempt: Exempt,
    /// A number that strangers cannot know.
    pub salt: u32,
}

/// The listeners of a server, with the descriptors that hold them.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// Where they are.
    pub place: &'a Place,
    /// At least one.
    pub listeners: &'a [Listener],
    /// Those that this process may see.
    pub holdings: &'a [Holding],
}

/// Tries what the signal of requests and the hook at a cgroup need, for a listener that the caller may see. Attaches
/// nothing. Takes some ten milliseconds.
///
/// # Errors
/// The first thing that is missing.
pub fn probe() -> Result<(), GuardError> {
    Hierarchy::find()?.ok_or(GuardError::NoHierarchy)?;
    Ok(bpf::probe_guard()?)
}

/// The parts of a guard in the kernel.
pub struct Attachment {
    wanted: Wanted,
    /// The addresses of the listeners when it was made.
    bound: Vec<Bound>,
    programs: Option<Programs>,
    /// True if requests are counted.
    counts: bool,
    hook: Option<Refuser>,
    /// The cgroups of the programs.
    folders: Vec<PathBuf>,
    /// The reason why requests are not counted although the user did not object.
    without_requests: Option<String>,
}

enum Refuser {
    Cgroup,
    Devices(HookKind, Box<Admission>, Vec<ReachingDevice>),
    Sink(Joined),
}

impl Attachment {
    /// Attaches what the user wants, or what the machine allows.
    ///
    /// # Errors
    /// The first thing that was asked for and is not possible.
    pub fn make(wanted: &Wanted, found: Found<'_>) -> Result<Attachment, GuardError> {
        let mut attachment = Attachment {
            wanted: wanted.clone(),
            bound: bound(found.listeners),
            programs: None,
            counts: false,
            hook: None,
            folders: Vec::new(),
            without_requests: None,
        };
        let hook = wanted.hook.map(|hook| hook.able_to(wanted.refusal)).transpose()?;
        attachment.watch(found)?;
        if let Some(hook) = hook {
            attachment.refuse_by(hook, found)?;
        }
        Ok(attachment)
    }

    /// Loads and attaches the programs if they are wanted.
    fn watch(&mut self, found: Found<'_>) -> Result<(), GuardError> {
        let Wanted { signal, hook, .. } = self.wanted;
        let is_needed = signal == SignalChoice::Requests || hook == Some(HookChoice::Cgroup);
        if !is_needed && signal == SignalChoice::Queue && hook != Some(HookChoice::Auto) {
            return Ok(());
        }
        let loaded = Programs::load(filter(&self.bound), PROMPT, self.wanted.salt, &self.wanted.exempt)
            .map_err(GuardError::from)
            .and_then(|mut programs| {
                self.folders = attach(&mut programs, found)?;
                Ok(programs)
            });
        match loaded {
            Ok(programs) => self.programs = Some(programs),
            Err(error) if is_needed => return Err(error),
            Err(error) => self.without_requests = Some(error.to_string()),
        }
        self.counts = self.programs.is_some() && signal != SignalChoice::Queue;
        Ok(())
    }

    fn refuse_by(&mut self, choice: HookChoice, found: Found<'_>) -> Result<(), GuardError> {
        self.hook = Some(match (choice, &self.programs) {
            (HookChoice::Auto | HookChoice::Cgroup, Some(_)) => Refuser::Cgroup,
            (HookChoice::Tc, _) => match self.wanted.refusal {
                Refusal::Drop => self.on_devices(admission::Hook::Tc, HookKind::Tc, found)?,
                Refusal::Reset => self.on_devices(admission::Hook::TcReset, HookKind::Tc, found)?,
            },
            (HookChoice::Xdp, _) => self.on_devices(admission::Hook::Xdp, HookKind::Xdp, found)?,
            (HookChoice::Auto, None) => self.beside(found).map_err(|error| GuardError::NoHook {
                cgroup: self.without_requests.clone().unwrap_or_default(),
                sink: error.to_string(),
            })?,
            (HookChoice::Sink, _) => self.beside(found)?,
            (HookChoice::Cgroup, None) => unreachable!("the programs are there, or an error"),
        });
        Ok(())
    }

    fn on_devices(
        &self,
        hook: admission::Hook,
        kind: HookKind,
        found: Found<'_>,
    ) -> Result<Refuser, GuardError> {
        let (salt, exempt, bound) = (self.wanted.salt, &self.wanted.exempt, self.bound.clone());
        let (admission, devices) =
            found.place.within(|| Admission::of_addresses(hook, salt, exempt, bound))??;
        Ok(Refuser::Devices(kind, Box::new(admission), devices))
    }

    fn beside(&self, found: Found<'_>) -> Result<Refuser, GuardError> {
        let [listener] = found.listeners else {
            return Err(GuardError::SinkBesideGroup { listeners: found.listeners.len() });
        };
        let holding = found.holdings.first().ok_or(GuardError::SinkNoOwner)?;
        Ok(Refuser::Sink(found.place.within(|| Joined::join(listener, *holding))??))
    }

    /// Keeps up with the listeners of the place, which have changed.
    ///
    /// # Errors
    /// As [`make`](Self::make). What was attached before may be gone then.
    pub fn follow(&mut self, found: Found<'_>) -> Result<(), GuardError> {
        if bound(found.listeners) != self.bound {
            self.release();
            *self = Attachment::make(&self.wanted, found)?;
            return Ok(());
        }
        if let Some(programs) = &mut self.programs {
            self.folders = attach(programs, found)?;
        }
        if let Some(Refuser::Sink(_)) = self.hook {
            self.release();
            self.hook = Some(self.beside(found)?);
        }
        Ok(())
    }

    /// Closes the socket of a sink that nobody has taken.
    pub fn close_sink(&mut self) {
        if let Some(Refuser::Sink(joined)) = &mut self.hook {
            drop(joined.take_socket());
        }
    }

    /// Undoes in order what can be undone.
    pub fn release(&mut self) {
        match self.hook.take() {
            Some(Refuser::Sink(sink)) => sink.leave(),
            other => drop(other),
        }
    }

    /// Attaches to devices that have come to reach the listeners at `place`. Returns a line for each change.
    pub fn follow_devices(&mut self, place: &Place) -> Vec<String> {
        let Some(Refuser::Devices(kind, admission, devices)) = &mut self.hook else { return Vec::new() };
        let name = kind.name();
        let followed = place.within(|| admission.follow()).map_err(GuardError::from);
        let changes = match followed.and_then(|changes| Ok(changes?)) {
            Ok(changes) => changes,
            Err(error) => return vec![format!("connections through new devices may be missed: {error}")],
        };
        let mut lines: Vec<String> = changes.refused.iter().map(ToString::to_string).collect();
        let gone = devices.extract_if(.., |device| changes.gone.contains(&device.name));
        let had = gone.filter(|device| device.attached.is_ok());
        lines.extend(had.map(|device| format!("{} is gone or down, and had {name}", device.name)));
        lines.extend(changes.new.iter().map(|ReachingDevice { name: device, attached }| match attached {
            Ok(_) => format!("{device} is new, and has {name} from now on"),
            Err(error) => format!("{device} is new, and has no {name}: {error}"),
        }));
        devices.extend(changes.new);
        lines
    }

    /// What the law needs: a description without owners, and its descriptors. The socket of a sink leaves with them, so
    /// that it closes with their receiver.
    ///
    /// # Errors
    /// EMFILE.
    pub fn hand_over(&mut self) -> io::Result<(Description, Vec<OwnedFd>)> {
        let (hook, devices) = match &self.hook {
            None => (None, None),
            Some(Refuser::Cgroup) => (Some(HookKind::Cgroup), None),
            Some(Refuser::Devices(kind, admission, _)) => (Some(*kind), Some(admission.table())),
            Some(Refuser::Sink(_)) => (Some(HookKind::Sink), None),
        };
        let description = Description {
            text: self.to_string(),
            has_programs: self.programs.is_some(),
            counts: self.counts,
            hook,
            owners: Vec::new(),
            owner_count: 0,
        };
        let mut descriptors = in_order(self.programs.as_ref().map(Programs::memory), devices)?;
        if let Some(Refuser::Sink(joined)) = &mut self.hook {
            descriptors.extend(joined.take_socket());
        }
        Ok((description, descriptors))
    }
}

/// What was taken, and why.
impl fmt::Display for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "signal {}", signal_name(self.counts))?;
        if let [folder, rest @ ..] = self.folders.as_slice() {
            write!(f, ", at the cgroup {}", folder.display())?;
            if !rest.is_empty() {
                write!(f, " and {} more", rest.len())?;
            }
        }
        if let Some(reason) = &self.without_requests {
            write!(f, " (requests are not counted: {reason})")?;
        }
        match &self.hook {
            Some(Refuser::Devices(kind, _, devices)) => {
                let attached = devices.iter().filter(|device| device.attached.is_ok());
                let names: Vec<&str> = attached.map(|device| device.name.as_str()).collect();
                write!(f, "; hook {} on {}", kind.name(), names.join(", "))?;
                devices.iter().try_for_each(|ReachingDevice { name, attached }| match attached {
                    Ok(_) => Ok(()),
                    Err(error) => write!(f, "; not on {name}: {error}"),
                })
            }
            Some(Refuser::Cgroup) => write!(f, "; hook {}", HookKind::Cgroup.name()),
            Some(Refuser::Sink(_)) => {
                write!(f, "; hook {}", HookKind::Sink.name())?;
                if self.wanted.exempt.has_steady_sources() {
                    write!(f, ", which does not know steady clients from others")?;
                }
                Ok(())
            }
            None => write!(f, "; observing, nothing is refused"),
        }
    }
}

/// Attaches the programs to the cgroups of all listeners, and to no other. Returns the cgroups' folders.
fn attach(programs: &mut Programs, found: Found<'_>) -> Result<Vec<PathBuf>, GuardError> {
    let hierarchy = Hierarchy::find()?.ok_or(GuardError::NoHierarchy)?;
    let hints = || found.holdings.iter().filter_map(|holding| cgroup_of(holding.pid));
    let mut numbers: Vec<u64> = found.listeners.iter().map(|listener| listener.cgroup).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let found = numbers.into_iter().map(|number| Some((number, hierarchy.by_number(number, hints())?)));
    let mut cgroups: Vec<(u64, Cgroup)> = found.collect::<Option<_>>().ok_or(GuardError::NoCgroup)?;
    let paths: Vec<PathBuf> = cgroups.iter().map(|(_, cgroup)| cgroup.path.clone()).collect();
    cgroups.retain(|(_, cgroup)| !is_inside_another(&cgroup.path, &paths));
    for (number, cgroup) in &cgroups {
        programs.attach(*number, cgroup.folder.as_fd())?;
    }
    programs.keep(&cgroups.iter().map(|(number, _)| *number).collect::<Vec<_>>());
    Ok(cgroups.into_iter().map(|(_, cgroup)| cgroup.path).collect())
}

/// Returns true if a program at one of the other folders runs for the sockets of this one too.
fn is_inside_another(folder: &Path, all: &[PathBuf]) -> bool {
    all.iter().any(|other| folder != other && folder.starts_with(other))
}

/// The addresses that listeners are bound to, each once.
fn bound(listeners: &[Listener]) -> Vec<Bound> {
    let mut found: Vec<Bound> = Vec::new();
    for Listener { address, dual, .. } in listeners {
        let bound = Bound { address: address.ip().to_canonical(), port: address.port(), dual: *dual };
        if !found.contains(&bound) {
            found.push(bound);
        }
    }
    found.sort_unstable_by_key(|bound| (bound.address, bound.dual));
    found
}

/// The address that the programs look at: that of all listeners, or every one.
fn filter(bound: &[Bound]) -> std::net::SocketAddr {
    let [first, rest @ ..] = bound else { unreachable!("a place has listeners when it is attached to") };
    let ip = match rest {
        [] => first.address,
        _ => std::net::Ipv4Addr::UNSPECIFIED.into(),
    };
    std::net::SocketAddr::new(ip, first.port)
}

#[cfg(test)]
pub(crate) mod tests;
