//! The header of the PROXY protocol, version 2: a proxy tells the client's address before any other byte.
//!
//! ```text
//!   signature (12) | version, command (1) | family (1) | length (2) | addresses | TLVs
//!   LOCAL: the proxy's own connection, such as a health check        └─ length ─┘
//! ```
//!
//! The source is "The PROXY protocol, versions 1 and 2" (W. Tarreau, 2020), section 2.2. The crate `proxy-header`
//! reads the addresses. TLVs are skipped, even a CRC32c, because TCP has a checksum. A client without an internet
//! address (`UNSPEC`, `UNIX`) is unknown, as under LOCAL.
//!
//! Owns one header's bytes until it is complete. Does not decide which peers may send one. Has no clock: the header
//! counts for the deadline of the connection's first byte.
//!
//! Invariants: any split of the bytes gives the same result; no byte after the header is taken; at most [`MOST_BYTES`] are
//! kept. The fuzz target `proxy_header` checks them, which is why the module is public.

use std::net::SocketAddr;

use proxy_header::{ParseConfig, Protocol, ProxyHeader};

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// The first bytes of a header of version 1, which is text.
const VERSION_1: &[u8] = b"PROXY ";
/// Bytes up to the addresses.
const FIXED: usize = 16;
/// The offset of the command.
const COMMAND: usize = 12;
/// The offsets of the length of the rest.
const LENGTH: std::ops::Range<usize> = 14..FIXED;
/// Version 2, command LOCAL.
const LOCAL: u8 = 0x20;
/// Maximum length of a header. Addresses of UNIX sockets, and certificates' names among the TLVs, need less.
pub const MOST_BYTES: usize = FIXED + 2048;

/// A header, received in part.
#[derive(Debug, Default)]
pub struct Header(Vec<u8>);

/// The state of a header after the bytes so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard<'a> {
    /// A part of a header.
    Incomplete,
    /// The header, and the bytes after it.
    Complete {
        /// The client; `None` for the proxy's own connection, or a client without an internet address.
        client: Option<SocketAddr>,
        /// The first bytes of the connection itself.
        rest: &'a [u8],
    },
    /// A header of version 1.
    VersionOne,
    /// No header, a malformed one, or one that is too long.
    Malformed,
}

impl Header {
    /// Takes the next bytes.
    pub fn receive<'a>(&mut self, mut bytes: &'a [u8]) -> Heard<'a> {
        loop {
            let length = match self.0[..].get(LENGTH) {
                Some(rest) => FIXED + usize::from(u16::from_be_bytes([rest[0], rest[1]])),
                None => FIXED,
            };
            if length > MOST_BYTES {
                return Heard::Malformed;
            }
            if self.0.len() == length {
                return self.read(bytes);
            }
            if bytes.is_empty() {
                return Heard::Incomplete;
            }
            let (taken, rest) = bytes.split_at(bytes.len().min(length - self.0.len()));
            self.0.extend_from_slice(taken);
            bytes = rest;
            let signature = self.0.len().min(SIGNATURE.len());
            if self.0[..signature] != SIGNATURE[..signature] {
                let beginning = self.0.len().min(VERSION_1.len());
                // If a piece is too short to tell, version 1 is more likely than a request of a proxy.
                let is_first = self.0[..beginning] == VERSION_1[..beginning];
                return if is_first { Heard::VersionOne } else { Heard::Malformed };
            }
        }
    }

    /// Reads the header, which is complete.
    fn read<'a>(&self, rest: &'a [u8]) -> Heard<'a> {
        // The family and addresses of LOCAL have no meaning.
        if self.0[COMMAND] == LOCAL {
            return Heard::Complete { client: None, rest };
        }
        let config = ParseConfig { include_tlvs: false, allow_v1: false, allow_v2: true };
        let Ok((header, _)) = ProxyHeader::parse(&self.0, config) else { return Heard::Malformed };
        match header.proxied_address() {
            None => Heard::Complete { client: None, rest },
            Some(told) if told.protocol == Protocol::Stream => {
                Heard::Complete { client: Some(told.source), rest }
            }
            Some(_) => Heard::Malformed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header with this command and family.
    fn header(command: u8, family: u8, payload: &[u8]) -> Vec<u8> {
        let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[command, family], &length, payload].concat()
    }

    /// 192.0.2.7:258 to 192.0.2.1:80.
    const IPV4: &[u8] = &[192, 0, 2, 7, 192, 0, 2, 1, 1, 2, 0, 80];

    fn heard(bytes: &[u8]) -> Heard<'_> {
        Header::default().receive(bytes)
    }

    fn complete<'a>(client: Option<&str>, rest: &'a [u8]) -> Heard<'a> {
        Heard::Complete { client: client.map(|client| client.parse().unwrap()), rest }
    }

    #[test]
    fn a_header_tells_the_client_and_leaves_what_follows() {
        let bytes = [&header(0x21, 0x11, IPV4)[..], b"GET /"].concat();
        assert_eq!(heard(&bytes), complete(Some("192.0.2.7:258"), b"GET /"));
        let mut ipv6 = [0; 36];
        ipv6[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
        ipv6[15] = 9;
        ipv6[33] = 7;
        assert_eq!(heard(&header(0x21, 0x21, &ipv6)), complete(Some("[2001:db8::9]:7"), b""));
        // TLVs: NOOP, a CRC32c that is wrong, and one that is cut short.
        let tlvs = [IPV4, &[4, 0, 1, 0], &[3, 0, 4, 1, 2, 3, 4], &[5, 9]].concat();
        assert_eq!(heard(&header(0x21, 0x11, &tlvs)), complete(Some("192.0.2.7:258"), b""));
    }

    #[test]
    fn proxys_own_connections_name_no_client() {
        for (command, family, payload) in
            [(0x20, 0x00, &[][..]), (0x20, 0x11, IPV4), (0x20, 0xff, b"any"), (0x21, 0x00, b"any")]
        {
            let bytes = [&header(command, family, payload)[..], b"rest"].concat();
            assert_eq!(heard(&bytes), complete(None, b"rest"), "{command:x} {family:x}");
        }
        assert_eq!(heard(&header(0x21, 0x31, &[0; 216])), complete(None, b""));
    }

    #[test]
    fn what_is_no_header_of_version_2_is_refused() {
        for bytes in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"\x16\x03\x01",
            b"\r\n\r\nQ",
            &header(0x11, 0x11, IPV4),
            &header(0x22, 0x11, IPV4),
            &header(0x21, 0x12, IPV4),
            &header(0x21, 0x41, IPV4),
            &header(0x21, 0x11, &IPV4[..11]),
            &header(0x21, 0x21, IPV4),
            &header(0x21, 0x11, &[0; MOST_BYTES - FIXED + 1])[..FIXED],
        ] {
            assert_eq!(heard(bytes), Heard::Malformed, "{bytes:x?}");
        }
        assert_eq!(heard(b"PROXY TCP4 192.0.2.7 192.0.2.1 258 80\r\n"), Heard::VersionOne);
        assert_eq!(
            heard(&header(0x21, 0x11, &[IPV4, &[0; 2036]].concat())),
            complete(Some("192.0.2.7:258"), b"")
        );
    }
}
