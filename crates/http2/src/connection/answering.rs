//! Turns header lists and content into requests, and asks the service.

use http_semantics::server::{MOST_FIELDS, Record};
use http_semantics::{Request, Responder, Response, Status};

use super::frames::Past;
use super::{Connection, Context};
use crate::floods::Flood;
use crate::frame::{self, Code, Fault, flag, kind};
use crate::head::{self, Refusal};
use crate::hpack::Fields;
use crate::limits::{KEPT_HEADS, STREAMS};
use crate::stream::{Answer, Kept, Stream};

impl<F> Connection<F> {
    /// Handles a decoded header list: a request, or trailers.
    pub(super) fn handle_fields<S: Responder<File = F>>(
        &mut self,
        id: u32,
        ends_stream: bool,
        fields: &Fields,
        cx: &mut Context<'_, '_, S>,
    ) -> Result<(), Fault> {
        if let Some(index) = self.streams.iter().position(|stream| stream.id == id) {
            if self.streams[index].ended {
                return Err(Fault::Stream(id, Code::StreamClosed));
            }
            return match ends_stream && head::are_trailers(fields) {
                true => self.content(index, &[], true, cx),
                false => Err(Fault::Stream(id, Code::Protocol)),
            };
        }
        match self.past(id) {
            Past::Idle => {}
            Past::Reset => return Ok(()),
            Past::Ended => return Err(Fault::Connection(Code::StreamClosed)),
            Past::Forgotten => return Err(Fault::Connection(Code::Protocol)),
        }
        // The client may repeat a request that came after our GOAWAY on another connection.
        if self.going_away {
            self.skipped = id;
            return Ok(());
        }
        self.last = id;
        // A few bytes can name a long list in the peer's table, so streams alone do not bound the memory.
        let kept: usize =
            self.streams.iter().flat_map(|stream| &stream.kept).map(|kept| kept.fields.bytes()).sum();
        let most_kept = KEPT_HEADS * cx.http.settings.limits.head_bytes;
        if self.streams.len() >= STREAMS as usize || kept + fields.bytes() > most_kept {
            cx.counts.http2_limit_streams += 1;
            self.reset(id, Code::RefusedStream, cx);
            return self.bound(Flood::Resets, cx);
        }
        self.begin(id, ends_stream, fields, cx)
    }

    fn begin<S: Responder<File = F>>(
        &mut self,
        id: u32,
        ends_stream: bool,
        fields: &Fields,
        cx: &mut Context<'_, '_, S>,
    ) -> Result<(), Fault> {
        let mut slots = [http_semantics::Header { name: "", value: &[] }; MOST_FIELDS];
        let limits = &cx.http.settings.limits;
        let mut stream = Stream::new(id, self.initial_window, cx.http.now);
        (stream.ended, stream.turn) = (ends_stream, self.turn);
        stream.is_head = fields.iter().any(|field| field == (b":method", b"HEAD"));
        let early = self.early_priorities.iter().position(|(early, _)| *early == id);
        let early = early.and_then(|place| self.early_priorities.remove(place)).map(|(_, priority)| priority);
        let mut head = match head::parse(fields, &mut slots, limits) {
            Ok(head) => head,
            Err(Refusal::Malformed) => return Err(Fault::Stream(id, Code::Protocol)),
            Err(Refusal::Status(status)) => {
                self.refuse(stream, status, cx);
                return Ok(());
            }
        };
        (head.request.client, head.request.transport) = (cx.http.client, self.transport);
        // A PRIORITY_UPDATE frame replaces the field, even if it came first (RFC 9218, 7).
        stream.priority = early.or(head.priority).unwrap_or_default();
        stream.promised = head.content_length;
        if ends_stream {
            if head.content_length.is_some_and(|length| length > 0) {
                return Err(Fault::Stream(id, Code::Protocol));
            }
            self.ask(stream, &head.request, Some(fields), cx);
            return Ok(());
        }
        if head.content_length.is_some_and(|length| length > limits.body_bytes) {
            self.refuse(stream, Status::CONTENT_TOO_LARGE, cx);
        } else if let Some(response) = cx.http.service.refuse_early(&head.request) {
            // The stream stays open for the content, because curl takes a reset for an error.
            self.respond(stream, response, &head.request, cx);
        } else {
            if head.expects_continue {
                cx.http.counts.responses_100_continue += 1;
                let mut block = Vec::new();
                self.encoder.status(100, &mut block);
                frame::frame(self.output(cx), kind::HEADERS, flag::END_HEADERS, id, &block);
            }
            stream.kept = Some(Box::new(Kept { fields: fields.clone(), content: Vec::new() }));
            self.streams.push(stream);
        }
        Ok(())
    }

    /// Takes content of a request, and answers a request that is complete.
    pub(super) fn content<S: Responder<File = F>>(
        &mut self,
        index: usize,
        bytes: &[u8],
        ends_stream: bool,
        cx: &mut Context<'_, '_, S>,
    ) -> Result<(), Fault> {
        let limits = &cx.http.settings.limits;
        let stream = &mut self.streams[index];
        stream.received += bytes.len() as u64;
        stream.ended = ends_stream;
        let has_too_much = stream.promised.is_some_and(|promised| stream.received > promised);
        let has_too_little =
            ends_stream && stream.promised.is_some_and(|promised| stream.received < promised);
        if has_too_much || has_too_little {
            return Err(Fault::Stream(stream.id, Code::Protocol));
        }
        if stream.received > limits.body_bytes {
            stream.unwanted = true;
            if matches!(stream.answer, Answer::Awaited) {
                let stream = self.streams.swap_remove(index);
                self.refuse(stream, Status::CONTENT_TOO_LARGE, cx);
            } else {
                self.end_if_complete(index, cx);
            }
            return Ok(());
        }
        if let Some(kept) = stream.kept.as_mut().filter(|_| limits.keep_body) {
            kept.content.extend_from_slice(bytes);
        }
        match ends_stream && stream.kept.is_some() {
            true => {
                let stream = self.streams.swap_remove(index);
                self.ask_kept(stream, cx);
            }
            false => self.end_if_complete(index, cx),
        }
        Ok(())
    }

    /// Asks the responder again for its pending answers.
    pub fn resume<S: Responder<File = F>>(&mut self, cx: &mut Context<'_, '_, S>) {
        let deferred: Vec<u32> = self.streams.iter().filter(|s| s.deferred).map(|s| s.id).collect();
        for id in deferred {
            if let Some(index) = self.streams.iter().position(|stream| stream.id == id) {
                let stream = self.streams.swap_remove(index);
                self.ask_kept(stream, cx);
            }
        }
        self.update_stage(cx);
    }

    /// Ends requests whose content is late: answers 408, or stops waiting for the rest of the content.
    pub(super) fn expire_contents<S: Responder<File = F>>(&mut self, cx: &mut Context<'_, '_, S>) {
        let due = cx.http.now.saturating_sub(cx.http.settings.timeouts.body);
        let is_late = |stream: &Stream<F>| !stream.ended && stream.started <= due;
        while let Some(index) = self.streams.iter().position(|s| is_late(s) && !s.unwanted) {
            cx.http.counts.timeouts_body += 1;
            self.streams[index].unwanted = true;
            if matches!(self.streams[index].answer, Answer::Awaited) {
                let stream = self.streams.swap_remove(index);
                self.refuse(stream, Status::REQUEST_TIMEOUT, cx);
            } else {
                self.end_if_complete(index, cx);
            }
        }
        self.update_stage(cx);
    }

    fn ask_kept<S: Responder<File = F>>(&mut self, mut stream: Stream<F>, cx: &mut Context<'_, '_, S>) {
        let Some(kept) = stream.kept.take() else { return };
        let mut slots = [http_semantics::Header { name: "", value: &[] }; MOST_FIELDS];
        match head::parse(&kept.fields, &mut slots, &cx.http.settings.limits) {
            Ok(mut head) => {
                (head.request.client, head.request.transport) = (cx.http.client, self.transport);
                head.request.body = &kept.content;
                self.ask(stream, &head.request, None, cx);
            }
            // A limit has become lower since the head arrived.
            Err(Refusal::Status(status)) => self.refuse(stream, status, cx),
            Err(Refusal::Malformed) => self.refuse(stream, Status::BAD_REQUEST, cx),
        }
        if let Some(stream) = self.streams.last_mut().filter(|stream| stream.deferred) {
            stream.kept.get_or_insert(kept);
        }
    }

    /// Asks the service. A request that must wait keeps a copy of `fields`.
    fn ask<S: Responder<File = F>>(
        &mut self,
        mut stream: Stream<F>,
        request: &Request<'_>,
        fields: Option<&Fields>,
        cx: &mut Context<'_, '_, S>,
    ) {
        match cx.http.service.respond_or_wait(request, cx.http.now) {
            Some(response) => self.respond(stream, response, request, cx),
            None => {
                stream.deferred = true;
                let keep = |fields: &Fields| Box::new(Kept { fields: fields.clone(), content: Vec::new() });
                stream.kept = fields.map(keep);
                self.streams.push(stream);
            }
        }
    }

    fn respond<S: Responder<File = F>>(
        &mut self,
        mut stream: Stream<F>,
        response: Response<F>,
        request: &Request<'_>,
        cx: &mut Context<'_, '_, S>,
    ) {
        cx.http.counts.requests += 1;
        self.requests += 1;
        let limit = cx.http.settings.limits.requests_per_connection;
        let is_last = !limit.allows(u64::from(self.requests) + 1);
        cx.http.counts.limit_requests_per_connection += u64::from(is_last && !self.going_away);
        if is_last || response.close {
            self.go_away(Code::NoError, cx);
        }
        let record = || Box::new(Record::new(Some(request), response.status, stream.started));
        stream.record = cx.http.log.is_some().then(record);
        self.answer(stream, response, cx);
    }

    /// Refuses a request before the service sees it.
    fn refuse<S: Responder<File = F>>(
        &mut self,
        mut stream: Stream<F>,
        status: Status,
        cx: &mut Context<'_, '_, S>,
    ) {
        cx.http.counts.refusal(status);
        // Its content could not be kept within its limits.
        stream.unwanted = true;
        let record = || Box::new(Record::new(None, status, stream.started));
        stream.record = cx.http.log.is_some().then(record);
        self.answer(stream, Response::error(status), cx);
    }

    fn answer<S: Responder<File = F>>(
        &mut self,
        mut stream: Stream<F>,
        response: Response<F>,
        cx: &mut Context<'_, '_, S>,
    ) {
        cx.http.counts.response(response.status);
        (stream.kept, stream.deferred) = (None, false);
        stream.answer = Answer::Whole(response);
        self.streams.push(stream);
    }
}
