//! Answers to hot requests from inside the kernel, on the server's own connections (TUX; Brecht 2004, section 4.3).
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
//! Owns `programs/kernel_cache.c`, its links, and the memory of objects, requests and connections. The program knows no
//! HTTP: it compares a whole segment with requests that the server has answered, byte for byte. The server chooses
//! these requests, and only those whose answer is the same for everybody.
//!
//! Leaves out the choice of hot objects and the detection of changed files. An object is valid for as long as the
//! server says, so the server need not revoke it.
//!
//! Invariants: the program answers a connection until its first other segment, then the server answers it for good.
//! Either the program or the server answers a request. The program disappears with this process, however that ends;
//! connections that it answered are reset at their next request. docs/decisions/0018 has the reasons.

mod flows;
mod object;
mod table;

use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use aya::maps::{HashMap, MapData, RingBuf};
use base::Nanos;
use sys::bpf::AttachPoint;
use sys::network::netlink::Link;
use sys::shared::SharedArray;

use crate::device::reach_of;
use crate::error::{BpfError, system};
use crate::object::{Loaded, Object, object as checked_in};
use crate::{listener_key, tc};
use object::{DATE, Objects};
use table::Table;

pub use object::{GRACE, LONGEST, ObjectId};
pub use table::LONGEST_REQUEST;

const CACHE: Object = checked_in!("kernel_cache", "the kernel cache");

/// Connections without a request, for each connection that the program may answer. Most of them send a request soon.
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

/// The capacity of the cache. It takes its memory at once: 16 KiB per object, half a KiB per request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Responses, with those that ended less than [`GRACE`] ago.
    pub objects: usize,
    /// Known requests; rounded up to a power of two, at least 4.
    pub requests: usize,
    /// Connections that the program has answered.
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { objects: 512, requests: 4096, connections: 65_536 }
    }
}

/// The program's counters since it was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests answered.
    pub answers: u64,
    /// Bytes of their responses.
    pub bytes: u64,
    /// Packets that made the program send parts of a response after its first burst.
    pub repeated: u64,
    /// Connections that the program answered.
    pub taken: u64,
    /// Connections among these that the server took over.
    pub handed_over: u64,
    /// Connections that the program did not answer because there were too many.
    pub no_room: u64,
    /// Packets with a wrong checksum.
    pub damaged: u64,
    /// Packets that the server's kernel did not need to see.
    pub swallowed: u64,
    /// Connections reset because an unfinished response's place was used again.
    pub aborted: u64,
    /// Answers without room in the log.
    pub unlogged: u64,
}

/// An answer, for the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// CLOCK_MONOTONIC, accurate to some milliseconds.
    pub at: Nanos,
    /// The client's address.
    pub client: SocketAddr,
    /// The server's port.
    pub port: u16,
    /// The response.
    pub object: ObjectId,
    /// Its length in bytes.
    pub bytes: u32,
}

/// The program on some devices, with its objects and requests. Answers nothing until it is enabled.
pub struct KernelCache {
    loaded: Loaded,
    links: Vec<OwnedFd>,
    listeners: HashMap<MapData, [u32; 5], u32>,
    flows: HashMap<MapData, flows::Key, flows::Value>,
    log: RingBuf<MapData>,
    /// A bit for each port of `listeners`.
    ports: SharedArray<AtomicU64>,
    control: SharedArray<AtomicU64>,
    counters: SharedArray<AtomicU64>,
    objects: Objects,
    table: Table,
}

impl KernelCache {
    /// Loads the program, attached to nothing. `seed` must be secret. It keeps clients from making requests that
    /// collide in the table, and from making packets that look like the program's own.
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
            ports: loaded.share("ports")?,
            counters: loaded.share("counters")?,
            objects: Objects::new(loaded.share("objects")?),
            table: Table::new(loaded.share("requests")?, seed),
            control,
            loaded,
        })
    }

    /// Loads the program and attaches it to loopback and to each device that has an address of these sockets, for
    /// connections to their addresses alone. The devices are those of the calling thread's network namespace.
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
        for device in &reach.owners {
            cache.attach(device)?;
        }
        Ok(cache)
    }

    /// Attaches the program to a device of the calling thread's network namespace, both ways. Every device that
    /// carries packets of a connection needs the program.
    ///
    /// # Errors
    /// [`BpfError::Kernel`] without tcx (Linux 6.6).
    pub fn attach(&mut self, device: &Link) -> Result<(), BpfError> {
        let (incoming, outgoing) =
            if device.ethernet { ("cache_in", "cache_out") } else { ("cache_in_bare", "cache_out_bare") };
        // Egress comes first: it only translates, and the program answers nothing before ingress is attached.
        let out = tc::attach(&self.loaded, outgoing, device, AttachPoint::TcEgress)?;
        let into = tc::attach(&self.loaded, incoming, device, AttachPoint::TcIngress)?;
        self.links.extend([out, into]);
        Ok(())
    }

    /// Answers connections to this address and port from now on. The address is one that packets carry: neither
    /// 0.0.0.0 nor `::`.
    ///
    /// # Errors
    /// [`BpfError::System`] from the 1025th on.
    pub fn add_listener(&mut self, address: SocketAddr) -> Result<(), BpfError> {
        self.listeners
            .insert(listener_key(address), 1, 0)
            .map_err(|error| self.loaded.error(format!("add the listener {address}"), &error))?;
        let port = usize::from(address.port());
        self.ports[port / 64].fetch_or(1 << (port % 64), Ordering::Relaxed);
        Ok(())
    }

    /// Makes the program answer requests, or answer no further ones. It completes responses under way in any case.
    pub fn set_enabled(&self, enabled: bool) {
        self.control[ENABLED].store(u64::from(enabled), Ordering::Relaxed);
    }

    /// Lets the program report answers to [`answers`](Self::answers), or not.
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

    /// Stores a whole response, head and body. `date_at` is the offset of its Date field's value, in the first 448
    /// bytes. It answers requests once it is [renewed](Self::renew). Returns `None` if it does not fit, or if no
    /// place is free at `now`, a time of CLOCK_MONOTONIC.
    pub fn put(&mut self, response: &[u8], date_at: Option<usize>, now: Nanos) -> Option<ObjectId> {
        self.objects.put(response, date_at, now)
    }

    /// Makes the program answer a request, byte for byte this one, with an object. Returns false for a request of
    /// fewer than 16 or more than [`LONGEST_REQUEST`] bytes.
    pub fn know(&mut self, request: &[u8], object: ObjectId) -> bool {
        self.table.insert(request, object, |held| self.objects.holds(held))
    }

    /// Makes an object valid until the given time of CLOCK_MONOTONIC. The program's clock may be 10 ms behind.
    /// Returns false if the object is gone.
    pub fn renew(&mut self, object: ObjectId, until: Nanos) -> bool {
        self.objects.renew(object, until)
    }

    /// Answers no further requests with an object; `now` is CLOCK_MONOTONIC. The program completes responses under
    /// way.
    pub fn end(&mut self, object: ObjectId, now: Nanos) {
        self.objects.end(object, now);
    }

    /// Returns the second of CLOCK_MONOTONIC in which an object last answered a request; zero before its first
    /// answer.
    pub fn last_used(&self, object: ObjectId) -> Nanos {
        self.objects.last_used(object)
    }

    /// Returns the counters, summed over all processors. Makes no system call.
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

    /// Takes the answers that were logged since the last call, in order. Does not wait.
    pub fn answers(&mut self) -> Vec<Answer> {
        std::iter::from_fn(|| self.log.next().map(|event| flows::answer(&event))).collect()
    }

    /// Returns the time of the last answer to a connection; `None` if the program never answered it. A server asks this
    /// before it closes an idle connection.
    ///
    /// # Errors
    /// [`BpfError::System`].
    pub fn last_answer(&self, client: SocketAddr, server: SocketAddr) -> Result<Option<Nanos>, BpfError> {
        match self.flows.get(&flows::key(client, server), 0) {
            Ok(flow) => Ok(Some(flows::answered(&flow)).filter(|at| *at > Nanos::ZERO)),
            Err(aya::maps::MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(self.loaded.error("look a connection up", &error)),
        }
    }

    /// Forgets connections without a packet for `idle` whose sockets no longer exist, by `exists` (client, server).
    /// Call it regularly, because the room for connections is bounded. Returns the number of forgotten connections.
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

    /// Returns the number of connections in the table.
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
