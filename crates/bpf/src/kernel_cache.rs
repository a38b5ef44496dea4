//! Answers to hot requests from inside the kernel, on the server's own connections (TUX; Brecht 2004, section 3.3).
//!
//! ```text
//!              ┌──────────────── kernel ─────────────────┐        ┌──── server ────┐
//!   request ──>│ tc ingress: known, and its object valid? │        │                │
//!              │   │ yes                  │ no            │        │                │
//!   <──────────┼── response               └──> TCP ───────┼───────>│ answers; puts  │
//!              │      ^                                   │        │ hot responses  │
//!              │   [requests] ─> [objects, dates]  <──────┼────────┤ here, renews   │
//!              └──────────────────────────────────────────┘ stores │ and dates them │
//! ```
//!
//! Owns `bpf/kernel_cache.c`, its links, and the memory of objects, requests and connections. The program knows
//! no HTTP: it compares a whole segment with requests that the server has answered, byte for byte. Which those are,
//! and that the answer is the same for everybody, is the server's to know.
//!
//! Leaves out what is hot, and whether a file has changed: an object is valid for as long as the server says, and
//! nobody has to tell the program that it is not.
//!
//! Invariants: a connection is answered by the program until its first other segment, then by the server for good. A
//! request is answered by one of the two. When this process ends, however it ends, the program is gone; connections
//! it has answered on end with a reset at their next request. docs/decisions/0018 has the reasons.

mod flows;
mod object;
mod table;

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use aya::maps::{HashMap, MapData, RingBuf};
use aya::programs::TcAttachType;
use aya::programs::links::FdLink;
use base::Nanos;
use sys::netlink::Link;
use sys::shared::SharedArray;

use crate::address_words;
use crate::device::reach_of;
use crate::error::{BpfError, system};
use crate::object::{Loaded, Object, object as checked_in};
use crate::tc;
use object::{DATE, Objects};
use table::Table;

pub use object::{GRACE, LONGEST, ObjectId};
pub use table::LONGEST_REQUEST;

const CACHE: Object = checked_in!("kernel_cache", "the kernel cache");

/// Connections whose handshake has been seen, for each that may be answered on: most of them carry a request soon.
const EMBRYOS_PER_CONNECTION: usize = 2;

// 64-bit words of `struct control`.
const ENABLED: usize = 0;
const DATE_IN_USE: usize = 1;
const DATES: usize = 2;
const WORDS_PER_DATE: usize = 5;
const SEED: usize = DATES + 2 * WORDS_PER_DATE;
const LOGGING: usize = SEED + 1;

/// Words of `struct counters`.
const COUNTERS: usize = 16;

/// How much the cache may hold. Its memory is taken at once: 16 KiB an object, half a KiB a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Responses, those of the last [`GRACE`] among them.
    pub objects: usize,
    /// Requests that are known; rounded up to a power of two, at least 4.
    pub requests: usize,
    /// Connections that have been answered on.
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { objects: 512, requests: 4096, connections: 65_536 }
    }
}

/// What the program has counted since it was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests that were answered.
    pub answers: u64,
    /// Bytes of their responses.
    pub bytes: u64,
    /// Packets upon which parts of a response were sent after its first burst.
    pub repeated: u64,
    /// Connections that were answered on.
    pub taken: u64,
    /// Those of them that became the server's.
    pub handed_over: u64,
    /// Connections that were not answered on because there were too many.
    pub no_room: u64,
    /// Packets with a wrong checksum.
    pub damaged: u64,
    /// Packets that the server's kernel did not need to see.
    pub swallowed: u64,
    /// Connections that were reset because an unfinished response's place was used again.
    pub aborted: u64,
    /// Answers that the log had no room for.
    pub unlogged: u64,
}

/// An answer, as the access log has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// CLOCK_MONOTONIC, some milliseconds exact.
    pub at: Nanos,
    /// Who asked.
    pub client: SocketAddr,
    /// The server's port.
    pub port: u16,
    /// The response.
    pub object: ObjectId,
    /// Its length in bytes.
    pub bytes: u32,
}

/// The program on some devices, and what it answers. Answers nothing until it is enabled.
pub struct KernelCache {
    loaded: Loaded,
    links: Vec<FdLink>,
    listeners: HashMap<MapData, [u32; 5], u32>,
    flows: HashMap<MapData, flows::Key, flows::Value>,
    log: RingBuf<MapData>,
    control: SharedArray<AtomicU64>,
    counters: SharedArray<AtomicU64>,
    objects: Objects,
    table: Table,
}

impl KernelCache {
    /// Loads the program, attached to nothing. `seed` is one that nobody can guess: it keeps clients from making
    /// requests that take each other's places, and packets of others from looking like ours.
    ///
    /// # Errors
    /// [`BpfError::Capability`], [`BpfError::Refused`], [`BpfError::System`].
    pub fn load(limits: Limits, seed: u64) -> Result<KernelCache, BpfError> {
        let processors = aya::util::nr_cpus()
            .map_err(|(path, error)| system(format!("count processors by {path}"))(error))?;
        let requests = limits.requests.max(4).next_power_of_two() as u32;
        let mask = requests - 1;
        let mut loaded = CACHE.load_with(
            |loader| {
                loader
                    .map_max_entries("objects", limits.objects.max(1) as u32)
                    .map_max_entries("requests", requests)
                    .map_max_entries("counters", processors as u32)
                    .map_max_entries("flows", limits.connections.max(1) as u32)
                    .map_max_entries("embryos", (limits.connections * EMBRYOS_PER_CONNECTION).max(1) as u32);
            },
            &[("request_mask", mask), ("our_mark", (seed >> 32) as u32 | 1)],
        )?;
        for program in ["cache_in", "cache_out", "cache_in_bare", "cache_out_bare"] {
            tc::load(&mut loaded, program)?;
        }
        let control = loaded.share("control")?;
        control[SEED].store(seed, Ordering::Relaxed);
        Ok(KernelCache {
            links: Vec::new(),
            listeners: HashMap::try_from(loaded.take_map("listeners"))
                .map_err(|error| loaded.error("use the map of listeners", &error))?,
            flows: HashMap::try_from(loaded.take_map("flows"))
                .map_err(|error| loaded.error("use the map of connections", &error))?,
            log: RingBuf::try_from(loaded.take_map("log"))
                .map_err(|error| loaded.error("use the log", &error))?,
            counters: loaded.share("counters")?,
            objects: Objects::new(loaded.share("objects")?),
            table: Table::new(loaded.share("requests")?, seed),
            control,
            loaded,
        })
    }

    /// Loads the program and attaches it to each device by which these sockets are reached, in the network
    /// namespace of the calling thread, for connections to their addresses alone.
    ///
    /// # Errors
    /// As [`load`](Self::load), [`attach`](Self::attach) and [`reach_of`].
    pub fn of_listeners(
        limits: Limits,
        seed: u64,
        listeners: &[BorrowedFd<'_>],
    ) -> Result<KernelCache, BpfError> {
        let mut cache = KernelCache::load(limits, seed)?;
        let reach = reach_of(listeners)?;
        for address in &reach.addresses {
            cache.add_listener(*address)?;
        }
        for device in &reach.devices {
            cache.attach(device)?;
        }
        Ok(cache)
    }

    /// Attaches the program to a device of the calling thread's network namespace, both ways. Packets of one
    /// connection must come and go by devices that have it.
    ///
    /// # Errors
    /// [`BpfError::Kernel`] without tcx (Linux 6.6).
    pub fn attach(&mut self, device: &Link) -> Result<(), BpfError> {
        let (incoming, outgoing) =
            if device.ethernet { ("cache_in", "cache_out") } else { ("cache_in_bare", "cache_out_bare") };
        // The way out first: it only translates, and nothing is answered before it is there.
        let out = tc::attach(&mut self.loaded, outgoing, device, TcAttachType::Egress)?;
        let into = tc::attach(&mut self.loaded, incoming, device, TcAttachType::Ingress)?;
        self.links.extend([out, into]);
        Ok(())
    }

    /// Answers on connections to this address and port. The address is one that packets carry: neither 0.0.0.0
    /// nor `::`.
    ///
    /// # Errors
    /// [`BpfError::System`] from the 1025th on.
    pub fn add_listener(&mut self, address: SocketAddr) -> Result<(), BpfError> {
        let [a, b, c, d] = address_words(address.ip());
        let key = [a, b, c, d, u32::from(address.port().to_be())];
        self.listeners
            .insert(key, 1, 0)
            .map_err(|error| self.loaded.error(format!("add the listener {address}"), &error))
    }

    /// Begins to answer, or begins nothing new.
    pub fn set_enabled(&self, enabled: bool) {
        self.control[ENABLED].store(u64::from(enabled), Ordering::Relaxed);
    }

    /// Has answers reported to [`answers`](Self::answers).
    pub fn set_logging(&self, logging: bool) {
        self.control[LOGGING].store(u64::from(logging), Ordering::Relaxed);
    }

    /// Sets the value of the Date field in responses that begin from now on.
    pub fn set_date(&self, date: &[u8; DATE]) {
        let next = 1 - (self.control[DATE_IN_USE].load(Ordering::Relaxed) & 1);
        let start = DATES + next as usize * WORDS_PER_DATE;
        for (place, bytes) in self.control[start..].iter().zip(date.chunks(8)) {
            place.store(object::word(bytes), Ordering::Relaxed);
        }
        let sum = u64::from(object::sum(date));
        self.control[start + WORDS_PER_DATE - 1].store(sum, Ordering::Relaxed);
        self.control[DATE_IN_USE].store(next, Ordering::Release);
    }

    /// Stores a whole response, head and body. `date_at` is where the value of its Date field begins, in the first
    /// 448 bytes. Requests are answered with it once it is [renewed](Self::renew). `None` where it does not fit, or
    /// all places are taken at this time of CLOCK_MONOTONIC.
    pub fn put(&mut self, response: &[u8], date_at: Option<usize>, now: Nanos) -> Option<ObjectId> {
        self.objects.put(response, date_at, now)
    }

    /// Has a request, byte for byte this one, answered with an object. Returns false for one of fewer than 16 or
    /// more than [`LONGEST_REQUEST`] bytes.
    pub fn know(&mut self, request: &[u8], object: ObjectId) -> bool {
        self.table.insert(request, object, |held| self.objects.holds(held))
    }

    /// Lets requests be answered with an object until then, a time of CLOCK_MONOTONIC. The program's clock may be 10 ms
    /// behind. Returns false where the object is no longer there.
    pub fn renew(&mut self, object: ObjectId, until: Nanos) -> bool {
        self.objects.renew(object, until)
    }

    /// Begins no more answers with an object; `now` is CLOCK_MONOTONIC. Responses under way are completed.
    pub fn end(&mut self, object: ObjectId, now: Nanos) {
        self.objects.end(object, now);
    }

    /// The second of CLOCK_MONOTONIC in which an object last answered a request; zero before its first answer.
    pub fn last_used(&self, object: ObjectId) -> Nanos {
        self.objects.last_used(object)
    }

    /// Reads the counters of all processors. Takes no system call.
    pub fn totals(&self) -> Totals {
        let sums = self.counters.chunks(COUNTERS).fold([0; COUNTERS], |mut sums, line| {
            for (sum, word) in sums.iter_mut().zip(line) {
                *sum += word.load(Ordering::Relaxed);
            }
            sums
        });
        Totals {
            answers: sums[0],
            bytes: sums[1],
            repeated: sums[2],
            taken: sums[3],
            handed_over: sums[4],
            no_room: sums[5],
            damaged: sums[6],
            swallowed: sums[7],
            aborted: sums[8],
            unlogged: sums[9],
        }
    }

    /// Takes the answers that were logged since the last time, in order. Does not wait for any.
    pub fn answers(&mut self) -> Vec<Answer> {
        std::iter::from_fn(|| self.log.next().map(|event| flows::answer(&event))).collect()
    }

    /// When the last packet of a connection came or went; `None` for a connection that was never answered on. A
    /// server that closes idle connections asks before it does.
    ///
    /// # Errors
    /// [`BpfError::System`].
    pub fn last_packet(&self, client: SocketAddr, server: SocketAddr) -> Result<Option<Nanos>, BpfError> {
        match self.flows.get(&flows::key(client, server), 0) {
            Ok(flow) => Ok(Some(flows::touched(&flow))),
            Err(aya::maps::MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(self.loaded.error("look a connection up", &error)),
        }
    }

    /// Forgets connections without a packet for `idle` that the kernel no longer has, by `exists` (client, server).
    /// To be called now and then; the room for connections is bounded. Returns how many it forgot.
    ///
    /// # Errors
    /// [`BpfError::System`], also from `exists`.
    pub fn sweep(
        &mut self,
        now: Nanos,
        idle: Nanos,
        mut exists: impl FnMut(SocketAddr, SocketAddr) -> std::io::Result<bool>,
    ) -> Result<usize, BpfError> {
        let mut gone = Vec::new();
        for flow in self.flows.iter() {
            let (key, flow) = flow.map_err(|error| self.loaded.error("list connections", &error))?;
            let (client, server) = flows::ends(&key);
            if flows::touched(&flow) + idle <= now
                && !exists(client, server).map_err(system("look for a connection"))?
            {
                gone.push(key);
            }
        }
        for key in &gone {
            match self.flows.remove(key) {
                Ok(()) | Err(aya::maps::MapError::KeyNotFound) => {}
                Err(error) => return Err(self.loaded.error("forget a connection", &error)),
            }
        }
        Ok(gone.len())
    }

    /// Connections that are remembered.
    ///
    /// # Errors
    /// [`BpfError::System`].
    pub fn connections(&self) -> Result<usize, BpfError> {
        self.flows
            .keys()
            .try_fold(0, |count, key| key.map(|_| count + 1))
            .map_err(|error| self.loaded.error("count connections", &error))
    }
}
