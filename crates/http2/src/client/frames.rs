//! The effect of each frame from the server (RFC 9113, section 6).

use super::{Broken, Connection, End, Event, reply};
use crate::block::Block;
use crate::frame::{self, Code, Fault, HEAD_BYTES, Head, MOST_WINDOW, flag, kind, number, setting, unpadded};
use crate::limits::{
    CLIENT_OUTPUT_BYTES, CLIENT_WINDOW_BYTES, CONTINUATIONS, FRAME_BYTES, RESPONSE_HEAD_BYTES,
};

impl<T: Copy + PartialEq> Connection<T> {
    pub(super) fn read_frames(
        &mut self,
        mut bytes: &[u8],
        tell: &mut impl FnMut(Event<'_, T>),
    ) -> Result<(), Broken> {
        while !bytes.is_empty() {
            if self.inbox.is_empty() {
                let Some(used) = self.read_frame(bytes, tell)? else {
                    self.inbox.extend_from_slice(bytes);
                    break;
                };
                bytes = &bytes[used..];
                continue;
            }
            let mut inbox = std::mem::take(&mut self.inbox);
            frame::top_up(&mut inbox, &mut bytes);
            if self.read_frame(&inbox, tell)?.is_some() {
                inbox.clear();
            }
            self.inbox = inbox;
        }
        Ok(())
    }

    /// Handles the frame at the beginning of `bytes`, and returns its length; `None` if it is incomplete.
    fn read_frame(
        &mut self,
        bytes: &[u8],
        tell: &mut impl FnMut(Event<'_, T>),
    ) -> Result<Option<usize>, Broken> {
        let Some(head) = Head::parse(bytes) else { return Ok(None) };
        // Every server begins with its SETTINGS (RFC 9113, 3.4).
        if !self.greeted && (head.kind != kind::SETTINGS || head.has(flag::ACK)) {
            return Err(Broken::NotHttp2);
        }
        let outcome = match head.length {
            ..=FRAME_BYTES => {
                let Some(payload) = bytes.get(HEAD_BYTES..HEAD_BYTES + head.length) else { return Ok(None) };
                self.handle(&head, payload, tell)
            }
            _ => Err(Fault::Connection(Code::FrameSize)),
        };
        let fault = match outcome {
            Ok(()) if self.output().len() > CLIENT_OUTPUT_BYTES => Code::EnhanceYourCalm,
            Ok(()) => return Ok(Some(HEAD_BYTES + head.length)),
            Err(Fault::Connection(code)) => code,
            Err(Fault::Stream(id, code)) => {
                self.fail_stream(id, code, tell);
                return Ok(Some(HEAD_BYTES + head.length));
            }
        };
        self.write_goaway(fault);
        Err(Broken::Mistake)
    }

    fn handle(
        &mut self,
        head: &Head,
        payload: &[u8],
        tell: &mut impl FnMut(Event<'_, T>),
    ) -> Result<(), Fault> {
        match (&self.block, head.kind) {
            (Some(block), kind::CONTINUATION) if block.stream == head.stream => {
                return self.continue_block(head, payload, tell);
            }
            (Some(_), _) | (None, kind::CONTINUATION) => return Err(Fault::Connection(Code::Protocol)),
            (None, _) => {}
        }
        let of_connection = matches!(head.kind, kind::SETTINGS | kind::PING | kind::GOAWAY);
        if of_connection && head.stream != 0 {
            return Err(Fault::Connection(Code::Protocol));
        }
        match head.kind {
            kind::DATA => self.data(head, payload, tell),
            kind::HEADERS => self.begin_block(head, payload, tell),
            kind::RST_STREAM => self.rst_stream(head, payload, tell),
            kind::SETTINGS => self.settings(head, payload).map_err(Fault::Connection),
            kind::PUSH_PROMISE => Err(Fault::Connection(Code::Protocol)),
            kind::PING if payload.len() != 8 => Err(Fault::Connection(Code::FrameSize)),
            kind::PING => {
                if !head.has(flag::ACK) {
                    frame::frame(&mut self.out, kind::PING, flag::ACK, 0, payload);
                }
                Ok(())
            }
            kind::GOAWAY => self.goaway(payload, tell),
            kind::WINDOW_UPDATE => self.window_update(head, payload),
            _ => Ok(()),
        }
    }

    /// The place of a stream; `None` for one that has ended.
    fn place(&self, id: u32) -> Result<Option<usize>, Fault> {
        if id.is_multiple_of(2) || id >= self.next {
            return Err(Fault::Connection(Code::Protocol));
        }
        Ok(self.streams.binary_search_by_key(&id, |stream| stream.id).ok())
    }

    fn begin_block(
        &mut self,
        head: &Head,
        payload: &[u8],
        tell: &mut impl FnMut(Event<'_, T>),
    ) -> Result<(), Fault> {
        self.place(head.stream)?;
        let (bytes, _) = frame::block_part(head, payload).map_err(Fault::Connection)?;
        if head.has(flag::END_HEADERS) {
            return self.complete_block(head.stream, head.has(flag::END_STREAM), bytes, tell);
        }
        self.block = Some(Block::begin(head, bytes));
        Ok(())
    }

    fn continue_block(
        &mut self,
        head: &Head,
        payload: &[u8],
        tell: &mut impl FnMut(Event<'_, T>),
    ) -> Result<(), Fault> {
        let Some(mut block) = self.block.take() else { return Ok(()) };
        block.append(payload, RESPONSE_HEAD_BYTES, CONTINUATIONS)?;
        if head.has(flag::END_HEADERS) {
            return self.complete_block(block.stream, block.ends_stream, &block.bytes, tell);
        }
        self.block = Some(block);
        Ok(())
    }

    /// Decodes a block, even of a stream that has ended, because the decoder's table depends on it.
    fn complete_block(
        &mut self,
        id: u32,
        ends_stream: bool,
        bytes: &[u8],
        tell: &mut impl FnMut(Event<'_, T>),
    ) -> Result<(), Fault> {
        self.fields.reset(RESPONSE_HEAD_BYTES);
        let decoded = self.decoder.decode(bytes, &mut self.fields);
        decoded.map_err(|_| Fault::Connection(Code::Compression))?;
        let Some(index) = self.place(id)? else { return Ok(()) };
        let stream = &mut self.streams[index];
        let malformed = Fault::Stream(id, Code::Protocol);
        if stream.head.is_some() {
            let are_trailers = ends_stream && crate::head::are_trailers(&self.fields);
            return if are_trailers { self.complete(index, tell) } else { Err(malformed) };
        }
        match reply::head(&self.fields) {
            Some(head) if head.status >= 200 => stream.head = Some(head),
            // An interim response. HTTP/2 has no 101 (RFC 9113, 8.6).
            Some(head) if head.status != 101 && !ends_stream => {}
            _ => return Err(malformed),
        }
        if ends_stream {
            return self.complete(index, tell);
        }
        let stream = &self.streams[index];
        if stream.head.is_some() {
            tell(Event::Head(stream.tag));
        }
        Ok(())
    }

    fn data(
        &mut self,
        head: &Head,
        payload: &[u8],
        tell: &mut impl FnMut(Event<'_, T>),
    ) -> Result<(), Fault> {
        let place = self.place(head.stream)?;
        let bytes = unpadded(head, payload).map_err(Fault::Connection)?;
        let length = payload.len() as u32;
        self.credit = self.credit.checked_sub(length).ok_or(Fault::Connection(Code::FlowControl))?;
        give_credit(&mut self.credit, 0, &mut self.out);
        // The stream was reset while this frame was under way.
        let Some(index) = place else { return Ok(()) };
        let (stream, ends_stream) = (&mut self.streams[index], head.has(flag::END_STREAM));
        stream.credit =
            stream.credit.checked_sub(length).ok_or(Fault::Stream(stream.id, Code::FlowControl))?;
        stream.received += bytes.len() as u64;
        let fits = |head: &reply::Head| head.length.is_none_or(|length| stream.received <= length);
        if !stream.head.as_ref().is_some_and(fits) || (stream.answers_head && !bytes.is_empty()) {
            return Err(Fault::Stream(stream.id, Code::Protocol));
        }
        if !bytes.is_empty() {
            tell(Event::Content(stream.tag, bytes));
        }
        if ends_stream {
            return self.complete(index, tell);
        }
        give_credit(&mut stream.credit, stream.id, &mut self.out);
        Ok(())
    }

    /// Ends a stream whose reply is complete.
    fn complete(&mut self, index: usize, tell: &mut impl FnMut(Event<'_, T>)) -> Result<(), Fault> {
        let stream = &self.streams[index];
        let Some(reply) = reply::of(stream) else { return Err(Fault::Stream(stream.id, Code::Protocol)) };
        let stream = self.streams.remove(index);
        if !stream.content.is_empty() {
            // The server has answered before it took the whole request.
            self.reset(stream.id, Code::Cancel);
        }
        tell(Event::Ended(stream.tag, End::Reply(reply)));
        Ok(())
    }

    fn fail_stream(&mut self, id: u32, code: Code, tell: &mut impl FnMut(Event<'_, T>)) {
        if let Ok(Some(index)) = self.place(id) {
            let stream = self.streams.remove(index);
            self.reset(id, code);
            tell(Event::Ended(stream.tag, End::Malformed));
        }
    }

    fn rst_stream(
        &mut self,
        head: &Head,
        payload: &[u8],
        tell: &mut impl FnMut(Event<'_, T>),
    ) -> Result<(), Fault> {
        if payload.len() != 4 {
            return Err(Fault::Connection(Code::FrameSize));
        }
        if let Some(index) = self.place(head.stream)? {
            let stream = self.streams.remove(index);
            tell(Event::Ended(stream.tag, End::Reset));
        }
        Ok(())
    }

    fn settings(&mut self, head: &Head, payload: &[u8]) -> Result<(), Code> {
        let is_ack = head.has(flag::ACK);
        if (is_ack && !payload.is_empty()) || !payload.len().is_multiple_of(6) {
            return Err(Code::FrameSize);
        }
        if is_ack {
            return Ok(());
        }
        self.greeted = true;
        for (id, value) in frame::settings(payload) {
            match (id, value) {
                (setting::ENABLE_PUSH, 1..) | (setting::NO_RFC7540_PRIORITIES, 2..) => {
                    return Err(Code::Protocol);
                }
                (setting::MAX_CONCURRENT_STREAMS, most) => self.most_streams = most,
                (setting::INITIAL_WINDOW_SIZE, _) => self.set_initial_window(i64::from(value))?,
                (setting::MAX_FRAME_SIZE, _) if !(FRAME_BYTES as u32..1 << 24).contains(&value) => {
                    return Err(Code::Protocol);
                }
                _ => {}
            }
        }
        frame::frame(&mut self.out, kind::SETTINGS, flag::ACK, 0, &[]);
        Ok(())
    }

    /// Changes the windows of all streams; a smaller one may make them negative (RFC 9113, 6.9.2).
    fn set_initial_window(&mut self, window: i64) -> Result<(), Code> {
        let change = window - self.initial_window;
        self.initial_window = window;
        self.streams.iter_mut().for_each(|stream| stream.window += change);
        let is_too_large = self.streams.iter().any(|stream| stream.window > MOST_WINDOW);
        if window > MOST_WINDOW || is_too_large { Err(Code::FlowControl) } else { Ok(()) }
    }

    fn goaway(&mut self, payload: &[u8], tell: &mut impl FnMut(Event<'_, T>)) -> Result<(), Fault> {
        let last =
            number(payload).filter(|_| payload.len() >= 8).ok_or(Fault::Connection(Code::FrameSize))?;
        let last = last & (u32::MAX >> 1);
        self.going_away = true;
        while let Some(stream) = self.streams.pop_if(|stream| stream.id > last) {
            tell(Event::Ended(stream.tag, End::Unprocessed));
        }
        Ok(())
    }

    fn window_update(&mut self, head: &Head, payload: &[u8]) -> Result<(), Fault> {
        let more = frame::increment(payload).map_err(Fault::Connection)?;
        if head.stream == 0 {
            return frame::widen(&mut self.window, more).map_err(Fault::Connection);
        }
        let Some(index) = self.place(head.stream)? else { return Ok(()) };
        frame::widen(&mut self.streams[index].window, more).map_err(|code| Fault::Stream(head.stream, code))
    }
}

/// Gives the server its whole credit again when half of it is used.
fn give_credit(credit: &mut u32, stream: u32, out: &mut Vec<u8>) {
    if *credit < CLIENT_WINDOW_BYTES / 2 {
        let more = CLIENT_WINDOW_BYTES - *credit;
        *credit = CLIENT_WINDOW_BYTES;
        frame::frame(out, kind::WINDOW_UPDATE, 0, stream, &more.to_be_bytes());
    }
}
