//! Requests of an HTTP archive (HAR 1.2), which browsers save: each entry is a request, at its time.
//!
//! An archive has entries of many servers. Those of the run's server are made again, and the others are left out. Fields
//! that belong to a connection are left out too, because the run has connections of its own.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::{Address, Content, Definition, Field, Position, Session};
use crate::plan::choices::workload::recorded_time::timestamp;
use crate::plan::terms::target::Url;

/// Fields that the run's own connections have, or that the generator writes itself.
const OWN_FIELDS: [&str; 8] = [
    "host",
    "content-length",
    "connection",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "upgrade",
    "te",
];

#[derive(Deserialize)]
struct Archive {
    log: Log,
}

#[derive(Deserialize)]
struct Log {
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    started_date_time: String,
    request: Request,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    method: String,
    url: String,
    #[serde(default)]
    headers: Vec<Pair>,
    post_data: Option<PostData>,
}

#[derive(Deserialize)]
struct Pair {
    name: String,
    value: String,
}

#[derive(Deserialize)]
struct PostData {
    #[serde(default)]
    text: String,
    encoding: Option<String>,
}

/// The sessions of an archive, by time, and the number of entries that are no HTTP.
///
/// # Errors
/// The place in the text, or the entry, and the reason.
pub(super) fn parse(text: &str) -> Result<(Vec<Session>, usize), String> {
    let archive: Archive =
        serde_json::from_str(text).map_err(|error| format!("it is no HTTP archive: {error}"))?;
    let (mut sessions, mut left_out) = (Vec::new(), 0);
    for (index, entry) in archive.log.entries.into_iter().enumerate() {
        let number = index + 1;
        let Ok(url) = entry.request.url.parse::<Url>() else {
            left_out += 1;
            continue;
        };
        let session = session(number, url, entry);
        sessions.push(session.map_err(|why| format!("entry {number}: {why}"))?);
    }
    Session::sort(&mut sessions);
    Ok((sessions, left_out))
}

fn session(number: usize, url: Url, entry: Entry) -> Result<Session, String> {
    let Entry { started_date_time, request } = entry;
    let at = timestamp(&started_date_time)
        .ok_or_else(|| format!("'{started_date_time}' is no time such as 2000-10-10T13:55:36.125Z"))?;
    let is_sent = |pair: &&Pair| {
        !pair.name.starts_with(':') && !OWN_FIELDS.iter().any(|own| pair.name.eq_ignore_ascii_case(own))
    };
    let fields: Vec<Field> = request
        .headers
        .iter()
        .filter(is_sent)
        .map(|Pair { name, value }| format!("{name}: {value}").parse().map_err(|error| format!("{error}")))
        .collect::<Result<_, _>>()?;
    let body = request.post_data.map(content).transpose()?;
    let method = Some(request.method.parse().map_err(|error| format!("{error}"))?);
    let definition = Definition { method, fields, body, ..Definition::new(Address::Url(url)) };
    let position = Position::Entry(number);
    Ok(Session { position, weight: 1.0, at: Some(at), is_array: false, requests: vec![definition] })
}

/// The content of a request, which is sent as it is.
fn content(data: PostData) -> Result<Content, String> {
    let bytes = match data.encoding.as_deref() {
        Some("base64") => STANDARD.decode(&data.text).map_err(|error| format!("postData: {error}"))?,
        _ => data.text.into_bytes(),
    };
    Ok(Content::Bytes(Arc::from(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARCHIVE: &str = r#"{"log": {"version": "1.2", "entries": [
        {"startedDateTime": "2026-01-01T10:00:01.500Z", "request": {"method": "POST", "url": "http://h:80/b#x",
         "headers": [{"name": ":authority", "value": "h"}, {"name": "Host", "value": "h"}, {"name": "X-A", "value": "1"}],
         "postData": {"mimeType": "text/plain", "text": "{{not a value}}"}}},
        {"startedDateTime": "2026-01-01T11:00:01+01:00", "request": {"method": "GET", "url": "http://h/a", "headers": []}},
        {"startedDateTime": "2026-01-01T10:00:02Z", "request": {"method": "GET", "url": "data:text/plain,x"}}]}}"#;

    #[test]
    fn entries_are_requests_at_their_times() {
        let (sessions, left_out) = parse(ARCHIVE).unwrap();
        let paths: Vec<_> =
            sessions.iter().map(|session| session.requests[0].target.text().unwrap().to_owned()).collect();
        assert_eq!((paths, left_out), (vec!["/a".to_owned(), "/b".to_owned()], 1));
        assert_eq!(sessions[1].seconds() - sessions[0].seconds(), 0.5);
        let post = &sessions[1].requests[0];
        assert_eq!(post.fields, ["X-A: 1".parse().unwrap()]);
        assert_eq!(post.body, Some(Content::Bytes(b"{{not a value}}".as_slice().into())));
    }

    #[test]
    fn mistakes_name_their_entry() {
        let told = parse(&ARCHIVE.replace("11:00:01+01:00", "11 o'clock")).unwrap_err();
        assert!(told.starts_with("entry 2: '2026-01-01T11 o'clock' is no time"), "{told}");
        let told = parse("{\"log\": {}}").unwrap_err();
        assert!(told.starts_with("it is no HTTP archive: missing field `entries`"), "{told}");
    }
}
