//! Requests of an access log in the common or combined format, at their times.
//!
//! A log has no content of requests, so only GET and HEAD can be made again. Times are whole seconds in the order of
//! completion: entries are sorted, and those of one second are spread evenly over it.

use super::{Address, Definition, Position, Session};
use crate::plan::workload::recorded_time::{logged, spread};

/// Returns true if a file's first line is one of an access log.
pub(super) fn is_log(line: &str) -> bool {
    line.contains('[') && line.contains('"') && !line.starts_with(['[', '{'])
}

/// The sessions of a log, and the number of lines without one.
///
/// # Errors
/// The line that is none of an access log.
pub(super) fn parse<'a>(
    lines: impl Iterator<Item = (usize, &'a str)>,
) -> Result<(Vec<Session>, usize), String> {
    let (mut sessions, mut left_out) = (Vec::new(), 0);
    for (line, text) in lines {
        let refuse = || {
            format!(
                "line {line}: it is none of an access log: expected [10/Oct/2000:13:55:36 -0700] \"GET /PATH HTTP/1.1\""
            )
        };
        let time = logged(text).ok_or_else(refuse)?;
        let request = text.split('"').nth(1).ok_or_else(refuse)?;
        match definition(request) {
            Some(definition) => sessions.push(Session {
                position: Position::Line(line),
                weight: 1.0,
                at: Some(time as f64),
                is_array: false,
                requests: vec![definition],
            }),
            None => left_out += 1,
        }
    }
    Session::sort(&mut sessions);
    let mut times: Vec<f64> = sessions.iter().map(Session::seconds).collect();
    spread(&mut times);
    sessions.iter_mut().zip(times).for_each(|(session, time)| session.at = Some(time));
    Ok((sessions, left_out))
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
    fn requests_of_a_log_have_their_times() {
        let lines = [
            line("37", "GET /c HTTP/1.1"),
            line("36", "GET /a HTTP/1.1"),
            line("36", "HEAD /b?x HTTP/1.0"),
            line("36", "POST /d HTTP/1.1"),
            line("38", "-"),
        ];
        let lines = lines.iter().enumerate().map(|(index, line)| (index + 1, line.as_str()));
        let (sessions, left_out) = parse(lines).unwrap();
        let first = sessions[0].seconds();
        let shown: Vec<_> = sessions
            .iter()
            .map(|session| (session.requests[0].target.text().unwrap(), session.seconds() - first))
            .collect();
        assert_eq!((shown, left_out), (vec![("/a", 0.0), ("/b?x", 0.5), ("/c", 1.0)], 2));
        assert_eq!(sessions[1].requests[0].method.as_ref().unwrap().name(), "HEAD");
    }

    #[test]
    fn lines_of_no_log_are_named() {
        let good = line("36", "GET / HTTP/1.1");
        let told = parse([(1, good.as_str()), (2, "GET /")].into_iter()).unwrap_err();
        assert!(told.starts_with("line 2: it is none of an access log"), "{told}");
    }
}
