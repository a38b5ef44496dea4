//! The opening of a server's sockets, which a start consumes.
//!
//! ```text
//!   Opening ── listen ──> queues for the loops, and Opened for the rest of the server
//! ```
//!
//! Owns the order of taking over a predecessor's sockets and opening new ones. Starts no loop.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use connection::PlainAddresses;
use overload::hook::Routing;
use sys::socket::steer_by_cpu;

use super::Plan;
use crate::connections::overload_control::{ControlledQueue, Overload};
use crate::ground::choices::Switch;
use crate::ground::error::{ServeError, system};
use crate::ground::listener::{Inheritance, Listener, bind_group, listen, take_over};
use crate::ground::threads::LoopHandle;
use crate::kernel_cache::SharedCache;

/// Copies of listening sockets, by configured address, for a successor.
pub type Copies = Vec<(SocketAddr, Vec<OwnedFd>)>;

/// The sockets that another process hands to this server, to be taken over instead of opening new ones, and the right to
/// tell the plan's loops the ports that the kernel chose. Only [`Plan::with_opening`] makes one.
pub struct Opening {
    inheritance: Inheritance,
    plain: PlainAddresses,
}

/// What an opening leaves for the server, beside the queues of its loops.
#[derive(Default)]
pub struct Opened {
    /// The kernel cache of the listeners, if it is configured and could be loaded.
    pub kernel_cache: Option<SharedCache>,
    /// The overload control; `None` while it is off.
    pub overload: Option<Overload>,
    /// The copies that a successor will get; empty without `--upgrade on`.
    pub copies: Copies,
}

/// The loops that an architecture has started, and what it opened for them.
pub struct Started {
    pub loops: Vec<LoopHandle>,
    pub opened: Opened,
}

/// Sets of listeners, one for each queue, and a predecessor's sinks that stay in their groups.
struct Listening {
    sets: Vec<Vec<Listener>>,
    sinks: Vec<OwnedFd>,
    opened: Opened,
}

impl Opening {
    pub(super) fn new(inheritance: Inheritance, plain: PlainAddresses) -> Opening {
        Opening { inheritance, plain }
    }

    /// Listens on every address with `queues` accept queues, and with overload control unless it is off.
    ///
    /// # Errors
    /// [`ServeError::Listen`]; [`ServeError::System`] if the kernel rejects the routing.
    pub fn listen(
        self,
        plan: &Plan,
        queues: usize,
        routing: Routing,
    ) -> Result<(Vec<ControlledQueue>, Opened), ServeError> {
        let target = plan.queue_target();
        let takes_over = self.inheritance.has_predecessor();
        let Listening { sets, sinks, mut opened } = self.listen_in(plan, queues, target.is_some())?;
        let inherited = takes_over.then_some(sinks);
        // With sinks in the group, keep the old program until the sinks' program replaces it.
        if let Routing::ByCpu(cpus) = &routing
            && inherited.as_ref().is_none_or(Vec::is_empty)
        {
            for listener in &sets[0] {
                steer_by_cpu(listener.socket.as_fd(), cpus)
                    .map_err(system("steer connections by processor"))?;
            }
        }
        let mut controls = Vec::new();
        if let Some(target) = target {
            let overload;
            let (backlog, hook) = (plan.config.backlog, plan.config.wanted_hook());
            let exempt = &plan.config.clients.exempt;
            (overload, controls) =
                Overload::control(inherited, target, backlog, &sets, routing, hook, exempt);
            opened.overload = Some(overload);
        }
        let controls = controls.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
        let queues = sets.into_iter().zip(controls);
        let queues = queues.map(|(listeners, control)| ControlledQueue { listeners, control }).collect();
        Ok((queues, opened))
    }

    /// Listens on every address once, with overload control unless it is off.
    ///
    /// # Errors
    /// The errors of [`Opening::listen`].
    pub fn listen_once(self, plan: &Plan) -> Result<(ControlledQueue, Opened), ServeError> {
        let (mut queues, opened) = self.listen(plan, 1, Routing::Even)?;
        Ok((queues.remove(0), opened))
    }

    /// Listens on every address with `queues` sets of listeners, without overload control.
    ///
    /// # Errors
    /// [`ServeError::Listen`].
    pub fn listen_uncontrolled(
        self,
        plan: &Plan,
        queues: usize,
    ) -> Result<(Vec<Vec<Listener>>, Opened), ServeError> {
        let Listening { sets, opened, .. } = self.listen_in(plan, queues, false)?;
        Ok((sets, opened))
    }

    /// Binds a group of `workers` sockets at every address, for the hand-off by the kernel. Returns a set for each
    /// worker. None of them listens yet.
    ///
    /// # Errors
    /// [`ServeError::Listen`]; [`ServeError::Setting`] if another process has opened the sockets.
    pub fn bind_groups(self, plan: &Plan, workers: usize) -> Result<Vec<Vec<Listener>>, ServeError> {
        let Opening { inheritance, plain } = self;
        refuse_inherited(&inheritance)?;
        let mut sets: Vec<Vec<Listener>> = (0..workers).map(|_| Vec::new()).collect();
        for address in plan.config.addresses() {
            let group =
                bind_group(address, workers).map_err(|cause| ServeError::Listen { address, cause })?;
            sets.iter_mut()
                .zip(group)
                .for_each(|(set, listener)| set.push(listener.in_custody(plan.custody())));
        }
        let bound = sets.first().into_iter().flatten().map(|listener| listener.address);
        plain.set(bound.skip(plan.config.listen.len()));
        Ok(sets)
    }

    fn listen_in(self, plan: &Plan, queues: usize, group: bool) -> Result<Listening, ServeError> {
        let mut sets: Vec<Vec<Listener>> = (0..queues).map(|_| Vec::new()).collect();
        let mut opened = Opened::default();
        let Opening { inheritance, plain } = self;
        let (all, sinks) = open(inheritance, plan, queues, group, &mut opened.copies)?;
        let bound = all.iter().map(|listeners| listeners[0].address);
        plain.set(bound.skip(plan.config.listen.len()));
        for listeners in all {
            // There are more listeners than queues if a predecessor had more.
            for (index, listener) in listeners.into_iter().enumerate() {
                sets[index % queues].push(listener);
            }
        }
        opened.kernel_cache = plan.config.kernel_cache.then(|| SharedCache::load(&sets)).flatten();
        Ok(Listening { sets, sinks, opened })
    }
}

/// Opens the listeners of every address, or takes over those of a predecessor. Every address gets the same number
/// of listeners, at least `queues`. Returns the sinks of the predecessor that stay in the groups as well.
fn open(
    mut inheritance: Inheritance,
    plan: &Plan,
    queues: usize,
    group: bool,
    copies: &mut Copies,
) -> Result<(Vec<Vec<Listener>>, Vec<OwnedFd>), ServeError> {
    let config = &plan.config;
    let upgrades = config.upgrade == Switch::On;
    let inherited: Vec<Vec<OwnedFd>> = config.addresses().map(|address| inheritance.take(address)).collect();
    let count = inherited.iter().map(Vec::len).fold(queues, usize::max);
    let failed = |address: SocketAddr| move |cause| ServeError::Listen { address, cause };
    let mut opened: Vec<Option<Vec<Listener>>> = Vec::new();
    for (address, inherited) in config.addresses().zip(&inherited) {
        // A successor of this server may have more queues.
        let own = || listen(address, config.backlog, count, group || upgrades).map_err(failed(address));
        opened.push(if inherited.is_empty() { Some(own()?) } else { None });
    }
    // Comes after the steps that may fail, because from here on the predecessor refuses no connection.
    let mut sinks = inheritance.await_predecessor().map_err(system("take over from the running server"))?;
    let stay = group
        && config.wanted_hook().is_sink()
        && inherited.iter().all(|sockets| [0, count].contains(&sockets.len()));
    if !stay {
        // New listeners must precede the sinks in their group, so the sinks leave it first.
        sinks.clear();
    }
    let mut all = Vec::new();
    for ((address, inherited), own) in config.addresses().zip(inherited).zip(opened) {
        let listeners = match own {
            Some(own) => own,
            None => {
                let shares = config.may_share_sockets();
                take_over(inherited, config.backlog, count, !sinks.is_empty(), shares)
                    .map_err(failed(address))?
            }
        };
        if upgrades {
            let sockets = listeners.iter().map(|listener| listener.socket.try_clone());
            let sockets = sockets.collect::<io::Result<_>>().map_err(system("copy the listeners"))?;
            copies.push((address, sockets));
        }
        all.push(listeners.into_iter().map(|listener| listener.in_custody(plan.custody())).collect());
    }
    Ok((all, sinks))
}

/// Refuses the hand-off by the kernel for the sockets of another process, which form no group for each worker.
fn refuse_inherited(inheritance: &Inheritance) -> Result<(), ServeError> {
    if inheritance.addresses().is_empty() {
        return Ok(());
    }
    Err(ServeError::Setting {
        setting: "--handoff",
        given: "kernel".to_owned(),
        accepted:
            "it needs sockets that this server opens itself, and systemd has opened them; use --handoff fd"
                .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_handoff_refuses_inherited_sockets() {
        let mut inheritance = Inheritance::default();
        assert!(refuse_inherited(&inheritance).is_ok());
        let listener = listen("127.0.0.1:0".parse().unwrap(), 1, 1, false).unwrap().remove(0);
        inheritance.add(listener.address, vec![listener.socket]);
        let refusal = refuse_inherited(&inheritance).unwrap_err().to_string();
        assert!(refusal.starts_with("--handoff kernel: ") && !refusal.contains('\n'), "{refusal}");
    }
}
