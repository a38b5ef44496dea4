//! The file cache of one loop: small files in memory, larger ones open, absent names as absent.
//!
//! Owns the order of eviction and the limits. Knows paths only as keys, and makes no system call but the
//! closing of dropped files. Each loop has its own cache, so that nothing is shared on the measured path.
//!
//! Invariants:
//!
//! - Keys are canonical paths ([`SitePath::canonical`](crate::path::SitePath)), so that spellings of one path
//!   do not crowd out others.
//! - Refusals have a table of their own, so that requests for absent files cannot evict present ones.
//! - An entry is out of the cache while it changes ([`Cache::take`], [`Cache::put`]), so that the sums are
//!   right.

use base::Nanos;
use http_semantics::Request;
use lru::LruCache;

use crate::counts::Counts;
use crate::representation::encoding::{Coding, PerCoding, Preferences};
use crate::representation::validators::Asked;
use crate::representation::{Contents, Representation};
use crate::root::{Directory, LookupError, Reach, Stamp};

/// Limits of the cache of one loop.
#[derive(Clone, Copy, Debug)]
pub struct CacheLimits {
    /// Maximum files in the cache.
    pub entries: usize,
    /// Maximum open files; small files are kept in memory instead.
    pub open_files: usize,
    /// Maximum bytes of file contents in memory.
    pub bytes: base::Bytes,
    /// Maximum refusals in the cache: absent names, directories without their slash.
    pub absent: usize,
    /// Time for which an entry is valid without another check of the file system.
    pub fresh_for: Nanos,
    /// Time after which an unused file is dropped. A removed file that is still open holds its space on the
    /// disk. The age is checked when a request comes.
    pub idle: Nanos,
}

impl Default for CacheLimits {
    fn default() -> CacheLimits {
        CacheLimits {
            entries: 8192,
            open_files: 512,
            bytes: base::Bytes(64 << 20),
            absent: 1024,
            fresh_for: Nanos::SECOND,
            idle: Nanos::from_secs(60),
        }
    }
}

/// The stored forms of a file that may be served, as last seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Survey {
    pub(crate) stamps: PerCoding<Option<Stamp>>,
    /// Siblings that exist but are older than the file.
    pub(crate) outdated: u8,
}

impl Survey {
    /// The survey of a listing, which is not a file.
    pub(crate) const LISTING: Survey = Survey { stamps: PerCoding([None; 4]), outdated: 0 };

    /// Examines a file and its siblings without opening them for reading. A sibling is on offer if it is a
    /// regular file and not older than the original by whole seconds. Compressors copy the time, and some of
    /// them copy only its seconds.
    pub(crate) fn of(directory: &Directory, name: &[u8], reach: Reach) -> Result<Survey, LookupError> {
        let original = directory.examine(name, reach)?;
        let mut survey = Survey { stamps: PerCoding([Some(original), None, None, None]), outdated: 0 };
        let siblings = &Coding::ALL[1..];
        let ending = name.rsplit(|&byte| byte == b'.').next();
        if siblings.iter().any(|coding| ending == Some(coding.suffix().as_bytes())) {
            return Ok(survey);
        }
        for &coding in siblings {
            let stored = sibling(name, coding);
            if directory.is_absent(&stored, reach) {
                continue;
            }
            match directory.examine(&stored, reach) {
                Ok(stamp) if stamp.modified.0 < original.modified.0 => survey.outdated += 1,
                Ok(stamp) => survey.stamps[coding] = Some(stamp),
                Err(error @ (LookupError::Exhausted | LookupError::Cold)) => return Err(error),
                Err(_) => {}
            }
        }
        Ok(survey)
    }

    pub(crate) fn varies(&self) -> bool {
        self.stamps.0[1..].iter().any(Option::is_some)
    }
}

/// The name of a stored form of a file.
pub(crate) fn sibling(name: &[u8], coding: Coding) -> Vec<u8> {
    match coding {
        Coding::Identity => name.to_vec(),
        coding => [name, b".", coding.suffix().as_bytes()].concat(),
    }
}

/// A stored form of a file and its state of loading.
#[derive(Debug, Default)]
pub(crate) enum Slot {
    /// No request has needed the file yet.
    #[default]
    Unloaded,
    /// The file exists but cannot be read, so it is not on offer.
    Unreadable,
    /// The file is loaded.
    Loaded(Representation),
}

/// The cached knowledge about a path that leads to a file.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The file's name below the root; empty for a listing.
    pub(crate) name: Vec<u8>,
    pub(crate) survey: Survey,
    pub(crate) slots: PerCoding<Slot>,
    /// True if the answer depends on `Accept-Encoding`.
    pub(crate) varies: bool,
    /// True if other codings than the file's own are made when a client asks for them.
    pub(crate) is_made: bool,
    /// Time of the survey.
    pub(crate) checked: Nanos,
}

impl Entry {
    pub(crate) fn new(name: Vec<u8>, survey: Survey, now: Nanos) -> Entry {
        let (slots, varies) = (PerCoding::default(), survey.varies());
        Entry { name, survey, slots, varies, is_made: false, checked: now }
    }

    /// The entry of a listing.
    pub(crate) fn listing(page: Representation, now: Nanos) -> Entry {
        let mut entry = Entry::new(Vec::new(), Survey::LISTING, now);
        entry.slots[Coding::Identity] = Slot::Loaded(page);
        entry
    }

    pub(crate) fn is_listing(&self) -> bool {
        self.survey == Survey::LISTING
    }

    /// The stored form for a request; `None` if the client accepts none. A file without siblings is not
    /// negotiated: it is sent unchanged, whatever `Accept-Encoding` says (RFC 9110, 12.1).
    pub(crate) fn choose(&self, request: &Request<'_>, asked: Asked) -> Option<Coding> {
        if !self.varies || !asked.has(Asked::ACCEPT_ENCODING) {
            return Some(Coding::Identity);
        }
        let mut offered = PerCoding::default();
        for coding in Coding::ALL {
            if !matches!(self.slots[coding], Slot::Unreadable) {
                let stored = self.survey.stamps[coding].map(|stamp| stamp.length);
                // The length of a form that is yet to be made is unknown: the best compression comes first.
                offered[coding] = stored.or(self.is_made.then_some(coding as u64));
            }
        }
        Preferences::parse(request.values("accept-encoding")).choose(&offered)
    }

    /// Number of open files and of bytes in memory.
    fn weight(&self) -> (usize, u64) {
        self.slots.0.iter().fold((0, 0), |(files, bytes), slot| match slot {
            Slot::Loaded(Representation { contents: Contents::Open(_), .. }) => (files + 1, bytes),
            Slot::Loaded(Representation { contents: Contents::Memory(held), .. }) => {
                (files, bytes + held.len() as u64)
            }
            Slot::Unloaded | Slot::Unreadable => (files, bytes),
        })
    }
}

/// A refusal and the time of its discovery.
#[derive(Clone, Copy, Debug)]
struct Absent {
    error: LookupError,
    checked: Nanos,
}

/// The cache of one loop.
#[derive(Debug)]
pub(crate) struct Cache {
    limits: CacheLimits,
    entries: LruCache<Box<str>, Entry>,
    open_files: usize,
    bytes: u64,
    absent: LruCache<Box<str>, Absent>,
}

impl Cache {
    pub(crate) fn new(limits: CacheLimits) -> Cache {
        Cache {
            limits,
            entries: LruCache::unbounded(),
            open_files: 0,
            bytes: 0,
            absent: LruCache::unbounded(),
        }
    }

    /// The entry of a path, if it is fresh enough to be served without a check of the file system.
    pub(crate) fn fresh(&mut self, path: &str, now: Nanos) -> Option<&Entry> {
        let fresh_for = self.limits.fresh_for;
        self.entries.get(path).filter(|entry| now.saturating_sub(entry.checked) < fresh_for)
    }

    /// The refusal of a path, if it is fresh.
    pub(crate) fn absent(&mut self, path: &str, now: Nanos) -> Option<LookupError> {
        let fresh_for = self.limits.fresh_for;
        let absent = self.absent.get(path)?;
        (now.saturating_sub(absent.checked) < fresh_for).then_some(absent.error)
    }

    /// True if an entry needs another check of the file system.
    pub(crate) fn is_stale(&self, entry: &Entry, now: Nanos) -> bool {
        now.saturating_sub(entry.checked) >= self.limits.fresh_for
    }

    /// Removes an entry from the cache, fresh or not.
    pub(crate) fn take(&mut self, path: &str) -> Option<Entry> {
        let entry = self.entries.pop(path)?;
        self.subtract(&entry);
        Some(entry)
    }

    /// Inserts an entry as the most recent, and evicts the least recent ones beyond the limits.
    pub(crate) fn put(&mut self, path: &str, entry: Entry, counts: &mut Counts) {
        let (open_files, bytes) = entry.weight();
        self.open_files += open_files;
        self.bytes += bytes;
        self.absent.pop(path);
        if let Some(replaced) = self.entries.put(path.into(), entry) {
            self.subtract(&replaced);
        }
        loop {
            let evicted = if self.entries.len() > self.limits.entries {
                &mut counts.evicted_for_entries
            } else if self.open_files > self.limits.open_files {
                &mut counts.evicted_for_open_files
            } else if self.bytes > self.limits.bytes.0 {
                &mut counts.evicted_for_bytes
            } else {
                break;
            };
            *evicted += 1;
            if let Some((_, entry)) = self.entries.pop_lru() {
                self.subtract(&entry);
            }
        }
    }

    /// Remembers the refusal of a path.
    pub(crate) fn put_absent(&mut self, path: &str, error: LookupError, now: Nanos, counts: &mut Counts) {
        self.absent.put(path.into(), Absent { error, checked: now });
        if self.absent.len() > self.limits.absent {
            self.absent.pop_lru();
            counts.evicted_absent += 1;
        }
    }

    /// Drops the files that no request has used lately. Entries are in the order of their use, and every use
    /// checks the entry.
    pub(crate) fn drop_idle(&mut self, now: Nanos, counts: &mut Counts) {
        let idle = self.limits.idle;
        while self.entries.peek_lru().is_some_and(|(_, entry)| now.saturating_sub(entry.checked) > idle)
            && let Some((_, entry)) = self.entries.pop_lru()
        {
            self.subtract(&entry);
            counts.dropped_idle += 1;
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.absent.clear();
        (self.open_files, self.bytes) = (0, 0);
    }

    fn subtract(&mut self, entry: &Entry) {
        let (open_files, bytes) = entry.weight();
        self.open_files -= open_files;
        self.bytes -= bytes;
    }
}
