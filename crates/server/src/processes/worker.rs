//! The worker's side: its start, and the parent's messages.

use std::ffi::CString;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;

use sys::process::inherited;
use sys::thread::signal;
use tls::Sessions;

use super::control::{Changed, Control, Heard, Kind, Message, Received, garbled, read_memory, read_text};
use crate::config::hosts::{self, LiveHosts};
use crate::config::serve::ServeConfig;
use crate::connections::accept::LiveLimit;
use crate::ground::choices::Switch;
use crate::ground::counters::{Board, Counters};
use crate::ground::error::{ServeError, system};
use crate::ground::listener::Listener;
use crate::ground::scoreboard::{Layout, Slot};
use crate::observation::access_log;
use crate::plan::Plan;

const STDIN: RawFd = 0;

/// The function that runs a worker process from its start to its end, with the control socket to its parent.
pub type Work = fn(Worker, Control) -> Result<(), ServeError>;

/// The function that parses the text of a configuration. Also returns the work of its architecture's workers.
pub type Parse = fn(&str) -> Result<(Option<Work>, ServeConfig), String>;

/// A worker process, with everything that its parent gave it.
pub struct Worker {
    /// The number of its place.
    pub place: usize,
    /// Its plan; the accept-limit is the parent's own.
    pub plan: Plan,
    /// Its counters and the architecture's words, in shared memory.
    pub slot: Arc<Slot>,
    /// The descriptors that the fleet passed on, in the same order.
    pub inherited: Vec<OwnedFd>,
    parse: Parse,
}

impl Worker {
    /// Makes a board whose figures the parent sees, with the additions of `live`.
    pub fn board(&self, live: impl Fn(&mut Counters) + Send + Sync + 'static) -> Board {
        let slot = Arc::clone(&self.slot);
        let live = move |counters: &mut Counters| {
            counters.loops.worker_cpu_time = sys::cpu::process_time().0 / 1_000;
            live(counters);
        };
        Board::with_live(live).shown_to(move |counters| slot.write(counters))
    }

    /// Takes over inherited descriptors as the parent's listeners.
    ///
    /// # Errors
    /// [`ServeError::System`]: a descriptor is not a socket, which is a bug of Inrush.
    pub fn listeners(
        &self,
        inherited: impl IntoIterator<Item = OwnedFd>,
    ) -> Result<Vec<Listener>, ServeError> {
        let listeners = inherited.into_iter().map(|socket| {
            Listener::inherited(socket).map(|listener| listener.in_custody(self.plan.custody()))
        });
        listeners.collect::<io::Result<_>>().map_err(system("inherit the listeners"))
    }

    /// Returns a function that applies a changed configuration, for a caller that reads the control socket itself.
    pub fn reconfigurer(&self) -> impl Fn(&Changed) + Send + 'static {
        let (parse, settings, log) = (self.parse, self.plan.settings(), self.plan.log());
        let hosts = LiveHosts::of(&self.plan.config().hosts);
        move |changed| {
            if let (Some(tls), Some(secrets)) = (settings.tls(), &changed.secrets) {
                tls.replace_from_bytes(secrets);
            }
            if let Some(log) = &log {
                log.reopen();
            }
            match parse(&changed.text) {
                Ok((_, config)) => {
                    settings.set(config.http);
                    hosts.take_from(&config.hosts);
                }
                // The parent has parsed the same text.
                Err(error) => sys::say!("inrush: a worker process keeps its configuration: {error}"),
            }
        }
    }

    /// Starts a thread that reads the control socket. The thread hands messages to `said`. It calls `reclaim` to have
    /// an idle connection closed, and `drain` to drain the worker. It applies a changed configuration, and ends the
    /// process when the parent has ended.
    ///
    /// # Errors
    /// [`ServeError::System`]: no thread left.
    pub fn obey(
        &self,
        control: Control,
        said: impl Fn(Message) + Send + 'static,
        reclaim: impl Fn() + Send + 'static,
        drain: impl Fn() + Send + 'static,
    ) -> Result<(), ServeError> {
        let reconfigure = self.reconfigurer();
        let body = move || {
            loop {
                match control.receive() {
                    Ok(Heard::Message(message)) => said(message),
                    Ok(Heard::Changed(changed)) => reconfigure(&changed),
                    Ok(Heard::Reclaim) => reclaim(),
                    Ok(Heard::Drain) => drain(),
                    Ok(Heard::Nothing) => control.wait(),
                    Ok(Heard::Gone) => orphaned(),
                    Err(error) => {
                        sys::say!("inrush: a worker process does not understand its parent: {error}");
                        std::process::exit(1);
                    }
                }
            }
        };
        let thread = std::thread::Builder::new().name("control".to_owned()).spawn(body);
        thread.map(drop).map_err(system("start a thread"))
    }
}

/// Ends this process, because its parent has ended: nothing would stop it or read its counters.
pub fn orphaned() -> ! {
    std::process::exit(1)
}

/// Runs a worker process, from its first to its last message. The standard input is the control socket. Blocks.
///
/// # Errors
/// [`ServeError::NoParent`] if no server started the process; [`ServeError`] if it cannot go on.
pub fn run(parse: Parse) -> Result<(), ServeError> {
    // Signals are the parent's business: a signal to the whole process group must not end this process.
    signal::block().map_err(system("block signals"))?;
    let control = inherited(STDIN).map_err(|_| ServeError::NoParent)?;
    let control = Control::from_inherited(control);
    let message = loop {
        match control.receive_any() {
            Ok(Received::Message(Kind::Start, message)) => break message,
            Ok(Received::Nothing) => control.wait(),
            _ => return Err(ServeError::NoParent),
        }
    };
    let start = Start::read(message).map_err(system("read what the parent says"))?;
    name_this_process(&start.name);
    let (work, config) = parse(&start.text).map_err(|error| ServeError::System {
        what: "read the configuration",
        cause: io::Error::new(io::ErrorKind::InvalidData, error),
    })?;
    let work = work.ok_or(ServeError::NoParent)?;
    let limit = LiveLimit::open(start.limit).map_err(system("map the accept-limit"))?;
    let slot =
        Slot::open(start.scoreboard, start.place, start.layout).map_err(system("map the scoreboard"))?;
    let log = access_log::of(&config)?;
    let sessions = |bytes: &Vec<u8>| Sessions::from_bytes(bytes).ok_or_else(garbled);
    let tls = start.secrets.as_ref().map(sessions).transpose().map_err(system("read the certificates"))?;
    let hosts = hosts::reopen(&config, tls.as_ref())?;
    let sender = log.as_ref().map(|(sender, _)| sender.clone());
    let plan = Plan::new(config, hosts, limit, sender, None, None, tls)?;
    let plan = plan.in_custody(control.custody().clone());
    if plan.config().confine == Switch::On {
        // If this fails, it has failed in the parent, which has said so. The parent's own filter holds in any case.
        let _ = plan.config().kept_calls(false).restrict();
    }
    let (place, slot, inherited) = (start.place, Arc::new(slot), start.inherited);
    work(Worker { place, plan, slot, inherited, parse }, control)?;
    if let Some((sender, end)) = log {
        access_log::close(sender, &end);
    }
    Ok(())
}

/// Names the process, for tools that do not show its command line.
fn name_this_process(name: &str) {
    if let Ok(name) = CString::new(name) {
        // The kernel cuts the name after 15 bytes. A failure does no harm.
        let _ = rustix::thread::set_name(&name);
    }
}

/// The parts of the first message.
struct Start {
    place: usize,
    layout: Layout,
    name: String,
    text: String,
    scoreboard: OwnedFd,
    limit: OwnedFd,
    /// Certificates and keys, under TLS.
    secrets: Option<Vec<u8>>,
    inherited: Vec<OwnedFd>,
}

impl Start {
    fn read(message: Message) -> io::Result<Start> {
        if message.truncated {
            return Err(io::Error::other("no descriptor left for what it sends"));
        }
        let (words, name) = message.bytes.split_first_chunk::<32>().ok_or_else(garbled)?;
        let mut words = words.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word) as usize);
        let mut word = || words.next().ok_or_else(garbled);
        let (place, layout) = (word()?, Layout { service: word()?, own: word()? });
        let has_secrets = word()? == 1;
        let name = format!("{} {place}", String::from_utf8_lossy(name));
        let mut descriptors = message.descriptors.into_iter();
        let mut next = || descriptors.next().ok_or_else(garbled);
        let (text, scoreboard, limit) = (read_text(next()?)?, next()?, next()?);
        let secrets = if has_secrets { Some(read_memory(next()?)?) } else { None };
        Ok(Start { place, layout, name, text, scoreboard, limit, secrets, inherited: descriptors.collect() })
    }
}
