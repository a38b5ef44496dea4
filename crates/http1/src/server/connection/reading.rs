//! Turns bytes into requests, and requests into queued responses.

use http_semantics::server::{Awaiting, Context, MOST_FIELDS, Record};
use http_semantics::{Body, Budget, Method, Multipart, Request, Responder, Response, Status, Version};

use super::super::incoming::Incoming;
use super::{Connection, Stage};
use crate::encode::{self, Persistence};
use crate::head::{self, Framing, Head};
use crate::head_syntax::HeadSyntax;
use crate::scan::LineEnds;

/// Number of fields that suffices for nearly every request. A head with more fields is tokenised a second
/// time.
const FEW_FIELDS: usize = 32;
/// Maximum empty lines before a request line: old clients send one after a body (RFC 9112, 2.2).
const EMPTY_LINES: u8 = 4;
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The content that has been read when a request's head is handled.
pub(super) enum Content<'a> {
    Unread { some_is_here: bool },
    Read(&'a [u8]),
}

impl<F> Connection<F> {
    pub(super) fn serve_inbox<S: Responder<File = F>>(&mut self, cx: &mut Context<'_, S>) {
        let inbox = std::mem::take(&mut self.inbox);
        let used = self.serve(inbox.pending(), cx);
        self.inbox = inbox;
        match self.stage {
            Stage::Open => self.inbox.consume(used, cx.buffers),
            _ => self.inbox.clear(cx.buffers),
        }
    }

    /// Serves the complete requests in `input`, within the limits on output. Returns the number of used
    /// bytes.
    pub(super) fn serve<S: Responder<File = F>>(&mut self, input: &[u8], cx: &mut Context<'_, S>) -> usize {
        let limits = &cx.settings.limits;
        let mut used = 0;
        let before = self.requests;
        while self.stage == Stage::Open && !self.deferred && used < input.len() {
            let one_more = u64::from(self.requests - before) + 1;
            if !limits.pipelined.allows(one_more) || !self.outbox.has_room(limits.outbox_bytes) {
                cx.counts.limit_pipelined += 1;
                return used;
            }
            let rest = &input[used..];
            let step = match self.incoming.take() {
                Some(incoming) => self.read_content(incoming, rest, cx),
                None => self.read_head(rest, cx),
            };
            match step {
                Some(count) => used += count,
                None => return used,
            }
        }
        if let Stage::Last { linger } = &mut self.stage {
            *linger |= used < input.len();
        }
        used
    }

    /// Returns the number of used bytes of `input`, or `None` if the head is incomplete.
    fn read_head<S: Responder<File = F>>(&mut self, input: &[u8], cx: &mut Context<'_, S>) -> Option<usize> {
        if input.starts_with(b"\r\n") {
            (self.scan, self.syntax) = Default::default();
            self.empty_lines += 1;
            if self.empty_lines > EMPTY_LINES {
                self.refuse(Status::BAD_REQUEST, input, cx);
            }
            return Some(2);
        }
        if self.awaiting != Awaiting::Head {
            self.started = cx.now;
        }
        let limits = &cx.settings.limits;
        let window = &input[..input.len().min(limits.head_bytes)];
        if let Ok(Some(end)) = self.scan.find_end(window, LineEnds::Crlf) {
            self.empty_lines = 0;
            self.syntax = HeadSyntax::default();
            let content = Content::Unread { some_is_here: end < input.len() };
            self.request(&input[..end], content, cx);
            return Some(end);
        }
        let status = match self.syntax.check(window, limits) {
            Err(status) => status,
            Ok(()) if window.len() < limits.head_bytes => return None,
            Ok(()) if self.syntax.in_request_line() => Status::URI_TOO_LONG,
            Ok(()) => Status::HEAD_TOO_LARGE,
        };
        self.refuse(status, input, cx);
        Some(input.len())
    }

    fn read_content<S: Responder<File = F>>(
        &mut self,
        mut incoming: Box<Incoming>,
        input: &[u8],
        cx: &mut Context<'_, S>,
    ) -> Option<usize> {
        match incoming.read(input, &cx.settings.limits) {
            Ok(count) if incoming.is_complete() => {
                if !incoming.answered {
                    self.request(&incoming.head, Content::Read(&incoming.content), cx);
                }
                Some(count)
            }
            Ok(count) => {
                self.incoming = Some(incoming);
                Some(count)
            }
            Err(status) => {
                self.refuse_content(status, &incoming, cx);
                Some(input.len())
            }
        }
    }

    /// Ends the connection because of a request's content. Sends a refusal unless the request has its answer.
    pub(super) fn refuse_content<S: Responder<File = F>>(
        &mut self,
        status: Status,
        incoming: &Incoming,
        cx: &mut Context<'_, S>,
    ) {
        if incoming.answered {
            self.stage = Stage::Last { linger: true };
        } else {
            self.refuse(status, &incoming.head, cx);
        }
    }

    /// Handles a complete head: answers the request, or begins to read its content.
    pub(super) fn request<S: Responder<File = F>>(
        &mut self,
        head: &[u8],
        content: Content<'_>,
        cx: &mut Context<'_, S>,
    ) {
        // The next event has a time limit of its own.
        self.awaiting = Awaiting::Nothing;
        let outcome = match self.try_request::<FEW_FIELDS, S>(head, &content, cx) {
            Err(Status::HEAD_TOO_LARGE) => self.try_request::<MOST_FIELDS, S>(head, &content, cx),
            outcome => outcome,
        };
        if let Err(status) = outcome {
            let syntax = HeadSyntax::default().check(head, &cx.settings.limits);
            self.refuse(syntax.err().unwrap_or(status), head, cx);
        }
    }

    fn try_request<const FIELDS: usize, S: Responder<File = F>>(
        &mut self,
        bytes: &[u8],
        content: &Content<'_>,
        cx: &mut Context<'_, S>,
    ) -> Result<(), Status> {
        let limits = &cx.settings.limits;
        let mut slots = [httparse::EMPTY_HEADER; FIELDS];
        let mut spare = String::new();
        let mut head = head::parse(bytes, &mut slots, &mut spare, limits)?;
        (head.request.client, head.request.transport) = (cx.client, self.transport);
        match content {
            Content::Unread { some_is_here } if head.framing != Framing::Empty => {
                let incoming = Box::new(Incoming::new(bytes, head.framing, limits)?);
                match cx.service.refuse_early(&head.request) {
                    Some(refusal) => self.answer_early(refusal, &head, incoming, cx),
                    None => {
                        self.incoming = Some(incoming);
                        if head.expects_continue && !some_is_here {
                            self.outbox.bytes(cx.buffers).extend_from_slice(CONTINUE);
                            cx.counts.responses_100_continue += 1;
                        }
                    }
                }
            }
            Content::Unread { .. } => self.answer(bytes, &head.request, head.persistent, cx),
            Content::Read(body) => {
                head.request.body = body;
                self.answer(bytes, &head.request, head.persistent, cx);
            }
        }
        Ok(())
    }

    /// Answers a request whose content has not arrived. The content is dropped as it arrives, within the
    /// limits on any content, and the next request follows it.
    fn answer_early<S: Responder<File = F>>(
        &mut self,
        mut refusal: Response<F>,
        head: &Head<'_>,
        mut incoming: Box<Incoming>,
        cx: &mut Context<'_, S>,
    ) {
        // After an answer other than 100 a client may omit its content, which would make the following bytes
        // ambiguous.
        refusal.close |= head.expects_continue;
        self.respond(refusal, &head.request, head.persistent, cx);
        if let Stage::Last { linger } = &mut self.stage {
            *linger = true;
            return;
        }
        incoming.answered = true;
        self.incoming = Some(incoming);
    }

    /// Answers the request, or keeps it until the responder can answer.
    fn answer<S: Responder<File = F>>(
        &mut self,
        head: &[u8],
        request: &Request<'_>,
        client_persists: bool,
        cx: &mut Context<'_, S>,
    ) {
        let Some(response) = cx.service.respond_or_wait(request, cx.now) else {
            self.deferred = true;
            self.incoming = Some(Box::new(Incoming::complete(head, request.body)));
            return;
        };
        self.respond(response, request, client_persists, cx);
    }

    /// Queues the service's answer, and decides if it is the connection's last.
    fn respond<S: Responder<File = F>>(
        &mut self,
        response: Response<F>,
        request: &Request<'_>,
        client_persists: bool,
        cx: &mut Context<'_, S>,
    ) {
        cx.counts.requests += 1;
        self.requests += 1;
        let may_serve_more = cx.settings.limits.requests_per_connection.allows(u64::from(self.requests) + 1);
        if !may_serve_more {
            cx.counts.limit_requests_per_connection += 1;
        }
        let we_persist = may_serve_more && !self.draining && !self.retiring && !response.close;
        let persistence = match request.version {
            _ if !client_persists || !we_persist => Persistence::Close,
            Version::Http10 => Persistence::KeepAlive,
            Version::Http11 | Version::Http2 => Persistence::Implied,
        };
        if persistence == Persistence::Close {
            // A client that asked for the end of the connection sends nothing after its request.
            self.stage = Stage::Last { linger: client_persists };
        }
        let record = cx.log.is_some().then(|| Record::new(Some(request), response.status, self.started));
        self.queue(response, request.method == Method::Head, persistence, record, cx);
    }

    /// Refuses a request and ends the connection, because the start of the next request is unknown or the
    /// peer is not worth serving. `head` is the received part of the request.
    pub(super) fn refuse<S: Responder<File = F>>(
        &mut self,
        status: Status,
        head: &[u8],
        cx: &mut Context<'_, S>,
    ) {
        self.refuse_with(Response::error(status), head, cx);
    }

    /// The same with a page of one's own.
    pub(super) fn refuse_with<S: Responder<File = F>>(
        &mut self,
        response: Response<F>,
        head: &[u8],
        cx: &mut Context<'_, S>,
    ) {
        let status = response.status;
        cx.counts.refusal(status);
        self.stage = Stage::Last { linger: true };
        let record = cx.log.is_some().then(|| Record::new(None, status, self.started));
        let is_head = head.starts_with(b"HEAD ");
        self.queue(response, is_head, Persistence::Close, record, cx);
    }

    fn queue<S: Responder<File = F>>(
        &mut self,
        mut response: Response<F>,
        without_body: bool,
        persistence: Persistence,
        record: Option<Record>,
        cx: &mut Context<'_, S>,
    ) {
        cx.counts.response(response.status);
        let before = self.outbox.pending();
        let multipart = match std::mem::replace(&mut response.body, Body::Absent) {
            Body::Parts(parts) => Some(Multipart::new(parts, cx.now, cx.counts.requests)),
            body => {
                response.body = body;
                None
            }
        };
        let bytes = self.outbox.bytes(cx.buffers);
        encode::head(bytes, &response, multipart.as_ref(), persistence, cx.date);
        let head_end = self.outbox.pending();
        if !without_body && !response.status.is_bodiless() {
            match multipart {
                Some(parts) => self.outbox.push_parts(parts),
                None => self.outbox.push_body(response.body),
            }
        }
        let end = self.outbox.pending();
        cx.counts.body_bytes += end - head_end;
        if let Some(mut budget) = response.pace.and_then(|pace| Budget::new(pace, end - head_end, cx.now)) {
            budget.exempt(head_end);
            self.outbox.pace(budget);
        }
        if let Some(mut record) = record {
            record.head = head_end - before;
            record.length = end - before;
            self.unsent.get_or_insert_default().push(record, end);
        }
    }
}
