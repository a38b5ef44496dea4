//! Compressed forms of text that has no precompressed sibling.
//!
//! Owns the codings ([`encode`]), the choice of files (`suits`), and the thread that compresses ([`Compressor`]). The
//! cache of each loop keeps the results.
//!
//! No loop compresses. A loop hands a file over and sends it as it is, until the compressed form is there. The thread is
//! idle to the kernel: it works with CPU time that no loop wants, so under overload compression is the first to go.
//!
//! Invariants: one thread for a process, at most `MOST_WAITING` files wait for it, and it keeps at most `MOST_FORMS`
//! results with `MOST_KEPT` bytes. A form that is hardly smaller than its file is never sent.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, OnceLock, TryLockError, Weak};
use std::thread::{self, Thread};

use base::{Clock, lock};
use bytes::Bytes;
use rustix::io::{pread, retry_on_intr};

use crate::Site;
use crate::cache::{Entry, Slot, Survey};
use crate::representation::encoding::Coding;
use crate::representation::{Contents, Facts, MediaType, Representation};

/// Least bytes of a file that is compressed. A packet has room for fewer.
pub const LEAST_BYTES: u64 = 1000;

/// Most bytes of a file that is compressed while the server runs, which takes brotli a second or so.
const MOST_BYTES: u64 = 8 << 20;

/// Most files that wait for the thread.
const MOST_WAITING: usize = 64;

/// Most bytes of results that loops have yet to take over.
const MOST_KEPT: usize = 32 << 20;

/// Most results, with those that say that a file cannot be made smaller.
const MOST_FORMS: usize = 4096;

/// The effort of an encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// For files that are compressed while the server runs.
    Quick,
    /// For files that are compressed once.
    Thorough,
}

/// Returns the bytes in a coding; unchanged for [`Coding::Identity`].
///
/// # Errors
/// The encoder fails, because memory runs out.
pub fn encode(coding: Coding, effort: Effort, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let of = |quick, thorough| if effort == Effort::Quick { quick } else { thorough };
    let mut out = Vec::new();
    match coding {
        Coding::Identity => out.extend_from_slice(bytes),
        Coding::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(out, flate2::Compression::new(of(6, 9)));
            encoder.write_all(bytes)?;
            return encoder.finish();
        }
        Coding::Brotli => {
            let mut encoder = brotli::CompressorWriter::new(&mut out, 1 << 16, of(5, 11), 22);
            encoder.write_all(bytes)?;
            encoder.flush()?;
        }
        Coding::Zstd => return zstd::bulk::compress(bytes, of(9, 19) as i32),
    }
    Ok(out)
}

/// True if a compressed form is worth its decoding: it saves a twentieth.
pub fn is_worth(compressed: usize, of: usize) -> bool {
    compressed < of - of / 20
}

/// True for the name of a file that compresses well.
pub fn is_text(name: &[u8]) -> bool {
    MediaType::of(name).is_text()
}

/// True if forms of a file are made: text of a fitting length without any sibling.
pub(crate) fn suits(name: &[u8], survey: &Survey) -> bool {
    let length = survey.stamps[Coding::Identity].map_or(0, |stamp| stamp.length);
    !survey.varies() && (LEAST_BYTES..=MOST_BYTES).contains(&length) && is_text(name)
}

/// A version of a file, and a coding.
type Key = (u64, u64, Coding);

/// A file to be compressed.
#[derive(Debug)]
struct Job {
    key: Key,
    contents: Contents,
}

/// The thread that compresses, with its jobs and results. All loops of a process share it.
#[derive(Clone, Debug, Default)]
pub struct Compressor(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    thread: OnceLock<Option<Thread>>,
    work: Mutex<Work>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(Some(thread)) = self.thread.get() {
            thread.unpark();
        }
    }
}

#[derive(Debug, Default)]
struct Work {
    jobs: VecDeque<Job>,
    /// The forms that loops have asked for; `None` while a form is being made.
    forms: HashMap<Key, Option<Form>>,
    /// The finished ones, the oldest first.
    order: VecDeque<Key>,
    bytes: usize,
}

/// A finished form; `None` if the file cannot be made smaller.
type Form = Option<Bytes>;

impl Work {
    fn finish(&mut self, key: Key, form: Form) {
        self.bytes += form.as_ref().map_or(0, Bytes::len);
        self.forms.insert(key, Some(form));
        self.order.push_back(key);
        while (self.bytes > MOST_KEPT || self.order.len() > MOST_FORMS)
            && let Some(oldest) = self.order.pop_front()
        {
            let form = self.forms.remove(&oldest).flatten().flatten();
            self.bytes -= form.map_or(0, |form| form.len());
        }
    }
}

impl Compressor {
    /// Returns a finished form. Without one, hands the file over unless that has been done, and returns `None`.
    ///
    /// Never waits for the thread, which may hold the lock and get no CPU time.
    fn take(&self, key: Key, contents: impl FnOnce() -> Contents) -> Option<Form> {
        let mut work = match self.0.work.try_lock() {
            Ok(work) => work,
            Err(TryLockError::Poisoned(work)) => work.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        if let Some(known) = work.forms.get(&key) {
            return known.clone();
        }
        let thread = self.0.thread.get_or_init(|| start(Arc::downgrade(&self.0))).as_ref()?;
        if work.jobs.len() < MOST_WAITING {
            work.jobs.push_back(Job { key, contents: contents() });
            work.forms.insert(key, None);
            thread.unpark();
        }
        None
    }
}

/// Starts the thread; `None` if there can be none.
fn start(shared: Weak<Shared>) -> Option<Thread> {
    let thread = thread::Builder::new().name("compress".to_owned());
    thread.spawn(move || run(&shared)).ok().map(|handle| handle.thread().clone())
}

/// Compresses what is handed over, until no loop is left.
fn run(shared: &Weak<Shared>) {
    // If it is refused, the thread competes with the loops.
    let _ = sys::thread::set_idle();
    while let Some(shared) = shared.upgrade() {
        let job = lock(&shared.work).jobs.pop_front();
        if let Some(Job { key, contents }) = job {
            let form = form(key, &contents);
            lock(&shared.work).finish(key, form);
        } else {
            drop(shared);
            thread::park();
        }
    }
}

fn form((_, length, coding): Key, contents: &Contents) -> Form {
    let read;
    let bytes = match contents {
        Contents::Memory(bytes) => bytes,
        Contents::Open(file) => {
            read = read_whole(file, length)?;
            &read
        }
    };
    let compressed = encode(coding, Effort::Quick, bytes).ok()?;
    is_worth(compressed.len(), bytes.len()).then(|| compressed.into())
}

fn read_whole(file: &OwnedFd, length: u64) -> Option<Bytes> {
    let mut bytes = vec![0; length as usize];
    let mut filled = 0;
    while filled < bytes.len() {
        match retry_on_intr(|| pread(file, &mut bytes[filled..], filled as u64)) {
            Ok(0) | Err(_) => return None,
            Ok(read) => filled += read,
        }
    }
    Some(bytes.into())
}

impl<C: Clock> Site<C> {
    /// Loads the made form of a file if it is ready, and returns its coding; the file's own coding otherwise.
    pub(crate) fn made(&mut self, entry: &mut Entry, coding: Coding, key: &str) -> Coding {
        let (Slot::Loaded(own), Some(stamp)) =
            (&entry.slots[Coding::Identity], entry.survey.stamps[Coding::Identity])
        else {
            return Coding::Identity;
        };
        if coding == Coding::Identity {
            return coding;
        }
        let version = (stamp.digest(), stamp.length, coding);
        entry.slots[coding] = match self.options.compressor.take(version, || own.contents.clone()) {
            None => {
                self.counts.not_compressed_yet += 1;
                return Coding::Identity;
            }
            Some(None) => Slot::Unreadable,
            Some(Some(made)) => {
                let facts = Facts {
                    media_type: MediaType::of(&entry.name),
                    coding,
                    varies: true,
                    wall: self.clock.wall(),
                    lines: &self.rules.lines(key),
                    pace: self.rules.pace(key),
                };
                self.counts.compressed += 1;
                Slot::Loaded(Representation::of_made(made, own, facts))
            }
        };
        match entry.slots[coding] {
            Slot::Loaded(_) => coding,
            _ => Coding::Identity,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    const TEXT: &str = "a line of text that comes again and again\n";

    fn decode(coding: Coding, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        match coding {
            Coding::Identity => out.extend_from_slice(bytes),
            Coding::Gzip => drop(flate2::read::GzDecoder::new(bytes).read_to_end(&mut out).unwrap()),
            Coding::Brotli => drop(brotli::Decompressor::new(bytes, 4096).read_to_end(&mut out).unwrap()),
            Coding::Zstd => out = zstd::stream::decode_all(bytes).unwrap(),
        }
        out
    }

    #[test]
    fn encoded_bytes_decode_to_the_same() {
        let text = TEXT.repeat(100);
        for coding in Coding::ALL {
            for effort in [Effort::Quick, Effort::Thorough] {
                let encoded = encode(coding, effort, text.as_bytes()).unwrap();
                assert_eq!(decode(coding, &encoded), text.as_bytes(), "{coding:?}");
                assert_eq!(is_worth(encoded.len(), text.len()), coding != Coding::Identity);
            }
        }
    }

    #[test]
    fn results_beyond_the_limit_are_forgotten() {
        let mut work = Work::default();
        let key = |number| (number, 1, Coding::Gzip);
        for number in 0..5 {
            work.finish(key(number), Some(vec![0; MOST_KEPT / 4].into()));
            work.finish(key(number + 100), None);
        }
        assert!(work.bytes <= MOST_KEPT && !work.forms.contains_key(&key(0)));
        assert!(work.forms.contains_key(&key(4)));
        for number in 0..2 * MOST_FORMS as u64 {
            work.finish(key(number + 200), None);
        }
        assert_eq!((work.forms.len(), work.order.len(), work.bytes), (MOST_FORMS, MOST_FORMS, 0));
    }

    #[test]
    fn form_is_made_once_for_all_loops() {
        let compressor = Compressor::default();
        let (key, text) = ((1, 4300, Coding::Gzip), Bytes::from(TEXT.repeat(100)));
        let mut asked = 0;
        let made = loop {
            let contents = || {
                asked += 1;
                Contents::Memory(text.clone())
            };
            match compressor.clone().take(key, contents) {
                Some(form) => break form.unwrap(),
                None => std::thread::yield_now(),
            }
        };
        assert_eq!((asked, decode(Coding::Gzip, &made)), (1, text.to_vec()));
    }

    #[test]
    fn loop_does_not_wait_for_a_held_lock() {
        let compressor = Compressor::default();
        let held = lock(&compressor.0.work);
        let contents = || panic!("handed over without the lock");
        assert_eq!(compressor.take((1, 4300, Coding::Gzip), contents), None);
        drop(held);
    }

    #[test]
    fn form_that_is_not_smaller_is_none() {
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        let bytes: Vec<u8> = (0..4000).map(|_| next()).collect();
        assert_eq!(form((1, 4000, Coding::Gzip), &Contents::Memory(bytes.into())), None);
        let (reader, _) = io::pipe().unwrap();
        assert_eq!(
            form((1, 4000, Coding::Gzip), &Contents::Open(Arc::new(reader.into()))),
            None,
            "it cannot be read"
        );
    }
}
