//! The Internet checksum (RFC 1071), as sums that can be added before they are folded.

use std::net::IpAddr;

/// The sum of 16-bit words in network order, not folded. An odd last byte counts as the upper half of a word.
///
/// The function adds 32-bit words, because their sum has the same remainder modulo 2^16 - 1 (RFC 1071,
/// section 2C). A slice longer than 4 GiB would overflow; a packet has at most 64 KiB.
pub fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(4);
    let rest = words.remainder();
    let whole: u64 =
        words.map(|word| u64::from(u32::from_be_bytes([word[0], word[1], word[2], word[3]]))).sum();
    let last = match *rest {
        [] => 0,
        [a] => u64::from(a) << 8,
        [a, b] => u64::from(u16::from_be_bytes([a, b])),
        [a, b, c, ..] => u64::from(u16::from_be_bytes([a, b])) + (u64::from(c) << 8),
    };
    whole + last
}

/// Folds a sum to 16 bits without inverting it.
pub fn fold(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    sum as u16
}

/// The sum of the pseudo header: addresses, protocol and the length of the segment (RFC 9293, section 3.1).
pub fn pseudo_header(source: IpAddr, destination: IpAddr, protocol: u8, length: usize) -> u64 {
    let address = |address: IpAddr| match address {
        IpAddr::V4(v4) => u64::from(v4.to_bits()),
        IpAddr::V6(v6) => sum(&v6.octets()),
    };
    address(source) + address(destination) + u64::from(protocol) + length as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_example_of_the_rfc() {
        // RFC 1071, section 3.
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(fold(sum(&bytes)), 0xddf2);
    }

    proptest! {
        #[test]
        fn like_the_definition(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut slow = 0_u32;
            for pair in bytes.chunks(2) {
                slow += u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
                slow = (slow >> 16) + (slow & 0xffff);
            }
            let fast = fold(sum(&bytes));
            prop_assert!(u32::from(fast) == slow || (fast.is_multiple_of(0xffff) && slow.is_multiple_of(0xffff)));
        }
    }
}
