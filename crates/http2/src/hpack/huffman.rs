//! The Huffman code of HPACK (RFC 7541, appendix B).
//!
//! The code is canonical: codes of one length are consecutive, in the order of their symbols. The lengths alone define it.

/// Bits of each symbol's code; the last symbol is the end of a string.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];
const SHORTEST: usize = 5;
const LONGEST: usize = 30;
const END: u16 = 256;

/// The code by length, for a decoder that compares left-aligned codes.
struct Table {
    symbols: [u16; 257],
    /// The place of a length's first symbol, and its code.
    first: [(u16, u32); LONGEST + 1],
    /// The left-aligned code behind the last one of each length.
    ends: [u64; LONGEST + 1],
}

const TABLE: Table = table();

const fn table() -> Table {
    let mut table = Table { symbols: [0; 257], first: [(0, 0); LONGEST + 1], ends: [0; LONGEST + 1] };
    let (mut code, mut place, mut length) = (0_u32, 0, 1);
    while length <= LONGEST {
        code <<= 1;
        table.first[length] = (place as u16, code);
        let mut symbol = 0;
        while symbol < LENGTHS.len() {
            if LENGTHS[symbol] as usize == length {
                table.symbols[place] = symbol as u16;
                place += 1;
                code += 1;
            }
            symbol += 1;
        }
        // The last code is all ones: nothing lies behind it.
        table.ends[length] = if length == LONGEST { u64::MAX } else { (code as u64) << (64 - length) };
        length += 1;
    }
    table
}

/// Appends the decoded string. Returns `None` for the end symbol, or for padding that is longer than seven bits or no
/// prefix of it (RFC 7541, 5.2).
pub(super) fn decode(bytes: &[u8], into: &mut Vec<u8>) -> Option<()> {
    let mut rest = bytes.iter();
    // The bits to decode next, left-aligned, and their number.
    let (mut window, mut bits) = (0_u64, 0_usize);
    loop {
        while bits <= 56 {
            let Some(byte) = rest.next() else { break };
            window |= u64::from(*byte) << (56 - bits);
            bits += 8;
        }
        let mut length = SHORTEST;
        while length < LONGEST && window >= TABLE.ends[length] {
            length += 1;
        }
        if length > bits {
            let all_ones = bits == 0 || window >> (64 - bits) == (1 << bits) - 1;
            return (bits < 8 && all_ones).then_some(());
        }
        let (place, first) = TABLE.first[length];
        let code = (window >> (64 - length)) as usize;
        match TABLE.symbols[usize::from(place) + code - first as usize] {
            END => return None,
            symbol => into.push(symbol as u8),
        }
        window <<= length;
        bits -= length;
    }
}
