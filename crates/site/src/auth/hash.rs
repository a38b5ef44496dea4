//! Hashes of passwords: the one kind that is made here, and those that older files hold.
//!
//! New hashes are of bcrypt, because nginx, Apache and Caddy read it too. Others are only compared: `$apr1$` and `$1$`
//! (MD5), `$5$` and `$6$` (SHA-2), the DES of crypt(3), `{SHA}` and `{SSHA}`.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use md5::{Digest, Md5};
use sha1::Sha1;
use subtle::ConstantTimeEq;

/// The cost of new hashes: 2^10 rounds, some 50 ms of CPU time.
const COST: u32 = 10;

/// Returns a new hash of a password.
///
/// # Errors
/// The kernel gives no randomness, or the password has more than 72 bytes, of which bcrypt would ignore the rest.
pub fn new_hash(password: &[u8]) -> Result<String, String> {
    match bcrypt::non_truncating_hash(password, COST) {
        Ok(hash) => Ok(hash),
        Err(bcrypt::BcryptError::Truncation(_)) => {
            Err("the password is too long for bcrypt; expected at most 71 bytes".to_owned())
        }
        Err(error) => Err(error.to_string()),
    }
}

/// The hash of a password. It is never shown.
#[derive(Clone)]
pub(super) enum Hash {
    Bcrypt(String),
    /// Any that crypt(3) takes, except bcrypt: `$1$`, `$5$`, `$6$`, DES.
    Crypt(String),
    /// `$apr1$`: the salt, and the hash in its own letters.
    Apr1(String, String),
    /// `{SHA}` and `{SSHA}`: the digest, and the salt behind the password.
    Sha1([u8; 20], Vec<u8>),
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a hash")
    }
}

impl Hash {
    /// Tells whether the hash is of this password, in a time that does not depend on the place of a difference.
    pub(super) fn matches(&self, password: &[u8]) -> bool {
        match self {
            Hash::Bcrypt(hash) => bcrypt::verify(password, hash).unwrap_or(false),
            Hash::Crypt(hash) => pwhash::unix::verify(password, hash),
            Hash::Apr1(salt, hash) => {
                apr1(password, salt.as_bytes()).as_bytes().ct_eq(hash.as_bytes()).into()
            }
            Hash::Sha1(digest, salt) => {
                let own = Sha1::new().chain_update(password).chain_update(salt).finalize();
                own.as_slice().ct_eq(digest).into()
            }
        }
    }
}

impl FromStr for Hash {
    type Err = String;

    fn from_str(text: &str) -> Result<Hash, String> {
        let wrong = || {
            "the hash of a password is none that this server knows; expected bcrypt ($2y$), $apr1$, $1$, $5$, $6$, DES, {SHA} \
             or {SSHA}: make a new one with `inrush password NAME`"
                .to_owned()
        };
        let sha = text.strip_prefix("{SHA}").or_else(|| text.strip_prefix("{SSHA}"));
        if let Some(encoded) = sha {
            let bytes = BASE64_STANDARD.decode(encoded).map_err(|_| wrong())?;
            let (digest, salt) = bytes.split_first_chunk::<20>().ok_or_else(wrong)?;
            return Ok(Hash::Sha1(*digest, salt.to_vec()));
        }
        if let Some(rest) = text.strip_prefix("$apr1$") {
            let (salt, hash) = rest.split_once('$').filter(|(_, hash)| hash.len() == 22).ok_or_else(wrong)?;
            return Ok(Hash::Apr1(salt.chars().take(8).collect(), hash.to_owned()));
        }
        let is_of = |prefixes: &[&str]| prefixes.iter().any(|prefix| text.starts_with(prefix));
        let is_des = text.len() == 13 && text.bytes().all(|byte| LETTERS.contains(&byte));
        if is_of(&["$2a$", "$2b$", "$2x$", "$2y$"]) && text.len() == 60 {
            return Ok(Hash::Bcrypt(text.to_owned()));
        }
        if is_of(&["$1$", "$5$", "$6$"]) || is_des {
            return Ok(Hash::Crypt(text.to_owned()));
        }
        Err(wrong())
    }
}

/// The letters of hashes, by value.
const LETTERS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The hash of a password in Apache's form: the MD5 of crypt(3) with another word in it (apr_md5.c).
fn apr1(password: &[u8], salt: &[u8]) -> String {
    let inner = Md5::new().chain_update(password).chain_update(salt).chain_update(password).finalize();
    let mut outer = Md5::new().chain_update(password).chain_update(b"$apr1$").chain_update(salt);
    for part in (0..password.len()).step_by(16) {
        outer.update(&inner[..16.min(password.len() - part)]);
    }
    let mut length = password.len();
    while length != 0 {
        outer.update(if length & 1 == 1 { &[0][..] } else { &password[..1] });
        length >>= 1;
    }
    let mut last = outer.finalize();
    for round in 0..1000 {
        let mut next = Md5::new();
        next.update(if round & 1 == 1 { password } else { &last });
        if round % 3 != 0 {
            next.update(salt);
        }
        if round % 7 != 0 {
            next.update(password);
        }
        next.update(if round & 1 == 1 { &last[..] } else { password });
        last = next.finalize();
    }
    let mut text = String::with_capacity(22);
    let mut push = |mut value: u32, letters: usize| {
        for _ in 0..letters {
            text.push(char::from(LETTERS[(value & 63) as usize]));
            value >>= 6;
        }
    };
    for [high, middle, low] in [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]] {
        push(u32::from(last[high]) << 16 | u32::from(last[middle]) << 8 | u32::from(last[low]), 4);
    }
    push(u32::from(last[11]), 2);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by htpasswd 2.4 (-m, -s, -B, -2, -5), by OpenSSL 3.0 (passwd -1, -5, -6), and {SSHA} by hand.
    const FOREIGN: [&str; 9] = [
        "$apr1$/phSL3XT$iQCDzwwXMbNSRB3qhH4lD/",
        "{SHA}W8r/fyL/UzygmbNAjq2HbA67qac=",
        "$2y$05$D/LrCOVLC6sTE7gP2fSbZ.W8Eci3i/fWdgAi0858Dty8b9nW6ywbW",
        "$5$oydlYuTSsKxPIngp$Ghjfav5sr70RW7enfbtwnll0WNwEsOMj7pHUNps6sM4",
        "$6$dPJz8LZsUrXA7tvf$.MEjZToqXmMaKyR9TCQ.o2pZdnFMDKGq9pSOaobRELSx7x4hYSO1LM799a/CFNOrrA6KD4N/sNsApGUqDzyRI.",
        "$1$IzFphRTa$cTb6MwAhp9TrPcLqIAXXH0",
        "$5$9x3cX4waYoyx98zN$j0TBCl.zVms3zn7uGK8MWWbDhu3pjrSWi3l/pA3Oia5",
        "$6$iVVfFi34wszLJm.k$tDWks03qugCkXquPzFGz.xVf1j3xjr7SgsgicLAmQWExCudFJGbcUpNFe8Ak1KDLXW37iOPCusARUWazZLatw.",
        "{SSHA}yDCaycAOkpE5ZbZv/PRIDr0/UhJzYWx0ODc2NQ==",
    ];

    #[test]
    fn des_hash_sees_eight_letters_alone() {
        let hash: Hash = "d8hAQP.mjAEN.".parse().unwrap();
        assert!(hash.matches(b"open sesame") && hash.matches(b"open ses") && !hash.matches(b"open se"));
    }

    #[track_caller]
    fn check(hash: &str, password: &str) {
        let parsed: Hash = hash.parse().unwrap();
        assert!(parsed.matches(password.as_bytes()), "{hash}");
        for other in ["", "x", &format!("{password}x")] {
            assert!(!parsed.matches(other.as_bytes()), "{hash} {other}");
        }
        assert_eq!(format!("{parsed:?}"), "a hash");
    }

    #[test]
    fn hashes_of_other_programs_match_their_password() {
        for hash in FOREIGN {
            check(hash, "open sesame");
        }
    }

    #[test]
    fn new_hash_matches_and_differs_each_time() {
        let (one, two) = (new_hash(b"open sesame").unwrap(), new_hash(b"open sesame").unwrap());
        assert!(one.starts_with("$2b$10$") && one != two, "{one}");
        check(&one, "open sesame");
        assert!(new_hash(&[b'x'; 80]).unwrap_err().contains("at most 71 bytes"));
    }
}
