//! The needs of the main process that are not in memory, and their messages to a helper.
//!
//! ```text
//!   fetch, to a helper:  id (8 bytes) | 'l' | host (2 bytes) | length of the path (4 bytes) | path | Accept-Encoding
//!                        id (8 bytes) | 't' | offset (8 bytes)          and the open file beside it
//!   notice, from it:     id (8 bytes)
//! ```
//!
//! Both ends are the same program, so numbers are in the processor's byte order.

use std::hash::{Hash, Hasher};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use http_semantics::Request;

use crate::processes::Message;

/// Bytes of a file that one fetch reads: the kernel's usual read-ahead, and a quarter of the bytes that a
/// connection may send in a turn.
pub const TOUCH_BYTES: usize = 128 * 1024;
/// Maximum text of a fetch. With the other fields it fits into a message.
const MOST_TEXT_BYTES: usize = 15 * 1024;
const LOOK: u8 = b'l';
const TOUCH: u8 = b't';

/// Data that must be in memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Need {
    /// The names on the way to a file, the file itself opened, and its contents if it is small.
    Look {
        /// The number of the host.
        host: u16,
        /// The requested path, without the query.
        path: Box<str>,
        /// The `Accept-Encoding`, which selects one of several stored forms.
        encodings: Box<[u8]>,
    },
    /// [`TOUCH_BYTES`] of an open file.
    Touch {
        /// The file.
        file: SameFile,
        /// Offset of the first of these bytes.
        offset: u64,
    },
}

/// An open file, equal only to itself.
#[derive(Clone, Debug)]
pub struct SameFile(pub Arc<OwnedFd>);

impl PartialEq for SameFile {
    fn eq(&self, other: &SameFile) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for SameFile {}

impl Hash for SameFile {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

impl Need {
    /// The need of a request to a host; `None` if it is too long for a message.
    pub fn of(host: u16, request: &Request<'_>) -> Option<Need> {
        let encodings = request.values("accept-encoding").collect::<Vec<_>>().join(&b","[..]);
        let path = request.path();
        (path.len() + encodings.len() <= MOST_TEXT_BYTES).then(|| Need::Look {
            host,
            path: path.into(),
            encodings: encodings.into(),
        })
    }

    /// The message of the fetch, and the file that goes with it.
    pub fn message(&self, id: u64) -> (Vec<u8>, Option<BorrowedFd<'_>>) {
        let id = &id.to_ne_bytes()[..];
        match self {
            Need::Look { host, path, encodings } => {
                let length = (path.len() as u32).to_ne_bytes();
                ([id, &[LOOK], &host.to_ne_bytes(), &length, path.as_bytes(), encodings].concat(), None)
            }
            Need::Touch { file, offset } => {
                ([id, &[TOUCH], &offset.to_ne_bytes()].concat(), Some(file.0.as_fd()))
            }
        }
    }

    /// Parses a received fetch: its id and its need. The need is `None` if its file was lost, because this
    /// process has no descriptor left. Returns `None` only by a mistake of ours.
    pub fn read(message: Message) -> Option<(u64, Option<Need>)> {
        let (id, rest) = message.bytes.split_first_chunk::<8>()?;
        let (kind, rest) = rest.split_first()?;
        let need = match *kind {
            LOOK => {
                let (host, rest) = rest.split_first_chunk::<2>()?;
                let (length, texts) = rest.split_first_chunk::<4>()?;
                let (path, encodings) = texts.split_at_checked(u32::from_ne_bytes(*length) as usize)?;
                let path = std::str::from_utf8(path).ok()?;
                let host = u16::from_ne_bytes(*host);
                Some(Need::Look { host, path: path.into(), encodings: encodings.into() })
            }
            TOUCH => {
                let offset = u64::from_ne_bytes(*rest.first_chunk::<8>()?);
                let file = message.descriptors.into_iter().next();
                file.map(|file| Need::Touch { file: SameFile(Arc::new(file)), offset })
            }
            _ => return None,
        };
        Some((u64::from_ne_bytes(*id), need))
    }
}

/// Parses the id in a notice.
pub fn read_notice(bytes: &[u8]) -> Option<u64> {
    <[u8; 8]>::try_from(bytes).ok().map(u64::from_ne_bytes)
}

#[cfg(test)]
pub mod tests {
    use http_semantics::Header;

    use super::*;
    use crate::processes::{Control, Heard};

    pub fn need_of(path: &str) -> Need {
        Need::Look { host: 0, path: path.into(), encodings: Box::default() }
    }

    fn asked<'a>(target: &'a str, fields: &'a [Header<'a>]) -> Request<'a> {
        Request { host: "h", fields, ..Request::get(target) }
    }

    #[test]
    fn what_is_sent_is_what_is_received() {
        let (main, helper) = Control::pair().unwrap();
        let received = || match helper.receive().unwrap() {
            Heard::Message(message) => Need::read(message).unwrap(),
            other => panic!("{other:?}"),
        };
        let value = |value| Header { name: "ACCEPT-encoding", value };
        let fields = [value(&b"gzip"[..]), value(b"br;q=0.5")];
        let need = Need::of(3, &asked("/a/%20b?query", &fields)).unwrap();
        let (bytes, file) = need.message(7);
        assert!(file.is_none());
        main.send(&bytes, &[]).unwrap();
        assert_eq!(received(), (7, Some(need.clone())));
        let expected = Need::Look { host: 3, path: "/a/%20b".into(), encodings: b"gzip,br;q=0.5"[..].into() };
        assert_eq!(need, expected);

        let (file, _) = std::io::pipe().unwrap();
        let need = Need::Touch { file: SameFile(Arc::new(file.into())), offset: 1 << 40 };
        let (bytes, file) = need.message(8);
        main.send(&bytes, &[file.unwrap()]).unwrap();
        let (8, Some(Need::Touch { offset, .. })) = received() else { panic!() };
        assert_eq!(offset, 1 << 40);
        main.send(&bytes, &[]).unwrap();
        assert_eq!(received(), (8, None), "its file is missing");
    }

    #[test]
    fn what_is_too_long_or_garbled_is_nothing() {
        let long = format!("/{}", "x".repeat(MOST_TEXT_BYTES));
        assert_eq!(Need::of(0, &asked(&long, &[])), None);
        let message = |bytes: &[u8]| Message { bytes: bytes.to_vec(), ..Message::default() };
        for garbled in [&b""[..], b"12345678", b"12345678x", b"12345678t123", b"12345678l\xff\xff\0\0path"] {
            assert_eq!(Need::read(message(garbled)), None);
        }
        assert_eq!((read_notice(b"123"), read_notice(&[0; 8])), (None, Some(0)));
    }
}
