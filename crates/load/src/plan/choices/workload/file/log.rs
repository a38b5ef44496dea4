//! Requests of an access log in the common or combined format, at their times.
//!
//! A log has no content of requests, so only GET and HEAD can be made again. Times are whole seconds in the order of
//! completion: `index` sorts the entries, and spreads the entries of one second evenly over that second.

use super::{Address, Definition, Position, Session};
use crate::plan::choices::workload::recorded_time::logged;

/// Returns true if a file's first line is one of an access log.
pub(super) fn is_log(line: &str) -> bool {
    line.contains('[') && line.contains('"') && !line.starts_with(['[', '{'])
}

/// The session of a line, at its whole second; `None` for a request that cannot be made again.
///
/// # Errors
/// The line is not a line of an access log.
pub(super) fn session(line: usize, text: &str) -> Result<Option<Session>, String> {
    let refuse = || {
        "it is not a line of an access log: expected [10/Oct/2000:13:55:36 -0700] \"GET /PATH HTTP/1.1\""
            .to_owned()
    };
    let time = logged(text).ok_or_else(refuse)?;
    let request = text.split('"').nth(1).ok_or_else(refuse)?;
    Ok(definition(request).map(|definition| Session {
        position: Position::Line(line),
        weight: 1.0,
        at: Some(time as f64),
        is_array: false,
        requests: vec![definition],
    }))
}

/// The request of a log's line; `None` for one that cannot be made again.
fn definition(request: &str) -> Option<Definition> {
    let mut words = request.split(' ');
    let method = words.next().filter(|method| matches!(*method, "GET" | "HEAD"))?;
    let path = words.next()?;
    let is_path = path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic());
    // A path is sent as it is, so braces in it are no values.
    (is_path && !path.contains("{{")).then(|| Definition {
        method: method.parse().ok(),
        ..Definition::new(Address::Path(path.to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(time: &str, request: &str) -> String {
        format!("::1 - - [10/Oct/2000:13:55:{time} -0700] \"{request}\" 200 5 \"-\" \"curl\"")
    }

    #[test]
    fn requests_of_a_log_are_get_and_head() {
        let parsed = |request| session(1, &line("36", request)).unwrap();
        let head = parsed("HEAD /b?x HTTP/1.0").unwrap();
        assert_eq!(head.requests[0].method.as_ref().unwrap().name(), "HEAD");
        assert_eq!(head.requests[0].target.text(), Some("/b?x"));
        assert_eq!(
            [parsed("POST /d HTTP/1.1"), parsed("-"), parsed("GET /{{x}} HTTP/1.1")],
            [const { None }; 3]
        );
    }

    #[test]
    fn lines_of_no_log_are_named() {
        for text in ["GET /", "[10/Oct/2000:13:55:36 -0700] GET /"] {
            let told = session(2, text).unwrap_err();
            assert!(told.starts_with("it is not a line of an access log"), "{told}");
        }
    }
}
