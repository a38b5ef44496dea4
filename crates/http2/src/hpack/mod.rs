//! Header blocks (RFC 7541): the peer's are decoded, ours are encoded.
//!
//! A decoded list is bounded while it grows, so a small block that names a large entry many times costs no memory
//! (CVE-2016-6581). The block is still decoded to its end, because the table depends on it.

mod encode;
mod huffman;
mod table;

use table::Table;

pub(crate) use encode::{Encoder, NO_TABLE, content_length, field, request};

/// Bytes that a field counts for beside its name and value (RFC 9113, 6.5.2).
const FIELD_BYTES: usize = 32;

/// A decoded header list. Names and values lie one after the other in one text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields {
    text: Vec<u8>,
    /// The end of each field's name and of its value.
    ends: Vec<(usize, usize)>,
    limit: usize,
    /// The list is longer than the limit, and incomplete.
    pub(crate) too_long: bool,
}

impl Fields {
    /// Empties the list for another of at most `limit` bytes, counted as in RFC 9113, 6.5.2.
    pub(crate) fn reset(&mut self, limit: usize) {
        self.text.clear();
        self.ends.clear();
        (self.limit, self.too_long) = (limit, false);
    }

    /// The length of all names and values.
    pub(crate) fn bytes(&self) -> usize {
        self.text.len()
    }

    /// The fields in the order of arrival.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|ends| ends.1));
        starts
            .zip(&self.ends)
            .map(|(start, &(name, value))| (&self.text[start..name], &self.text[name..value]))
    }

    /// Completes the field whose name ends at `name` and whose value ends with the text, or drops it.
    fn complete(&mut self, start: usize, name: usize) {
        self.too_long |= self.text.len() + FIELD_BYTES * (self.ends.len() + 1) > self.limit;
        match self.too_long {
            true => self.text.truncate(start),
            false => self.ends.push((name, self.text.len())),
        }
    }
}

/// A block that cannot be decoded. The connection must end, because the table is unknown.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Broken;

/// Decodes the blocks of one connection.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    table: Table,
}

impl Decoder {
    /// Decodes a whole block.
    ///
    /// # Errors
    /// [`Broken`]: an index, an integer, a string or a change of the table's size is not valid.
    pub(crate) fn decode(&mut self, mut block: &[u8], fields: &mut Fields) -> Result<(), Broken> {
        let mut may_resize = true;
        while let Some(&first) = block.first() {
            if first & 0xe0 == 0x20 {
                let size = integer(&mut block, 5)?;
                if !may_resize || !self.table.resize(size) {
                    return Err(Broken);
                }
                continue;
            }
            may_resize = false;
            let start = fields.text.len();
            let name = match first {
                0x80.. => {
                    let (name, value) = self.table.get(integer(&mut block, 7)?).ok_or(Broken)?;
                    fields.text.extend_from_slice(name);
                    fields.text.extend_from_slice(value);
                    start + name.len()
                }
                _ => {
                    let is_kept = first & 0x40 != 0;
                    let index = integer(&mut block, if is_kept { 6 } else { 4 })?;
                    match index {
                        0 => string(&mut block, &mut fields.text)?,
                        _ => fields.text.extend_from_slice(self.table.get(index).ok_or(Broken)?.0),
                    }
                    let name = fields.text.len();
                    string(&mut block, &mut fields.text)?;
                    if is_kept {
                        self.table.insert(&fields.text[start..], name - start);
                    }
                    name
                }
            };
            fields.complete(start, name);
        }
        Ok(())
    }
}

/// Takes an integer whose first byte has `prefix` bits of it (RFC 7541, 5.1). More than 28 bits are refused.
fn integer(block: &mut &[u8], prefix: u32) -> Result<usize, Broken> {
    let (&first, mut rest) = block.split_first().ok_or(Broken)?;
    let most = (1 << prefix) - 1;
    let mut value = usize::from(first) & most;
    if value == most {
        let mut shift = 0;
        loop {
            let (&byte, after) = rest.split_first().ok_or(Broken)?;
            rest = after;
            value += usize::from(byte & 0x7f) << shift;
            shift += 7;
            match byte {
                ..0x80 => break,
                _ if shift >= 28 => return Err(Broken),
                _ => {}
            }
        }
    }
    *block = rest;
    Ok(value)
}

/// Takes a string, and appends it decoded (RFC 7541, 5.2).
fn string(block: &mut &[u8], into: &mut Vec<u8>) -> Result<(), Broken> {
    let is_huffman = block.first().is_some_and(|first| first & 0x80 != 0);
    let length = integer(block, 7)?;
    let (bytes, rest) = block.split_at_checked(length).ok_or(Broken)?;
    *block = rest;
    match is_huffman {
        true => huffman::decode(bytes, into).ok_or(Broken),
        false => {
            into.extend_from_slice(bytes);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u32> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
        digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
    }

    #[track_caller]
    fn check(decoder: &mut Decoder, block: &str, expect: &[(&str, &str)]) {
        let mut fields = Fields::default();
        fields.reset(1000);
        decoder.decode(&hex(block), &mut fields).unwrap();
        let expect: Vec<_> = expect.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
        assert_eq!(fields.iter().collect::<Vec<_>>(), expect);
    }

    #[test]
    fn rfc7541_c_4_requests_with_huffman_coding() {
        let mut decoder = Decoder::default();
        let start =
            [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com")];
        check(&mut decoder, "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff", &start);
        let second = [&start[..], &[("cache-control", "no-cache")]].concat();
        check(&mut decoder, "8286 84be 5886 a8eb 1064 9cbf", &second);
        let third = [
            (":method", "GET"),
            (":scheme", "https"),
            (":path", "/index.html"),
            (":authority", "www.example.com"),
            ("custom-key", "custom-value"),
        ];
        check(&mut decoder, "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf", &third);
    }

    #[test]
    fn what_is_not_valid_is_refused() {
        for block in
            ["80", "bf", "ff", "ffffffffffff", "3fe21f", "82203f", "4001", "0081ff00", "0082ffff00", "7f"]
        {
            let mut fields = Fields::default();
            assert_eq!(Decoder::default().decode(&hex(block), &mut fields), Err(Broken), "{block}");
        }
    }

    #[test]
    fn a_bomb_is_decoded_within_the_limit() {
        let mut decoder = Decoder::default();
        let mut block = vec![0x40, 1, b'a', 0x7f, 0x81, 0x1e];
        block.extend(vec![b'x'; 4000]);
        block.extend(vec![0xbe; 16_000]);
        let mut fields = Fields::default();
        fields.reset(16 * 1024);
        decoder.decode(&block, &mut fields).unwrap();
        assert!(fields.too_long);
        assert!(fields.text.capacity() < 64 * 1024);
    }

    /// The integer at the beginning of some bytes and its length, by the sum of RFC 7541, 5.1; `None` if it does not end
    /// within the bytes or has too many.
    fn sum_of(bytes: &[u8], prefix: u32) -> Option<(usize, usize)> {
        let most = (1 << prefix) - 1;
        let (first, others) = bytes.split_first()?;
        let first = usize::from(*first) & most;
        if first < most {
            return Some((first, 1));
        }
        let last = others.iter().take(4).position(|byte| *byte < 0x80)?;
        let digits = others[..=last].iter().rev();
        let sum = digits.fold(0, |sum, digit| sum * 128 + usize::from(*digit & 0x7f));
        Some((first + sum, last + 2))
    }

    #[test]
    fn every_short_integer_is_the_sum_of_its_digits() {
        for digits in base::every_text(&[0x00, 0x01, 0x7f, 0x80, 0xff], 5) {
            let mut bytes = [&[0], &digits[..]].concat();
            for (first, prefix) in (0..=u8::MAX).flat_map(|first| (1..=8).map(move |prefix| (first, prefix)))
            {
                bytes[0] = first;
                let mut rest = &bytes[..];
                let found = integer(&mut rest, prefix).ok().map(|value| (value, bytes.len() - rest.len()));
                assert_eq!(found, sum_of(&bytes, prefix), "{bytes:x?} with a prefix of {prefix} bits");
            }
        }
    }
}
