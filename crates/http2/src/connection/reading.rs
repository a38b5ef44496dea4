//! Turns bytes into frames, and puts header blocks together.

use http_semantics::Responder;

use super::{Connection, Context, Stage};
use crate::block::Block;
use crate::floods::Flood;
use crate::frame::{self, Code, Fault, HEAD_BYTES, Head, PREFACE, flag, kind};
use crate::limits::{CONTINUATIONS, FRAME_BYTES};

impl<F> Connection<F> {
    /// Takes all bytes from the peer.
    pub fn receive<S: Responder<File = F>>(&mut self, bytes: &[u8], cx: &mut Context<'_, '_, S>) {
        cx.http.counts.received_bytes += bytes.len() as u64;
        let bytes = self.read_preface(bytes, cx);
        self.read_frames(bytes, cx);
        self.update_stage(cx);
    }

    /// Checks the preface, and returns the bytes after it.
    fn read_preface<'a, S: Responder<File = F>>(
        &mut self,
        bytes: &'a [u8],
        cx: &mut Context<'_, '_, S>,
    ) -> &'a [u8] {
        let (first, rest) = bytes.split_at(bytes.len().min(PREFACE.len() - self.preface));
        if self.stage == Stage::Open && !PREFACE[self.preface..].starts_with(first) {
            self.fail(Code::Protocol, cx);
        }
        self.preface += first.len();
        rest
    }

    fn read_frames<S: Responder<File = F>>(&mut self, mut bytes: &[u8], cx: &mut Context<'_, '_, S>) {
        while self.stage == Stage::Open && !bytes.is_empty() {
            if self.inbox.is_empty() {
                match self.read_frame(bytes, cx) {
                    Some(used) => bytes = &bytes[used..],
                    None if self.stage == Stage::Open => {
                        self.inbox = cx.http.buffers.take();
                        self.inbox.extend_from_slice(bytes);
                        return;
                    }
                    None => return,
                }
                continue;
            }
            let mut inbox = std::mem::take(&mut self.inbox);
            frame::top_up(&mut inbox, &mut bytes);
            match self.read_frame(&inbox, cx) {
                None if self.stage == Stage::Open => self.inbox = inbox,
                _ => cx.http.buffers.give(inbox),
            }
        }
    }

    /// Handles the frame at the beginning of `bytes`, and returns its length; `None` if it is incomplete.
    fn read_frame<S: Responder<File = F>>(
        &mut self,
        bytes: &[u8],
        cx: &mut Context<'_, '_, S>,
    ) -> Option<usize> {
        let head = Head::parse(bytes)?;
        // Every client begins with its SETTINGS (RFC 9113, 3.4).
        if !self.greeted && (head.kind != kind::SETTINGS || head.has(flag::ACK)) {
            self.fail(Code::Protocol, cx);
            return None;
        }
        if head.length > FRAME_BYTES {
            self.fail(Code::FrameSize, cx);
            return None;
        }
        let payload = bytes.get(HEAD_BYTES..HEAD_BYTES + head.length)?;
        match self.read_payload(&head, payload, cx) {
            Ok(()) => {}
            Err(Fault::Connection(code)) => self.fail(code, cx),
            Err(Fault::Stream(id, code)) => self.fail_stream(id, code, cx),
        }
        Some(HEAD_BYTES + head.length)
    }

    fn read_payload<S: Responder<File = F>>(
        &mut self,
        head: &Head,
        payload: &[u8],
        cx: &mut Context<'_, '_, S>,
    ) -> Result<(), Fault> {
        match (&self.block, head.kind) {
            (Some(block), kind::CONTINUATION) if block.stream == head.stream => {
                self.continue_block(head, payload, cx)
            }
            (Some(_), _) | (None, kind::CONTINUATION) => Err(Fault::Connection(Code::Protocol)),
            (None, kind::HEADERS) => self.begin_block(head, payload, cx),
            (None, _) => self.handle(head, payload, cx),
        }
    }

    fn begin_block<S: Responder<File = F>>(
        &mut self,
        head: &Head,
        payload: &[u8],
        cx: &mut Context<'_, '_, S>,
    ) -> Result<(), Fault> {
        if head.stream.is_multiple_of(2) {
            return Err(Fault::Connection(Code::Protocol));
        }
        let (bytes, depends_on_itself) = frame::block_part(head, payload).map_err(Fault::Connection)?;
        if head.has(flag::END_HEADERS) {
            self.complete_block(head.stream, head.has(flag::END_STREAM), bytes, cx)?;
        } else {
            self.block = Some(Block::begin(head, bytes));
        }
        match depends_on_itself {
            true => Err(Fault::Stream(head.stream, Code::Protocol)),
            false => Ok(()),
        }
    }

    fn continue_block<S: Responder<File = F>>(
        &mut self,
        head: &Head,
        payload: &[u8],
        cx: &mut Context<'_, '_, S>,
    ) -> Result<(), Fault> {
        let Some(mut block) = self.block.take() else { return Ok(()) };
        // One frame more than the list's limit, so that a list slightly too long is answered 431.
        let most = cx.http.settings.limits.head_bytes + FRAME_BYTES;
        let most_frames = CONTINUATIONS.max(most.div_ceil(FRAME_BYTES) as u32);
        let appended = block.append(payload, most, most_frames);
        appended.inspect_err(|_| cx.counts.http2_limit_header_block += 1)?;
        if head.has(flag::END_HEADERS) {
            return self.complete_block(block.stream, block.ends_stream, &block.bytes, cx);
        }
        self.block = Some(block);
        if payload.is_empty() { self.bound(Flood::EmptyFrames, cx) } else { Ok(()) }
    }

    fn complete_block<S: Responder<File = F>>(
        &mut self,
        id: u32,
        ends_stream: bool,
        bytes: &[u8],
        cx: &mut Context<'_, '_, S>,
    ) -> Result<(), Fault> {
        let mut fields = std::mem::take(&mut self.fields);
        fields.reset(cx.http.settings.limits.head_bytes);
        let outcome = match self.decoder.decode(bytes, &mut fields) {
            Ok(()) => self.handle_fields(id, ends_stream, &fields, cx),
            Err(_) => Err(Fault::Connection(Code::Compression)),
        };
        self.fields = fields;
        outcome
    }

    /// Charges a cheap frame to its bound.
    pub(super) fn bound<S: Responder<File = F>>(
        &mut self,
        flood: Flood,
        cx: &mut Context<'_, '_, S>,
    ) -> Result<(), Fault> {
        match self.floods.admit(flood, cx.http.now, cx.counts) {
            true => Ok(()),
            false => Err(Fault::Connection(Code::EnhanceYourCalm)),
        }
    }

    /// Ends the connection because of a mistake of the client.
    pub(super) fn fail<S: Responder<File = F>>(&mut self, code: Code, cx: &mut Context<'_, '_, S>) {
        cx.counts.http2_connection_errors += 1;
        self.end_with(code, cx);
    }

    /// Ends a stream because of a mistake of the client. Ends the connection if the client makes too many.
    fn fail_stream<S: Responder<File = F>>(&mut self, id: u32, code: Code, cx: &mut Context<'_, '_, S>) {
        cx.counts.http2_stream_errors += 1;
        self.reset(id, code, cx);
        if self.bound(Flood::Resets, cx).is_err() {
            self.fail(Code::EnhanceYourCalm, cx);
        }
    }
}
