//! Chooses the stored representation of a file for a client (RFC 9110, 12.5.3).
//!
//! Owns the parsing of `Accept-Encoding` and the choice. Does not compress: a coding is on offer if a
//! precompressed sibling (`page.html.br`) lies beside the file, or if [`compress`](crate::answer::compress) makes one.
//!
//! The highest weight wins, and among equal weights the smallest file. An uncoded file that the field does
//! not name is acceptable, but ranks below every named coding.

use std::ops::{Index, IndexMut};

/// A content coding that a file may be stored in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coding {
    /// The file as it is.
    Identity,
    /// `br` (RFC 7932), suffix `.br`.
    Brotli,
    /// `zstd` (RFC 8878), suffix `.zst`.
    Zstd,
    /// `gzip` (RFC 1952), suffix `.gz`.
    Gzip,
}

impl Coding {
    /// All codings, [`Coding::Identity`] first.
    pub const ALL: [Coding; 4] = [Coding::Identity, Coding::Brotli, Coding::Zstd, Coding::Gzip];

    /// The name in `Content-Encoding` and `Accept-Encoding`.
    pub fn name(self) -> &'static str {
        ["identity", "br", "zstd", "gzip"][self as usize]
    }

    /// The ending of the stored file's name. The entity tag ends with it too, after a dash.
    pub fn suffix(self) -> &'static str {
        ["", "br", "zst", "gz"][self as usize]
    }

    fn from_name(name: &[u8]) -> Option<Coding> {
        // RFC 9110, 8.4.1.3: x-gzip means gzip.
        if name.eq_ignore_ascii_case(b"x-gzip") {
            return Some(Coding::Gzip);
        }
        Coding::ALL.into_iter().find(|coding| name.eq_ignore_ascii_case(coding.name().as_bytes()))
    }
}

/// One value for each coding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerCoding<T>(pub [T; 4]);

impl<T> Index<Coding> for PerCoding<T> {
    type Output = T;
    fn index(&self, coding: Coding) -> &T {
        &self.0[coding as usize]
    }
}

impl<T> IndexMut<Coding> for PerCoding<T> {
    fn index_mut(&mut self, coding: Coding) -> &mut T {
        &mut self.0[coding as usize]
    }
}

/// A client's weight for each coding: thousandths of a `q` value, 0 for unacceptable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preferences {
    named: PerCoding<Option<u16>>,
    /// `*`
    others: Option<u16>,
}

impl Preferences {
    /// Parses the field's values. Invalid elements are skipped, and of a repeated element the last one
    /// counts. Without any value only the uncoded file is acceptable.
    pub fn parse<'a>(values: impl Iterator<Item = &'a [u8]>) -> Preferences {
        let mut preferences = Preferences::default();
        for element in values.flat_map(|value| value.split(|&byte| byte == b',')) {
            let (name, parameter) = match memchr::memchr(b';', element) {
                Some(at) => (&element[..at], Some(&element[at + 1..])),
                None => (element, None),
            };
            let Some(weight) = parameter.map_or(Some(1000), weight) else { continue };
            match name.trim_ascii() {
                b"*" => preferences.others = Some(weight),
                name => {
                    if let Some(coding) = Coding::from_name(name) {
                        preferences.named[coding] = Some(weight);
                    }
                }
            }
        }
        preferences
    }

    /// The rank of a coding: higher is better, 0 is unacceptable.
    fn rank(&self, coding: Coding) -> u16 {
        match (self.named[coding], coding) {
            (Some(weight), _) => weight * 2,
            (None, Coding::Identity) if self.others == Some(0) => 0,
            // Below the smallest weight that a client can name: 1 thousandth, which has rank 2.
            (None, Coding::Identity) => 1,
            (None, _) => self.others.unwrap_or(0) * 2,
        }
    }

    /// Returns the best coding on offer; `offered` has the length of each file. Returns `None` if the client
    /// excludes every offered coding.
    pub fn choose(&self, offered: &PerCoding<Option<u64>>) -> Option<Coding> {
        let candidates = Coding::ALL.into_iter().filter_map(|coding| {
            let rank = self.rank(coding);
            offered[coding].filter(|_| rank > 0).map(|length| (coding, rank, length))
        });
        candidates
            .min_by_key(|&(_, rank, length)| (std::cmp::Reverse(rank), length))
            .map(|(coding, ..)| coding)
    }
}

/// Parses a weight such as `q=0.5` into thousandths (RFC 9110, 12.4.2).
fn weight(parameter: &[u8]) -> Option<u16> {
    let value = match parameter.trim_ascii() {
        [b'q' | b'Q', b'=', value @ ..] => value,
        _ => return None,
    };
    let (whole, fraction) = match value {
        [whole @ (b'0' | b'1')] => (whole, &[][..]),
        [whole @ (b'0' | b'1'), b'.', fraction @ ..] if fraction.len() <= 3 => (whole, fraction),
        _ => return None,
    };
    let mut thousandths = u16::from(whole - b'0') * 1000;
    for (digit, unit) in fraction.iter().zip([100, 10, 1]) {
        thousandths += u16::from(digit.is_ascii_digit().then(|| digit - b'0')?) * unit;
    }
    (thousandths <= 1000).then_some(thousandths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Brotli is the smallest here, then zstd, gzip, and the file itself.
    const ALL: PerCoding<Option<u64>> = PerCoding([Some(100), Some(40), Some(45), Some(50)]);
    const ONLY_GZIP: PerCoding<Option<u64>> = PerCoding([Some(100), None, None, Some(50)]);
    const GZIP_LARGER: PerCoding<Option<u64>> = PerCoding([Some(100), None, None, Some(120)]);

    #[test]
    fn the_choice_follows_the_weights_and_then_the_size() {
        use Coding::{Brotli, Gzip, Identity, Zstd};
        for (field, offered, chosen) in [
            ("", ALL, Some(Identity)),
            ("gzip", ALL, Some(Gzip)),
            ("x-gzip", ALL, Some(Gzip)),
            ("GZIP", ALL, Some(Gzip)),
            ("gzip, deflate, br, zstd", ALL, Some(Brotli)),
            ("gzip, deflate, br, zstd", ONLY_GZIP, Some(Gzip)),
            ("gzip;q=1.0, br;q=0.5", ALL, Some(Gzip)),
            ("gzip;q=0.5, zstd;q=0.501", ALL, Some(Zstd)),
            ("deflate", ALL, Some(Identity)),
            ("br", ONLY_GZIP, Some(Identity)),
            ("*", ALL, Some(Brotli)),
            ("*;q=0.1", ONLY_GZIP, Some(Gzip)),
            ("br;q=0, *", ALL, Some(Zstd)),
            ("gzip;q=0", ONLY_GZIP, Some(Identity)),
            ("gzip;q=0.001", ONLY_GZIP, Some(Gzip)),
            ("identity, gzip;q=0.5", ALL, Some(Identity)),
            ("identity, gzip", ALL, Some(Gzip)),
            ("identity, gzip", GZIP_LARGER, Some(Identity)),
            ("identity;q=0.5, gzip;q=0.8", ALL, Some(Gzip)),
            ("identity;q=0", ALL, None),
            ("identity;q=0, gzip", ALL, Some(Gzip)),
            ("*;q=0", ALL, None),
            ("*;q=0, identity;q=0.1", ALL, Some(Identity)),
            ("*;q=0, br", ONLY_GZIP, None),
            ("gzip;q=2, br;q=0.1234, zstd;q=", ALL, Some(Identity)),
            ("gzip;level=9", ALL, Some(Identity)),
            ("gzip ; q=0.3 ,, br; Q=0.2", ALL, Some(Gzip)),
        ] {
            let preferences = Preferences::parse([field.as_bytes()].into_iter());
            assert_eq!(preferences.choose(&offered), chosen, "{field}");
        }
    }

    #[test]
    fn several_field_lines_count_as_one_list() {
        let preferences = Preferences::parse([&b"gzip;q=0.5"[..], b"br;q=0.1"].into_iter());
        assert_eq!(preferences.choose(&ALL), Some(Coding::Gzip));
        assert_eq!(Preferences::parse([].into_iter()).choose(&ALL), Some(Coding::Identity));
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_choice_among_what_is_offered(
            field in proptest::collection::vec(any::<u8>(), 0..60),
            words in "((gzip|br|zstd|identity|\\*)(;q=[01](\\.[0-9]{0,4})?)?[, ]*){0,6}",
        ) {
            for bytes in [&field[..], words.as_bytes()] {
                let chosen = Preferences::parse([bytes].into_iter()).choose(&ONLY_GZIP);
                prop_assert!(matches!(chosen, None | Some(Coding::Identity | Coding::Gzip)));
            }
        }
    }
}
