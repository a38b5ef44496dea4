//! Byte ranges (RFC 9110, 14): the ranges that a `Range` field selects in a representation of a given length.
//!
//! Owns parsing and the defence against abuse. At most [`MOST_RANGES`] specifications are read. Ranges that
//! overlap or nearly touch are joined, so that no answer is longer than the file and its part heads.
//! Otherwise the requested order is kept, as 15.3.7.2 recommends.

use std::ops::Range;

use http_semantics::number;

/// Maximum specifications in a field. A field with more is ignored, and the whole file is sent. Players and
/// download managers ask for one range, PDF viewers for a handful.
pub const MOST_RANGES: usize = 32;

/// Gaps smaller than the head of another part are sent too (RFC 9110, 15.3.7.2 gives 80 bytes).
const PART_OVERHEAD: u64 = 80;

/// The result of reading a `Range` field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The field is invalid or has another unit. It must be ignored.
    Ignored,
    /// The field has more than [`MOST_RANGES`] specifications. It must be ignored and counted.
    TooMany,
    /// The field is valid, but none of its ranges overlaps the representation: 416.
    Unsatisfiable,
    /// One or more disjoint, non-empty ranges within the representation.
    Ranges(Vec<Range<u64>>),
}

/// Reads the value of a `Range` field for a representation of `length` bytes.
pub fn select(field: &[u8], length: u64) -> Selection {
    let Some((unit, set)) = memchr::memchr(b'=', field).map(|at| (&field[..at], &field[at + 1..])) else {
        return Selection::Ignored;
    };
    if !unit.eq_ignore_ascii_case(b"bytes") {
        return Selection::Ignored;
    }
    let mut asked = 0;
    let mut ranges = Vec::new();
    let elements = set.split(|&byte| byte == b',').map(trim_blanks);
    for element in elements.filter(|element| !element.is_empty()) {
        asked += 1;
        if asked > MOST_RANGES {
            return Selection::TooMany;
        }
        match specification(element, length) {
            None => return Selection::Ignored,
            Some(range) if range.is_empty() => {}
            Some(range) => ranges.push(range),
        }
    }
    match (asked, ranges.len()) {
        (0, _) => Selection::Ignored,
        (_, 0) => Selection::Unsatisfiable,
        (_, 1) => Selection::Ranges(ranges),
        _ => Selection::Ranges(joined(ranges)),
    }
}

/// Parses one `first-last`, `first-` or `-length` and cuts it to the representation. The result is empty for
/// a range outside and `None` for an invalid one.
fn specification(element: &[u8], length: u64) -> Option<Range<u64>> {
    let at = memchr::memchr(b'-', element)?;
    match (&element[..at], &element[at + 1..]) {
        (b"", suffix) => Some(length - number(suffix)?.min(length)..length),
        (first, b"") => Some(number(first)?.min(length)..length),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then(|| first.min(length)..last.saturating_add(1).min(length))
        }
    }
}

/// Removes optional white space (RFC 9110, 5.6.3).
fn trim_blanks(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

/// Joins ranges that overlap or nearly touch. A joined range takes the place of its earliest member.
fn joined(ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut by_start: Vec<(usize, Range<u64>)> = ranges.into_iter().enumerate().collect();
    by_start.sort_by_key(|(_, range)| range.start);
    let mut groups: Vec<(usize, Range<u64>)> = Vec::with_capacity(by_start.len());
    for (place, range) in by_start {
        match groups.last_mut() {
            Some((first_place, group)) if range.start <= group.end.saturating_add(PART_OVERHEAD) => {
                *first_place = place.min(*first_place);
                group.end = range.end.max(group.end);
            }
            _ => groups.push((place, range)),
        }
    }
    groups.sort_by_key(|(place, _)| *place);
    groups.into_iter().map(|(_, range)| range).collect()
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "a list of one range is what is meant")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_examples_of_rfc_9110_14_1_2() {
        let of = |field: &str| select(field.as_bytes(), 10_000);
        assert_eq!(of("bytes=0-499"), Selection::Ranges(vec![0..500]));
        assert_eq!(of("bytes=500-999"), Selection::Ranges(vec![500..1000]));
        assert_eq!(of("bytes=-500"), Selection::Ranges(vec![9500..10_000]));
        assert_eq!(of("bytes=9500-"), Selection::Ranges(vec![9500..10_000]));
        assert_eq!(of("bytes=0-0,-1"), Selection::Ranges(vec![0..1, 9999..10_000]));
        assert_eq!(
            of("bytes= 0-999, 4500-5499, -1000"),
            Selection::Ranges(vec![0..1000, 4500..5500, 9000..10_000])
        );
        assert_eq!(of("bytes=500-600,601-999"), Selection::Ranges(vec![500..1000]));
        assert_eq!(of("bytes=500-700,601-999"), Selection::Ranges(vec![500..1000]));
    }

    #[test]
    fn what_is_cut_unsatisfiable_or_ignored() {
        use Selection::{Ignored, Ranges, TooMany, Unsatisfiable};
        for (field, length, selection) in [
            ("bytes=0-", 10, Ranges(vec![0..10])),
            ("bytes=5-100", 10, Ranges(vec![5..10])),
            ("bytes=-100", 10, Ranges(vec![0..10])),
            ("bytes=9-99999999999999999999999", 10, Ranges(vec![9..10])),
            ("BYTES=0-0", 10, Ranges(vec![0..1])),
            ("bytes=,0-0,,", 10, Ranges(vec![0..1])),
            ("bytes=20-30,0-0", 10, Ranges(vec![0..1])),
            ("bytes=10-", 10, Unsatisfiable),
            ("bytes=10-12,99-", 10, Unsatisfiable),
            ("bytes=-0", 10, Unsatisfiable),
            ("bytes=0-", 0, Unsatisfiable),
            ("bytes=-5", 0, Unsatisfiable),
            ("bytes=99999999999999999999-", 10, Unsatisfiable),
            ("bytes=2-1", 10, Ignored),
            ("bytes=0-0,2-1", 10, Ignored),
            ("bytes=", 10, Ignored),
            ("bytes=,", 10, Ignored),
            ("bytes=-", 10, Ignored),
            ("bytes=a-b", 10, Ignored),
            ("bytes=+1-2", 10, Ignored),
            ("bytes=1 - 2", 10, Ignored),
            ("bytes=1-2-3", 10, Ignored),
            ("bytes = 0-1", 10, Ignored),
            ("bytes", 10, Ignored),
            ("lines=0-1", 10, Ignored),
            ("", 10, Ignored),
            (&format!("bytes={}", "0-0,".repeat(MOST_RANGES)), 10, Ranges(vec![0..1])),
            (&format!("bytes={}", "0-0,".repeat(MOST_RANGES + 1)), 10, TooMany),
        ] {
            assert_eq!(select(field.as_bytes(), length), selection, "{field} of {length}");
        }
    }

    #[test]
    fn disjoint_ranges_keep_order_and_near_ones_join() {
        let of = |field: &str| select(field.as_bytes(), 10_000);
        assert_eq!(of("bytes=5000-5009,0-9"), Selection::Ranges(vec![5000..5010, 0..10]));
        assert_eq!(of("bytes=5000-5009,0-9,4990-5005"), Selection::Ranges(vec![4990..5010, 0..10]));
        assert_eq!(of("bytes=0-9,90-99"), Selection::Ranges(vec![0..100]));
        assert_eq!(of("bytes=0-9,91-99"), Selection::Ranges(vec![0..10, 91..100]));
    }

    proptest! {
        #[test]
        fn range_answers_lie_within_the_file_and_are_disjoint(
            noise in proptest::collection::vec(any::<u8>(), 0..40),
            asked in "bytes=([0-9]{0,4}-[0-9]{0,4},){1,40}",
            length in 0u64..10_000,
        ) {
            for field in [&noise[..], asked.as_bytes()] {
                if let Selection::Ranges(mut ranges) = select(field, length) {
                    prop_assert!(ranges.iter().all(|range| range.start < range.end && range.end <= length));
                    ranges.sort_by_key(|range| range.start);
                    prop_assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
                    prop_assert!(!ranges.is_empty());
                }
            }
        }
    }

    /// The selection of a field whose ranges lie so near to each other that all are joined.
    fn joined_selection(set: &str, length: u64) -> Selection {
        let elements: Vec<&str> = set.split(',').filter(|element| !element.is_empty()).collect();
        let mut covered = Vec::new();
        for element in &elements {
            let number = |text: &str| (!text.is_empty()).then(|| text.parse::<u64>().unwrap());
            let Some((first, last)) = element.split_once('-').filter(|(_, last)| !last.contains('-')) else {
                return Selection::Ignored;
            };
            let asked = match (number(first), number(last)) {
                (None, None) => return Selection::Ignored,
                (Some(first), Some(last)) if first > last => return Selection::Ignored,
                (None, Some(count)) => length.saturating_sub(count)..=u64::MAX,
                (Some(first), last) => first..=last.unwrap_or(u64::MAX),
            };
            covered.extend((0..length).filter(|byte| asked.contains(byte)));
        }
        match (covered.iter().min(), covered.iter().max()) {
            (Some(first), Some(last)) => Selection::Ranges(vec![*first..last + 1]),
            _ if elements.is_empty() => Selection::Ignored,
            _ => Selection::Unsatisfiable,
        }
    }

    #[test]
    fn every_short_field_selects_its_bytes() {
        for set in base::every_text(b"015-,", 7) {
            let set = String::from_utf8(set).unwrap();
            for file in [0, 1, 5, 12] {
                let selected = select(format!("bytes={set}").as_bytes(), file);
                assert_eq!(selected, joined_selection(&set, file), "{set:?} of {file} bytes");
            }
        }
    }
}
