//! What refuses connections: programs on the devices, the sink, or the backlog alone.
//!
//! Owns the choice, which is made once, before the first connection. What was asked for comes first; where it is not to
//! be had, the reason is kept in one line, and the next in this order takes its place.

use std::hash::{BuildHasher, RandomState};
use std::os::fd::AsFd;

use bpf::admission::Attached;
use overload::hook::{Routing, Sinks};
use overload::{Hook, NoHook};

use super::device::DeviceHooks;
use crate::choices::OverloadHook;
use crate::listener::Listener;

/// What refuses connections. Clones are the same.
#[derive(Clone)]
pub enum Refuser {
    /// The kernel drops SYNs at full accept queues.
    Backlog,
    /// Full sockets beside the listeners.
    Sinks(Sinks),
    /// A program on the devices of the listeners.
    Devices(DeviceHooks),
}

/// A refuser, and what is to be told of it.
pub struct Chosen {
    pub refuser: Refuser,
    /// The devices that have the program.
    pub attached: Vec<Attached>,
    /// Why something is missing, in a line each.
    pub failures: Vec<String>,
}

impl Refuser {
    /// The best that there is for listeners of these accept queues, beginning with what was asked for. Blocks for as long
    /// as a connection over the loopback interface takes, at most a second; longer where a driver has to restart its
    /// device for XDP.
    pub fn choose(asked: Option<OverloadHook>, sets: &[Vec<Listener>], routing: Routing) -> Chosen {
        // Nobody can foresee which SYNs pass.
        let salt = RandomState::new().hash_one(sets.len()) as u32;
        let mut failures = Vec::new();
        if let Some(hook) = asked {
            match DeviceHooks::attach(hook, sets, &routing, salt) {
                Ok((devices, attached)) => {
                    return Chosen { refuser: Refuser::Devices(devices), attached, failures };
                }
                Err(error) => failures.push(format!("--overload-hook {hook}: {error}; using the sink")),
            }
        }
        let first = sets.first().map_or(&[][..], Vec::as_slice);
        let addresses: Vec<_> = first.iter().map(|one| (one.address, one.socket.as_fd())).collect();
        let refuser = match Sinks::join(&addresses, sets.len(), routing, salt) {
            Ok(sinks) => Refuser::Sinks(sinks),
            Err(error) => {
                failures.push(format!("{error}, so that only the backlog bounds the accept queue"));
                Refuser::Backlog
            }
        };
        Chosen { refuser, attached: Vec::new(), failures }
    }

    /// The hook of one queue.
    pub fn hook(&self, queue: usize) -> Box<dyn Hook> {
        match self {
            Refuser::Backlog => Box::new(NoHook),
            Refuser::Sinks(sinks) => Box::new(sinks.hook(queue)),
            Refuser::Devices(devices) => Box::new(devices.hook(queue)),
        }
    }

    /// Stops refusing connections to a queue, which must come before one of its listeners is closed.
    pub fn withdraw(&self, queue: usize) {
        match self {
            Refuser::Backlog => {}
            // A sink could take the index of any listener that leaves.
            Refuser::Sinks(sinks) => sinks.withdraw(),
            Refuser::Devices(devices) => devices.withdraw(queue),
        }
    }
}
