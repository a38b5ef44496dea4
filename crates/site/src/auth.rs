//! Names and passwords (RFC 7617): who may ask for a protected path.
//!
//! Owns the decision about a request's `Authorization`: the file of the rule ([`file`]), the checks of its hashes
//! (`hash`), and the wrong tries of each client (`tries`). Knows no responses.
//!
//! A check of a good hash takes tens of milliseconds of CPU time, on the loop that serves everybody. Two things bound
//! that. A password that was right is remembered, as a digest under a key of this process, so each is checked once.
//! And a loop spends at most a fifth of its time on checks; in between, it asks clients to come again.
//!
//! Invariants: a file that cannot be read lets nobody in. The time of a check does not depend on whether the name
//! exists, nor on the place of the first wrong byte.

mod file;
mod hash;
mod tries;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use base::{Clock, Nanos, lock};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use file::PasswordFile;
pub use hash::new_hash;
use tries::Tries;

/// Time without checks after one, in durations of that check.
const REST: u64 = 4;

/// Most passwords that are remembered to be right.
const MOST_REMEMBERED: usize = 4096;

/// The files with passwords, and the wrong tries. All loops of a process share it.
#[derive(Clone, Debug, Default)]
pub struct Logins(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    files: Mutex<HashMap<PathBuf, Arc<PasswordFile>>>,
    tries: Mutex<Tries>,
    /// Digests of files' versions, names and passwords that were right.
    right: Mutex<Vec<(u64, u64)>>,
    keys: [RandomState; 2],
}

/// The decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The name and the password are right.
    Right,
    /// They are missing or wrong.
    Wrong,
    /// The client has tried wrong passwords too often; it may try again after these seconds.
    TooOften(u64),
    /// The loop has no time for a check now.
    Busy,
    /// The file with the passwords cannot be read.
    NoFile,
}

/// One loop's budget for checks.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    next: Nanos,
}

/// Checks that a file with passwords can be read, and understands all of its lines.
///
/// # Errors
/// A description of the mistake, which names the file.
pub fn check_file(path: &Path) -> Result<(), String> {
    PasswordFile::read(path).map(drop)
}

impl Logins {
    /// Decides about the credentials of a request. `clock` measures the cost of a check.
    pub(crate) fn decide(
        &self,
        path: &Path,
        credentials: Option<&[u8]>,
        client: Option<IpAddr>,
        budget: &mut Budget,
        (clock, now): (&impl Clock, Nanos),
    ) -> Verdict {
        let Some(file) = self.file(path, now) else { return Verdict::NoFile };
        let Some((name, password)) = credentials.and_then(parse) else { return Verdict::Wrong };
        let client = client.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        if let Some(seconds) = lock(&self.0.tries).blocked_for(client, now) {
            return Verdict::TooOften(seconds);
        }
        let digest = self.digest(&file, &name, &password);
        if lock(&self.0.right).contains(&digest) {
            return Verdict::Right;
        }
        if now < budget.next {
            return Verdict::Busy;
        }
        let began = clock.now();
        let is_right = file.verify(&name, &password);
        budget.next = now + (clock.now() - began) * REST;
        if is_right {
            self.remember(digest);
            return Verdict::Right;
        }
        lock(&self.0.tries).add(client, now);
        Verdict::Wrong
    }

    fn digest(&self, file: &PasswordFile, name: &[u8], password: &[u8]) -> (u64, u64) {
        let of = |key: &RandomState| key.hash_one((file.version(), name, password));
        (of(&self.0.keys[0]), of(&self.0.keys[1]))
    }

    fn remember(&self, digest: (u64, u64)) {
        let mut right = lock(&self.0.right);
        if right.len() >= MOST_REMEMBERED {
            right.remove(0);
        }
        right.push(digest);
    }

    /// The file as it is now, looked at once a second. A file that cannot be read any more stays as it was.
    fn file(&self, path: &Path, now: Nanos) -> Option<Arc<PasswordFile>> {
        let mut files = lock(&self.0.files);
        let known = files.get(path);
        if let Some(known) = known.filter(|known| !known.is_due(now)) {
            return Some(Arc::clone(known));
        }
        let newest = PasswordFile::reread(path, known.map(AsRef::as_ref), now)?;
        files.insert(path.to_owned(), Arc::clone(&newest));
        Some(newest)
    }
}

/// The name and the password of a field `Authorization`.
fn parse(field: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (scheme, rest) = field.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let mut name = BASE64_STANDARD.decode(rest.trim_ascii()).ok()?;
    let colon = memchr::memchr(b':', &name)?;
    let password = name.split_off(colon + 1);
    name.truncate(colon);
    Some((name, password))
}

#[cfg(test)]
mod tests {
    use base::{SimulatedClock, WallTime};

    use super::*;

    fn credentials(text: &str) -> Vec<u8> {
        format!("Basic {}", BASE64_STANDARD.encode(text)).into_bytes()
    }

    struct Bench {
        folder: tempfile::TempDir,
        logins: Logins,
        clock: SimulatedClock,
        now: Nanos,
    }

    impl Bench {
        fn new(lines: &str) -> Bench {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("passwords"), lines).unwrap();
            let clock = SimulatedClock::new(WallTime::default());
            Bench { folder, logins: Logins::default(), clock, now: Nanos::SECOND }
        }

        fn ask(&self, text: &str, client: &str) -> Verdict {
            let (path, client) = (self.folder.path().join("passwords"), client.parse().ok());
            let field = credentials(text);
            self.logins.decide(&path, Some(&field), client, &mut Budget::default(), (&self.clock, self.now))
        }
    }

    // echo -n secret | openssl sha1 -binary | base64
    const SHA: &str = "ann:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n";

    #[test]
    fn right_password_is_accepted_and_others_are_not() {
        let bench = Bench::new(SHA);
        for (text, expected) in [
            ("ann:secret", Verdict::Right),
            ("ann:secret", Verdict::Right),
            ("ann:Secret", Verdict::Wrong),
            ("ann:", Verdict::Wrong),
            ("bob:secret", Verdict::Wrong),
            (":secret", Verdict::Wrong),
            ("ann", Verdict::Wrong),
        ] {
            assert_eq!(bench.ask(text, "192.0.2.1"), expected, "{text}");
        }
        let field = |bytes: &[u8]| {
            let path = bench.folder.path().join("passwords");
            bench.logins.decide(&path, Some(bytes), None, &mut Budget::default(), (&bench.clock, bench.now))
        };
        for bytes in [&b""[..], b"Basic", b"Basic !", b"Bearer YW5uOnNlY3JldA==", b"Basic YW5uOnNlY3JldA"] {
            assert_eq!(field(bytes), Verdict::Wrong);
        }
        assert_eq!(field(b"bASIC  YW5uOnNlY3JldA== "), Verdict::Right);
    }

    #[test]
    fn eleventh_wrong_try_of_a_minute_is_too_often() {
        let mut bench = Bench::new(SHA);
        for _ in 0..10 {
            assert_eq!(bench.ask("ann:wrong", "192.0.2.1"), Verdict::Wrong);
        }
        assert_eq!(bench.ask("ann:wrong", "192.0.2.1"), Verdict::TooOften(60));
        assert_eq!(bench.ask("ann:secret", "192.0.2.1"), Verdict::TooOften(60), "a guess may be right");
        assert_eq!(bench.ask("ann:secret", "192.0.2.2"), Verdict::Right);
        bench.now += Nanos::from_secs(60);
        assert_eq!(bench.ask("ann:secret", "192.0.2.1"), Verdict::Right);
    }

    #[test]
    fn changed_file_counts_within_a_second() {
        let mut bench = Bench::new(SHA);
        assert_eq!(bench.ask("ann:secret", "192.0.2.1"), Verdict::Right);
        let path = bench.folder.path().join("passwords");
        std::fs::write(&path, SHA.replace("ann", "barbara")).unwrap();
        bench.now += Nanos::SECOND;
        assert_eq!(bench.ask("ann:secret", "192.0.2.1"), Verdict::Wrong);
        assert_eq!(bench.ask("barbara:secret", "192.0.2.1"), Verdict::Right);
        std::fs::write(&path, "half a line").unwrap();
        bench.now += Nanos::SECOND;
        assert_eq!(bench.ask("barbara:secret", "192.0.2.1"), Verdict::Right, "it stays as it was");
    }

    #[test]
    fn missing_file_lets_nobody_in() {
        let bench = Bench::new(SHA);
        std::fs::remove_file(bench.folder.path().join("passwords")).unwrap();
        assert_eq!(bench.ask("ann:secret", "192.0.2.1"), Verdict::NoFile);
    }

    #[test]
    fn loop_rests_between_two_checks() {
        let bench = Bench::new(SHA);
        let path = bench.folder.path().join("passwords");
        let field = credentials("ann:secret");
        let mut budget = Budget { next: bench.now + Nanos(1) };
        let mut ask = |now| bench.logins.decide(&path, Some(&field), None, &mut budget, (&bench.clock, now));
        assert_eq!(ask(bench.now), Verdict::Busy);
        assert_eq!(ask(bench.now + Nanos(1)), Verdict::Right);
        budget.next = Nanos::MAX;
        let known = bench.logins.decide(&path, Some(&field), None, &mut budget, (&bench.clock, bench.now));
        assert_eq!(known, Verdict::Right, "a known password costs nothing");
    }
}
