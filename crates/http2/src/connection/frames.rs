//! Every frame's effect, except that of HEADERS and CONTINUATION (RFC 9113, section 6; RFC 9218, section 7).

use http_semantics::Responder;

use super::{Connection, Context};
use crate::floods::Flood;
use crate::frame::{self, Code, Fault, Head, MOST_WINDOW, flag, kind, number, setting, unpadded};
use crate::limits::{EARLY_PRIORITIES, FRAME_BYTES, REMEMBERED_STREAMS, WINDOW_BYTES};
use crate::priority::Priority;

/// A stream without an entry: never opened, ended, or reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Past {
    /// It has not begun.
    Idle,
    /// The client or its response ended it.
    Ended,
    /// We reset it, or it came after our GOAWAY: its frames may have been under way.
    Reset,
    /// It ended long ago, or the client left its number out.
    Forgotten,
}

impl<F> Connection<F> {
    pub(super) fn handle<S: Responder<File = F>>(
        &mut self,
        head: &Head,
        payload: &[u8],
        cx: &mut Context<'_, '_, S>,
    ) -> Result<(), Fault> {
        let of_connection =
            matches!(head.kind, kind::SETTINGS | kind::PING | kind::GOAWAY | kind::PRIORITY_UPDATE);
        let of_stream = matches!(head.kind, kind::DATA | kind::PRIORITY | kind::RST_STREAM);
        if (of_connection && head.stream != 0) || (of_stream && head.stream == 0) {
            return Err(Fault::Connection(Code::Protocol));
        }
        match head.kind {
            kind::DATA => self.data(head, payload, cx),
            kind::PRIORITY => self.priority(head, payload, cx),
            kind::RST_STREAM => self.rst_stream(head, payload, cx),
            kind::SETTINGS => self.settings(head, payload, cx),
            kind::PUSH_PROMISE => Err(Fault::Connection(Code::Protocol)),
            kind::PING => self.ping(head, payload, cx),
            kind::GOAWAY if payload.len() < 8 => Err(Fault::Connection(Code::FrameSize)),
            // The client opens no further streams, or closes when it has its responses.
            kind::GOAWAY => Ok(()),
            kind::WINDOW_UPDATE => self.window_update(head, payload, cx),
            kind::PRIORITY_UPDATE => self.priority_update(payload, cx),
            _ => self.bound(Flood::EmptyFrames, cx),
        }
    }

    /// The past of a stream that has no entry.
    pub(super) fn past(&self, id: u32) -> Past {
        if id > self.last.max(self.skipped) || id.is_multiple_of(2) {
            return Past::Idle;
        }
        if id > self.last {
            return Past::Reset;
        }
        match self.ended.iter().find(|(ended, _)| *ended == id) {
            Some((_, true)) => Past::Reset,
            Some((_, false)) => Past::Ended,
            None => Past::Forgotten,
        }
    }

    /// Remembers a stream that has ended.
    pub(super) fn remember(&mut self, id: u32, we_reset_it: bool) {
        if self.ended.len() == REMEMBERED_STREAMS {
            self.ended.pop_front();
        }
        self.ended.push_back((id, we_reset_it));
    }

    fn data<S: Responder<File = F>>(
        &mut self,
        head: &Head,
        payload: &[u8],
        cx: &mut Context<'_, '_, S>,
    ) -> Result<(), Fault> {
        let bytes = unpadded(head, payload).map_err(Fault::Connection)?;
        if self.past(head.stream) == Past::Idle {
            return Err(Fault::Connection(Code::Protocol));
        }
        let length = payload.len() as u32;
        self.credit = self.credit.checked_sub(length).ok_or(Fault::Connection(Code::FlowControl))?;
        if self.credit < WINDOW_BYTES / 2 {
            let more = WINDOW_BYTES - self.credit;
            self.credit = WINDOW_BYTES;
            frame::frame(self.output(cx), kind::WINDOW_UPDATE, 0, 0, &more.to_be_bytes());
        }
        let ends_stream = head.has(flag::END_STREAM);
        if bytes.is_empty() && !ends_stream {
            self.bound(Flood::EmptyFrames, cx)?;
        }
        let Some(index) = self.streams.iter().position(|stream| stream.id == head.stream) else {
            return match self.past(head.stream) {
                Past::Reset => Ok(()),
                _ => Err(Fault::Stream(head.stream, Code::StreamClosed)),
            };
        };
        let stream = &mut self.streams[index];
        if stream.ended {
            return Err(Fault::Stream(head.stream, Code::StreamClosed));
        }
        stream.credit =
            stream.credit.checked_sub(length).ok_or(Fault::Stream(stream.id, Code::FlowControl))?;
        if !ends_stream && stream.credit < WINDOW_BYTES / 2 {
            let (id, more) = (stream.id, WINDOW_BYTES - stream.credit);
            stream.credit = WINDOW_BYTES;
            frame::frame(self.output(cx), kind::WINDOW_UPDATE, 0, id, &more.to_be_bytes());
        }
        self.content(index, bytes, ends_stream, cx)
    }

    /// Checks a PRIORITY frame, which has no other effect (RFC 9113, 5.3.2).
    fn priority<S: Responder<File = F>>(
        &mut self,
        head: &Head,
        payload: &[u8],
        cx: &mut Context<'_, '_, S>,
    ) -> Result<(), Fault> {
        self.bound(Flood::Priorities, cx)?;
        let code = match number(payload).filter(|_| payload.len() == 5) {
            None => Code::FrameSize,
            Some(dependency) if dependency & (u32::MAX >> 1) == head.stream => Code::Protocol,
            Some(_) => return Ok(()),
        };
        // RST_STREAM must not name a stream that has not begun (RFC 9113, 6.4).
        match self.past(head.stream) {
            Past::Idle => Err(Fault::Connection(code)),
            _ => Err(Fault::Stream(head.stream, code)),
        }
    }

    fn rst_stream<S: Responder<File = F>>(
        &mut self,
        head: &Head,
        payload: &[u8],
        cx: &mut Context<'_, '_, S>,
    ) -> Result<(), Fault> {
        if payload.len() != 4 {
            return Err(Fault::Connection(Code::FrameSize));
        }
        if self.past(head.stream) == Past::Idle {
            return Err(Fault::Connection(Code::Protocol));
        }
        cx.counts.http2_resets += 1;
        if let Some(index) = self.streams.iter().position(|stream| stream.id == head.stream) {
            self.remove(index, false, cx);
        }
        self.bound(Flood::Resets, cx)
    }

    fn settings<S: Responder<File = F>>(
        &mut self,
        head: &Head,
        payload: &[u8],
        cx: &mut Context<'_, '_, S>,
    ) -> Result<(), Fault> {
        let is_ack = head.has(flag::ACK);
        if (is_ack && !payload.is_empty()) || !payload.len().is_multiple_of(6) {
            return Err(Fault::Connection(Code::FrameSize));
        }
        self.bound(Flood::Settings, cx)?;
        if is_ack {
            return Ok(());
        }
        self.greeted = true;
        for (id, value) in frame::settings(payload) {
            match (id, value) {
                (setting::ENABLE_PUSH | setting::NO_RFC7540_PRIORITIES, 2..) => {
                    return Err(Fault::Connection(Code::Protocol));
                }
                (setting::INITIAL_WINDOW_SIZE, _) => self.set_initial_window(i64::from(value))?,
                // We send no larger frames than every client takes.
                (setting::MAX_FRAME_SIZE, _) if !(FRAME_BYTES as u32..1 << 24).contains(&value) => {
                    return Err(Fault::Connection(Code::Protocol));
                }
                _ => {}
            }
        }
        frame::frame(self.output(cx), kind::SETTINGS, flag::ACK, 0, &[]);
        Ok(())
    }

    fn set_initial_window(&mut self, window: i64) -> Result<(), Fault> {
        let change = window - self.initial_window;
        self.initial_window = window;
        for stream in &mut self.streams {
            stream.window += change;
            if stream.window > MOST_WINDOW {
                return Err(Fault::Connection(Code::FlowControl));
            }
        }
        if window > MOST_WINDOW { Err(Fault::Connection(Code::FlowControl)) } else { Ok(()) }
    }

    fn ping<S: Responder<File = F>>(
        &mut self,
        head: &Head,
        payload: &[u8],
        cx: &mut Context<'_, '_, S>,
    ) -> Result<(), Fault> {
        if payload.len() != 8 {
            return Err(Fault::Connection(Code::FrameSize));
        }
        self.bound(Flood::Pings, cx)?;
        if !head.has(flag::ACK) {
            frame::frame(self.output(cx), kind::PING, flag::ACK, 0, payload);
        }
        Ok(())
    }

    fn window_update<S: Responder<File = F>>(
        &mut self,
        head: &Head,
        payload: &[u8],
        cx: &mut Context<'_, '_, S>,
    ) -> Result<(), Fault> {
        let more = frame::increment(payload).map_err(Fault::Connection)?;
        self.bound(Flood::WindowUpdates, cx)?;
        if head.stream == 0 {
            return frame::widen(&mut self.window, more).map_err(Fault::Connection);
        }
        let Some(stream) = self.streams.iter_mut().find(|stream| stream.id == head.stream) else {
            return match self.past(head.stream) {
                Past::Idle => Err(Fault::Connection(Code::Protocol)),
                _ => Ok(()),
            };
        };
        frame::widen(&mut stream.window, more).map_err(|code| Fault::Stream(head.stream, code))
    }

    fn priority_update<S: Responder<File = F>>(
        &mut self,
        payload: &[u8],
        cx: &mut Context<'_, '_, S>,
    ) -> Result<(), Fault> {
        let (id, value) = payload.split_at_checked(4).ok_or(Fault::Connection(Code::FrameSize))?;
        let id = number(id).unwrap_or_default() & (u32::MAX >> 1);
        if id.is_multiple_of(2) {
            return Err(Fault::Connection(Code::Protocol));
        }
        self.bound(Flood::Priorities, cx)?;
        let priority = Priority::parse(value);
        if let Some(stream) = self.streams.iter_mut().find(|stream| stream.id == id) {
            stream.priority = priority;
        } else if self.past(id) == Past::Idle {
            self.early_priorities.retain(|(early, _)| *early != id);
            if self.early_priorities.len() == EARLY_PRIORITIES {
                self.early_priorities.pop_front();
            }
            self.early_priorities.push_back((id, priority));
        }
        Ok(())
    }
}
