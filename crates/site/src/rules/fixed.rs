//! Responses without a file.

use std::str::FromStr;

use http_semantics::Status;

use super::pattern::{LONGEST, Pattern, first_word};

/// A response from memory, as text `PATTERN STATUS [TEXT]`. Without a text, the content is the page of the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fixed {
    paths: Pattern,
    /// The status of the response.
    pub(crate) status: Status,
    /// The content, as plain text.
    pub(crate) text: Option<String>,
}

impl Fixed {
    /// Tells whether the rule is about a canonical path.
    pub(super) fn is_about(&self, path: &str) -> bool {
        self.paths.matches(path)
    }
}

impl FromStr for Fixed {
    type Err = String;

    fn from_str(text: &str) -> Result<Fixed, String> {
        let accepted = "expected PATH STATUS [TEXT], such as '/healthz 200 ok'";
        let (paths, rest) = first_word(text);
        let (status, text) = first_word(rest);
        if status.is_empty() {
            return Err(format!("'{paths}' is not a response; {accepted}"));
        }
        // Others need fields that a text does not have, or end the connection.
        let status = match status.parse() {
            Ok(code @ (200 | 204 | 403 | 404 | 405 | 410 | 418 | 451 | 500 | 503)) => Status(code),
            _ => {
                return Err(format!(
                    "'{status}' is not a status of a fixed response; expected 200, 204, 403, 404, 405, 410, 418, 451, 500 or 503"
                ));
            }
        };
        let text = (!text.is_empty()).then(|| text.to_owned());
        if status.is_bodiless() && text.is_some() {
            return Err(format!("a response {} has no content; leave out its text", status.0));
        }
        if text.as_ref().is_some_and(|text| text.len() > LONGEST) {
            return Err(format!("the text is too long; expected at most {LONGEST} bytes, or a file"));
        }
        Ok(Fixed { paths: paths.parse()?, status, text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_response_has_a_status_and_a_text() {
        let rule: Fixed = "/healthz 200 all is well".parse().unwrap();
        assert_eq!((rule.status, rule.text.as_deref()), (Status::OK, Some("all is well")));
        let rule: Fixed = "/gone/* 410".parse().unwrap();
        assert_eq!((rule.status, rule.text, rule.paths.rest("/gone/a")), (Status::GONE, None, Some("a")));
    }

    #[test]
    fn fixed_mistakes_name_what_is_accepted() {
        for (text, said) in [
            ("/a", "expected PATH STATUS [TEXT]"),
            ("/a ok", "expected 200"),
            ("/a 301", "expected 200"),
            ("/a 204 text", "leave out its text"),
            ("a 200", "expected a path such as"),
        ] {
            let error = text.parse::<Fixed>().unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
