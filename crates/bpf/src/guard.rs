//! A guard of somebody else's server at the cgroup of its sockets: counts requests and answers, and decides on SYNs.
//!
//! ```text
//!   SYN ──────> [guard_in] ──> listener          limits of the bucket ──> LimitTable
//!   request ──> [guard_in] ──> connection        asked, ahead
//!   answer <── [guard_out] <── connection        answered, overtaking, time to the first byte ──> Counts, times
//! ```
//!
//! Owns `programs/guard.c`, its links, and the memory that it shares with this process. A connection's state lies in a
//! table of the programs, in a place that its socket's cookie chooses.
//!
//! Leaves out the search for the cgroup, and the decision to shed.
//!
//! Invariants: packets of other ports pass untouched. Both programs are detached when the [`Guard`] is dropped or the
//! process ends, however it ends; the kernel then admits every connection.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use aya::programs::CgroupSkb;
use base::Nanos;
use rustix::io::Errno;
use sys::bpf::CgroupPackets;
use sys::shared::SharedArray;

use crate::admission::{Exempt, LimitTable};
use crate::error::BpfError;
use crate::object::{Loaded, Object, object};
use crate::{WORDS_PER_LINE, address_words};

const OBJECT: Object = object!("guard", "the guard at a cgroup");
const PROGRAMS: [(&str, CgroupPackets); 2] =
    [("guard_in", CgroupPackets::Received), ("guard_out", CgroupPackets::Sent)];

/// `STEPS` of `programs/guard.c`: buckets for each power of two, as a shift.
const STEPS: u32 = 3;

/// The totals of all connections since the program was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests begun.
    pub asked: u64,
    /// Requests whose answer has begun.
    pub answered: u64,
    /// Requests whose connection ended without an answer.
    pub ended: u64,
    /// Connections that have asked.
    pub first: u64,
    /// Requests whose answer has begun promptly.
    pub prompt: u64,
    /// Summed over prompt answers: the answers that others got meanwhile, at most the request's part of `ahead`.
    pub overtaking: u64,
    /// Summed over prompt answers: the requests that waited when theirs came.
    pub ahead: u64,
    /// Summed over prompt answers: the time from the request to the answer's first byte, in ns.
    pub time_ns: u64,
}

impl Counts {
    /// The requests that wait for an answer.
    pub fn waiting(&self) -> u64 {
        self.asked.saturating_sub(self.answered + self.ended)
    }
}

/// Answers by the time from the request to the answer's first byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Times(Vec<u64>);

impl Times {
    /// The answers since an earlier reading.
    pub fn since(&self, earlier: &Times) -> Times {
        Times(self.0.iter().zip(&earlier.0).map(|(now, then)| now.saturating_sub(*then)).collect())
    }

    /// The time that a fraction of the answers, from 0 to 1, did not exceed; `None` without an answer. At most an eighth
    /// above the true time.
    pub fn quantile(&self, fraction: f64) -> Option<Nanos> {
        let all: u64 = self.0.iter().sum();
        let wanted = ((all as f64 * fraction).ceil() as u64).max(1);
        let mut seen = 0;
        let reached = |count: &u64| {
            seen += count;
            seen >= wanted
        };
        let bucket = self.0.iter().position(reached).filter(|_| all > 0)?;
        Some(Nanos(upper_end(bucket as u32)))
    }
}

/// The longest time in a bucket, in ns.
fn upper_end(bucket: u32) -> u64 {
    let (bits, step) = (bucket >> STEPS, u128::from(bucket & ((1 << STEPS) - 1)));
    let end = ((1 << STEPS) + step + 1) << bits >> STEPS;
    u64::try_from(end - 1).unwrap_or(u64::MAX)
}

/// The memory that the programs share with this process, or with another one.
pub struct Memory {
    table: LimitTable,
    totals: SharedArray<AtomicU64>,
    times: SharedArray<AtomicU64>,
}

impl Memory {
    /// The memory's descriptors, for [`open`](Self::open) in another process.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 4] {
        let [queues, counters] = self.table.descriptors();
        [queues, counters, self.totals.as_fd(), self.times.as_fd()]
    }

    /// Maps the memory that another process has passed on. Needs no capability.
    ///
    /// # Errors
    /// EINVAL if the descriptors are of something else; ENOMEM.
    pub fn open([queues, counters, totals, times]: [OwnedFd; 4]) -> io::Result<Memory> {
        let table = LimitTable::open([queues, counters])?;
        let (totals, times) = (SharedArray::open(totals)?, SharedArray::open(times)?);
        if totals.len() != WORDS_PER_LINE || times.len() != 64 << STEPS {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(Memory { table, totals, times })
    }

    /// Returns the limits and counts of SYNs, which has one queue, number 0.
    pub fn table(&self) -> &LimitTable {
        &self.table
    }

    /// Reads the totals. Makes no system call.
    pub fn counts(&self) -> Counts {
        // A request that ends between two loads then counts as waiting, and never as less than none.
        let [_, answered, ended, first, prompt, overtaking, ahead, time_ns]: [u64; WORDS_PER_LINE] =
            std::array::from_fn(|word| self.totals[word].load(Ordering::Acquire));
        let asked = self.totals[0].load(Ordering::Acquire);
        Counts { asked, answered, ended, first, prompt, overtaking, ahead, time_ns }
    }

    /// Reads the times of all answers. Makes no system call.
    pub fn times(&self) -> Times {
        Times(self.times.iter().map(|count| count.load(Ordering::Relaxed)).collect())
    }
}

/// The programs, with their memory and links.
pub struct Guard {
    loaded: Loaded,
    memory: Memory,
    /// Links, by the number of the cgroup.
    links: Vec<(u64, [OwnedFd; 2])>,
}

impl Guard {
    /// Loads the programs, attached to nothing. They look at sockets at this port, and at this address unless it is
    /// 0.0.0.0 or `::`. An answer is prompt if it begins within `prompt`, in whole milliseconds. `salt` is mixed into the
    /// identities of SYNs.
    ///
    /// # Errors
    /// [`BpfError::Capability`], [`BpfError::Refused`], [`BpfError::TooMany`] exempt networks, [`BpfError::System`].
    pub fn load(listener: SocketAddr, prompt: Nanos, salt: u32, exempt: &Exempt) -> Result<Guard, BpfError> {
        let any = listener.ip().is_unspecified();
        let [a, b, c, d] = if any { [0; 4] } else { address_words(listener.ip()) };
        let cpus = crate::admission::processors()?;
        let [networks, sources] = exempt.constants();
        let constants = [
            ("queue_count", 1),
            ("processor_count", cpus),
            ("salt", salt),
            networks,
            sources,
            ("prompt_ms", u32::try_from(prompt.0 / Nanos::MILLISECOND.0).unwrap_or(u32::MAX)),
            ("port", listener.port().into()),
            ("address_0", a),
            ("address_1", b),
            ("address_2", c),
            ("address_3", d),
        ];
        let mut loaded = OBJECT.load_with(
            |loader| {
                exempt.make_room(loader);
                loader.map_max_entries("counters", cpus).map_max_entries("processors", cpus);
            },
            &constants,
        )?;
        for (name, _) in PROGRAMS {
            <&mut CgroupSkb>::try_from(loaded.program_named(name))
                .and_then(CgroupSkb::load)
                .map_err(|error| loaded.error(format!("load {name}"), &error))?;
        }
        exempt.fill(&mut loaded)?;
        let table = LimitTable::of(&mut loaded, cpus as usize)?;
        let memory = Memory { table, totals: loaded.share("totals")?, times: loaded.share("times")? };
        Ok(Guard { loaded, memory, links: Vec::new() })
    }

    /// Attaches the programs to a cgroup, which has this number. Does nothing if they are attached to it.
    ///
    /// # Errors
    /// [`BpfError::Kernel`] without links to cgroups (Linux 5.7); the kernel's other errors.
    pub fn attach(&mut self, number: u64, cgroup: BorrowedFd<'_>) -> Result<(), BpfError> {
        if self.links.iter().any(|(known, _)| *known == number) {
            return Ok(());
        }
        let link = |(name, packets): (&str, CgroupPackets)| {
            self.loaded.attach_to_cgroup(name, cgroup, packets).map_err(|source| self.unattached(source))
        };
        let links = [link(PROGRAMS[0])?, link(PROGRAMS[1])?];
        self.links.push((number, links));
        Ok(())
    }

    /// Detaches the programs from all cgroups but these.
    pub fn keep(&mut self, numbers: &[u64]) {
        self.links.retain(|(number, _)| numbers.contains(number));
    }

    /// The cgroups that the programs are attached to.
    pub fn cgroups(&self) -> impl Iterator<Item = u64> {
        self.links.iter().map(|(number, _)| *number)
    }

    /// Returns the memory of the programs.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    fn unattached(&self, source: std::io::Error) -> BpfError {
        match source.raw_os_error() {
            Some(code) if code == Errno::INVAL.raw_os_error() => BpfError::Kernel {
                purpose: self.loaded.purpose,
                facility: "links to cgroups (Linux 5.7)",
                source,
            },
            _ => self.loaded.error("attach to the cgroup", &source),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(entries: &[(usize, u64)]) -> Times {
        let mut counts = vec![0; 64 << STEPS];
        entries.iter().for_each(|(bucket, count)| counts[*bucket] = *count);
        Times(counts)
    }

    #[test]
    fn bucket_ends_are_exact_at_powers_of_two() {
        // 1,024 is 8 eighths of 2^10, so its bucket ends before 9 eighths.
        assert_eq!(upper_end(10 << STEPS), 1_024 + 128 - 1);
        assert_eq!(upper_end((10 << STEPS) + 7), 2_047);
        assert_eq!(upper_end((63 << STEPS) + 7), u64::MAX);
    }

    #[test]
    fn quantiles_are_the_ends_of_buckets() {
        let times = times(&[(10 << STEPS, 98), (20 << STEPS, 2)]);
        assert_eq!(times.quantile(0.5), Some(Nanos(1_151)));
        assert_eq!(times.quantile(0.99), Some(Nanos((1 << 20) * 9 / 8 - 1)));
        assert_eq!(times.since(&times).quantile(0.5), None);
    }

    #[test]
    fn waiting_requests_are_never_less_than_none() {
        let counts = Counts { asked: 5, answered: 4, ended: 2, ..Counts::default() };
        assert_eq!(counts.waiting(), 0);
    }
}
