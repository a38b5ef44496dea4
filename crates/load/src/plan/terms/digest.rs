//! Checks the content of a reply against the expected length and SHA-256 digest.
//!
//! A server under pressure can answer in time and with 200, and still cut its content short or send the
//! content of another client. The content is hashed as it is read and never kept.

use std::fmt;
use std::str::FromStr;

use ring::digest::{Context, SHA256};

/// The prefix of a SHA-256 digest, before its 64 hexadecimal digits.
const NAME: &str = "sha256:";

/// The SHA-256 digest of some content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest([u8; 32]);

/// The text is not a digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a digest: expected sha256: and 64 hexadecimal digits, as sha256sum prints them")]
pub struct NotADigest(String);

impl FromStr for Digest {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Digest, NotADigest> {
        parse(text).ok_or_else(|| NotADigest(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Digest> {
    let digits = text.strip_prefix(NAME)?.as_bytes();
    let mut bytes = [0; 32];
    if digits.len() != 2 * bytes.len() || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(Digest(bytes))
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAME)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Hashes the content of one reply as it arrives; does nothing unless a digest is expected.
#[derive(Clone, Default)]
pub(crate) struct Hasher(Option<Box<Context>>);

impl Hasher {
    /// A hasher that works, or one that does nothing.
    pub fn new(works: bool) -> Hasher {
        Hasher(works.then(|| Box::new(Context::new(&SHA256))))
    }

    /// Hashes the next piece of content.
    pub fn update(&mut self, content: &[u8]) {
        if let Some(hash) = &mut self.0 {
            hash.update(content);
        }
    }

    /// The digest of the content since the last call; `None` from a hasher that does nothing.
    pub fn finish(&mut self) -> Option<Digest> {
        let hash = std::mem::replace(self.0.as_deref_mut()?, Context::new(&SHA256));
        Some(Digest(hash.finish().as_ref().try_into().expect("SHA-256 gives 32 bytes")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The digest of "abc": FIPS 180-2, appendix B.1.
    const ABC: &str = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn content_in_pieces_has_the_digest_of_the_whole() {
        let expected: Digest = ABC.parse().unwrap();
        let mut hasher = Hasher::new(true);
        for _ in 0..2 {
            hasher.update(b"a");
            hasher.update(b"bc");
            assert_eq!(hasher.finish(), Some(expected), "and it begins anew");
        }
        assert_eq!(Hasher::new(false).finish(), None);
    }

    #[test]
    fn digests_parse_back_and_nonsense_is_refused() {
        assert_eq!(ABC.parse::<Digest>().unwrap().to_string(), ABC);
        for text in
            ["", "sha256:", &ABC[..70], &ABC[7..], &ABC.replace('a', "g"), &ABC.replace("sha256", "md5")]
        {
            let told = text.parse::<Digest>().unwrap_err().to_string();
            assert!(told.starts_with(&format!("'{text}' is not a digest: expected sha256:")), "{told}");
        }
    }
}
