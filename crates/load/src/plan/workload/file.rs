//! Requests from a file: JSON Lines, or vegeta's JSON targets, which have a `url` in place of a `path`.
//!
//! A line is an object, which is a request, or an array of requests: a session, which makes them in order over one
//! connection. The whole file is read and checked before the first packet. Mistakes name their line.
//!
//! The requests may have times, and are then made at them: `at` in JSON Lines, and those of the recordings in `har` and `log`.

mod har;
mod log;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use base::Nanos;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::Think;
use super::data::Data;
use super::form::{Field, Method};
use crate::plan::expected::Statuses;
use crate::plan::target::Url;

/// A file of requests, read and checked.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestFile {
    path: PathBuf,
    kind: Kind,
    /// Sessions with times are in the order of these.
    sessions: Arc<Vec<Session>>,
    /// The entries of a recording that cannot be made again.
    left_out: usize,
}

/// The form of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Lines,
    Log,
    Archive,
}

/// The times of the requests of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    pub(crate) path: PathBuf,
    /// A time for each session, since the first one.
    pub(crate) times: Vec<Nanos>,
}

/// A file of values for the requests, read and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataFile {
    path: PathBuf,
    pub(crate) data: Arc<Data>,
}

/// The order in which sessions take the rows of the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataOrder {
    /// One row after the other, and the first again after the last.
    #[default]
    Sequential,
    /// A random row for each session.
    Random,
}

/// A file that cannot be used, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {why}")]
pub struct FileError {
    file: String,
    why: String,
}

/// A place in a file, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    Line(usize),
    Entry(usize),
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Position::Line(number) => write!(f, "line {number}"),
            Position::Entry(number) => write!(f, "entry {number}"),
        }
    }
}

/// The requests of one line, in order; at least one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Session {
    pub position: Position,
    pub weight: f64,
    /// The time in seconds, from any epoch.
    pub at: Option<f64>,
    /// True for an array, whose session keeps cookies.
    pub is_array: bool,
    pub requests: Vec<Definition>,
}

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Definition {
    pub name: Option<String>,
    pub method: Option<Method>,
    pub target: Address,
    pub fields: Vec<Field>,
    pub body: Option<Content>,
    pub expect: Option<Statuses>,
    pub expect_text: Option<String>,
    pub think: Option<Think>,
    /// Names of values for later requests of the session, and their places in the reply.
    pub capture: Vec<(String, Capture)>,
}

/// The target of a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Address {
    /// A path below the run's URL.
    Path(String),
    /// A whole URL of the run's server.
    Url(Url),
}

/// The content of a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Content {
    /// A text, whose braces are filled in.
    Text(String),
    /// Bytes that are sent as they are.
    Bytes(Arc<[u8]>),
}

/// The place of a value in a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Capture {
    /// A header field.
    Header(String),
    /// A JSON pointer into the content (RFC 6901).
    Pointer(String),
}

impl Session {
    /// The time in seconds, from any epoch; 0 without one.
    fn seconds(&self) -> f64 {
        self.at.unwrap_or_default()
    }

    /// Sorts sessions by time. Those without times keep their order.
    fn sort(sessions: &mut [Session]) {
        sessions.sort_by(|one, other| one.seconds().total_cmp(&other.seconds()));
    }

    /// Returns true unless the session has the URL of another server than this one.
    fn is_of(&self, server: &Url) -> bool {
        self.requests.iter().all(|request| match &request.target {
            Address::Path(_) => true,
            Address::Url(url) => url.has_server_of(server),
        })
    }
}

impl Definition {
    /// A request with nothing but its target.
    fn new(target: Address) -> Definition {
        Definition {
            name: None,
            method: None,
            target,
            fields: Vec::new(),
            body: None,
            expect: None,
            expect_text: None,
            think: None,
            capture: Vec::new(),
        }
    }
}

impl Address {
    /// The text of a path, which may have values to fill in.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Address::Path(path) => Some(path),
            Address::Url(url) => Some(url.path()),
        }
    }
}

/// A request as the file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    name: Option<String>,
    method: Option<String>,
    path: Option<String>,
    url: Option<String>,
    #[serde(alias = "header", default)]
    headers: BTreeMap<String, OneOrMore>,
    body: Option<serde_json::Value>,
    weight: Option<f64>,
    at: Option<f64>,
    expect: Option<serde_json::Value>,
    expect_text: Option<String>,
    think: Option<String>,
    #[serde(default)]
    capture: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl RequestFile {
    /// The file's name.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns true for a recording, whose requests can also be made at other times than their own.
    pub fn is_recording(&self) -> bool {
        self.kind != Kind::Lines
    }

    /// The times of the requests to the server of `url`; `None` if the file has none.
    pub fn replay(&self, url: &Url) -> Option<Replay> {
        let sessions = self.sessions_for(url);
        let first = sessions.first()?.at?;
        let since_first = |session: &&Session| Nanos::from_secs_f64(session.seconds() - first);
        Some(Replay { path: self.path.clone(), times: sessions.iter().map(since_first).collect() })
    }

    /// Returns true if the requests to the server of `url` have times.
    pub fn has_times(&self, url: &Url) -> bool {
        self.sessions_of(url).next().is_some_and(|session| session.at.is_some())
    }

    /// The sessions to the server of `url`, in a list.
    pub(crate) fn sessions_for(&self, url: &Url) -> Vec<&Session> {
        self.sessions_of(url).collect()
    }

    /// The sessions to the server of `url`. A list for one run has no others; an archive of a browser may.
    fn sessions_of(&self, url: &Url) -> impl Iterator<Item = &Session> {
        let all = self.kind != Kind::Archive;
        self.sessions.iter().filter(move |session| all || session.is_of(url))
    }

    /// One sentence on the entries of a recording that the run does not make.
    pub(crate) fn remark(&self, url: &Url) -> Option<String> {
        let others = self.sessions.len() - self.sessions_of(url).count();
        let file = self.path.display();
        let left_out = match self.kind {
            _ if others + self.left_out == 0 => return None,
            Kind::Lines => return None,
            Kind::Log => format!("{} lines of {file} are neither GET nor HEAD", self.left_out),
            Kind::Archive => {
                format!("{} entries of {file} are not of {}", others + self.left_out, url.authority())
            }
        };
        Some(format!("{left_out}, and are left out."))
    }
}

impl DataFile {
    /// The file's name.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

fn read(path: &str) -> Result<String, FileError> {
    let refuse = |why| FileError { file: path.to_owned(), why };
    let bytes = std::fs::read(path).map_err(|cause| refuse(format!("cannot be read: {cause}")))?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        refuse(format!("line {line}: it is not UTF-8; a binary body is \"@FILE\""))
    })
}

impl FromStr for RequestFile {
    type Err = FileError;

    /// Reads the file that the text names.
    fn from_str(path: &str) -> Result<RequestFile, FileError> {
        let text = read(path)?;
        let is_archive = Path::new(path).extension().is_some_and(|end| end.eq_ignore_ascii_case("har"));
        let parsed = if is_archive {
            har::parse(&text).map(|(all, left_out)| (Kind::Archive, all, left_out))
        } else {
            parse(&text)
        };
        let refuse = |why| FileError { file: path.to_owned(), why };
        let (kind, sessions, left_out) = parsed.map_err(refuse)?;
        if sessions.is_empty() {
            return Err(refuse("it has no requests".to_owned()));
        }
        Ok(RequestFile { path: path.into(), kind, sessions: Arc::new(sessions), left_out })
    }
}

impl FromStr for DataFile {
    type Err = FileError;

    /// Reads the file that the text names.
    fn from_str(path: &str) -> Result<DataFile, FileError> {
        let data = Data::parse(&read(path)?).map_err(|why| FileError { file: path.to_owned(), why })?;
        Ok(DataFile { path: path.into(), data: Arc::new(data) })
    }
}

impl fmt::Display for DataOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == DataOrder::Random { "random" } else { "sequential" })
    }
}

/// The sessions of JSON Lines or of a log, and the number of lines without one.
fn parse(text: &str) -> Result<(Kind, Vec<Session>, usize), String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = text.lines().map(str::trim).enumerate().map(|(index, line)| (index + 1, line));
    let mut lines = lines.filter(|(_, line)| !line.is_empty()).peekable();
    if lines.peek().is_some_and(|(_, line)| log::is_log(line)) {
        return log::parse(lines).map(|(sessions, left_out)| (Kind::Log, sessions, left_out));
    }
    let session = |(line, text)| session(line, text).map_err(|why| format!("line {line}: {why}"));
    let mut sessions: Vec<Session> = lines.map(session).collect::<Result<_, _>>()?;
    let has_times = sessions.first().is_some_and(|session| session.at.is_some());
    if let Some(other) = sessions.iter().find(|session| session.at.is_some() != has_times) {
        return Err(format!("{}: either every line has \"at\", or none", other.position));
    }
    Session::sort(&mut sessions);
    Ok((Kind::Lines, sessions, 0))
}

fn session(line: usize, text: &str) -> Result<Session, String> {
    let (is_array, requests): (bool, Vec<Line>) = match text.as_bytes()[0] {
        b'{' => (false, vec![serde_json::from_str(text).map_err(surprise)?]),
        b'[' => (true, serde_json::from_str(text).map_err(surprise)?),
        _ => {
            let shown: String = text.chars().take(40).collect();
            return Err(format!("'{shown}' is not a request {{...}} or a session [{{...}}, ...]"));
        }
    };
    let weight = requests.first().ok_or("the session has no requests")?.weight.unwrap_or(1.0);
    if !(weight > 0.0 && weight.is_finite()) {
        return Err(format!("the weight {weight} is not above 0"));
    }
    if requests.iter().skip(1).any(|request| request.weight.is_some()) {
        return Err("a session has one weight, that of its first request".to_owned());
    }
    if requests.iter().skip(1).any(|request| request.at.is_some()) {
        return Err("a session has one time \"at\", that of its first request".to_owned());
    }
    let at = requests[0].at;
    if at.is_some_and(|at| !at.is_finite()) || (at.is_some() && requests[0].weight.is_some()) {
        return Err("\"at\" is a number of seconds, and excludes \"weight\"".to_owned());
    }
    let requests = requests.into_iter().map(definition).collect::<Result<_, _>>()?;
    Ok(Session { position: Position::Line(line), weight, at, is_array, requests })
}

/// The message of the JSON parser, with the column: it knows one line only.
fn surprise(error: serde_json::Error) -> String {
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or(&text);
    if error.column() == 0 { what.to_owned() } else { format!("column {}: {what}", error.column()) }
}

fn definition(line: Line) -> Result<Definition, String> {
    let is_vegeta = line.url.is_some();
    let target = match (line.path, line.url) {
        (Some(path), None) if path.starts_with('/') || path.starts_with("{{") => Address::Path(path),
        (Some(path), None) => {
            return Err(format!("the path '{path}' does not begin with '/', or with a value's {{{{"));
        }
        (None, Some(url)) => Address::Url(url.parse().map_err(|error: crate::LoadError| error.to_string())?),
        _ => return Err("a request has a \"path\", or a \"url\"".to_owned()),
    };
    let mut fields = Vec::new();
    for (name, values) in line.headers {
        let values = match values {
            OneOrMore::One(value) => vec![value],
            OneOrMore::More(values) => values,
        };
        for value in values {
            fields.push(format!("{name}: {value}").parse().map_err(|error| format!("{error}"))?);
        }
    }
    let body = line.body.map(|body| content(body, is_vegeta, &mut fields)).transpose()?;
    let capture = line.capture.into_iter().map(|(name, place)| Ok((name, place_of(&place)?)));
    Ok(Definition {
        name: line.name,
        method: line.method.map(|method| method.parse().map_err(|error| format!("{error}"))).transpose()?,
        fields,
        body,
        expect: line.expect.map(statuses).transpose()?,
        expect_text: line.expect_text,
        think: line.think.map(|think| think.parse().map_err(|error| format!("{error}"))).transpose()?,
        capture: capture.collect::<Result<_, String>>()?,
        ..Definition::new(target)
    })
}

/// A body: text, `@FILE`, vegeta's base64, or a JSON value with its type in the header.
fn content(body: serde_json::Value, is_vegeta: bool, fields: &mut Vec<Field>) -> Result<Content, String> {
    match body {
        serde_json::Value::String(text) if is_vegeta => {
            let decoded = STANDARD.decode(&text);
            let bytes = decoded
                .map_err(|error| format!("the body is not base64, as vegeta's targets have it: {error}"))?;
            Ok(Content::Bytes(bytes.into()))
        }
        serde_json::Value::String(text) => match text.strip_prefix('@') {
            None => Ok(Content::Text(text)),
            Some(file) => {
                let read =
                    std::fs::read(file).map_err(|cause| format!("body '{text}' cannot be read: {cause}"))?;
                Ok(Content::Bytes(read.into()))
            }
        },
        value => {
            if !fields.iter().any(|field| field.name().eq_ignore_ascii_case("Content-Type")) {
                fields.push("Content-Type: application/json".parse().expect("it is a field"));
            }
            Ok(Content::Text(value.to_string()))
        }
    }
}

/// A status or a list of them: `200`, `"2xx"` or `[200, 404]`.
fn statuses(given: serde_json::Value) -> Result<Statuses, String> {
    let text = match &given {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Array(all) => {
            let all = all.iter().map(|one| one.as_str().map_or_else(|| one.to_string(), str::to_owned));
            all.collect::<Vec<_>>().join(",")
        }
        other => other.to_string(),
    };
    text.parse().map_err(|error| format!("expect: {error}"))
}

fn place_of(text: &str) -> Result<Capture, String> {
    match text.strip_prefix("header:") {
        Some(name) if !name.is_empty() => Ok(Capture::Header(name.trim().to_owned())),
        None if text.starts_with('/') => Ok(Capture::Pointer(text.to_owned())),
        _ => Err(format!(
            "'{text}' is not a place in a reply: expected header:NAME, or a JSON pointer such as /token"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_requests_and_arrays_sessions() {
        let text = r#"{"path": "/a", "weight": 3, "expect": [200, "4xx"]}

            [{"method": "POST", "path": "/login", "body": {"user": "{{user}}"}, "capture": {"token": "/token"}}, {"path": "/me"}]"#;
        let (_, sessions, _) = parse(text).unwrap();
        assert_eq!((sessions.len(), sessions[0].weight, sessions[1].position), (2, 3.0, Position::Line(3)));
        assert!(!sessions[0].is_array && sessions[1].is_array);
        let [login, me] = &sessions[1].requests[..] else { panic!("{sessions:?}") };
        assert_eq!(login.body, Some(Content::Text(r#"{"user":"{{user}}"}"#.to_owned())));
        assert_eq!(login.fields, ["Content-Type: application/json".parse().unwrap()]);
        assert_eq!(login.capture, [("token".to_owned(), Capture::Pointer("/token".to_owned()))]);
        assert_eq!(me.target, Address::Path("/me".to_owned()));
        assert_eq!(sessions[0].requests[0].expect, Some("200,4xx".parse().unwrap()));
    }

    #[test]
    fn targets_of_vegeta_are_requests() {
        let text = r#"{"method":"POST","url":"http://h/a","body":"YT1i","header":{"X-A":["1","2"]}}"#;
        let (_, sessions, _) = parse(text).unwrap();
        let target = &sessions[0].requests[0];
        assert_eq!(target.body, Some(Content::Bytes(b"a=b".as_slice().into())));
        assert_eq!(target.fields, ["X-A: 1", "X-A: 2"].map(|field| field.parse().unwrap()));
    }

    #[test]
    fn requests_with_times_are_in_their_order() {
        let text = "{\"path\": \"/b\", \"at\": 12.5}\n[{\"path\": \"/a\", \"at\": 10}, {\"path\": \"/c\"}]";
        let (kind, sessions, left_out) = parse(text).unwrap();
        let file = RequestFile { path: "f".into(), kind, sessions: Arc::new(sessions), left_out };
        let replay = file.replay(&"http://h/".parse().unwrap()).unwrap();
        assert_eq!(replay.times, [Nanos::ZERO, Nanos::from_millis(2_500)]);
        assert_eq!(file.sessions[0].requests[0].target, Address::Path("/a".to_owned()));
    }

    #[test]
    fn mistakes_name_line_and_surprise() {
        for (text, told) in [
            ("{\"path\": \"/\"}\n{\"path\": \"/\" \"a\": 1}", "line 2: column 14: expected `,` or `}`"),
            ("{\"pth\": \"/\"}", "line 1: column 6: unknown field `pth`, expected one of "),
            ("{\"method\": \"GET\"}", "line 1: a request has a \"path\", or a \"url\""),
            ("{\"path\": \"a\"}", "line 1: the path 'a' does not begin with '/', or with a value's {{"),
            ("GET /", "line 1: 'GET /' is not a request {...} or a session [{...}, ...]"),
            ("[]", "line 1: the session has no requests"),
            ("{\"path\": \"/\", \"weight\": 0}", "line 1: the weight 0 is not above 0"),
            ("{\"path\": \"/\", \"expect\": 99}", "line 1: expect: '99' is not a list of final statuses"),
            ("{\"path\": \"/\", \"capture\": {\"a\": \"b\"}}", "line 1: 'b' is not a place in a reply"),
            ("{\"path\": \"/\", \"body\": \"@/no/such\"}", "line 1: body '@/no/such' cannot be read"),
            (
                "{\"path\": \"/\", \"at\": 1}\n{\"path\": \"/\"}",
                "line 2: either every line has \"at\", or none",
            ),
            ("{\"path\": \"/\", \"at\": 1, \"weight\": 2}", "line 1: \"at\" is a number of seconds"),
        ] {
            let found = parse(text).unwrap_err();
            assert!(found.starts_with(told), "{text}: {found}");
        }
    }
}
