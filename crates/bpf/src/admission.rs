//! Admission of SYNs by a token bucket in which new clients come first, in traffic control or in XDP, before the SYNs
//! cost anything.
//!
//! ```text
//!   device ──> XDP hook ──> socket buffer ──> tc hook ──> IP ──> TCP: SYN queue ──> accept queue ──> server
//!                 │                              │                                                     │
//!                 └── or ── [the limits] ── or ──┘ <─────────────── interval, burst (plain stores) ────┘
//! ```
//!
//! A server may have several accept queues behind one address. Each queue has limits and counts of its own: the
//! program finds a SYN's queue by the rule in [`Queues`]. So the controller of each queue decides alone.
//!
//! The program remembers the SYNs that it refused, for 4.3 to 8.6 s. Such a SYN gets a token only if new SYNs leave one. The
//! same holds to a lesser degree for the SYNs of a client that asks for more than an eighth of the rate.
//!
//! Owns `programs/admission_tc.c` and `programs/admission_xdp.c`, their links, and the memory that they share with the server.
//! A SYN costs the server about 0.3 us if the program drops it. It costs 22 us or more if the server accepts the
//! connection to refuse it.
//!
//! `exempt` has the clients whose SYNs are never refused.
//!
//! Leaves out the decision to shed: the caller sets the limits. Leaves out the placement of the SYN: the program of
//! the SO_REUSEPORT group must follow the same rule.
//!
//! Invariants: only SYNs to the added addresses are counted or dropped. The end of this process detaches the program,
//! because links die with their descriptors. Other tc programs of the device run as before. This program runs first,
//! so that a program that accepts a packet cannot hide it.

mod exempt;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aya::maps::{Array, HashMap, MapData};
use base::Nanos;
use rustix::io::Errno;
use serde::Serialize;
use sys::bpf::AttachPoint;
use sys::network::netlink::Link;
use sys::shared::SharedArray;

pub use exempt::Exempt;

use crate::device::{Bound, Reach, Surroundings};
use crate::error::{BpfError, errno};
use crate::object::{Loaded, Object, object};
use crate::xdp::{self, Mode};
use crate::{WORDS_PER_LINE, listener_key, tc};

const TC: Object = object!("admission_tc", "admission in tc");
const XDP: Object = object!("admission_xdp", "admission in XDP");

/// `LISTENERS` of `programs/admission.h`.
const LISTENERS: usize = 1024;
/// Maximum number of accept queues.
const QUEUES: usize = 1024;
/// Maximum interval and burst. A bucket at this rate admits practically no SYN, and the sum of two such times is far
/// from the end of the clock.
const LONGEST: Nanos = Nanos::from_secs(3600);

// Words of `struct queue` and of `struct counters`.
const INTERVAL: usize = 0;
const BURST: usize = 1;
const NEW_ARE_FREE: usize = 3;
const UNTIL: usize = 4;
const PASSED: usize = 0;
const DROPPED: usize = 1;

/// A place in the kernel that decides on SYNs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Traffic control: on every kind of device, beside other programs. Needs Linux 6.6.
    Tc,
    /// Traffic control that answers a refused SYN with a reset, so that the client fails at once. A SYN with IP options
    /// is dropped.
    TcReset,
    /// XDP: cheaper if the device's driver runs it. Takes one program per device, and only Ethernet devices.
    Xdp,
}

/// The accept queues behind the listeners, and the rule by which SYNs are spread over them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queues {
    /// The number of queues, from 1 to 1024.
    pub count: usize,
    /// Queue i gets the SYNs that processor `cpus[i]` receives. SYNs of other processors are spread by their
    /// identity, modulo `count`.
    pub cpus: Vec<usize>,
    /// A number that is mixed into identities.
    pub salt: u32,
}

impl Queues {
    /// Returns the rule for a single queue.
    pub const fn one() -> Queues {
        Queues { count: 1, cpus: Vec::new(), salt: 0 }
    }
}

/// The limits of an accept queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The time from one admitted SYN to the next, from 1 ns to an hour.
    pub interval: Nanos,
    /// The time that SYNs may be ahead of that rate, at most an hour.
    pub burst: Nanos,
    /// True to refuse only SYNs that were refused before.
    pub new_are_free: bool,
    /// The time of CLOCK_MONOTONIC from which on everything is admitted; `None` for never. A writer that stops then refuses
    /// nobody for long.
    pub until: Option<Nanos>,
}

/// A program that is attached to a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Attached {
    /// The device's name.
    pub device: String,
    /// "tc", "XDP in the driver" or "generic XDP".
    pub how: &'static str,
}

/// A device that has come to reach the listeners, or reaches them from the start.
#[derive(Debug)]
pub struct ReachingDevice {
    /// The device's name.
    pub name: String,
    /// The program on it, or the reason why there is none.
    pub attached: Result<Attached, BpfError>,
}

/// The changes of the devices that reach the listeners.
#[derive(Debug, Default)]
pub struct Changes {
    /// Devices that have come to reach them.
    pub new: Vec<ReachingDevice>,
    /// The names of those that no longer do.
    pub gone: Vec<String>,
    /// The reasons why SYNs to some new addresses are not decided on.
    pub refused: Vec<BpfError>,
}

/// SYNs that were decided on since the program was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// SYNs given to the kernel's TCP.
    pub passed: u64,
    /// SYNs dropped.
    pub dropped: u64,
}

/// Limits on the SYNs that some devices receive. Admits every SYN to a queue without limits.
pub struct Admission {
    hook: Hook,
    loaded: Loaded,
    listeners: HashMap<MapData, [u32; 5], u32>,
    table: LimitTable,
    /// The links, each with its device's number.
    links: Vec<(u32, OwnedFd)>,
    /// The surroundings of the listeners, and those that are known, for [`Admission::follow`].
    followed: Option<(Surroundings, Reach)>,
}

/// The memory that the program shares with the server: limits and counts of each queue. Clones share it.
#[derive(Clone)]
pub struct LimitTable {
    queues: Arc<SharedArray<AtomicU64>>,
    /// By queue, then by processor.
    counters: Arc<SharedArray<AtomicU64>>,
    processors: usize,
}

impl Admission {
    /// Loads the program, attached to nothing and with no listener.
    ///
    /// # Errors
    /// [`BpfError::Capability`], [`BpfError::Refused`], [`BpfError::TooMany`] queues, [`BpfError::System`].
    ///
    /// # Panics
    /// Without a queue.
    pub fn load(hook: Hook, queues: &Queues) -> Result<Admission, BpfError> {
        Admission::load_exempting(hook, queues, &Exempt::NONE)
    }

    fn load_exempting(hook: Hook, queues: &Queues, exempt: &Exempt) -> Result<Admission, BpfError> {
        assert!(queues.count > 0, "listeners have an accept queue");
        if queues.count > QUEUES {
            return Err(BpfError::TooMany { what: "admission by accept queue", limit: QUEUES });
        }
        let object = match hook {
            Hook::Tc | Hook::TcReset => TC,
            Hook::Xdp => XDP,
        };
        let (count, cpus) = (queues.count as u32, processors()?);
        let mut constants = vec![("queue_count", count), ("processor_count", cpus), ("salt", queues.salt)];
        constants.extend(exempt.constants());
        constants.extend((hook == Hook::TcReset).then_some(("resets", 1)));
        let mut loaded = object.load_with(
            |loader| {
                exempt.make_room(loader);
                loader
                    .map_max_entries("queues", count)
                    .map_max_entries("counters", count * cpus)
                    .map_max_entries("processors", cpus);
            },
            &constants,
        )?;
        match hook {
            Hook::Tc | Hook::TcReset => tc::load(&mut loaded, object.name)?,
            Hook::Xdp => xdp::load(&mut loaded)?,
        }
        exempt.fill(&mut loaded)?;
        Array::try_from(loaded.take_map("processors"))
            .and_then(|mut map: Array<MapData, u32>| {
                let own = queues.cpus.iter().zip(1..=count).filter(|(cpu, _)| **cpu < cpus as usize);
                own.into_iter().try_for_each(|(cpu, queue)| map.set(*cpu as u32, queue, 0))
            })
            .map_err(|error| loaded.error("set the queues of processors", &error))?;
        let listeners = HashMap::try_from(loaded.take_map("listeners"))
            .map_err(|error| loaded.error("use the map of listeners", &error))?;
        let table = LimitTable::of(&mut loaded, cpus as usize)?;
        Ok(Admission { hook, loaded, listeners, table, links: Vec::new(), followed: None })
    }

    /// Loads the program and attaches it to each device that may bring packets to these sockets (see
    /// [`device`](crate::device)), for the SYNs to the sockets' addresses alone. The devices are those of the calling thread's
    /// network namespace. SYNs of exempt clients are never refused.
    ///
    /// # Errors
    /// As [`load`](Self::load), and those of looking for the devices. The errors of [`attach`](Self::attach) for loopback and
    /// devices with an address of a listener. The error for any other device is returned with the device.
    pub fn of_listeners(
        hook: Hook,
        queues: &Queues,
        exempt: &Exempt,
        listeners: &[BorrowedFd<'_>],
    ) -> Result<(Admission, Vec<ReachingDevice>), BpfError> {
        Admission::load_exempting(hook, queues, exempt)?.follow_first(Surroundings::of(listeners)?)
    }

    /// As [`of_listeners`](Self::of_listeners), for listeners of another process, with one queue.
    ///
    /// # Errors
    /// As [`of_listeners`](Self::of_listeners).
    pub fn of_addresses(
        hook: Hook,
        salt: u32,
        exempt: &Exempt,
        bound: Vec<Bound>,
    ) -> Result<(Admission, Vec<ReachingDevice>), BpfError> {
        let queues = Queues { salt, ..Queues::one() };
        Admission::load_exempting(hook, &queues, exempt)?.follow_first(Surroundings::of_bound(bound)?)
    }

    /// Attaches the program to the present devices, and remembers the surroundings.
    fn follow_first(
        mut self,
        mut surroundings: Surroundings,
    ) -> Result<(Admission, Vec<ReachingDevice>), BpfError> {
        let reach = surroundings.whole_reach()?;
        for address in &reach.addresses {
            self.add_listener(*address)?;
        }
        let mut devices = Vec::new();
        for owner in &reach.owners {
            devices.push(ReachingDevice { name: owner.name.clone(), attached: Ok(self.attach(owner)?) });
        }
        devices.extend(reach.others.iter().map(|device| self.try_to_attach(device)));
        self.followed = Some((surroundings, reach));
        Ok((self, devices))
    }

    fn try_to_attach(&mut self, device: &Link) -> ReachingDevice {
        ReachingDevice { name: device.name.clone(), attached: self.attach(device) }
    }

    /// Attaches the program to devices that have come to reach the sockets of [`of_listeners`](Self::of_listeners) since
    /// the last call, detaches it from those that no longer do, and decides on SYNs to the new addresses. Call it in the
    /// same network namespace. Works in a process that may open no socket.
    ///
    /// # Errors
    /// The failures of netlink, after which nothing is followed.
    pub fn follow(&mut self) -> Result<Changes, BpfError> {
        let Some((mut surroundings, known)) = self.followed.take() else { return Ok(Changes::default()) };
        let reach = surroundings.reach()?;
        // A device whose attachment fails is tried once.
        self.followed = Some((surroundings, reach.clone()));
        for gone in known.addresses.difference(&reach.addresses) {
            // The address may be another machine's now.
            let _ = self.listeners.remove(&listener_key(*gone));
        }
        let added = reach.addresses.difference(&known.addresses).map(|address| self.add_listener(*address));
        // One address too many does not keep the others from being followed.
        let refused = added.filter_map(Result::err).collect();
        let has = |reach: &Reach, index| reach.devices().any(|device| device.index == index);
        self.links.retain(|(device, _)| has(&reach, *device));
        let new = reach.devices().filter(|device| !has(&known, device.index));
        let new = new.map(|device| self.try_to_attach(device)).collect();
        let gone = known.devices().filter(|device| !has(&reach, device.index));
        Ok(Changes { new, gone: gone.map(|device| device.name.clone()).collect(), refused })
    }

    /// Returns the limits and counts of the queues.
    pub fn table(&self) -> &LimitTable {
        &self.table
    }

    /// Attaches the program to a device of the calling thread's network namespace. A driver may interrupt its
    /// device for some hundred milliseconds to switch to XDP.
    ///
    /// # Errors
    /// [`BpfError::Kernel`] without tcx (Linux 6.6); [`BpfError::Occupied`] and [`BpfError::NotEthernet`] for XDP.
    pub fn attach(&mut self, device: &Link) -> Result<Attached, BpfError> {
        let (link, how) = match self.hook {
            Hook::Tc | Hook::TcReset => {
                (tc::attach(&self.loaded, TC.name, device, AttachPoint::TcIngress)?, "tc")
            }
            Hook::Xdp => match xdp::attach(&self.loaded, device)? {
                (link, Mode::Driver) => (link, "XDP in the driver"),
                (link, Mode::Generic) => (link, "generic XDP"),
            },
        };
        self.links.push((device.index, link));
        Ok(Attached { device: device.name.clone(), how })
    }

    /// Decides on SYNs to this address and port from now on. The address is one that packets carry: neither 0.0.0.0
    /// nor `::`.
    ///
    /// # Errors
    /// [`BpfError::TooMany`] from the 1025th on.
    pub fn add_listener(&mut self, address: SocketAddr) -> Result<(), BpfError> {
        self.listeners.insert(listener_key(address), 1, 0).map_err(|error| {
            match errno(&error).and_then(|errno| errno.raw_os_error()) {
                Some(code) if code == Errno::TOOBIG.raw_os_error() => {
                    BpfError::TooMany { what: "admission of SYNs", limit: LISTENERS }
                }
                _ => self.loaded.error(format!("add the listener {address}"), &error),
            }
        })
    }

    /// Runs the program on a packet that begins with its Ethernet header and reaches no network. Returns the verdict
    /// and the time of one of `repeat` runs.
    ///
    /// # Errors
    /// The errors of [`sys::bpf::test_run`].
    pub fn test_run(&self, packet: &[u8], repeat: u32) -> Result<sys::bpf::TestRun, BpfError> {
        self.loaded.test_run(packet, repeat)
    }
}

/// The number of processors that this machine can have.
pub(crate) fn processors() -> Result<u32, BpfError> {
    let counted = aya::util::nr_cpus()
        .map_err(|(path, error)| crate::error::system(format!("count processors by {path}"))(error))?;
    Ok(counted as u32)
}

impl LimitTable {
    /// Shares the memory of an object that includes `programs/admission.h`.
    pub(crate) fn of(loaded: &mut Loaded, processors: usize) -> Result<LimitTable, BpfError> {
        let (queues, counters) = (Arc::new(loaded.share("queues")?), Arc::new(loaded.share("counters")?));
        Ok(LimitTable { queues, counters, processors })
    }

    /// The memory's descriptors, for [`open`](Self::open) in another process.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.queues.as_fd(), self.counters.as_fd()]
    }

    /// Maps the memory that another process has passed on. Needs no capability.
    ///
    /// # Errors
    /// EINVAL if the descriptors are of something else; ENOMEM.
    pub fn open([queues, counters]: [OwnedFd; 2]) -> io::Result<LimitTable> {
        let (queues, counters) = (SharedArray::open(queues)?, SharedArray::open(counters)?);
        let (count, lines) = (queues.len() / WORDS_PER_LINE, counters.len() / WORDS_PER_LINE);
        if count == 0 || !lines.is_multiple_of(count) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(LimitTable { queues: Arc::new(queues), counters: Arc::new(counters), processors: lines / count })
    }

    /// Sets the limits of a queue, from the next SYN on. Makes no system call.
    ///
    /// # Panics
    /// If the queue does not exist.
    pub fn limit(&self, queue: usize, limits: &Limits) {
        let words = self.words(queue);
        words[UNTIL].store(limits.until.map_or(u64::MAX, |until| until.0), Ordering::Relaxed);
        words[NEW_ARE_FREE].store(limits.new_are_free.into(), Ordering::Relaxed);
        words[BURST].store(limits.burst.min(LONGEST).0, Ordering::Relaxed);
        words[INTERVAL].store(limits.interval.clamp(Nanos(1), LONGEST).0, Ordering::Relaxed);
    }

    /// Admits every SYN to a queue.
    ///
    /// # Panics
    /// If the queue does not exist.
    pub fn admit_all(&self, queue: usize) {
        self.words(queue)[INTERVAL].store(0, Ordering::Relaxed);
    }

    /// Returns the counters of a queue, summed over all processors. Makes no system call.
    pub fn totals(&self, queue: usize) -> Totals {
        let lines = self.counters.chunks(WORDS_PER_LINE).skip(queue * self.processors).take(self.processors);
        let sum = |word: usize| lines.clone().map(|line| line[word].load(Ordering::Relaxed)).sum();
        Totals { passed: sum(PASSED), dropped: sum(DROPPED) }
    }

    /// `struct queue` of a queue.
    fn words(&self, queue: usize) -> &[AtomicU64] {
        &self.queues[queue * WORDS_PER_LINE..][..WORDS_PER_LINE]
    }
}
