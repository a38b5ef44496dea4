//! A site: a directory of files, served as RFC 9110 asks of a static origin server, for one host or several.
//!
//! Owns the way from a request to a file or a refusal: [`path`], [`Root`] (no look-up leaves it), the cache
//! of open and small files, validators, [`ranges`], precompressed siblings ([`encoding`]), and the header
//! lines. Does not own framing, sockets or sending. It only opens files and reads small ones, and these calls
//! may wait for the disk.
//!
//! Decisions that a client can see:
//! - 404, not 403, for a directory without an index, a dot-file (but `/.well-known/`), a link that leaves
//!   the root, or a name that is not a regular file. The site does not disclose what it does not serve.
//! - A symbolic link is followed while it stays inside the root, be it relative or absolute. The link's final
//!   name decides whether the file is a dot-file. A hard link cannot be told from the file itself.
//! - A directory without its slash is redirected (301). Without an index and without a listing, the 404 of a
//!   directory names the missing index.
//! - 400 answers a malformed escape, `%00`, `%2F`, and `..` above the root.
//! - `Accept-Encoding` selects among precompressed siblings (`.br`, `.zst`, `.gz`) that are not older than
//!   their file. Every answer of a file with siblings varies by it. A client that excludes all siblings and
//!   the file itself gets 406. A request for the sibling's own name gets it as a plain file.
//! - `X-Content-Type-Options` is omitted, because every response would pay for its bytes.
//! - Rules ([`Rules`]) decide on the canonical path. A redirect comes before any file, and the fallback answers as if
//!   its file had been requested. A header line is on every answer of its paths but 405 and 501. Lines about caches go
//!   with the file alone.
//!
//! Invariants: a change of a file is noticed within [`CacheLimits::fresh_for`]. A hit makes no system call,
//! decodes nothing and looks at no rule but those about more of the request than its path. It allocates nothing, unless rules
//! about clients meet addresses that leave out their ends. While descriptors are exhausted, cached files are served as
//! last seen.
//!
//! The modules besides these: `answer` has the steps from a request to a stored form, [`compress`] among them, and
//! [`auth`] checks passwords. `root` opens files below the root and follows symbolic links there. `cache` remembers files,
//! and `representation` is one stored form of a file. `rules` holds the owner's rules, `respond` builds the answer, and
//! `counts` counts. [`hosts`] chooses one of several sites.
//!
//! ```
//! use std::sync::Arc;
//! use base::{Clock, RealClock};
//! use http_semantics::{Request, Service, Status};
//! use site::{Options, Root, Site};
//!
//! # fn main() -> Result<(), site::RootError> {
//! let clock = RealClock::new();
//! let root = Arc::new(Root::open(".")?);
//! let mut site = Site::new(Arc::clone(&root), Options::default(), clock);
//! let request = Request { host: "localhost", ..Request::get("/Cargo.toml") };
//! assert_eq!(site.respond(&request, clock.now()).status, Status::OK);
//! assert_eq!(site.counts().misses, 1);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod answer;
pub mod auth;
mod cache;
mod counts;
pub mod hosts;
pub mod path;
mod representation;
mod respond;
mod root;
pub mod rules;

use std::sync::Arc;

use base::{Clock, Nanos, RealClock};
use http_semantics::{Body, Header, Method, Request, Response, Service, Status};

pub use answer::compress;
pub use cache::CacheLimits;
pub use counts::Counts;
pub use hosts::{Host, HostName, Hosts, Sites};
pub use path::{PathError, SitePath, normalise};
pub use representation::{encoding, ranges};
pub use respond::{File, refused_method};
pub use root::{Root, RootError};
pub use rules::{
    Access, Auth, ErrorPage, Fixed, HeaderRule, LiveRules, PaceRule, PageFile, Redirect, Rules, Slashes,
};

use answer::listing;
use cache::{Cache, Entry, Slot, Survey};
use compress::Compressor;
use representation::encoding::Coding;
use representation::validators::Asked;
use representation::{Facts, MediaType, Representation};
use root::{Directory, LookupError, Reach};
use rules::Lines;

/// Interval between two checks of the root's own path and of the rules. Changes are noticed within this time.
const ROOT_CHECKED_EVERY: Nanos = Nanos::SECOND;

/// The served files and the size of the cache.
#[derive(Clone, Debug)]
pub struct Options {
    /// The rules, which may change.
    pub rules: LiveRules,
    /// Serves nobody, but makes the kernel fetch files: the rules about networks and passwords do not apply, and nothing
    /// is compressed.
    pub fetches_only: bool,
    /// Leaves out redirects, because another process has asked them.
    pub skips_redirects: bool,
    /// Compresses files for all loops.
    pub compressor: Compressor,
    /// The passwords that the rules name.
    pub logins: auth::Logins,
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
            rules: LiveRules::default(),
            fetches_only: false,
            skips_redirects: false,
            compressor: Compressor::default(),
            logins: auth::Logins::default(),
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
    /// The rules that the cache knows.
    rules: Arc<Rules>,
    /// The paths that a request may not find in the cache, although the rules' pages are there under them.
    ruled_pages: Vec<String>,
    clock: C,
    cache: Cache,
    counts: Counts,
    /// This loop's time for checks of passwords.
    budget: auth::Budget,
    /// The page for a directory that is not served.
    no_index: bytes::Bytes,
}

/// The counter of a refusal.
type Counter = fn(&mut Counts) -> &mut u64;

/// The counter and the status of a path that is not looked up.
fn refused_path(error: PathError) -> (Counter, Status) {
    match error {
        PathError::Malformed | PathError::AboveRoot => (|counts| &mut counts.bad_paths, Status::BAD_REQUEST),
        PathError::Hidden => (|counts| &mut counts.hidden, Status::NOT_FOUND),
        PathError::TooLong => (|counts| &mut counts.not_found, Status::NOT_FOUND),
    }
}

/// The name of a file below the root, and its stored forms.
type Named = (Vec<u8>, Survey);

/// A request, and the limits of its look-up.
#[derive(Clone, Copy)]
struct Ask<'a> {
    request: &'a Request<'a>,
    asked: Asked,
    now: Nanos,
    reach: Reach,
}

impl<C: Clock> Site<C> {
    /// A site with an empty cache. The clock only tells the time of day, when a file is loaded.
    pub fn new(root: Arc<Root>, options: Options, clock: C) -> Site<C> {
        let cache = Cache::new(options.cache);
        let directory = root.current();
        let rules = options.rules.current();
        let (ruled_pages, no_index) = (rules.ruled_pages(), respond::no_index(&rules));
        let (root_due, counts, budget) = (Nanos::ZERO, Counts::default(), auth::Budget::default());
        Site {
            root,
            directory,
            root_due,
            options,
            rules,
            ruled_pages,
            clock,
            cache,
            counts,
            budget,
            no_index,
        }
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
            None if request.method == Method::Options => Some(self.options(request, now)),
            None => self.get(Ask { request, asked: Asked::of(request), now, reach }),
            refusal => refusal,
        }
    }

    fn options(&mut self, request: &Request<'_>, now: Nanos) -> Response<File> {
        self.look_around(now);
        respond::options(&self.lines(request.path()).without_file(request.transport))
    }

    fn get(&mut self, ask: Ask<'_>) -> Option<Response<File>> {
        self.look_around(ask.now);
        let target = ask.request.target;
        let path = memchr::memchr(b'?', target.as_bytes()).map_or(target, |at| &target[..at]);
        let is_ruled = self.ruled_pages.iter().any(|page| page == path)
            || self.rules.are_about_requests(path, ask.request.transport.is_secure());
        if !is_ruled && let Some(response) = self.cached(path, ask) {
            return Some(response);
        }
        self.look_up(path, is_ruled, ask)
    }

    /// Checks for another root and other rules, once per [`ROOT_CHECKED_EVERY`].
    fn look_around(&mut self, now: Nanos) {
        if now >= self.root_due {
            self.root_due = now + ROOT_CHECKED_EVERY;
            self.check_root();
            self.check_rules();
            self.cache.drop_idle(now, &mut self.counts);
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

    fn check_rules(&mut self) {
        let current = self.options.rules.current();
        if !Arc::ptr_eq(&current, &self.rules) {
            self.cache.clear();
            self.ruled_pages = current.ruled_pages();
            self.no_index = respond::no_index(&current);
            self.rules = current;
        }
    }

    /// The header lines of a path in any spelling. A malformed path has none.
    fn lines(&self, raw: &str) -> Lines {
        if self.rules.headers.is_empty() {
            return Lines::default();
        }
        path::normalise(raw, true).map(|path| self.rules.lines(&path.canonical)).unwrap_or_default()
    }

    /// The answer from the cache, if it is fresh and the stored form is loaded.
    fn cached(&mut self, path: &str, ask: Ask<'_>) -> Option<Response<File>> {
        let entry = self.cache.fresh(path, ask.now)?;
        let Slot::Loaded(found) = &entry.slots[entry.choose(ask.request, ask.asked)?] else { return None };
        self.counts.hits += 1;
        Some(respond::file(found, ask.request, ask.asked, &mut self.counts))
    }

    /// The answer if the cache has no entry under the path as it arrived, or was not asked because rules come first.
    fn look_up(&mut self, raw: &str, is_ruled: bool, ask: Ask<'_>) -> Option<Response<File>> {
        let path = match path::normalise(raw, self.options.show_dot_files) {
            Ok(path) => path,
            Err(error) => {
                let (counter, status) = refused_path(error);
                return self.finish_counted(counter, Response::error(status), raw, ask);
            }
        };
        if let Some(answer) = self.ruled(&path, ask) {
            return answer;
        }
        let Some(directory) = self.directory.clone() else {
            if self.root.is_empty() {
                return self.refuse(LookupError::NotFound, &path, ask);
            }
            self.counts.root_missing += 1;
            return self.finish(respond::unavailable(), raw, ask);
        };
        if (is_ruled || path.canonical != raw)
            && let Some(response) = self.cached(&path.canonical, ask)
        {
            return Some(response);
        }
        match self.known_or_found(&directory, &path, ask) {
            Ok(response) => Some(response),
            Err(LookupError::Cold) => None,
            Err(error) => self.refuse(error, &path, ask),
        }
    }

    /// The answer from the file system, unless the cache knows that there is none.
    fn known_or_found(
        &mut self,
        directory: &Directory,
        path: &SitePath,
        ask: Ask<'_>,
    ) -> Result<Response<File>, LookupError> {
        if let Some(error) = self.cache.absent(&path.canonical, ask.now) {
            self.counts.hits += 1;
            return Err(error);
        }
        let found = self.find(directory, path, ask);
        match found {
            Err(LookupError::Cold) => self.counts.cold += 1,
            Err(LookupError::Exhausted | LookupError::Failed) | Ok(_) => {}
            Err(error) => self.cache.put_absent(&path.canonical, error, ask.now, &mut self.counts),
        }
        found
    }

    /// The answer from the file system. The cache remembers it.
    fn find(
        &mut self,
        directory: &Directory,
        path: &SitePath,
        ask: Ask<'_>,
    ) -> Result<Response<File>, LookupError> {
        let mut entry = match self.surveyed(directory, path, ask) {
            Err(LookupError::NotFound) if path.directory && self.rules.lists(&path.canonical) => {
                self.listed(directory, path, ask)?
            }
            surveyed => surveyed?,
        };
        let response = self.serve(directory, &mut entry, &path.canonical, ask);
        self.cache.put(&path.canonical, entry, &mut self.counts);
        response
    }

    /// The entry of a path as the file system has it now. The entry is out of the cache.
    fn surveyed(
        &mut self,
        directory: &Directory,
        path: &SitePath,
        ask: Ask<'_>,
    ) -> Result<Entry, LookupError> {
        let key = &path.canonical;
        let known = match self.cache.take(key) {
            Some(entry) if !self.cache.is_stale(&entry, ask.now) => return Ok(entry),
            known => known,
        };
        let found = self.survey(directory, path, ask.reach);
        match (known, &found) {
            (Some(entry), Ok((_, survey))) if *survey == entry.survey => {
                self.counts.revalidations += 1;
                return Ok(Entry { checked: ask.now, ..entry });
            }
            (Some(entry), Err(LookupError::Cold)) => {
                // The entry is checked again after its name has been fetched.
                self.cache.put(key, entry, &mut self.counts);
                return Err(LookupError::Cold);
            }
            (None, Err(LookupError::Cold)) => return Err(LookupError::Cold),
            (Some(entry), Err(LookupError::Exhausted)) => {
                self.counts.revalidations_skipped += 1;
                return Ok(Entry { checked: ask.now, ..entry });
            }
            // A listing is read anew each time.
            (Some(entry), Err(_)) if entry.is_listing() => {}
            (Some(_), _) => self.counts.changed += 1,
            (None, _) => self.counts.misses += 1,
        }
        let (name, survey) = found?;
        self.counts.outdated_siblings += u64::from(survey.outdated);
        let is_made = self.rules.compress && !self.options.fetches_only && compress::suits(&name, &survey);
        Ok(Entry { is_made, varies: survey.varies() || is_made, ..Entry::new(name, survey, ask.now) })
    }

    /// Makes the listing of a folder. Reading a folder always may wait for the disk.
    fn listed(&mut self, directory: &Directory, path: &SitePath, ask: Ask<'_>) -> Result<Entry, LookupError> {
        if !ask.reach.disk {
            return Err(LookupError::Cold);
        }
        let page = listing::page(directory, path, ask.reach)?;
        self.counts.listings += 1;
        let facts = Facts {
            media_type: MediaType::HTML,
            coding: Coding::Identity,
            varies: false,
            wall: self.clock.wall(),
            lines: &self.rules.lines(&path.canonical),
            pace: self.rules.pace(&path.canonical),
        };
        Ok(Entry::listing(Representation::of_page(page, facts), ask.now))
    }

    /// Loads the stored form that suits the request, unless it is loaded.
    fn serve(
        &mut self,
        directory: &Directory,
        entry: &mut Entry,
        key: &str,
        ask: Ask<'_>,
    ) -> Result<Response<File>, LookupError> {
        loop {
            let Some(coding) = entry.choose(ask.request, ask.asked) else {
                let refusal = respond::page(Status::NOT_ACCEPTABLE, "Vary: Accept-Encoding\r\n");
                let lines = self.rules.lines(key).without_file(ask.request.transport);
                return Ok(respond::with_lines(refusal, &lines));
            };
            let is_missing = !matches!(entry.slots[coding], Slot::Loaded(_));
            let coding = if entry.is_made && is_missing { self.made(entry, coding, key) } else { coding };
            if let Slot::Loaded(found) = &entry.slots[coding] {
                return Ok(respond::file(found, ask.request, ask.asked, &mut self.counts));
            }
            let facts = Facts {
                media_type: MediaType::of(&entry.name),
                coding,
                varies: entry.varies,
                wall: self.clock.wall(),
                lines: &self.rules.lines(key),
                pace: self.rules.pace(key),
            };
            let stored = cache::sibling(&entry.name, coding);
            match Representation::load(directory, &stored, facts, self.options.small_file.0, ask.reach) {
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

    /// The answer to a path without a file: the fallback, or an error. `None` if memory does not suffice.
    fn refuse(&mut self, error: LookupError, path: &SitePath, ask: Ask<'_>) -> Option<Response<File>> {
        let (counter, status): (Counter, _) = match error {
            LookupError::IsDirectory if !path.directory => {
                let redirect = respond::add_slash(&path.canonical, ask.request.target);
                return self.finish(redirect, &path.canonical, ask);
            }
            LookupError::HasSlash => {
                let redirect = respond::remove_slash(&path.canonical, ask.request.target);
                return self.finish(redirect, &path.canonical, ask);
            }
            LookupError::NotFound | LookupError::IsDirectory => {
                match self.fall_back(path, ask) {
                    Ok(response) => return Some(response),
                    Err(LookupError::Cold) => return None,
                    // The fallback may be there, so the path is not known to be absent.
                    Err(error @ (LookupError::Exhausted | LookupError::Failed)) => {
                        return self.refuse(error, path, ask);
                    }
                    Err(_) => {}
                }
                (|counts| &mut counts.not_found, Status::NOT_FOUND)
            }
            LookupError::Escapes => (|counts| &mut counts.refused_escapes, Status::NOT_FOUND),
            LookupError::Hidden => (|counts| &mut counts.hidden, Status::NOT_FOUND),
            LookupError::Forbidden => (|counts| &mut counts.forbidden, Status::FORBIDDEN),
            LookupError::Exhausted => {
                (|counts| &mut counts.descriptors_exhausted, Status::SERVICE_UNAVAILABLE)
            }
            LookupError::Cold => unreachable!("a reach that is too short is not a refusal"),
            LookupError::Failed => (|counts| &mut counts.open_errors, Status::INTERNAL_SERVER_ERROR),
        };
        let plain = match status {
            Status::SERVICE_UNAVAILABLE => respond::unavailable(),
            // The answer is the same whether such a directory exists or not.
            Status::NOT_FOUND if path.directory => {
                Response { body: Body::Bytes(self.no_index.clone()), ..Response::error(status) }
            }
            status => Response::error(status),
        };
        self.finish_counted(counter, plain, &path.canonical, ask)
    }

    /// The answer with the file of a rule, as if the client had requested that file.
    fn page(&mut self, file: &PageFile, ask: Ask<'_>) -> Result<Response<File>, LookupError> {
        let path = file.path();
        if let Some(response) = self.cached(&path.canonical, ask) {
            return Ok(response);
        }
        let directory = self.directory.clone().ok_or(LookupError::NotFound)?;
        self.known_or_found(&directory, path, ask)
    }

    fn fall_back(&mut self, path: &SitePath, ask: Ask<'_>) -> Result<Response<File>, LookupError> {
        let rules = Arc::clone(&self.rules);
        let response = self.page(rules.fallback(&path.canonical).ok_or(LookupError::NotFound)?, ask)?;
        self.counts.fallbacks += 1;
        Ok(response)
    }

    /// Counts a refusal once, although memory may not suffice for its page at first.
    fn finish_counted(
        &mut self,
        counter: Counter,
        plain: Response<File>,
        raw: &str,
        ask: Ask<'_>,
    ) -> Option<Response<File>> {
        let response = self.finish(plain, raw, ask)?;
        *counter(&mut self.counts) += 1;
        Some(response)
    }

    /// Gives an answer without a file the page of its status and the header lines of its path. `None` if the
    /// page is not in memory, and memory alone may be used.
    fn finish(&mut self, plain: Response<File>, raw: &str, ask: Ask<'_>) -> Option<Response<File>> {
        let rules = Arc::clone(&self.rules);
        let lines = self.lines(raw).without_file(ask.request.transport);
        let Some(page) = rules.error_page(plain.status) else {
            return Some(respond::with_lines(plain, &lines));
        };
        // The whole page: conditions and ranges are about what was asked for.
        let of_encoding = |field: &&Header<'_>| field.name.eq_ignore_ascii_case("accept-encoding");
        let fields: Vec<Header<'_>> = ask.request.fields.iter().filter(of_encoding).copied().collect();
        let request = Request { fields: &fields, ..*ask.request };
        let asked = Asked::of(&request);
        let plain = match self.page(page, Ask { request: &request, asked, ..ask }) {
            Ok(found) if found.status == Status::OK => {
                self.counts.error_pages += 1;
                respond::error_with(plain, &found)
            }
            Err(LookupError::Cold) => return None,
            _ => plain,
        };
        Some(respond::with_lines(plain, &lines))
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
