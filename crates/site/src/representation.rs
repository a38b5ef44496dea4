//! One stored form of a file, ready to be sent: its contents and its header lines, rendered once.
//!
//! Owns the reading of small files, the media type, and the order of the lines. The order matters, because
//! every answer takes a slice of one block. The lines that a 304 repeats come last. `Content-Type`, which a
//! multipart body replaces, comes first. [`encoding`] chooses among the forms of one file, [`validators`] decides on
//! conditional requests, and [`ranges`] reads the parts that a client asks for.

pub mod encoding;
pub mod ranges;
pub(crate) mod validators;

use std::ffi::OsStr;
use std::fmt::Write;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base::WallTime;
use bytes::Bytes;
use http_semantics::{Body, FileRange, Pace};
use rustix::io::{Errno, IoSliceMut, ReadWriteFlags, pread, preadv2, retry_on_intr};

use crate::root::{Directory, LookupError, Reach, Stamp, digest};
use crate::rules::Lines;

use encoding::Coding;
use validators::Validators;

/// Maximum reads of a small file that changes during the read.
const READS_TOLERATED: usize = 3;

/// The first second of the year 10000, which HTTP dates cannot express.
const DATES_END: u64 = 253_402_300_800;

/// A stored form of a file.
#[derive(Debug)]
pub(crate) struct Representation {
    pub(crate) contents: Contents,
    pub(crate) length: u64,
    /// `Content-Type`, `Content-Encoding`, `Accept-Ranges`, `Last-Modified`; `ETag`, the rules' lines about
    /// caches; `Vary`, the rules' other lines; the line that is sent over TLS alone.
    fields: Bytes,
    /// End of `Content-Type` in `fields`.
    type_end: usize,
    /// Start of the lines of a 304 in `fields`.
    kept_start: usize,
    /// Start of the lines for errors in `fields`.
    errors_start: usize,
    /// End of the lines that are sent without TLS too.
    plain_end: usize,
    etag: Bytes,
    modified: Option<u64>,
    /// The pace of every answer with the content.
    pub(crate) pace: Option<Pace>,
}

/// The place of the contents.
#[derive(Clone, Debug)]
pub(crate) enum Contents {
    /// The contents are in memory.
    Memory(Bytes),
    /// The contents are in an open file.
    Open(Arc<OwnedFd>),
}

/// Inputs of the header lines besides the file itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) media_type: MediaType,
    pub(crate) coding: Coding,
    /// True if other codings of the file are on offer.
    pub(crate) varies: bool,
    /// The current time: `Last-Modified` may not be later (RFC 9110, 8.8.2.1).
    pub(crate) wall: WallTime,
    /// The lines of rules.
    pub(crate) lines: &'a Lines,
    /// The pace of rules.
    pub(crate) pace: Option<Pace>,
}

/// An opened file and its stamp at that time.
pub(crate) struct Loaded {
    pub(crate) stamp: Stamp,
    pub(crate) representation: Representation,
    /// The file is small, but changed during every attempt to read it.
    pub(crate) unstable: bool,
}

impl Representation {
    /// Opens a file, and reads it into memory if it has at most `small` bytes.
    pub(crate) fn load(
        directory: &Directory,
        name: &[u8],
        facts: Facts<'_>,
        small: u64,
        reach: Reach,
    ) -> Result<Loaded, LookupError> {
        let (descriptor, mut stamp) = directory.open_file(name, reach)?;
        let mut attempts = 0;
        while stamp.length <= small && attempts < READS_TOLERATED {
            let whole = read_whole(&descriptor, stamp.length, reach)?;
            let after = Stamp::of(&descriptor)?;
            if let Some(bytes) = whole
                && after == stamp
            {
                let representation = Representation::new(Contents::Memory(bytes), stamp, facts);
                return Ok(Loaded { stamp, representation, unstable: false });
            }
            stamp = after;
            attempts += 1;
        }
        let contents = Contents::Open(Arc::new(descriptor));
        let representation = Representation::new(contents, stamp, facts);
        Ok(Loaded { stamp, representation, unstable: attempts > 0 })
    }

    fn new(contents: Contents, stamp: Stamp, facts: Facts<'_>) -> Representation {
        let modified = u64::try_from(stamp.modified.0).ok().filter(|&seconds| seconds < DATES_END);
        let modified = modified.map(|seconds| seconds.min(facts.wall.seconds));
        Representation::described(contents, stamp.length, etag(stamp, facts.coding), modified, facts)
    }

    /// A compressed form of a file, which another thread has made. Its entity tag comes from its content.
    pub(crate) fn of_made(made: Bytes, of: &Representation, facts: Facts<'_>) -> Representation {
        let length = made.len() as u64;
        let etag = format!("\"{:x}-{length:x}-{}\"", digest(made.iter().copied()), facts.coding.suffix());
        Representation::described(Contents::Memory(made), length, etag, of.modified, facts)
    }

    /// A page made by this crate.
    pub(crate) fn of_page(page: String, facts: Facts<'_>) -> Representation {
        let length = page.len() as u64;
        let etag = format!("\"{:x}-{length:x}\"", digest(page.bytes()));
        Representation::described(Contents::Memory(page.into()), length, etag, None, facts)
    }

    fn described(
        contents: Contents,
        length: u64,
        etag: String,
        modified: Option<u64>,
        facts: Facts<'_>,
    ) -> Representation {
        let mut fields = String::with_capacity(256);
        fields.push_str("Content-Type: ");
        fields.push_str(facts.media_type.name);
        fields.push_str(if facts.media_type.is_text { "; charset=utf-8\r\n" } else { "\r\n" });
        let type_end = fields.len();
        if facts.coding != Coding::Identity {
            fields.extend(["Content-Encoding: ", facts.coding.name(), "\r\n"]);
        }
        fields.push_str("Accept-Ranges: bytes\r\n");
        if let Some(seconds) = modified {
            let date = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            fields.extend(["Last-Modified: ", &httpdate::fmt_http_date(date), "\r\n"]);
        }
        let kept_start = fields.len();
        fields.push_str("ETag: ");
        let etag_start = fields.len();
        fields.extend([&etag, "\r\n"]);
        fields.push_str(&facts.lines.caching);
        let errors_start = fields.len();
        if facts.varies {
            fields.push_str("Vary: Accept-Encoding\r\n");
        }
        fields.push_str(&facts.lines.always);
        let plain_end = fields.len();
        fields.push_str(&facts.lines.secure);
        let fields = Bytes::from(fields);
        let etag = fields.slice(etag_start..etag_start + etag.len());
        Representation {
            contents,
            length,
            fields,
            type_end,
            kept_start,
            errors_start,
            plain_end,
            etag,
            modified,
            pace: facts.pace,
        }
    }

    /// The end of the lines for a transport.
    fn end(&self, secure: bool) -> usize {
        if secure { self.fields.len() } else { self.plain_end }
    }

    /// All header lines. `secure` tells whether they are sent over TLS, here and below.
    pub(crate) fn fields(&self, secure: bool) -> Bytes {
        self.fields.slice(..self.end(secure))
    }

    /// The `Content-Type` line.
    pub(crate) fn content_type(&self) -> &[u8] {
        &self.fields[..self.type_end]
    }

    /// All header lines but `Content-Type`.
    pub(crate) fn fields_but_type(&self, secure: bool) -> Bytes {
        self.fields.slice(self.type_end..self.end(secure))
    }

    /// The lines that a 304 must repeat (RFC 9110, 15.4.5).
    pub(crate) fn fields_not_modified(&self, secure: bool) -> Bytes {
        self.fields.slice(self.kept_start..self.end(secure))
    }

    /// The lines for an error in place of the file.
    pub(crate) fn lines_of_errors(&self, secure: bool) -> &str {
        str::from_utf8(&self.fields[self.errors_start..self.end(secure)]).expect("rules are ASCII")
    }

    pub(crate) fn validators(&self) -> Validators<'_> {
        Validators { etag: &self.etag, modified: self.modified }
    }

    /// All of the content.
    pub(crate) fn body(&self) -> Body<Arc<OwnedFd>> {
        match &self.contents {
            Contents::Memory(bytes) => Body::Bytes(bytes.clone()),
            Contents::Open(file) => {
                Body::File(FileRange { file: Arc::clone(file), offset: 0, length: self.length })
            }
        }
    }

    /// A part of the content. The range must lie within the content.
    pub(crate) fn part(&self, range: &Range<u64>) -> Body<Arc<OwnedFd>> {
        match &self.contents {
            Contents::Memory(bytes) => Body::Bytes(bytes.slice(range.start as usize..range.end as usize)),
            Contents::Open(file) => Body::File(FileRange {
                file: Arc::clone(file),
                offset: range.start,
                length: range.end - range.start,
            }),
        }
    }
}

fn etag(stamp: Stamp, coding: Coding) -> String {
    let mut etag = format!("\"{:x}-{:x}", stamp.digest(), stamp.length);
    if coding != Coding::Identity {
        // Writing to a String cannot fail.
        let _ = write!(etag, "-{}", coding.suffix());
    }
    etag.push('"');
    etag
}

/// Reads the whole file; returns `None` if its length has changed. Makes one `pread` if the kernel has the
/// whole file in memory, and another for the end.
fn read_whole(file: &OwnedFd, length: u64, reach: Reach) -> Result<Option<Bytes>, LookupError> {
    // The buffer has one byte more than the file should, so that growth shows as well as truncation.
    let mut buffer = vec![0; length as usize + 1];
    let mut filled = 0;
    while filled < buffer.len() {
        match retry_on_intr(|| read_at(file, &mut buffer[filled..], filled as u64, reach)) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(errno) => return Err(reach.error(errno)),
        }
    }
    buffer.truncate(filled);
    Ok((filled as u64 == length).then(|| Bytes::from(buffer.into_boxed_slice())))
}

/// Reads once; from memory only, if the reach is memory. A file system that cannot tell which contents are in
/// memory (EOPNOTSUPP) counts as having none.
fn read_at(file: &OwnedFd, buffer: &mut [u8], offset: u64, reach: Reach) -> Result<usize, Errno> {
    if reach.disk {
        return pread(file, buffer, offset);
    }
    preadv2(file, &mut [IoSliceMut::new(buffer)], offset, ReadWriteFlags::NOWAIT)
        .map_err(|errno| if errno == Errno::OPNOTSUPP { Errno::AGAIN } else { errno })
}

/// A media type. Text types are served as UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MediaType {
    name: &'static str,
    is_text: bool,
}

impl MediaType {
    /// True for text, which compresses well.
    pub(crate) fn is_text(self) -> bool {
        self.is_text
    }

    /// The media type of pages that this crate makes.
    pub(crate) const HTML: MediaType = MediaType { name: "text/html", is_text: true };

    /// The media type for the ending of a file's name.
    pub(crate) fn of(name: &[u8]) -> MediaType {
        let guess = mime_guess::from_path(Path::new(OsStr::from_bytes(name)));
        let name = match guess.first_raw().unwrap_or("application/octet-stream") {
            // RFC 9239, section 6, made the other names obsolete.
            "application/javascript" => "text/javascript",
            name => name,
        };
        let is_text = name.starts_with("text/")
            || name.ends_with("+xml")
            || name.ends_with("+json")
            || matches!(name, "application/json" | "application/xml");
        MediaType { name, is_text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_grew_or_shrank_is_not_taken_for_whole() {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, b"12345").unwrap();
        let file = OwnedFd::from(file);
        let reach = Reach { disk: true, dot_files: false };
        assert_eq!(read_whole(&file, 4, reach), Ok(None));
        assert_eq!(read_whole(&file, 5, reach), Ok(Some(Bytes::from_static(b"12345"))));
        assert_eq!(read_whole(&file, 6, reach), Ok(None));
    }

    #[test]
    fn media_types_by_ending() {
        for (file, name, is_text) in [
            ("a/index.html", "text/html", true),
            ("x.JS", "text/javascript", true),
            ("x.mjs", "text/javascript", true),
            ("x.json", "application/json", true),
            ("x.svg", "image/svg+xml", true),
            ("x.xml", "text/xml", true),
            ("x.webmanifest", "application/manifest+json", true),
            ("x.png", "image/png", false),
            ("x.wasm", "application/wasm", false),
            ("x.tar.gz", "application/gzip", false),
            ("README", "application/octet-stream", false),
            ("dir.html/README", "application/octet-stream", false),
        ] {
            assert_eq!(MediaType::of(file.as_bytes()), MediaType { name, is_text }, "{file}");
        }
        assert_eq!(MediaType::of(b"\xff.html").name, "text/html");
    }
}
