//! A file with names and hashes of passwords, in the form of Apache's htpasswd: a line `name:hash` for each name.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use base::Nanos;

use super::hash::Hash;

/// Time between two looks at a file.
const EVERY: Nanos = Nanos::SECOND;

/// Most bytes of a file.
const MOST_BYTES: u64 = 4 << 20;

/// A version of a file: inode, length, and time of the last change. Another version differs in one of them.
type Version = (u64, u64, i64, i64);

/// The names and hashes of a file.
#[derive(Clone, Debug)]
pub(super) struct PasswordFile {
    users: Arc<[(Vec<u8>, Hash)]>,
    version: Version,
    due: Nanos,
}

impl PasswordFile {
    /// Reads a file.
    ///
    /// # Errors
    /// A description of the mistake, which names the file.
    pub(super) fn read(path: &Path) -> Result<PasswordFile, String> {
        let wrong = |said: String| format!("the passwords in {}: {said}", path.display());
        let version = version(path).map_err(|cause| wrong(format!("cannot read them: {cause}")))?;
        if version.1 > MOST_BYTES {
            return Err(wrong(format!("the file has {} bytes; expected at most {MOST_BYTES}", version.1)));
        }
        let text = std::fs::read(path).map_err(|cause| wrong(format!("cannot read them: {cause}")))?;
        let mut users = Vec::new();
        for (number, line) in (1..).zip(text.split(|&byte| byte == b'\n')) {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            users.push(user(line).map_err(|said| wrong(format!("line {number}: {said}")))?);
        }
        Ok(PasswordFile { users: users.into(), version, due: Nanos::ZERO })
    }

    /// The newest state of a file, which may be the known one. A broken file is no newer state.
    pub(super) fn reread(path: &Path, known: Option<&PasswordFile>, now: Nanos) -> Option<Arc<PasswordFile>> {
        let due = now + EVERY;
        let is_known = known.is_some_and(|known| version(path).is_ok_and(|version| version == known.version));
        let read = if is_known { None } else { PasswordFile::read(path).ok() };
        let newest = read.or_else(|| known.cloned())?;
        Some(Arc::new(PasswordFile { due, ..newest }))
    }

    pub(super) fn is_due(&self, now: Nanos) -> bool {
        now >= self.due
    }

    pub(super) fn version(&self) -> Version {
        self.version
    }

    /// Tells whether a password is right. An unknown name costs as much time as the first name of the file.
    pub(super) fn verify(&self, name: &[u8], password: &[u8]) -> bool {
        match self.users.iter().find(|(known, _)| known == name) {
            Some((_, hash)) => hash.matches(password),
            None => {
                if let Some((_, hash)) = self.users.first() {
                    let _ = hash.matches(password);
                }
                false
            }
        }
    }
}

fn version(path: &Path) -> std::io::Result<Version> {
    let data = std::fs::metadata(path)?;
    Ok((data.ino(), data.len(), data.ctime(), data.ctime_nsec()))
}

fn user(line: &[u8]) -> Result<(Vec<u8>, Hash), String> {
    let accepted = "expected name:hash, as `inrush password NAME` and htpasswd print";
    let mut parts = line.splitn(3, |&byte| byte == b':');
    let (Some(name), Some(hash)) = (parts.next().filter(|name| !name.is_empty()), parts.next()) else {
        return Err(accepted.to_owned());
    };
    let hash = str::from_utf8(hash).map_err(|_| accepted.to_owned())?;
    Ok((name.to_owned(), hash.parse()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_in_a_file_name_their_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("passwords");
        for (text, said) in [
            ("# staff\n\nann\n", "line 3: expected name:hash"),
            (":{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=", "line 1: expected name:hash"),
            ("ann:secret", "line 1: the hash of a password is none that this server knows"),
            ("ann:{SHA}xx", "line 1: the hash of a password is none"),
            ("ann:$y$j9T$abc$def", "line 1: the hash of a password is none"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = PasswordFile::read(&path).unwrap_err();
            assert!(error.contains(said) && error.contains("passwords in /"), "{text}: {error}");
            assert!(!error.contains("secret") && !error.contains("j9T"), "{error}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(PasswordFile::read(&path).unwrap_err().contains("cannot read them"));
    }

    #[test]
    fn comments_and_further_fields_are_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("passwords");
        std::fs::write(&path, "# x\r\nann:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=:a comment\r\n").unwrap();
        let file = PasswordFile::read(&path).unwrap();
        assert!(
            file.verify(b"ann", b"secret") && !file.verify(b"ann", b"x") && !file.verify(b"x", b"secret")
        );
    }
}
