//! All short texts of a few letters, for tests that try a small space whole.

/// Iterates over every text of at most `longest` bytes of `letters`, shorter texts first.
pub fn every_text(letters: &[u8], longest: u32) -> impl Iterator<Item = Vec<u8>> {
    let of_length = move |length| {
        (0..letters.len().pow(length)).map(move |number| {
            let letter = |place| letters[number / letters.len().pow(place) % letters.len()];
            (0..length).map(letter).collect()
        })
    };
    (0..=longest).flat_map(of_length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_text_comes_once() {
        let found: Vec<Vec<u8>> = every_text(b"ab", 2).collect();
        assert_eq!(found, [&b""[..], b"a", b"b", b"aa", b"ba", b"ab", b"bb"]);
    }
}
