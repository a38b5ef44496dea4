//! The mechanism that refuses connections: programs on the devices, the sink, or the backlog alone.
//!
//! Owns the choice, which is made once, before the first connection. The operator's choice comes first, or else the
//! program of traffic control. If it is impossible, the next in this order takes its place, and one line keeps the reason.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use bpf::Exempt;
use bpf::admission::{self, Attached};
use overload::hook::{Routing, Sinks};
use overload::{Hook, NoHook};

use super::device::DeviceHooks;
use crate::ground::choices::{OverloadHook, WantedHook};
use crate::ground::listener::{Listener, one_for_each_address};

/// A mechanism that refuses connections. Clones share it.
#[derive(Clone)]
pub enum Refuser {
    /// The kernel drops SYNs at full accept queues.
    Backlog,
    /// Full sockets beside the listeners.
    Sinks(Sinks),
    /// A program on the devices of the listeners.
    Devices(DeviceHooks),
}

impl fmt::Debug for Refuser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refuser::Backlog => "Backlog",
            Refuser::Sinks(_) => "Sinks",
            Refuser::Devices(_) => "Devices",
        })
    }
}

/// A refuser with its report.
pub struct Chosen {
    pub refuser: Refuser,
    /// The devices that have the program.
    pub attached: Vec<Attached>,
    /// The reason for the mechanism, if the server chose it.
    pub reason: Option<String>,
    /// The reasons for missing mechanisms, and for devices without the program, in a line each.
    pub failures: Vec<String>,
}

impl Refuser {
    /// Chooses the best mechanism for listeners of these accept queues, beginning with the operator's choice. The
    /// groups of the listeners may have `inherited` sinks already. Clients of `exempt` are never refused, unless the kernel
    /// drops their SYNs at a full accept queue. Blocks during one connection over the loopback interface, at most a
    /// second. A driver that restarts its device for XDP takes longer.
    pub fn choose(
        wanted: WantedHook,
        sets: &[Vec<Listener>],
        routing: Routing,
        exempt: &Exempt,
        inherited: Vec<OwnedFd>,
    ) -> Chosen {
        // A secret salt, so that no client can foresee the admitted SYNs.
        let salt = RandomState::new().hash_one(sets.len()) as u32;
        let mut failures = Vec::new();
        let (program, mut reason) = match wanted {
            WantedHook::Asked(OverloadHook::Tc) => (Some(admission::Hook::Tc), None),
            WantedHook::Asked(OverloadHook::Xdp) => (Some(admission::Hook::Xdp), None),
            WantedHook::Asked(OverloadHook::Sink) => (None, None),
            WantedHook::Tried => (Some(admission::Hook::Tc), Some("this process may load it".to_owned())),
            WantedHook::Left(reason) => (None, Some(reason.to_owned())),
        };
        if let Some(hook) = program {
            match (DeviceHooks::attach(hook, sets, &routing, salt, exempt), wanted) {
                (Ok((devices, found)), _) => {
                    let (attached, missed) = devices.report(found);
                    failures.extend(missed);
                    return Chosen { refuser: Refuser::Devices(devices), attached, reason, failures };
                }
                (Err(error), WantedHook::Asked(hook)) => {
                    failures.push(format!("--overload-hook {hook}: {error}; using the sink"));
                }
                (Err(error), _) => reason = Some(error),
            }
        }
        let first = one_for_each_address(sets);
        let addresses: Vec<_> = first.iter().map(|one| (one.address, one.socket.as_fd())).collect();
        let members = sets.iter().map(Vec::len).sum::<usize>() / addresses.len().max(1);
        let refuser = match Sinks::join(&addresses, sets.len(), members, routing, salt, exempt, inherited) {
            Ok(sinks) => Refuser::Sinks(sinks),
            Err(error) => {
                failures.push(format!("{error}, so that only the backlog bounds the accept queue"));
                Refuser::Backlog
            }
        };
        Chosen { refuser, attached: Vec::new(), reason, failures }
    }

    /// Returns the hook of one queue.
    pub fn hook(&self, queue: usize) -> Box<dyn Hook> {
        match self {
            Refuser::Backlog => Box::new(NoHook),
            Refuser::Sinks(sinks) => Box::new(sinks.hook(queue)),
            Refuser::Devices(devices) => Box::new(devices.hook(queue)),
        }
    }

    /// Copies the sockets that refuse connections, for a successor.
    ///
    /// # Errors
    /// No descriptor is free.
    pub fn copies(&self) -> io::Result<Vec<OwnedFd>> {
        match self {
            Refuser::Sinks(sinks) => sinks.copies(),
            Refuser::Backlog | Refuser::Devices(_) => Ok(Vec::new()),
        }
    }

    /// Follows changes of the devices, and brings `attached` up to date.
    pub fn follow_devices(&self, attached: &mut Vec<Attached>) {
        if let Refuser::Devices(devices) = self {
            devices.follow(attached);
        }
    }

    /// Stops refusing connections to a queue, which must happen before one of its listeners is closed.
    pub fn withdraw(&self, queue: usize) {
        match self {
            Refuser::Backlog => {}
            // A sink could take the index of any listener that leaves the group.
            Refuser::Sinks(sinks) => sinks.withdraw(),
            Refuser::Devices(devices) => devices.withdraw(queue),
        }
    }
}
