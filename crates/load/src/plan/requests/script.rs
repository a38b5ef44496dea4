//! The requests of a file whose bytes differ from session to session: with values to fill in, values taken from replies,
//! cookies, or a text that a reply must have. Each is written when it is due, from texts that are taken apart once.
//!
//! The state of a session, such as its cookies, is the engine's.

use std::sync::Arc;

use super::parts::Parts;
use super::text::{Place, Text, Values};
use super::{Choice, RequestId};
use crate::plan::choices::workload::{Capture, Content, Data, DataOrder, OWN_NAMES, Session, Think};
use crate::plan::config::Config;
use crate::plan::terms::draws::Draws;

/// The texts of one request, and what its reply must have and gives to later ones.
#[derive(Debug)]
pub(crate) struct Step {
    method: String,
    target: Text,
    /// Header lines, from Host on.
    fields: Text,
    content: Option<Filling>,
    /// A text that the reply's content must have.
    pub expect_text: Option<String>,
    pub think: Option<Think>,
    /// Numbers of captured values, and their places in the reply.
    pub captures: Vec<(usize, Capture)>,
}

#[derive(Debug)]
enum Filling {
    Text(Text),
    Bytes(Arc<[u8]>),
}

impl Step {
    /// Returns true if the reply's content must be kept.
    pub fn needs_content(&self) -> bool {
        let from_content = |(_, capture): &(usize, Capture)| matches!(capture, Capture::Pointer(_));
        self.expect_text.is_some() || self.captures.iter().any(from_content)
    }

    /// Writes the request. `cookies` is the value of the session's Cookie field; the last request of a session closes the
    /// connection.
    pub fn write(
        &self,
        into: &mut Vec<u8>,
        scratch: &mut Vec<u8>,
        values: &mut Values<'_>,
        cookies: &str,
        last: bool,
    ) {
        into.clear();
        into.extend_from_slice(self.method.as_bytes());
        into.push(b' ');
        self.target.fill(into, values, Place::Target);
        into.extend_from_slice(b" HTTP/1.1\r\n");
        self.fields.fill(into, values, Place::Head);
        if !cookies.is_empty() {
            into.extend_from_slice(format!("Cookie: {cookies}\r\n").as_bytes());
        }
        let content: &[u8] = match &self.content {
            None => &[],
            Some(Filling::Bytes(bytes)) => bytes,
            Some(Filling::Text(text)) => {
                scratch.clear();
                text.fill(scratch, values, Place::Content);
                scratch
            }
        };
        if self.content.is_some() {
            into.extend_from_slice(format!("Content-Length: {}\r\n", content.len()).as_bytes());
        }
        into.extend_from_slice(if last { b"Connection: close\r\n\r\n" } else { b"\r\n" });
        into.extend_from_slice(content);
    }
}

/// All requests of a file, and the sessions that they make.
#[derive(Debug)]
pub(crate) struct Script {
    steps: Vec<Step>,
    /// The first request of each session, and the number of all requests.
    starts: Vec<u32>,
    choice: Choice,
    /// True if a session makes the requests of its line in order.
    pub is_ordered: bool,
    pub data: Option<Arc<Data>>,
    order: DataOrder,
    /// The most values that a session captures.
    pub captured_max: usize,
}

impl Script {
    /// Takes the texts of all requests apart.
    ///
    /// # Errors
    /// One sentence with the line.
    pub fn new(config: &Config, sessions: &[Session]) -> Result<Script, String> {
        let data = config.data.as_ref().map(|file| Arc::clone(&file.data));
        let columns = data.as_ref().map_or(&[][..], |data| data.names());
        let (mut steps, mut starts, mut captured_max) = (Vec::new(), vec![0], 0);
        for session in sessions {
            let mut names = columns.to_vec();
            for definition in &session.requests {
                let parts = Parts::of(definition, config);
                let step = parts.and_then(|parts| step(&parts, &mut names, columns.len()));
                steps.push(step.map_err(|why| format!("{}: {why}", session.position))?);
            }
            starts.push(steps.len() as u32);
            captured_max = captured_max.max(names.len() - columns.len());
        }
        Ok(Script {
            steps,
            starts,
            choice: Choice::by(sessions.iter().map(|session| session.weight)),
            is_ordered: sessions.iter().any(|session| session.is_array),
            data,
            order: config.data_order,
            captured_max,
        })
    }

    pub fn step(&self, request: RequestId) -> &Step {
        &self.steps[request.0 as usize]
    }

    /// Draws a session: the number of its requests, and the first.
    pub fn pick(&self, draws: &mut Draws) -> (u32, RequestId) {
        self.session(self.choice.draw(draws) as u64)
    }

    /// The session with this number in the file, which begins again after its end: the number of its requests, and the
    /// first.
    pub fn session(&self, number: u64) -> (u32, RequestId) {
        let place = (number % self.choice.count as u64) as usize;
        let [start, end] = [place, place + 1].map(|place| self.starts[place]);
        (end - start, RequestId(start))
    }

    /// The row of the data for a session; `number` counts the sessions of the run.
    pub fn row(&self, number: u64, draws: &mut Draws) -> usize {
        let rows = self.data.as_ref().map_or(1, |data| data.rows()) as u64;
        match self.order {
            DataOrder::Sequential => (number % rows) as usize,
            DataOrder::Random => draws.between(0, rows - 1) as usize,
        }
    }

    /// The mean number of requests of a session, and of its think times in nanoseconds; `think` is that of requests
    /// without their own.
    pub fn means(&self, think: &Think) -> (f64, f64) {
        let sessions = self.starts.windows(2).enumerate();
        sessions.fold((0.0, 0.0), |(length, thinking), (number, bounds)| {
            let steps = &self.steps[bounds[0] as usize..bounds[1] as usize - 1];
            let times = steps.iter().map(|step| step.think.as_ref().unwrap_or(think).mean().0 as f64);
            let share = self.choice.share(number);
            (length + share * f64::from(bounds[1] - bounds[0]), thinking + share * times.sum::<f64>())
        })
    }

    /// Returns true if a request has a think time of its own.
    pub fn thinks(&self) -> bool {
        self.steps.iter().any(|step| step.think.as_ref().is_some_and(|think| !think.is_none()))
    }
}

/// Takes one request apart. The names that it captures are known to later requests.
fn step(parts: &Parts<'_>, names: &mut Vec<String>, columns: usize) -> Result<Step, String> {
    let target = Text::parse(&parts.target, names)?;
    let fields = Text::parse(&format!("Host: {}\r\n{}", parts.host, parts.fields), names)?;
    let content = match parts.content {
        None => None,
        Some(Content::Text(text)) => Some(Filling::Text(Text::parse(text, names)?)),
        Some(Content::Bytes(bytes)) => Some(Filling::Bytes(Arc::clone(bytes))),
    };
    let mut captures = Vec::new();
    for (name, capture) in &parts.definition.capture {
        let known = names.iter().position(|known| known == name);
        if known.is_some_and(|slot| slot < columns) || OWN_NAMES.contains(&name.as_str()) {
            return Err(format!("the name '{name}' of a captured value is taken"));
        }
        let slot = known.unwrap_or(names.len());
        if known.is_none() {
            names.push(name.clone());
        }
        captures.push((slot - columns, capture.clone()));
    }
    Ok(Step {
        method: parts.method.to_owned(),
        target,
        fields,
        content,
        expect_text: parts.definition.expect_text.clone(),
        think: parts.definition.think.clone(),
        captures,
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::plan::config::Client;

    #[test]
    fn random_rows_are_all_taken_and_in_no_order() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"user\nann\nbob\ncy\n").unwrap();
        let client = Client::Closed { clients: std::num::NonZeroU32::MIN };
        let mut config = Config::new(vec!["http://127.0.0.1/".parse().unwrap()], client);
        config.data = Some(file.path().to_str().unwrap().parse().unwrap());
        let mut rows = |order| -> Vec<usize> {
            config.data_order = order;
            let script = Script::new(&config, &[]).unwrap();
            (0..100).map(|number| script.row(number, &mut Draws::new(number))).collect()
        };
        let (in_order, random) = (rows(DataOrder::Sequential), rows(DataOrder::Random));
        assert_eq!(in_order[..4], [0, 1, 2, 0]);
        assert_ne!(random, in_order);
        assert!((0..3).all(|row| random.contains(&row)), "{random:?}");
    }
}
