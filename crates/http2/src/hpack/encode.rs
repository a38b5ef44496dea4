//! Encodes fields: names from the static table, values as they are.
//!
//! The dynamic table stays empty. A block depends on nothing but its message, and a peer can neither make it grow nor
//! learn from its length. A client's requests are therefore encoded once, for all connections.

use super::table::STATIC;

/// Index of `:status: 200`, the first of the statuses.
const STATUS: usize = 8;

/// The first byte of a connection's first block. It gives up the dynamic table (RFC 7541, 4.2), so no later setting of
/// the peer's matters.
pub(crate) const NO_TABLE: u8 = 0x20;

/// Encodes the blocks of one connection.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    has_resized: bool,
}

impl Encoder {
    /// Begins a block with its status.
    pub(crate) fn status(&mut self, status: u16, into: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.has_resized, true) {
            into.push(NO_TABLE);
        }
        let digits = status.clamp(100, 999).to_string();
        match STATIC[STATUS - 1..].iter().take(7).position(|(_, known)| *known == digits) {
            Some(place) => into.push(0x80 | (STATUS + place) as u8),
            None => literal(STATUS, digits.as_bytes(), into),
        }
    }
}

/// Begins the block of a request: its pseudo-fields.
pub(crate) fn request(method: &str, scheme: &str, authority: &str, path: &str, into: &mut Vec<u8>) {
    for (name, value) in
        [(":method", method), (":scheme", scheme), (":path", path), (":authority", authority)]
    {
        let of_name = |(_, (known, _)): &(usize, &(&str, &str))| *known == name;
        let mut places = STATIC.iter().enumerate().filter(of_name);
        let first = places.clone().next().map_or(0, |(place, _)| place + 1);
        match places.find(|(_, (_, known))| *known == value) {
            Some((place, _)) => into.push(0x80 | (place + 1) as u8),
            None => literal(first, value.as_bytes(), into),
        }
    }
}

/// Appends a field. Its name may have capital letters.
pub(crate) fn field(name: &[u8], value: &[u8], into: &mut Vec<u8>) {
    match index_of(name) {
        Some(index) => literal(index, value, into),
        None => {
            into.push(0);
            integer(name.len(), 7, into);
            into.extend(name.iter().map(u8::to_ascii_lowercase));
            integer(value.len(), 7, into);
            into.extend_from_slice(value);
        }
    }
}

fn index_of(name: &[u8]) -> Option<usize> {
    let is_name = |known: &str| known.len() == name.len() && known.as_bytes().eq_ignore_ascii_case(name);
    // The pseudo-fields come first, and no other field has their names.
    STATIC.iter().skip(14).position(|(known, _)| is_name(known)).map(|place| place + 15)
}

/// A field that enters no table, whose name has an index.
fn literal(index: usize, value: &[u8], into: &mut Vec<u8>) {
    integer(index, 4, into);
    integer(value.len(), 7, into);
    into.extend_from_slice(value);
}

fn integer(mut value: usize, prefix: u32, into: &mut Vec<u8>) {
    let most = (1 << prefix) - 1;
    if value < most {
        return into.push(value as u8);
    }
    into.push(most as u8);
    value -= most;
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}
