//! One request and its response.
//!
//! ```text
//!   request:   Content being received ──> ended          response:   awaited ──> head ──> payload ──> queued
//! ```
//!
//! A stream exists until its request has ended and its response is queued.

use base::Nanos;
use bytes::{Buf, Bytes};
use http_semantics::server::Record;
use http_semantics::{Body, Budget, FileRange, Multipart, Response};

use crate::hold::Hold;
use crate::hpack::Fields;
use crate::limits::WINDOW_BYTES;
use crate::priority::Priority;

/// A request whose content is arriving, or whose answer is pending.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) fields: Fields,
    /// The content, if the service is to see it.
    pub(crate) content: Vec<u8>,
}

/// The part of a response that is not queued.
#[derive(Debug)]
pub(crate) enum Answer<F> {
    /// The service has not answered.
    Awaited,
    /// The whole response.
    Whole(Response<F>),
    /// The rest of the content.
    Rest(Payload<F>),
    /// Nothing: the whole response is queued.
    Queued,
}

/// A stream; `F` is the handle of an open file.
#[derive(Debug)]
pub(crate) struct Stream<F> {
    pub(crate) id: u32,
    pub(crate) answer: Answer<F>,
    /// The request is HEAD: its response is sent without content.
    pub(crate) is_head: bool,
    pub(crate) kept: Option<Box<Kept>>,
    /// The client has sent its whole request.
    pub(crate) ended: bool,
    /// The service is to be asked again.
    pub(crate) deferred: bool,
    /// The rest of the content is not wanted.
    pub(crate) unwanted: bool,
    pub(crate) started: Nanos,
    /// Bytes of content received, and those promised.
    pub(crate) received: u64,
    pub(crate) promised: Option<u64>,
    /// Bytes that the client may send before it gets more credit.
    pub(crate) credit: u32,
    /// Bytes of content that the client's window for the stream allows.
    pub(crate) window: i64,
    /// That window holds the response back.
    pub(crate) hold: Hold,
    /// Bounds the content of a paced response.
    pub(crate) budget: Option<Budget>,
    pub(crate) priority: Priority,
    /// The connection's turn in which this stream was served last.
    pub(crate) turn: u64,
    /// Bytes of output queued.
    pub(crate) queued: u64,
    pub(crate) record: Option<Box<Record>>,
}

impl<F> Stream<F> {
    pub(crate) fn new(id: u32, window: i64, started: Nanos) -> Stream<F> {
        Stream {
            id,
            answer: Answer::Awaited,
            is_head: false,
            kept: None,
            ended: false,
            deferred: false,
            unwanted: false,
            started,
            received: 0,
            promised: None,
            credit: WINDOW_BYTES,
            window,
            hold: Hold::default(),
            budget: None,
            priority: Priority::default(),
            turn: 0,
            queued: 0,
            record: None,
        }
    }

    /// Bytes of the rest of the content that the pace lets go now.
    pub(crate) fn released(&self) -> u64 {
        let Answer::Rest(payload) = &self.answer else { return 0 };
        payload.left().min(self.budget.as_ref().map_or(u64::MAX, Budget::left))
    }

    /// Bytes of the rest of the content that the pace and the client's windows allow; `window` is the connection's. None
    /// if the windows allow fewer than `least`, and not all that the pace does.
    pub(crate) fn room(&self, window: i64, least: u64) -> u64 {
        let (room, released) = (self.window.min(window).max(0) as u64, self.released());
        if room < least && room < released { 0 } else { room.min(released) }
    }

    /// The time of the next grant, if the pace holds the content back.
    pub(crate) fn paused_until(&self) -> Option<Nanos> {
        self.budget.as_ref().filter(|_| self.left() > 0).and_then(Budget::paused_until)
    }

    /// Bytes of the response that are not queued; without the head's.
    pub(crate) fn left(&self) -> u64 {
        match &self.answer {
            Answer::Awaited | Answer::Queued => 0,
            Answer::Whole(response) => response.body.length(),
            Answer::Rest(payload) => payload.left(),
        }
    }
}

/// Content on its way: bytes, then a part of a file, then further parts.
#[derive(Debug)]
pub(crate) struct Payload<F> {
    pub(crate) bytes: Bytes,
    pub(crate) file: Option<FileRange<F>>,
    parts: Option<Box<Multipart<F>>>,
}

impl<F> Payload<F> {
    /// `parts` is the body if it is multipart.
    pub(crate) fn new(body: Body<F>, parts: Option<Multipart<F>>) -> Payload<F> {
        let mut payload = Payload { bytes: Bytes::new(), file: None, parts: parts.map(Box::new) };
        match body {
            Body::Bytes(bytes) => payload.bytes = bytes,
            Body::File(range) if range.length > 0 => payload.file = Some(range),
            Body::File(_) | Body::Absent | Body::Parts(_) => {}
        }
        payload.next_part();
        payload
    }

    pub(crate) fn left(&self) -> u64 {
        let file = self.file.as_ref().map_or(0, |range| range.length);
        self.bytes.len() as u64 + file + self.parts.as_ref().map_or(0, |parts| parts.pending())
    }

    /// Drops `count` bytes that have been queued.
    pub(crate) fn advance(&mut self, count: u64) {
        if !self.bytes.is_empty() {
            self.bytes.advance(count as usize);
        } else if let Some(range) = &mut self.file {
            range.offset += count;
            range.length -= count;
            if range.length == 0 {
                self.file = None;
            }
        }
        self.next_part();
    }

    fn next_part(&mut self) {
        while self.bytes.is_empty() && self.file.is_none() {
            let Some(parts) = &mut self.parts else { return };
            let mut text = Vec::new();
            match parts.next(&mut text) {
                None => self.parts = None,
                Some(Body::Bytes(bytes)) => text.extend_from_slice(&bytes),
                Some(Body::File(range)) if range.length > 0 => self.file = Some(range),
                Some(_) => {}
            }
            self.bytes = text.into();
        }
    }
}
