//! The first failed reply of each status: the beginning of its content, which often says why.
//!
//! A correct reply costs three bytes to look at. A failed one is kept only while the thread has no example of its
//! status, so a server that refuses everything costs no memory.

use std::collections::BTreeMap;

use http1::client::{Part, field};
use serde::{Deserialize, Serialize};

use crate::plan::choices::expected::Statuses;

/// The most statuses with an example.
const STATUSES_MAX: usize = 16;
/// The most bytes of an example.
const BYTES_MAX: usize = 200;

/// The examples of one thread, or of several.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Failures(BTreeMap<u16, String>);

/// The failed reply under way on a connection, if it will be an example.
#[derive(Debug, Default)]
pub(crate) struct Example(Option<Vec<u8>>);

impl Failures {
    /// Takes the example of a complete reply. Its status is not one of those kept.
    pub fn enter(&mut self, status: u16, example: &mut Example) {
        if let Some(content) = example.0.take() {
            let text = String::from_utf8_lossy(&content);
            let words: Vec<&str> =
                text.split(|letter: char| letter.is_whitespace() || letter.is_control()).collect();
            let words = words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
            self.0.insert(status, words);
        }
    }

    /// Adds the examples of another thread.
    pub fn merge(&mut self, other: &Failures) {
        for (status, text) in &other.0 {
            self.0.entry(*status).or_insert_with(|| text.clone());
        }
    }

    /// The beginnings of the contents, by status.
    pub fn into_examples(self) -> BTreeMap<u16, String> {
        self.0
    }

    fn wants(&self, status: u16) -> bool {
        self.0.len() < STATUSES_MAX && !self.0.contains_key(&status)
    }
}

impl Example {
    /// Takes a part of a reply, which is correct with one of the accepted statuses.
    pub fn read_part(&mut self, part: Part<'_>, accepted: &Statuses, known: &Failures) {
        match (part, &mut self.0) {
            (Part::Head(head), kept) => {
                let failed =
                    status(head).filter(|status| !accepted.contains(*status) && known.wants(*status));
                *kept = failed.map(|status| if status / 100 == 3 { redirection(head) } else { Vec::new() });
            }
            (Part::Content(content), Some(kept)) => {
                let room = BYTES_MAX.saturating_sub(kept.len());
                kept.extend_from_slice(&content[..content.len().min(room)]);
            }
            (Part::Content(_), None) => {}
        }
    }
}

/// The place that a redirect leads to, as the beginning of its example.
fn redirection(head: &[u8]) -> Vec<u8> {
    let Some(place) = field(head, "Location") else { return Vec::new() };
    [b"to ", &place[..place.len().min(BYTES_MAX / 2)], b"\n"].concat()
}

/// The status of a head whose syntax the reader has checked (RFC 9112, 4).
fn status(head: &[u8]) -> Option<u16> {
    std::str::from_utf8(head.get(9..12)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(failures: &mut Failures, status: u16, content: &str) {
        let mut example = Example::default();
        let accepted = Statuses::default();
        example.read_part(Part::Head(format!("HTTP/1.1 {status} X\r\n\r\n").as_bytes()), &accepted, failures);
        for byte in content.as_bytes() {
            example.read_part(Part::Content(&[*byte]), &accepted, failures);
        }
        failures.enter(status, &mut example);
    }

    #[test]
    fn first_failed_reply_of_each_status_is_kept() {
        let mut failures = Failures::default();
        for (status, content) in [(200, "fine"), (400, "need\r\n  json"), (400, "later"), (404, "")] {
            reply(&mut failures, status, content);
        }
        reply(&mut failures, 500, &"x".repeat(1000));
        let mut all = Failures::default();
        reply(&mut all, 400, "of another thread");
        all.merge(&failures);
        let examples = all.into_examples();
        assert_eq!((examples[&400].as_str(), examples[&404].as_str()), ("of another thread", ""));
        assert_eq!((examples[&500].len(), examples.len()), (BYTES_MAX, 3));
    }
}
