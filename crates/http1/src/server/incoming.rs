//! A request whose content is still arriving, or whose answer is pending. Such requests are rare on a static
//! server, so only they pay for a copy of their head.

use http_semantics::Status;
use http_semantics::server::Limits;

use crate::chunked::{ChunkError, Chunked};
use crate::head::Framing;

#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) head: Box<[u8]>,
    /// The content, if the service is to see it.
    pub(super) content: Vec<u8>,
    /// The request has its answer. Its content is read to find the next request, and dropped.
    pub(super) answered: bool,
    decoder: Decoder,
}

#[derive(Debug)]
enum Decoder {
    Sized { left: u64 },
    Chunked(Chunked),
}

impl Incoming {
    /// # Errors
    /// 413 for a declared length above the limit.
    pub(super) fn new(head: &[u8], framing: Framing, limits: &Limits) -> Result<Incoming, Status> {
        let decoder = match framing {
            Framing::Sized(length) if length > limits.body_bytes => return Err(Status::CONTENT_TOO_LARGE),
            Framing::Empty => Decoder::Sized { left: 0 },
            Framing::Sized(left) => Decoder::Sized { left },
            Framing::Chunked => Decoder::Chunked(Chunked::new(limits.body_bytes)),
        };
        Ok(Incoming { head: head.into(), content: Vec::new(), answered: false, decoder })
    }

    /// A complete request whose answer is pending.
    pub(super) fn complete(head: &[u8], content: &[u8]) -> Incoming {
        let decoder = Decoder::Sized { left: 0 };
        Incoming { head: head.into(), content: content.to_vec(), answered: false, decoder }
    }

    /// Takes the bytes that belong to the content and returns their number.
    ///
    /// # Errors
    /// 400 for a broken chunked coding, 413 for content above the limit.
    pub(super) fn read(&mut self, bytes: &[u8], limits: &Limits) -> Result<usize, Status> {
        let Incoming { content, answered, decoder, .. } = self;
        let mut keep = |data: &[u8]| {
            if limits.keep_body && !*answered {
                content.extend_from_slice(data);
            }
        };
        match decoder {
            Decoder::Sized { left } => {
                let take = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                keep(&bytes[..take]);
                *left -= take as u64;
                Ok(take)
            }
            Decoder::Chunked(chunked) => chunked.decode(bytes, keep).map_err(|error| match error {
                ChunkError::Malformed => Status::BAD_REQUEST,
                ChunkError::TooLarge => Status::CONTENT_TOO_LARGE,
            }),
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        match &self.decoder {
            Decoder::Sized { left } => *left == 0,
            Decoder::Chunked(chunked) => chunked.is_done(),
        }
    }
}
