//! Encodes response fields: names from the static table, values as they are.
//!
//! The dynamic table stays empty. A response's block depends on nothing but the response, and a client can neither make
//! it grow nor learn from its length.

use super::table::STATIC;

/// Index of `:status: 200`, the first of the statuses.
const STATUS: usize = 8;

/// Encodes the blocks of one connection.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    has_resized: bool,
}

impl Encoder {
    /// Begins a block with its status.
    pub(crate) fn status(&mut self, status: u16, into: &mut Vec<u8>) {
        // The first block gives up the dynamic table (RFC 7541, 4.2), so no later setting of the client's matters.
        if !std::mem::replace(&mut self.has_resized, true) {
            into.push(0x20);
        }
        let digits = status.clamp(100, 999).to_string();
        match STATIC[STATUS - 1..].iter().take(7).position(|(_, known)| *known == digits) {
            Some(place) => into.push(0x80 | (STATUS + place) as u8),
            None => literal(STATUS, digits.as_bytes(), into),
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
    // The pseudo-fields come first, and no response field has their names.
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
