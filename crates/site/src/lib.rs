//! A site: a directory of files, served as RFC 9110 asks of a static origin server.
//!
//! Owns the way from a request to a file or a refusal: [`path`], [`Root`] (no look-up leaves it), the cache
//! of open and small files, validators, [`ranges`], precompressed siblings ([`encoding`]), and the header
//! lines. Does not own framing, sockets or sending. It only opens files and reads small ones, and these calls
//! may wait for the disk.
//!
//! Decisions that a client can see:
//! - 404, not 403, for a directory without an index, a dot-file (but `/.well-known/`), a link that leaves
//!   the root, or a name that is no regular file. The site does not disclose what it does not serve.
//! - A symbolic link is followed while it stays inside the root, be it relative or absolute. The link's final
//!   name decides whether the file is a dot-file. A hard link cannot be told from the file itself.
//! - A directory without its slash is redirected (301). There are no listings: the 404 of a directory says so
//!   and names the missing index.
//! - 400 answers a malformed escape, `%00`, `%2F`, and `..` above the root.
//! - `Accept-Encoding` selects among precompressed siblings (`.br`, `.zst`, `.gz`) that are not older than
//!   their file. Every answer of a file with siblings varies by it. A client that excludes all siblings and
//!   the file itself gets 406. A request for the sibling's own name gets it as a plain file.
//! - `X-Content-Type-Options` is omitted, because every response would pay for its bytes.
//!
//! Invariants: a change of a file is noticed within [`CacheLimits::fresh_for`]. A hit makes no system call,
//! decodes nothing and allocates nothing. While descriptors are exhausted, cached files are served as last
//! seen.
//!
//! The modules besides these: `root` opens files below the root and follows symbolic links there.
//! `cache` remembers files, and `representation` is one stored form of a file. `validators` decides on
//! conditional requests, `respond` builds the answer, and `counts` counts.
//!
//! ```
//! use std::sync::Arc;
//! use base::{Clock, RealClock};
//! use http1::{Method, Request, Service, Status, Version};
//! use site::{Options, Root, Site};
//!
//! # fn main() -> Result<(), site::RootError> {
//! let clock = RealClock::new();
//! let root = Arc::new(Root::open(".")?);
//! let mut site = Site::new(Arc::clone(&root), Options::default(), clock);
//! let (method, target, host) = (Method::Get, "/Cargo.toml", "localhost");
//! let request = Request { method, target, version: Version::Http11, host, fields: &[], body: b"" };
//! assert_eq!(site.respond(&request, clock.now()).status, Status::OK);
//! assert_eq!(site.counts().misses, 1);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod cache;
mod counts;
pub mod encoding;
pub mod path;
pub mod ranges;
mod representation;
mod respond;
mod root;
mod validators;

use std::sync::Arc;

use base::{Clock, Nanos, RealClock};
use http1::{Body, Method, Request, Response, Service, Status};

pub use cache::CacheLimits;
pub use counts::Counts;
pub use respond::{File, refused_method};
pub use root::{Root, RootError};

use cache::{Cache, Entry, Slot, Survey};
use encoding::Coding;
use path::{PathError, SitePath};
use representation::{Facts, MediaType, Representation};
use root::{Directory, LookupError, Reach};
use validators::Asked;

/// Interval between two checks of the root's own path. A replaced root is noticed within this time.
const ROOT_CHECKED_EVERY: Nanos = Nanos::SECOND;

/// The served files and the size of the cache.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the file that is served for its directory.
    pub index: String,
    /// Serves files and directories whose name begins with a dot.
    pub show_dot_files: bool,
    /// Maximum size of a file that is kept in memory; a longer one is kept open.
    pub small_file: base::Bytes,
    /// Limits of the cache, per loop.
    pub cache: CacheLimits,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            index: "index.html".to_owned(),
            show_dot_files: false,
            small_file: base::Bytes(64 << 10),
            cache: CacheLimits::default(),
        }
    }
}

/// A served directory as one loop sees it. A site can move to another thread but cannot be shared. Each loop
/// has its own, over the same [`Root`].
#[derive(Debug)]
pub struct Site<C = RealClock> {
    root: Arc<Root>,
    /// The open root; `None` while the root is missing.
    directory: Option<Arc<Directory>>,
    root_due: Nanos,
    options: Options,
    clock: C,
    cache: Cache,
    counts: Counts,
    /// The page for a directory that is not served.
    no_index: bytes::Bytes,
}

impl<C: Clock> Site<C> {
    /// A site with an empty cache. The clock only tells the time of day, when a file is loaded.
    pub fn new(root: Arc<Root>, options: Options, clock: C) -> Site<C> {
        let cache = Cache::new(options.cache);
        let directory = root.current();
        let no_index = respond::no_index(&options.index);
        let (root_due, counts) = (Nanos::ZERO, Counts::default());
        Site { root, directory, root_due, options, clock, cache, counts, no_index }
    }

    /// The site's counters since the start.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Returns the answer if this cache and the kernel have all of its parts in memory: the names and the
    /// contents of small files. A larger file is opened without a check of its contents. If the result is
    /// `None`, a call of [`Service::respond`] in any process makes the kernel fetch the missing parts.
    pub fn respond_from_memory(&mut self, request: &Request<'_>, now: Nanos) -> Option<Response<File>> {
        self.answer(request, now, false)
    }

    /// Returns `None` if memory does not suffice and `disk` is false.
    fn answer(&mut self, request: &Request<'_>, now: Nanos, disk: bool) -> Option<Response<File>> {
        let reach = Reach { disk, dot_files: self.options.show_dot_files };
        match refused_method(request.method) {
            None if request.method == Method::Options => Some(respond::options()),
            None => self.get(request, now, reach),
            refusal => refusal,
        }
    }

    fn get(&mut self, request: &Request<'_>, now: Nanos, reach: Reach) -> Option<Response<File>> {
        if now >= self.root_due {
            self.root_due = now + ROOT_CHECKED_EVERY;
            self.check_root();
            self.cache.drop_idle(now, &mut self.counts);
        }
        let target = request.target;
        let path = memchr::memchr(b'?', target.as_bytes()).map_or(target, |at| &target[..at]);
        let asked = Asked::of(request);
        match self.cached(path, request, asked, now) {
            Some(response) => Some(response),
            None => self.look_up(path, request, asked, now, reach),
        }
    }

    fn check_root(&mut self) {
        let current = self.root.current();
        let same = match (&self.directory, &current) {
            (Some(before), Some(now)) => Arc::ptr_eq(before, now),
            (None, None) => true,
            _ => false,
        };
        if !same {
            self.cache.clear();
            self.counts.root_replaced += u64::from(current.is_some());
            self.directory = current;
        }
    }

    /// The answer from the cache, if it is fresh and the stored form is loaded.
    fn cached(
        &mut self,
        path: &str,
        request: &Request<'_>,
        asked: Asked,
        now: Nanos,
    ) -> Option<Response<File>> {
        let entry = self.cache.fresh(path, now)?;
        let Slot::Loaded(found) = &entry.slots[entry.choose(request, asked)?] else { return None };
        self.counts.hits += 1;
        Some(respond::file(found, request, asked, &mut self.counts))
    }

    /// The answer if the cache has no entry under the path as it arrived.
    fn look_up(
        &mut self,
        raw: &str,
        request: &Request<'_>,
        asked: Asked,
        now: Nanos,
        reach: Reach,
    ) -> Option<Response<File>> {
        let path = match path::normalise(raw, self.options.show_dot_files) {
            Ok(path) => path,
            Err(error) => return Some(self.refuse_path(error)),
        };
        let Some(directory) = self.directory.clone() else {
            self.counts.root_missing += 1;
            return Some(respond::unavailable());
        };
        if path.canonical != raw
            && let Some(response) = self.cached(&path.canonical, request, asked, now)
        {
            return Some(response);
        }
        if let Some(error) = self.cache.absent(&path.canonical, now) {
            self.counts.hits += 1;
            return Some(self.refuse(error, &path, request));
        }
        match self.find(&directory, &path, request, asked, now, reach) {
            Ok(response) => Some(response),
            Err(LookupError::Cold) => {
                self.counts.cold += 1;
                None
            }
            Err(error) => {
                if !matches!(error, LookupError::Exhausted | LookupError::Failed) {
                    self.cache.put_absent(&path.canonical, error, now, &mut self.counts);
                }
                Some(self.refuse(error, &path, request))
            }
        }
    }

    /// The answer from the file system. The cache remembers it.
    fn find(
        &mut self,
        directory: &Directory,
        path: &SitePath,
        request: &Request<'_>,
        asked: Asked,
        now: Nanos,
        reach: Reach,
    ) -> Result<Response<File>, LookupError> {
        let mut name = path.relative.clone();
        if path.directory {
            if !name.is_empty() {
                name.push(b'/');
            }
            name.extend_from_slice(self.options.index.as_bytes());
        }
        let mut entry = self.surveyed(directory, &path.canonical, &name, now, reach)?;
        let response = self.serve(directory, &mut entry, &name, request, asked, reach);
        self.cache.put(&path.canonical, entry, &mut self.counts);
        response
    }

    /// The entry of a path as the file system has it now. The entry is out of the cache.
    fn surveyed(
        &mut self,
        directory: &Directory,
        key: &str,
        name: &[u8],
        now: Nanos,
        reach: Reach,
    ) -> Result<Entry, LookupError> {
        let known = match self.cache.take(key) {
            Some(entry) if !self.cache.is_stale(&entry, now) => return Ok(entry),
            known => known,
        };
        let found = Survey::of(directory, name, reach);
        match (known, found) {
            (Some(entry), Ok(survey)) if survey == entry.survey => {
                self.counts.revalidations += 1;
                return Ok(Entry { checked: now, ..entry });
            }
            (Some(entry), Err(LookupError::Cold)) => {
                // The entry is checked again after its name has been fetched.
                self.cache.put(key, entry, &mut self.counts);
                return Err(LookupError::Cold);
            }
            (None, Err(LookupError::Cold)) => return Err(LookupError::Cold),
            (Some(entry), Err(LookupError::Exhausted)) => {
                self.counts.revalidations_skipped += 1;
                return Ok(Entry { checked: now, ..entry });
            }
            (Some(_), _) => self.counts.changed += 1,
            (None, _) => self.counts.misses += 1,
        }
        let survey = found?;
        self.counts.outdated_siblings += u64::from(survey.outdated);
        Ok(Entry::new(survey, now))
    }

    /// Loads the stored form that suits the request, unless it is loaded.
    fn serve(
        &mut self,
        directory: &Directory,
        entry: &mut Entry,
        name: &[u8],
        request: &Request<'_>,
        asked: Asked,
        reach: Reach,
    ) -> Result<Response<File>, LookupError> {
        loop {
            let Some(coding) = entry.choose(request, asked) else {
                return Ok(respond::page(Status::NOT_ACCEPTABLE, "Vary: Accept-Encoding\r\n"));
            };
            if let Slot::Loaded(found) = &entry.slots[coding] {
                return Ok(respond::file(found, request, asked, &mut self.counts));
            }
            let facts = Facts {
                media_type: MediaType::of(name),
                coding,
                varies: entry.varies,
                wall: self.clock.wall(),
            };
            let stored = cache::sibling(name, coding);
            match Representation::load(directory, &stored, facts, self.options.small_file.0, reach) {
                Ok(loaded) => {
                    self.counts.unstable_reads += u64::from(loaded.unstable);
                    entry.survey.stamps[coding] = Some(loaded.stamp);
                    entry.slots[coding] = Slot::Loaded(loaded.representation);
                }
                Err(error @ (LookupError::Exhausted | LookupError::Cold)) => return Err(error),
                Err(error) if coding == Coding::Identity => return Err(error),
                Err(_) => entry.slots[coding] = Slot::Unreadable,
            }
        }
    }

    fn refuse_path(&mut self, error: PathError) -> Response<File> {
        let counter = match error {
            PathError::Malformed | PathError::AboveRoot => {
                self.counts.bad_paths += 1;
                return Response::error(Status::BAD_REQUEST);
            }
            PathError::Hidden => &mut self.counts.hidden,
            PathError::TooLong => &mut self.counts.not_found,
        };
        *counter += 1;
        Response::error(Status::NOT_FOUND)
    }

    fn refuse(&mut self, error: LookupError, path: &SitePath, request: &Request<'_>) -> Response<File> {
        let (counter, status) = match error {
            LookupError::IsDirectory if !path.directory => {
                return respond::add_slash(&path.canonical, request.target);
            }
            LookupError::NotFound | LookupError::IsDirectory => {
                (&mut self.counts.not_found, Status::NOT_FOUND)
            }
            LookupError::Escapes => (&mut self.counts.refused_escapes, Status::NOT_FOUND),
            LookupError::Hidden => (&mut self.counts.hidden, Status::NOT_FOUND),
            LookupError::Forbidden => (&mut self.counts.forbidden, Status::FORBIDDEN),
            LookupError::Exhausted => (&mut self.counts.descriptors_exhausted, Status::SERVICE_UNAVAILABLE),
            LookupError::Cold => unreachable!("a reach that is too short is no refusal"),
            LookupError::Failed => (&mut self.counts.open_errors, Status::INTERNAL_SERVER_ERROR),
        };
        *counter += 1;
        match status {
            Status::SERVICE_UNAVAILABLE => respond::unavailable(),
            // The answer is the same whether such a directory exists or not.
            Status::NOT_FOUND if path.directory => {
                Response { body: Body::Bytes(self.no_index.clone()), ..Response::error(status) }
            }
            status => Response::error(status),
        }
    }
}

impl<C: Clock> Service for Site<C> {
    type File = File;

    fn respond(&mut self, request: &Request<'_>, now: Nanos) -> Response<File> {
        self.answer(request, now, true).expect("nothing is out of reach")
    }

    /// The method alone decides; no content changes the answer.
    fn refuse_early(&self, request: &Request<'_>) -> Option<Response<File>> {
        refused_method(request.method)
    }
}
