//! Files that rules name: pages of errors, the fallback, the index.

use std::str::FromStr;

use http_semantics::Status;

use super::pattern::LONGEST;
use crate::path::{self, SitePath};

/// A file of the site that a rule names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageFile(SitePath);

impl PageFile {
    /// The file's path.
    pub fn path(&self) -> &SitePath {
        &self.0
    }
}

impl FromStr for PageFile {
    type Err = String;

    fn from_str(text: &str) -> Result<PageFile, String> {
        let plain = !text.contains(|letter: char| letter.is_ascii_control() || "?#".contains(letter));
        let path = path::normalise(text, false).ok().filter(|path| !path.directory);
        path.filter(|_| plain && text.len() <= LONGEST).map(PageFile).ok_or_else(|| {
            format!("'{text}' is not a path of a file; expected a path below the root, such as /404.html")
        })
    }
}

/// The page of an error, as text `STATUS PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorPage {
    pub(super) status: Status,
    pub(super) file: PageFile,
}

impl ErrorPage {
    /// The status of the error.
    pub fn status(&self) -> Status {
        self.status
    }

    /// The page.
    pub fn file(&self) -> &PageFile {
        &self.file
    }
}

impl FromStr for ErrorPage {
    type Err = String;

    fn from_str(text: &str) -> Result<ErrorPage, String> {
        const STATUSES: [Status; 4] =
            [Status::BAD_REQUEST, Status::FORBIDDEN, Status::NOT_FOUND, Status::INTERNAL_SERVER_ERROR];
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let [status, file] = words[..] else {
            return Err(format!(
                "'{text}' is not an error page; expected STATUS PATH, such as '404 /404.html'"
            ));
        };
        let known = STATUSES.into_iter().find(|known| known.0.to_string() == status);
        let status = known
            .ok_or_else(|| format!("'{status}' has no page; expected the status 400, 403, 404 or 500"))?;
        Ok(ErrorPage { status, file: file.parse()? })
    }
}

/// Parses the name of an index file.
///
/// # Errors
/// A description of what is accepted.
pub fn index_name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains(['/', '\0']) || [".", ".."].contains(&text) {
        return Err("expected the name of a file, such as index.html, without a slash".to_owned());
    }
    Ok(text.to_owned())
}

/// Parses the ending of files that paths leave out.
///
/// # Errors
/// A description of what is accepted.
pub fn ending(text: &str) -> Result<String, String> {
    let is_ending = text.len() > 1 && text.starts_with('.') && !text.ends_with('.');
    if !is_ending || !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte)) {
        return Err("expected the ending of files, such as .html".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ending_begins_with_a_dot() {
        assert_eq!(ending(".html").as_deref(), Ok(".html"));
        for text in ["", ".", "html", "/x.html", "./html", ".html.", ".a/b", ".%00"] {
            assert!(ending(text).unwrap_err().contains("such as .html"), "{text}");
        }
    }

    #[test]
    fn a_page_is_a_status_and_a_file() {
        let page: ErrorPage = "404 /errors/../404%2ehtml".parse().unwrap();
        assert_eq!((page.status(), page.file().path().canonical.as_str()), (Status::NOT_FOUND, "/404.html"));
        for (text, said) in [
            ("404", "expected STATUS PATH"),
            ("404 /a b", "expected STATUS PATH"),
            ("200 /a", "expected the status"),
            ("418 /a", "expected the status"),
            ("404 a.html", "expected a path below the root"),
            ("404 /folder/", "expected a path below the root"),
            ("404 /../etc/passwd", "expected a path below the root"),
            ("404 /.hidden", "expected a path below the root"),
            ("404 /a?b", "expected a path below the root"),
        ] {
            let error = text.parse::<ErrorPage>().unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn an_index_is_a_name() {
        assert_eq!(index_name("start.html").as_deref(), Ok("start.html"));
        for text in ["", "/", "a/b", ".", "..", "../x"] {
            assert!(index_name(text).unwrap_err().contains("without a slash"), "{text}");
        }
    }
}
