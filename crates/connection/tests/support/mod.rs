//! The property of the PROXY header's reader, which the tests and the fuzz target share, by path.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use connection::proxy_protocol::{Header, Heard, MOST_BYTES};

/// The first byte is the size of the pieces that the others arrive in. Any size gives the same result, and it is the one
/// of the specification.
///
/// # Panics
/// The reader breaks the property.
pub fn proxy_header_property(data: &[u8]) {
    let Some((size, bytes)) = data.split_first() else { return };
    let whole = in_pieces(bytes, bytes.len().max(1));
    let pieces = in_pieces(bytes, usize::from(*size).max(1));
    let is_refused = |heard: &Heard<'_>| matches!(heard, Heard::VersionOne | Heard::Malformed);
    // A piece may be too short to tell the versions apart.
    assert!(pieces == whole || (is_refused(&pieces) && is_refused(&whole)), "{pieces:?}, {whole:?}");
    match whole {
        Heard::Incomplete => assert!(bytes.len() < MOST_BYTES, "{} bytes are no header yet", bytes.len()),
        Heard::Complete { client, rest } => {
            let length = usize::from(u16::from_be_bytes([bytes[14], bytes[15]]));
            assert_eq!(rest, &bytes[16 + length..]);
            assert_eq!(client, told(&bytes[..16 + length]));
        }
        Heard::VersionOne | Heard::Malformed => {}
    }
}

/// Gives the bytes to a new header in pieces, as sockets do.
fn in_pieces(bytes: &[u8], size: usize) -> Heard<'_> {
    let mut header = Header::default();
    let mut end = 0;
    for piece in bytes.chunks(size) {
        end += piece.len();
        match header.receive(piece) {
            Heard::Incomplete => {}
            Heard::Complete { client, rest } => {
                return Heard::Complete { client, rest: &bytes[end - rest.len()..] };
            }
            refused => return refused,
        }
    }
    Heard::Incomplete
}

/// The client that a complete header tells: command PROXY, and a family of internet addresses.
fn told(header: &[u8]) -> Option<SocketAddr> {
    let (is_proxied, family) = (header[12] & 0xf == 1, header[13] >> 4);
    let (ip, port): (IpAddr, _) = match (is_proxied, family) {
        (true, 1) => (Ipv4Addr::from(<[u8; 4]>::try_from(&header[16..20]).ok()?).into(), 24),
        (true, 2) => (Ipv6Addr::from(<[u8; 16]>::try_from(&header[16..32]).ok()?).into(), 48),
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_be_bytes([header[port], header[port + 1]])))
}
