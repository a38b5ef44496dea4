//! Steering of connections to workers at their SYN, by the schedules of SMPED.
//!
//! ```text
//!   SYN ──> SO_REUSEPORT group ──> [steer] ──> the listener of worker i ──> worker i
//!                                  ^  │ +1                                   │
//!                    reads         │  v             plain stores             │
//!            [alive, connections, weight, capacity] x workers <──────────────┘
//! ```
//!
//! Owns `programs/steer.c`, the assignment of listeners to workers, and the memory of the workers' reports. Leaves out the
//! workers' measurements, and starting and stopping them.
//!
//! A worker process opens the same memory from a descriptor ([`Workers::open`]) and needs no capability for it. The
//! program places the connections of a closing listener's queue anew, with their data. So clear `alive` first, then
//! close; the kernel does the rest.
//!
//! Invariants: the program gives a worker that is not alive nothing. If no worker is alive, or if the chosen one has no
//! listener at the address, the kernel's hash places a connection, and the program counts it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use aya::maps::{MapData, ReusePortSockArray};
use aya::programs::SkReuseport;
use base::PerSecond;
use sys::shared::SharedArray;

use crate::WORDS_PER_LINE;
use crate::error::BpfError;
use crate::object::{Loaded, Object, object};

const STEER: Object = object!("steer", "steering at connect time");

/// Maximum number of workers: `WORKERS` of `programs/steer.c`.
pub const WORKERS: usize = 256;
/// Maximum number of addresses of the workers: `GROUPS` there.
pub const GROUPS: usize = 16;

/// Weight units per reply per second. The fraction distinguishes slow workers.
const WEIGHT_UNIT: f64 = 1024.0;
/// The greatest weight. Its product with the connections of a worker fits into 64 bits.
const WEIGHT_LIMIT: f64 = (1_u64 << 40) as f64;

// Words of `struct worker`.
const ALIVE: usize = 0;
const CONNECTIONS: usize = 1;
const WEIGHT: usize = 2;
const CAPACITY: usize = 3;
const ASSIGNED: usize = 4;

// Words of `struct control`, which come before the workers.
const WORKERS_IN_USE: usize = 0;
const GROUPS_IN_USE: usize = 1;
const SCHEDULE: usize = 2;
const CROWDED: usize = 4;
const FULL: usize = 5;
const UNSTEERED: usize = 6;
const MIGRATED: usize = 7;

/// The rule that chooses a worker; `enum schedule` of `programs/steer.c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// The least product of weight and connections. The paper uses T_i as the weight.
    LeastProduct = 0,
    /// The fewest connections, or the least of another number that workers report as connections.
    LeastConnections = 1,
    /// Each worker in turn.
    RoundRobin = 2,
    /// A worker at random.
    Random = 3,
}

/// The program's counters since it was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Connections whose first worker by the schedule had no room, so that another worker is wanted.
    pub crowded: u64,
    /// Connections among these for which no worker had room. They wait in the accept queue of the first.
    pub full: u64,
    /// Connections that the kernel's hash placed, because no worker was alive or the chosen one had no listener.
    pub unsteered: u64,
    /// Connections moved from a listener that was closed.
    pub migrated: u64,
}

/// The program, its listeners, and the memory of the workers.
pub struct Steering {
    loaded: Loaded,
    listeners: ReusePortSockArray<MapData>,
    workers: Workers,
    groups: usize,
}

impl Steering {
    /// Loads the program. No worker is alive.
    ///
    /// # Errors
    /// [`BpfError::Capability`], [`BpfError::Refused`], [`BpfError::System`]; [`BpfError::TooMany`] from the
    /// 257th worker on.
    pub fn load(schedule: Schedule, workers: usize) -> Result<Steering, BpfError> {
        if workers > WORKERS {
            return Err(BpfError::TooMany { what: "steering of workers", limit: WORKERS });
        }
        let mut loaded = STEER.load(|_| ())?;
        <&mut SkReuseport>::try_from(loaded.program())
            .and_then(SkReuseport::load)
            .map_err(|error| loaded.error("load steer", &error))?;
        let memory = Workers(loaded.share("state")?);
        memory.0[WORKERS_IN_USE].store(workers as u64, Ordering::Relaxed);
        memory.0[SCHEDULE].store(schedule as u64, Ordering::Relaxed);
        let listeners = ReusePortSockArray::try_from(loaded.take_map("listeners"))
            .map_err(|error| loaded.error("use the map of listeners", &error))?;
        Ok(Steering { loaded, listeners, workers: memory, groups: 0 })
    }

    /// Steers the connections to one more address. `listener` is any socket of the address's SO_REUSEPORT group; the
    /// program stays with the group until its last socket closes. Returns the address's number.
    ///
    /// # Errors
    /// [`BpfError::TooMany`] from the 17th address on; [`BpfError::System`] for a socket without SO_REUSEPORT.
    pub fn add_address(&mut self, listener: BorrowedFd<'_>) -> Result<usize, BpfError> {
        if self.groups == GROUPS {
            return Err(BpfError::TooMany { what: "steering of addresses", limit: GROUPS });
        }
        let attach = |program: &mut SkReuseport| program.attach(listener);
        <&mut SkReuseport>::try_from(self.loaded.program())
            .and_then(attach)
            .map_err(|error| self.loaded.error("attach to a group of listeners", &error))?;
        self.groups += 1;
        self.workers.0[GROUPS_IN_USE].store(self.groups as u64, Ordering::Release);
        Ok(self.groups - 1)
    }

    /// Makes `listener` the listener of a worker at an address. It must be listening; the kernel forgets it when its
    /// last descriptor is closed.
    ///
    /// # Errors
    /// [`BpfError::System`] for a socket that does not listen, or that is not a member of a group.
    ///
    /// # Panics
    /// If the address was not added, or the worker is past [`WORKERS`].
    pub fn set_listener(
        &mut self,
        address: usize,
        worker: usize,
        listener: BorrowedFd<'_>,
    ) -> Result<(), BpfError> {
        assert!(address < self.groups && worker < WORKERS, "address {address}, worker {worker}");
        let place = (address * WORKERS + worker) as u32;
        self.listeners
            .set(place, &listener.as_raw_fd(), 0)
            .map_err(|error| self.loaded.error(format!("set the listener of worker {worker}"), &error))
    }

    /// The memory of the workers.
    pub fn workers(&self) -> &Workers {
        &self.workers
    }

    /// Returns the counters. Makes no system call.
    pub fn totals(&self) -> Totals {
        self.workers.totals()
    }
}

/// The memory of the workers' reports, which the program reads. A descriptor shares it.
pub struct Workers(SharedArray<AtomicU64>);

impl Workers {
    /// Opens the memory in a worker process, from a descriptor that was inherited or passed.
    ///
    /// # Errors
    /// EINVAL for a descriptor of another kind.
    pub fn open(memory: OwnedFd) -> io::Result<Workers> {
        let words = SharedArray::open(memory)?;
        let expected = WORDS_PER_LINE * (1 + WORKERS);
        if words.len() == expected { Ok(Workers(words)) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    /// Returns the program's counters. Makes no system call.
    pub fn totals(&self) -> Totals {
        let read = |word: usize| self.0[word].load(Ordering::Relaxed);
        Totals {
            crowded: read(CROWDED),
            full: read(FULL),
            unsteered: read(UNSTEERED),
            migrated: read(MIGRATED),
        }
    }

    /// Returns the record of a worker.
    ///
    /// # Panics
    /// If the worker is past [`WORKERS`].
    pub fn worker(&self, index: usize) -> Worker<'_> {
        assert!(index < WORKERS, "worker {index} of {WORKERS}");
        let start = WORDS_PER_LINE * (1 + index);
        Worker(&self.0[start..start + WORDS_PER_LINE])
    }
}

impl AsFd for Workers {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// One worker's record. Each method is one load or one store, and the next SYN sees the stored value.
#[derive(Clone, Copy)]
pub struct Worker<'a>(&'a [AtomicU64]);

impl Worker<'_> {
    /// Makes the worker eligible for connections, or not. Clear it before the worker's listeners are closed.
    pub fn set_alive(self, alive: bool) {
        self.0[ALIVE].store(u64::from(alive), Ordering::Release);
    }

    /// Returns true if the worker is eligible for connections.
    pub fn alive(self) -> bool {
        self.0[ALIVE].load(Ordering::Acquire) != 0
    }

    /// Reports the worker's connections: the accepted ones, and those in its accept queues. The report replaces the
    /// program's own count since the last one.
    pub fn set_connections(self, connections: u64) {
        self.0[CONNECTIONS].store(connections, Ordering::Relaxed);
    }

    /// Returns the last report plus the connections given to the worker since.
    pub fn connections(self) -> u64 {
        self.0[CONNECTIONS].load(Ordering::Relaxed)
    }

    /// Sets the worker's T_i.
    pub fn set_throughput(self, throughput: PerSecond) {
        let weight = (throughput.0 * WEIGHT_UNIT).clamp(0.0, WEIGHT_LIMIT);
        self.0[WEIGHT].store(weight as u64, Ordering::Relaxed);
    }

    /// The worker's T_i.
    pub fn throughput(self) -> PerSecond {
        PerSecond(self.0[WEIGHT].load(Ordering::Relaxed) as f64 / WEIGHT_UNIT)
    }

    /// Sets the number of connections at which the worker is full: C_max.
    pub fn set_capacity(self, connections: u64) {
        self.0[CAPACITY].store(connections, Ordering::Relaxed);
    }

    /// Returns the number of connections ever given to the worker.
    pub fn assigned(self) -> u64 {
        self.0[ASSIGNED].load(Ordering::Relaxed)
    }
}
