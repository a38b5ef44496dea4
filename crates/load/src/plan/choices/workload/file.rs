//! Requests from a file: JSON Lines, or vegeta's JSON targets, which have a `url` in place of a `path`.
//!
//! A line is an object, which is a request, or an array of requests: a session, which makes them in order over one
//! connection. The whole file is read and checked before the first packet. Mistakes name their line. `index` keeps the places
//! of the lines, and not the requests; an archive is one JSON text, and is kept.
//!
//! The requests may have times, and are then made at them: `at` in JSON Lines, and those of the recordings in `har` and `log`.

mod har;
mod index;
mod log;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
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
use crate::plan::choices::expected::Statuses;
use crate::plan::terms::target::Url;
use index::Index;

/// A file of requests, read and checked.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestFile {
    path: PathBuf,
    sessions: Sessions,
}

/// The sessions of a file. Sessions with times are in the order of their times.
#[derive(Clone, Debug, PartialEq)]
enum Sessions {
    /// JSON Lines, or the lines of a log.
    Lines(Arc<Index>),
    Archive(Arc<Archive>),
}

/// The sessions of an archive, and the number of entries that cannot be made again.
#[derive(Debug, PartialEq)]
struct Archive {
    sessions: Vec<Session>,
    left_out: usize,
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
#[error("{file}: {}", base::printable(why))]
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

    /// Returns true if its bytes differ from session to session, or its replies are needed.
    fn needs_script(&self) -> bool {
        let braces = |text: &str| text.contains("{{");
        self.is_array
            || self.requests.iter().any(|request| {
                request.target.text().is_some_and(braces)
                    || request.fields.iter().any(|field| braces(field.value()))
                    || matches!(&request.body, Some(Content::Text(text)) if braces(text))
                    || request.expect_text.is_some()
                    || !request.capture.is_empty()
            })
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
        match &self.sessions {
            Sessions::Lines(index) => index.is_log,
            Sessions::Archive(_) => true,
        }
    }

    /// The times of the requests to the server of `url`; `None` if the file has none.
    pub fn replay(&self, url: &Url) -> Option<Replay> {
        let times = self.times(url);
        let first = *times.first()?;
        let times = times.iter().map(|at| Nanos::from_secs_f64(at - first)).collect();
        Some(Replay { path: self.path.clone(), times })
    }

    /// Returns true if the requests to the server of `url` have times.
    pub fn has_times(&self, url: &Url) -> bool {
        match &self.sessions {
            Sessions::Lines(index) => !index.times.is_empty(),
            Sessions::Archive(archive) => archive.of(url).next().is_some(),
        }
    }

    /// Times in seconds, from any epoch.
    fn times(&self, url: &Url) -> Cow<'_, [f64]> {
        match &self.sessions {
            Sessions::Lines(index) => Cow::Borrowed(&index.times),
            Sessions::Archive(archive) => archive.of(url).map(Session::seconds).collect(),
        }
    }

    /// Returns true if the requests need a script, and not a table.
    pub(crate) fn needs_script(&self) -> bool {
        match &self.sessions {
            Sessions::Lines(index) => index.needs_script,
            Sessions::Archive(archive) => archive.sessions.iter().any(Session::needs_script),
        }
    }

    /// Reads the sessions to the server of `url`, one after the other.
    ///
    /// # Errors
    /// The first of `take`, or a line that has changed since the check.
    pub(crate) fn each(
        &self,
        url: &Url,
        take: &mut dyn FnMut(Session) -> Result<(), String>,
    ) -> Result<(), String> {
        match &self.sessions {
            Sessions::Lines(index) => index.each(take),
            Sessions::Archive(archive) => archive.of(url).cloned().try_for_each(take),
        }
    }

    /// One sentence on the entries of a recording that the run does not make.
    pub(crate) fn remark(&self, url: &Url) -> Option<String> {
        let file = self.path.display();
        let left_out = match &self.sessions {
            Sessions::Lines(index) if index.left_out > 0 => {
                format!("{} lines of {file} are neither GET nor HEAD", index.left_out)
            }
            Sessions::Lines(_) => return None,
            Sessions::Archive(archive) => {
                match archive.sessions.len() - archive.of(url).count() + archive.left_out {
                    0 => return None,
                    others => format!("{others} entries of {file} are not of {}", url.authority()),
                }
            }
        };
        Some(format!("{left_out}, and are left out."))
    }
}

impl Archive {
    /// The sessions to the server of `url`. An archive of a browser has others too.
    fn of(&self, url: &Url) -> impl Iterator<Item = &Session> {
        self.sessions.iter().filter(move |session| session.is_of(url))
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
        let refuse = |why| FileError { file: path.to_owned(), why };
        let is_archive = Path::new(path).extension().is_some_and(|end| end.eq_ignore_ascii_case("har"));
        let (sessions, is_empty) = if is_archive {
            let (sessions, left_out) = har::parse(&read(path)?).map_err(refuse)?;
            let is_empty = sessions.is_empty();
            (Sessions::Archive(Arc::new(Archive { sessions, left_out })), is_empty)
        } else {
            let file = File::open(path).map_err(|cause| refuse(format!("cannot be read: {cause}")))?;
            let index = Index::of(file).map_err(refuse)?;
            let is_empty = index.is_empty();
            (Sessions::Lines(Arc::new(index)), is_empty)
        };
        if is_empty {
            return Err(refuse("it has no requests".to_owned()));
        }
        Ok(RequestFile { path: path.into(), sessions })
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

/// The session of a line of JSON.
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
    use std::io::{Seek, Write};

    /// The sessions of a file with this text.
    fn parse(text: &str) -> Result<Vec<Session>, String> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.rewind().unwrap();
        let mut sessions = Vec::new();
        Index::of(file)?.each(&mut |session| {
            sessions.push(session);
            Ok(())
        })?;
        Ok(sessions)
    }

    #[test]
    fn objects_are_requests_and_arrays_sessions() {
        let text = r#"{"path": "/a", "weight": 3, "expect": [200, "4xx"]}

            [{"method": "POST", "path": "/login", "body": {"user": "{{user}}"}, "capture": {"token": "/token"}}, {"path": "/me"}]"#;
        let sessions = parse(text).unwrap();
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
        let sessions = parse(text).unwrap();
        let target = &sessions[0].requests[0];
        assert_eq!(target.body, Some(Content::Bytes(b"a=b".as_slice().into())));
        assert_eq!(target.fields, ["X-A: 1", "X-A: 2"].map(|field| field.parse().unwrap()));
    }

    #[test]
    fn requests_with_times_are_in_their_order() {
        let text = "{\"path\": \"/b\", \"at\": 12.5}\n[{\"path\": \"/a\", \"at\": 10}, {\"path\": \"/c\"}]";
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let read: RequestFile = file.path().to_str().unwrap().parse().unwrap();
        let replay = read.replay(&"http://h/".parse().unwrap()).unwrap();
        assert_eq!(replay.times, [Nanos::ZERO, Nanos::from_millis(2_500)]);
        assert_eq!(parse(text).unwrap()[0].requests[0].target, Address::Path("/a".to_owned()));
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
