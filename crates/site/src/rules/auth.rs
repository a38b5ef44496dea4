//! Paths that need a name and a password.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::pattern::{LONGEST, Pattern, first_word};

/// Paths with passwords, as text `PATTERN FILE [REALM]`. The last rule that matches decides, so that a folder within
/// another may have its own file. The file `-` is none: the paths are open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    paths: Pattern,
    file: Option<PathBuf>,
    realm: String,
}

impl Auth {
    /// Tells whether the rule is about a canonical path.
    pub(super) fn is_about(&self, path: &str) -> bool {
        self.paths.matches(path)
    }

    /// The file with names and hashes of passwords; `None` if the paths are open.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The name of the protected space, which browsers show.
    pub(crate) fn realm(&self) -> &str {
        &self.realm
    }
}

impl FromStr for Auth {
    type Err = String;

    fn from_str(text: &str) -> Result<Auth, String> {
        let accepted = "expected PATH FILE [REALM], such as '/private/* /etc/inrush/passwords Staff'";
        let (paths, rest) = first_word(text);
        let (file, realm) = first_word(rest);
        if file.is_empty() {
            return Err(format!("'{text}' is not a rule about passwords; {accepted}"));
        }
        let realm = if realm.is_empty() { "Restricted" } else { realm };
        if !realm.bytes().all(|byte| matches!(byte, b' '..=b'~') && !b"\"\\".contains(&byte)) {
            return Err(format!(
                "the realm '{realm}' has a character that a header field cannot quote; {accepted}"
            ));
        }
        if text.len() > LONGEST {
            return Err(format!("the rule is too long; expected at most {LONGEST} bytes"));
        }
        let file = (file != "-").then(|| PathBuf::from(file));
        Ok(Auth { paths: paths.parse()?, file, realm: realm.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auth_rule_has_paths_a_file_and_a_realm() {
        let rule: Auth = "/private/*  /etc/passwords  Our staff".parse().unwrap();
        assert_eq!((rule.file(), rule.realm()), (Some(Path::new("/etc/passwords")), "Our staff"));
        assert!(rule.is_about("/private/a") && !rule.is_about("/private"));
        let open: Auth = "/private/open/* -".parse().unwrap();
        assert_eq!((open.file(), open.realm()), (None, "Restricted"));
    }

    #[test]
    fn auth_mistakes_name_what_is_accepted() {
        for (text, said) in [
            ("", "expected PATH FILE [REALM]"),
            ("/a", "expected PATH FILE [REALM]"),
            ("/a file say \"x\"", "cannot quote"),
            ("/a file \u{e9}", "cannot quote"),
            ("a file", "expected a path such as"),
        ] {
            let error = text.parse::<Auth>().unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
