//! Admission of SYNs before they cost anything: a token bucket in traffic control or in XDP.
//!
//! ```text
//!   device ──> XDP hook ──> socket buffer ──> tc hook ──> IP ──> TCP: SYN queue ──> accept queue ──> server
//!                 │                              │                                                     │
//!                 └── or ── [the bucket] ── or ──┘ <──────────── interval, burst (plain stores) ───────┘
//! ```
//!
//! Owns `bpf/admission_tc.c` and `bpf/admission_xdp.c`, their links, and the memory they share with the server. A
//! SYN costs the server about 0.3 us when it is dropped here, and 22 us or more when the server has to accept the
//! connection to refuse it.
//!
//! Leaves out when to shed and how much: the caller sets the rate.
//!
//! Invariants: only SYNs to the addresses that were added are counted or dropped. Whatever ends this process
//! detaches the program, since links die with their descriptors. Other tc programs of the device run as before;
//! ours runs first, so that a program that accepts a packet cannot hide it.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use aya::maps::{HashMap, MapData};
use aya::programs::TcAttachType;
use aya::programs::links::FdLink;
use base::Nanos;
use rustix::io::Errno;
use sys::netlink::Link;
use sys::shared::SharedArray;

use crate::device::reach_of;
use crate::error::{BpfError, errno};
use crate::object::{Loaded, Object, object};
use crate::xdp::{self, Mode};
use crate::{WORDS_PER_LINE, address_words, tc};

const TC: Object = object!("admission_tc", "admission in tc");
const XDP: Object = object!("admission_xdp", "admission in XDP");

/// `LISTENERS` of `bpf/admission.h`.
const LISTENERS: usize = 1024;
/// The longest interval and burst. A bucket at this rate admits nobody that matters, and sums of two stay far
/// from the end of the clock.
const LONGEST: Nanos = Nanos::from_secs(3600);

// Words of `struct bucket` and of `struct counters`.
const INTERVAL: usize = 0;
const BURST: usize = 1;
const PASSED: usize = 0;
const DROPPED: usize = 1;

/// Where SYNs are decided on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Traffic control, on every kind of device, beside other programs. Needs Linux 6.6.
    Tc,
    /// XDP: cheaper where the device's driver runs it. One program a device, and Ethernet devices alone.
    Xdp,
}

/// A program that was attached to a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// The device's name.
    pub device: String,
    /// "tc", "XDP in the driver" or "generic XDP".
    pub how: &'static str,
}

/// SYNs that were decided on since the program was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Given to the kernel's TCP.
    pub passed: u64,
    /// Thrown away.
    pub dropped: u64,
}

/// A token bucket before some devices' SYNs. Admits all until it is given a rate.
pub struct Admission {
    hook: Hook,
    loaded: Loaded,
    listeners: HashMap<MapData, [u32; 5], u32>,
    bucket: SharedArray<AtomicU64>,
    counters: SharedArray<AtomicU64>,
    links: Vec<FdLink>,
}

impl Admission {
    /// Loads the program, attached to nothing and with no listener.
    ///
    /// # Errors
    /// [`BpfError::Capability`], [`BpfError::Refused`], [`BpfError::System`].
    pub fn load(hook: Hook) -> Result<Admission, BpfError> {
        let object = match hook {
            Hook::Tc => TC,
            Hook::Xdp => XDP,
        };
        let processors = aya::util::nr_cpus()
            .map_err(|(path, error)| crate::error::system(format!("count processors by {path}"))(error))?;
        let mut loaded = object.load(|loader| {
            loader.map_max_entries("counters", processors as u32);
        })?;
        match hook {
            Hook::Tc => tc::load(&mut loaded, object.name)?,
            Hook::Xdp => xdp::load(&mut loaded)?,
        }
        let listeners = HashMap::try_from(loaded.take_map("listeners"))
            .map_err(|error| loaded.error("use the map of listeners", &error))?;
        let (bucket, counters) = (loaded.share("bucket")?, loaded.share("counters")?);
        Ok(Admission { hook, loaded, listeners, bucket, counters, links: Vec::new() })
    }

    /// Loads the program and attaches it to each device by which these sockets are reached, in the network
    /// namespace of the calling thread, for the SYNs to their addresses alone.
    ///
    /// # Errors
    /// As [`load`](Self::load), [`attach`](Self::attach) and [`reach_of`].
    pub fn of_listeners(
        hook: Hook,
        listeners: &[BorrowedFd<'_>],
    ) -> Result<(Admission, Vec<Attached>), BpfError> {
        let mut admission = Admission::load(hook)?;
        let reach = reach_of(listeners)?;
        for address in &reach.addresses {
            admission.add_listener(*address)?;
        }
        let attached =
            reach.devices.iter().map(|device| admission.attach(device)).collect::<Result<_, _>>()?;
        Ok((admission, attached))
    }

    /// Attaches the program to a device of the calling thread's network namespace. A driver may interrupt its
    /// device for some hundred milliseconds to switch to XDP.
    ///
    /// # Errors
    /// [`BpfError::Kernel`] without tcx (Linux 6.6) or XDP links (Linux 5.9); [`BpfError::Occupied`] and
    /// [`BpfError::NotEthernet`] for XDP.
    pub fn attach(&mut self, device: &Link) -> Result<Attached, BpfError> {
        let (link, how) = match self.hook {
            Hook::Tc => (tc::attach(&mut self.loaded, TC.name, device, TcAttachType::Ingress)?, "tc"),
            Hook::Xdp => match xdp::attach(&mut self.loaded, device)? {
                (link, Mode::Driver) => (link, "XDP in the driver"),
                (link, Mode::Generic) => (link, "generic XDP"),
            },
        };
        self.links.push(link);
        Ok(Attached { device: device.name.clone(), how })
    }

    /// Decides on SYNs to this address and port from now on. The address is one that packets carry: neither
    /// 0.0.0.0 nor `::`.
    ///
    /// # Errors
    /// [`BpfError::TooMany`] from the 1025th on.
    pub fn add_listener(&mut self, address: SocketAddr) -> Result<(), BpfError> {
        let [a, b, c, d] = address_words(address.ip());
        let key = [a, b, c, d, u32::from(address.port().to_be())];
        self.listeners.insert(key, 1, 0).map_err(|error| {
            match errno(&error).and_then(|errno| errno.raw_os_error()) {
                Some(code) if code == Errno::TOOBIG.raw_os_error() => {
                    BpfError::TooMany { what: "admission of SYNs", limit: LISTENERS }
                }
                _ => self.loaded.error(format!("add the listener {address}"), &error),
            }
        })
    }

    /// Admits one SYN each `interval`, and lets arrivals be ahead of that by `burst`; each at most an hour, at
    /// least a nanosecond. Takes no system call, and holds for the next SYN.
    pub fn limit(&self, interval: Nanos, burst: Nanos) {
        self.bucket[BURST].store(burst.min(LONGEST).0, Ordering::Relaxed);
        self.bucket[INTERVAL].store(interval.clamp(Nanos(1), LONGEST).0, Ordering::Relaxed);
    }

    /// Admits every SYN.
    pub fn admit_all(&self) {
        self.bucket[INTERVAL].store(0, Ordering::Relaxed);
    }

    /// Reads the counters of all processors. Takes no system call.
    pub fn totals(&self) -> Totals {
        let sum = |word: usize| {
            self.counters.chunks(WORDS_PER_LINE).map(|line| line[word].load(Ordering::Relaxed)).sum()
        };
        Totals { passed: sum(PASSED), dropped: sum(DROPPED) }
    }

    /// What the program makes of a packet that begins with its Ethernet header and that no network sees, and
    /// how long one of `repeat` runs takes.
    ///
    /// # Errors
    /// Those of [`sys::bpf::test_run`].
    pub fn test_run(&self, packet: &[u8], repeat: u32) -> Result<sys::bpf::TestRun, BpfError> {
        self.loaded.test_run(packet, repeat)
    }
}
