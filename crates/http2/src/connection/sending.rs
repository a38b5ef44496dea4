//! Queues responses as priorities, windows and the room in memory allow, and ends streams.

use http_semantics::server::LEAST_PROGRESS_BYTES;
use http_semantics::{Body, Budget, FileRange, Multipart, Responder, Response};

use super::{Connection, Context, Stage, Transmit};
use crate::frame::{self, Code, flag, kind};
use crate::hpack::{content_length, field};
use crate::limits::{FRAME_BYTES, LEAST_DATA_BYTES};
use crate::stream::{Answer, Payload, Stream};

impl<F> Connection<F> {
    /// The next bytes to send.
    pub fn transmit(&self) -> Transmit<'_> {
        match &self.out[self.sent..] {
            [] => Transmit::Nothing,
            bytes => Transmit::Bytes(bytes),
        }
    }

    /// Records that the transport took the first `count` bytes of [`Connection::transmit`].
    ///
    /// # Panics
    /// If `count` exceeds them.
    pub fn transmitted<S: Responder<File = F>>(&mut self, count: u64, cx: &mut Context<'_, '_, S>) {
        if count == 0 {
            return;
        }
        cx.http.counts.sent_bytes += count;
        self.sent += count as usize;
        assert!(self.sent <= self.out.len(), "sent more than there was");
        if let (Some(unsent), Some(log)) = (&mut self.unsent, &mut cx.http.log) {
            unsent.advance(count, cx.http.now, *log);
            if unsent.is_empty() {
                self.unsent = None;
            }
        }
        self.moved += count;
        let all_left = self.sent == self.out.len();
        if all_left || self.moved >= LEAST_PROGRESS_BYTES {
            self.deadline = cx.http.now.saturating_add(cx.http.settings.timeouts.write_stall);
            self.moved = 0;
        }
        if all_left {
            self.sent = 0;
            self.out.clear();
            self.update_stage(cx);
            if self.out.is_empty() {
                cx.http.buffers.give(std::mem::take(&mut self.out));
            }
        } else if self.sent >= cx.http.settings.limits.outbox_bytes / 2 {
            // Not at each call, because moving what waits takes time.
            self.out.drain(..std::mem::take(&mut self.sent));
        }
    }

    /// The part of a file to be read next.
    pub fn file_part(&self) -> Option<FileRange<F>>
    where
        F: Clone,
    {
        let stream = self.streams.iter().find(|stream| Some(stream.id) == self.file_turn)?;
        let Answer::Rest(payload) = &stream.answer else { return None };
        let range = payload.file.as_ref()?;
        let length = self.allowed(stream, range.length);
        Some(FileRange { file: range.file.clone(), offset: range.offset, length })
    }

    /// Takes the first bytes of [`Connection::file_part`]. Empty bytes mean that the file has become shorter than the
    /// promised length, so the stream is reset.
    ///
    /// # Panics
    /// If there are more bytes than the part has.
    pub fn supply<S: Responder<File = F>>(&mut self, bytes: &[u8], cx: &mut Context<'_, '_, S>) {
        let turn = self.file_turn.take();
        let Some(index) = self.streams.iter().position(|stream| Some(stream.id) == turn) else { return };
        assert!(
            bytes.len() as u64 <= self.allowed(&self.streams[index], u64::MAX),
            "more than was asked for"
        );
        if bytes.is_empty() {
            cx.http.counts.truncated += 1;
            let id = self.streams[index].id;
            self.reset(id, Code::Internal, cx);
        } else {
            self.queue_data(index, bytes, cx);
        }
        self.update_stage(cx);
    }

    /// Bytes of `length` that one frame of this stream may have now.
    fn allowed(&self, stream: &Stream<F>, length: u64) -> u64 {
        length.min(stream.room(self.window, self.least_data())).min(FRAME_BYTES as u64)
    }

    /// Minimum bytes of a frame that does not end its content.
    fn least_data(&self) -> u64 {
        // A client that has shut down its sending side grants no more window.
        if self.sends_small || self.peer_ended {
            return 1;
        }
        LEAST_DATA_BYTES.min(self.initial_window as u64 / 2)
    }

    /// True if the pace and the client's windows allow the next output.
    fn can_send(&self, stream: &Stream<F>) -> bool {
        matches!(stream.answer, Answer::Whole(..)) || stream.room(self.window, self.least_data()) > 0
    }

    /// True if content waits because the windows allow only a little.
    pub(super) fn is_held_back(&self) -> bool {
        self.streams.iter().any(|stream| !self.can_send(stream) && stream.room(self.window, 1) > 0)
    }

    /// Queues output until its limit is reached, windows or paces hold the rest back, or a file is to be read.
    pub(super) fn queue_output<S: Responder<File = F>>(&mut self, cx: &mut Context<'_, '_, S>) {
        self.file_turn = None;
        if !matches!(self.stage, Stage::Open | Stage::Last) {
            return;
        }
        let mut same = None;
        while self.out.len() - self.sent < cx.http.settings.limits.outbox_bytes {
            let Some(index) = same.take().or_else(|| self.next_stream()) else { return };
            self.turn += 1;
            let id = self.streams[index].id;
            self.streams[index].turn = self.turn;
            let answer = std::mem::replace(&mut self.streams[index].answer, Answer::Queued);
            match answer {
                Answer::Whole(response) => {
                    self.queue_head(index, response, cx);
                    // A stream that is not incremental stays the next one until it ends.
                    let goes_on = |stream: &Stream<F>| {
                        stream.id == id && !stream.priority.incremental && self.can_send(stream)
                    };
                    same = self.streams.get(index).is_some_and(goes_on).then_some(index);
                }
                Answer::Rest(payload) if payload.bytes.is_empty() => {
                    self.file_turn = Some(self.streams[index].id);
                    self.streams[index].answer = Answer::Rest(payload);
                    return;
                }
                Answer::Rest(payload) => {
                    let bytes = payload.bytes.clone();
                    self.streams[index].answer = Answer::Rest(payload);
                    let count = self.allowed(&self.streams[index], bytes.len() as u64);
                    self.queue_data(index, &bytes[..count as usize], cx);
                }
                Answer::Awaited | Answer::Queued => {}
            }
        }
    }

    /// Returns the stream to serve next (RFC 9218, 10): the most urgent one. Among equally urgent streams, those that
    /// are not incremental come first, by number; then the incremental one that was served longest ago.
    fn next_stream(&self) -> Option<usize> {
        let ready = self.streams.iter().enumerate().filter(|(_, stream)| self.can_send(stream));
        let order = |stream: &Stream<F>| {
            let incremental = stream.priority.incremental;
            (stream.priority.urgency, incremental, if incremental { stream.turn } else { 0 }, stream.id)
        };
        ready.min_by_key(|(_, stream)| order(stream)).map(|(index, _)| index)
    }

    fn queue_head<S: Responder<File = F>>(
        &mut self,
        index: usize,
        mut response: Response<F>,
        cx: &mut Context<'_, '_, S>,
    ) {
        let body = std::mem::replace(&mut response.body, Body::Absent);
        let (body, parts) = match body {
            Body::Parts(parts) => {
                (Body::Absent, Some(Multipart::new(parts, cx.http.now, cx.http.counts.requests)))
            }
            body => (body, None),
        };
        let length = parts.as_ref().map_or_else(|| body.length(), Multipart::pending);
        let block = self.encode(&response, parts.as_ref(), length, cx);
        let Stream { id, is_head, .. } = self.streams[index];
        let has_content = length > 0 && !is_head && !response.status.is_bodiless();
        let before = self.output(cx).len();
        let mut chunks = block.chunks(FRAME_BYTES).peekable();
        let (mut kind, mut flags) = (kind::HEADERS, if has_content { 0 } else { flag::END_STREAM });
        while let Some(chunk) = chunks.next() {
            flags |= if chunks.peek().is_none() { flag::END_HEADERS } else { 0 };
            frame::frame(&mut self.out, kind, flags, id, chunk);
            (kind, flags) = (kind::CONTINUATION, 0);
        }
        cx.http.buffers.give(block);
        let stream = &mut self.streams[index];
        stream.queued = (self.out.len() - before) as u64;
        if let Some(record) = &mut stream.record {
            record.head = stream.queued;
        }
        if has_content {
            cx.http.counts.body_bytes += length;
            stream.budget = response.pace.and_then(|pace| Budget::new(pace, length, cx.http.now));
            stream.answer = Answer::Rest(Payload::new(body, parts));
        } else {
            self.end_if_complete(index, cx);
        }
    }

    fn encode<S: Responder<File = F>>(
        &mut self,
        response: &Response<F>,
        parts: Option<&Multipart<F>>,
        length: u64,
        cx: &mut Context<'_, '_, S>,
    ) -> Vec<u8> {
        let mut block = cx.http.buffers.take();
        self.encoder.status(response.status.0, &mut block);
        field(b"date", cx.http.date.value(), &mut block);
        for line in response.fields.split(|byte| *byte == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if let Some(colon) = line.iter().position(|byte| *byte == b':') {
                field(&line[..colon], line[colon + 1..].trim_ascii(), &mut block);
            }
        }
        if let Some(parts) = parts {
            let value = [b"multipart/byteranges; boundary=".as_slice(), parts.boundary()].concat();
            field(b"content-type", &value, &mut block);
        }
        if !response.status.is_bodiless() {
            content_length(length, &mut block);
        }
        block
    }

    /// Queues bytes at the beginning of a stream's payload as one frame.
    fn queue_data<S: Responder<File = F>>(
        &mut self,
        index: usize,
        bytes: &[u8],
        cx: &mut Context<'_, '_, S>,
    ) {
        let count = bytes.len() as u64;
        let stream = &mut self.streams[index];
        let Answer::Rest(payload) = &mut stream.answer else { return };
        payload.advance(count);
        let is_last = payload.left() == 0;
        if is_last {
            stream.answer = Answer::Queued;
        }
        stream.window -= count as i64;
        stream.budget.iter_mut().for_each(|budget| budget.spend(count));
        stream.queued += frame::HEAD_BYTES as u64 + count;
        if let Some(record) = &mut stream.record {
            record.head += frame::HEAD_BYTES as u64;
        }
        self.window -= count as i64;
        self.floods.sent(count, is_last);
        let (id, flags) = (stream.id, if is_last { flag::END_STREAM } else { 0 });
        self.content_moved(index, count, cx.http.now);
        frame::frame(self.output(cx), kind::DATA, flags, id, bytes);
        if is_last {
            self.end_if_complete(index, cx);
        }
    }

    /// Logs a response that is queued, and ends its stream if the request has ended or its rest is not wanted.
    pub(super) fn end_if_complete<S: Responder<File = F>>(
        &mut self,
        index: usize,
        cx: &mut Context<'_, '_, S>,
    ) {
        let pending = (self.out.len() - self.sent) as u64;
        let stream = &mut self.streams[index];
        if !matches!(stream.answer, Answer::Queued) {
            return;
        }
        if let Some(mut record) = stream.record.take() {
            record.length = stream.queued;
            self.unsent.get_or_insert_default().push(*record, pending);
        }
        if stream.ended {
            self.remove(index, false, cx);
        } else if stream.unwanted {
            let id = stream.id;
            self.reset(id, Code::NoError, cx);
        }
    }

    /// Resets a stream.
    pub(super) fn reset<S: Responder<File = F>>(&mut self, id: u32, code: Code, cx: &mut Context<'_, '_, S>) {
        frame::frame(self.output(cx), kind::RST_STREAM, 0, id, &(code as u32).to_be_bytes());
        self.skipped = self.skipped.max(id);
        match self.streams.iter().position(|stream| stream.id == id) {
            Some(index) => self.remove(index, true, cx),
            None => self.remember(id, true),
        }
    }

    /// Removes a stream that has ended, and logs a response that is cut.
    pub(super) fn remove<S: Responder<File = F>>(
        &mut self,
        index: usize,
        we_reset_it: bool,
        cx: &mut Context<'_, '_, S>,
    ) {
        let stream = self.streams.swap_remove(index);
        self.started = cx.http.now;
        self.remember(stream.id, we_reset_it);
        let left = stream.left();
        if let (Some(record), Some(log)) = (stream.record, &mut cx.http.log) {
            record.report_cut(stream.queued, left, cx.http.now, *log);
        }
    }

    /// Drops all streams.
    pub(super) fn drop_streams<S: Responder<File = F>>(&mut self, cx: &mut Context<'_, '_, S>) {
        while !self.streams.is_empty() {
            self.remove(self.streams.len() - 1, true, cx);
        }
        self.block = None;
        self.file_turn = None;
    }
}
