//! Encodes fields: names from the static table, values as they are.
//!
//! The dynamic table stays empty. A block depends on nothing but its message, and a peer can neither make it grow nor
//! learn from its length. A client's requests are therefore encoded once, for all connections.

use http_semantics::decimal;

use super::table::STATIC;

/// Index of `:status: 200`, the first of the statuses.
const STATUS: usize = 8;
/// Index of `content-length`.
const CONTENT_LENGTH: usize = 28;
/// The statuses that have an index, in its order.
const STATUSES: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
/// Index of `accept-charset`, the first name of a field that is not a pseudo-field.
const FIRST_NAME: usize = 15;
/// The longest name with an index is `access-control-allow-origin`.
const LONGEST_NAME: usize = 27;

/// The indices of names, by length: those of length n begin at place `of_length[n]` of `indices`.
struct Names {
    indices: [u8; STATIC.len()],
    of_length: [u8; LONGEST_NAME + 2],
}

const NAMES: Names = names();

const fn names() -> Names {
    let mut names = Names { indices: [0; STATIC.len()], of_length: [0; LONGEST_NAME + 2] };
    let (mut length, mut place) = (0, 0);
    while length <= LONGEST_NAME {
        names.of_length[length] = place as u8;
        let mut index = FIRST_NAME;
        while index <= STATIC.len() {
            if STATIC[index - 1].0.len() == length {
                names.indices[place] = index as u8;
                place += 1;
            }
            index += 1;
        }
        length += 1;
    }
    names.of_length[LONGEST_NAME + 1] = place as u8;
    names
}

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
        match STATUSES.iter().position(|known| *known == status) {
            Some(place) => into.push(0x80 | (STATUS + place) as u8),
            None => number(STATUS, u64::from(status.clamp(100, 999)), into),
        }
    }
}

/// Appends `content-length`.
pub(crate) fn content_length(length: u64, into: &mut Vec<u8>) {
    number(CONTENT_LENGTH, length, into);
}

/// Appends a literal field without indexing (RFC 7541, 6.2.2): an indexed name, and a value of decimal digits.
fn number(index: usize, value: u64, into: &mut Vec<u8>) {
    integer(index, 4, into);
    let place = into.len();
    into.push(0);
    decimal(into, value);
    // At most 20 digits: the length is one byte.
    into[place] = (into.len() - place - 1) as u8;
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
    let from = usize::from(*NAMES.of_length.get(name.len())?);
    let until = usize::from(*NAMES.of_length.get(name.len() + 1)?);
    let is_name = |index: &&u8| STATIC[usize::from(**index) - 1].0.as_bytes().eq_ignore_ascii_case(name);
    NAMES.indices[from..until].iter().find(is_name).map(|index| usize::from(*index))
}

/// Appends a literal field without indexing (RFC 7541, 6.2.2), with an indexed name.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_statuses_are_those_of_the_static_table() {
        for (place, (name, _)) in STATIC.iter().enumerate().skip(FIRST_NAME - 1) {
            assert_eq!(index_of(name.to_uppercase().as_bytes()), Some(place + 1), "{name}");
        }
        for name in ["", "x", "content-lengthy", ":status", "a-name-that-is-longer-than-every-other"] {
            assert_eq!(index_of(name.as_bytes()), None, "{name}");
        }
        assert_eq!(index_of(b"content-length"), Some(CONTENT_LENGTH));
        let statuses = STATUSES.map(|status| status.to_string());
        assert!(STATIC[STATUS - 1..].iter().zip(statuses).all(|((_, known), status)| *known == status));
    }

    #[test]
    fn statuses_and_lengths_are_written_as_digits() {
        let mut block = Vec::new();
        let mut encoder = Encoder::default();
        [200, 418, 7].into_iter().for_each(|status| encoder.status(status, &mut block));
        content_length(u64::MAX, &mut block);
        let expect = [&[NO_TABLE, 0x88, 8, 3][..], b"418", &[8, 3], b"100", &[0x0f, 13, 20]].concat();
        assert_eq!(block, [&expect[..], b"18446744073709551615"].concat());
    }

    #[test]
    fn every_integer_of_two_bytes_reads_back() {
        for (prefix, value) in (4..=7).flat_map(|prefix| (0..=1 << 16).map(move |value| (prefix, value))) {
            let mut bytes = Vec::new();
            integer(value, prefix, &mut bytes);
            let mut rest = &bytes[..];
            let read = crate::hpack::integer(&mut rest, prefix);
            assert!(read.is_ok_and(|read| read == value) && rest.is_empty(), "{value}: {bytes:x?}");
        }
    }
}
