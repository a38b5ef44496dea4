//! The parts of an attachment that the law reads and writes: memory of the programs, and the socket of a sink.
//!
//! They arrive as descriptors with a [`Description`], so that the process that has them needs no right to attach
//! anything. Whatever it does with them: dropping the attachment itself, in the starter, admits everybody.
//!
//! Owns the order of the descriptors.

use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use base::Nanos;
use bpf::Exempt;
use bpf::admission::LimitTable;
use bpf::guard::Memory;
use overload::hook::{BucketHook, Hook};
use serde::{Deserialize, Serialize};

use crate::search::owner::Owner;
use crate::sink::Sink;

/// The time for which a bucket keeps its limits after the guard's last tick. A guard that is stopped refuses nobody for longer.
const LASTING: Nanos = Nanos::SECOND;

/// What is attached, and whose listeners it is attached to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// What was taken, and why, as text.
    pub text: String,
    /// True if the programs at the cgroup are there.
    pub has_programs: bool,
    /// True if requests are counted.
    pub counts: bool,
    /// The hook.
    pub hook: Option<HookKind>,
    /// The processes that hold the listeners; not all of very many.
    pub owners: Vec<Owner>,
    /// The number of those processes.
    pub owner_count: usize,
}

/// A hook that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HookKind {
    /// The bucket of the programs at the cgroup.
    Cgroup,
    /// A bucket in traffic control on devices.
    Tc,
    /// A bucket in XDP on devices.
    Xdp,
    /// A socket beside the listener.
    Sink,
}

impl HookKind {
    /// Its name for users.
    pub fn name(self) -> &'static str {
        match self {
            HookKind::Cgroup => "cgroup",
            HookKind::Tc => "tc",
            HookKind::Xdp => "XDP",
            HookKind::Sink => "sink",
        }
    }
}

/// The parts that the law uses. Dropping them closes a sink.
pub struct Parts {
    description: Description,
    memory: Option<Memory>,
    hook: Option<Refuser>,
}

enum Refuser {
    Bucket(BucketHook),
    Sink(Sink),
}

impl Parts {
    /// Puts the descriptors of an attachment to use. Everything is admitted at first. A sink never refuses clients of
    /// `exempt`, and mixes `salt` into its choice.
    ///
    /// # Errors
    /// `InvalidData` if the descriptors do not suit the description; the errors of mapping memory.
    pub fn open(
        description: Description,
        descriptors: Vec<OwnedFd>,
        salt: u32,
        exempt: &Exempt,
    ) -> io::Result<Parts> {
        let mut descriptors = descriptors.into_iter();
        let memory = match description.has_programs {
            true => Some(Memory::open(take(&mut descriptors)?)?),
            false => None,
        };
        let bucket = |kind: HookKind, table: LimitTable| {
            table.admit_all(0);
            Refuser::Bucket(BucketHook::new(kind.name(), table, 0).lasting(LASTING))
        };
        let hook = match (description.hook, &memory) {
            (None, _) => None,
            (Some(HookKind::Cgroup), None) => return Err(io::ErrorKind::InvalidData.into()),
            (Some(kind @ HookKind::Cgroup), Some(memory)) => Some(bucket(kind, memory.table().clone())),
            (Some(kind @ (HookKind::Tc | HookKind::Xdp)), _) => {
                Some(bucket(kind, LimitTable::open(take(&mut descriptors)?)?))
            }
            (Some(HookKind::Sink), _) => {
                let [socket] = take(&mut descriptors)?;
                Some(Refuser::Sink(Sink::open(socket, salt, exempt)?))
            }
        };
        Ok(Parts { description, memory, hook })
    }

    /// What is attached.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// The hook.
    pub fn hook(&mut self) -> Option<&mut dyn Hook> {
        match self.hook.as_mut()? {
            Refuser::Bucket(hook) => Some(hook),
            Refuser::Sink(sink) => Some(sink),
        }
    }

    /// The memory of the programs, if requests are counted.
    pub fn requests(&self) -> Option<&Memory> {
        self.memory.as_ref().filter(|_| self.description.counts)
    }

    /// SYNs that a hook or the programs have seen, and those that were refused.
    pub fn syns(&mut self) -> (Option<u64>, u64) {
        let seen = self.memory.as_ref().map(|memory| {
            let totals = memory.table().totals(0);
            totals.passed + totals.dropped
        });
        match self.hook() {
            Some(hook) => (hook.seen(), hook.refused().unwrap_or_default()),
            None => (seen, 0),
        }
    }

    /// The inode of a listening socket that is the guard's own.
    pub fn own_inode(&self) -> Option<u32> {
        match &self.hook {
            Some(Refuser::Sink(sink)) => Some(sink.inode()),
            _ => None,
        }
    }

    /// True if the kernel counts a refused SYN among the listener's drops, because the listener had got it.
    pub fn refuses_at_the_listener(&self) -> bool {
        self.description.hook == Some(HookKind::Cgroup)
    }

    /// True if the hook is on devices, which come and go.
    pub fn is_on_devices(&self) -> bool {
        matches!(self.description.hook, Some(HookKind::Tc | HookKind::Xdp))
    }

    /// Admits everything, because the listener is gone. Closes the sink, so that the server can listen again.
    pub fn admit_all(&mut self) {
        if let Some(hook) = self.hook() {
            let _ = hook.admit(&overload::Admission::ALL);
        }
        if matches!(self.hook, Some(Refuser::Sink(_))) {
            self.hook = None;
        }
    }

    /// The name of the hook; `none` if nothing is refused.
    pub fn hook_name(&self) -> &'static str {
        self.description.hook.map_or("none", HookKind::name)
    }

    /// The name of the signal.
    pub fn signal_name(&self) -> &'static str {
        signal_name(self.description.counts)
    }
}

/// The name of the signal, by whether requests are counted.
pub fn signal_name(counts: bool) -> &'static str {
    if counts { "requests and queue" } else { "queue" }
}

/// The descriptors that [`Parts::open`] expects, in this order: those of the programs, then those of the hook.
pub fn in_order<'a>(
    programs: Option<&'a Memory>,
    devices: Option<&'a LimitTable>,
) -> io::Result<Vec<OwnedFd>> {
    let programs = programs.into_iter().flat_map(Memory::descriptors);
    let devices = devices.into_iter().flat_map(LimitTable::descriptors);
    let all: Vec<BorrowedFd<'a>> = programs.chain(devices).collect();
    all.into_iter().map(|descriptor| descriptor.try_clone_to_owned()).collect()
}

fn take<const N: usize>(from: &mut impl Iterator<Item = OwnedFd>) -> io::Result<[OwnedFd; N]> {
    let taken: Vec<OwnedFd> = from.take(N).collect();
    taken.try_into().map_err(|_| io::ErrorKind::InvalidData.into())
}

/// One line: the owners, and what was taken.
impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.owners.as_slice(), self.owner_count) {
            ([], _) => write!(f, "(owner not visible to this user): ")?,
            ([one, ..], 0 | 1) => write!(f, "({}, process {}): ", one.name, one.pid)?,
            ([first, ..], count) => {
                write!(f, "({}, process {} and {} more): ", first.name, first.pid, count - 1)?;
            }
        }
        f.write_str(&self.text)
    }
}
