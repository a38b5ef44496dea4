//! The state of a session whose requests have bytes of their own: its row of the data, captured values and cookies, the
//! request under way, and the parts of the reply that it needs.
//!
//! The plan's [`Script`] is the same for all sessions; only this differs. A fixed workload has no stories.

mod jar;

use base::WallTime;
use http1::client::{Part, field};

use crate::engine::state::session::detour::JarCookies;
use crate::plan::choices::workload::Capture;
use crate::plan::requests::{RequestId, Script, Step, Values};
use crate::plan::terms::draws::Draws;
use jar::Jar;

/// The most bytes of a reply's content that are kept. A value behind them is not found.
const CONTENT_MAX: usize = 1 << 20;

/// The state of one session.
pub(crate) struct Story {
    /// The session's number in the run.
    number: u64,
    row: usize,
    captured: Vec<Vec<u8>>,
    /// The cookies of a session with an order.
    jar: Option<Jar>,
    draws: Draws,
    /// The bytes of the request under way.
    request: Vec<u8>,
    /// Memory for the content of a request.
    scratch: Vec<u8>,
    head: Vec<u8>,
    content: Vec<u8>,
    keeps_content: bool,
}

impl Story {
    /// The state at the beginning of a session. `number` counts the sessions of the run.
    pub fn new(script: &Script, draws: &Draws, number: u64) -> Story {
        // The session's own draws decide its requests, with or without values to fill in.
        let mut draws = Draws::new(!draws.clone().bits());
        Story {
            number,
            row: script.row(number, &mut draws),
            captured: vec![Vec::new(); script.captured_max],
            jar: script.is_ordered.then(Jar::default),
            draws,
            request: Vec::new(),
            scratch: Vec::new(),
            head: Vec::new(),
            content: Vec::new(),
            keeps_content: false,
        }
    }

    /// The bytes of the request under way.
    pub fn request(&self) -> &[u8] {
        &self.request
    }

    /// Writes a request, which will be under way. `is_secure` lets secure cookies go out.
    pub fn write(
        &mut self,
        script: &Script,
        request: RequestId,
        last: bool,
        is_secure: bool,
        wall: WallTime,
    ) {
        let step = script.step(request);
        let cookies = self.jar.as_ref().map_or(String::new(), |jar| jar.field(is_secure));
        let mut values = Values {
            data: script.data.as_deref(),
            row: self.row,
            captured: &self.captured,
            counter: self.number,
            draws: &mut self.draws,
            wall,
        };
        step.write(&mut self.request, &mut self.scratch, &mut values, &cookies, last);
        self.keeps_content = step.needs_content();
    }

    /// Keeps the parts of the reply that the session needs.
    pub fn read_part(&mut self, part: Part<'_>) {
        match part {
            // An interim reply comes before the final one.
            Part::Head(head) => {
                self.head.clear();
                self.head.extend_from_slice(head);
                self.content.clear();
            }
            Part::Content(content) if self.keeps_content => {
                let room = CONTENT_MAX.saturating_sub(self.content.len());
                self.content.extend_from_slice(&content[..content.len().min(room)]);
            }
            Part::Content(_) => {}
        }
    }

    /// Takes the cookies of a redirect, and returns those of the requests before and after it; `None` without a jar, or for
    /// another reply.
    pub fn cookies_of_redirect(&mut self, status: u16, is_secure: bool) -> Option<JarCookies> {
        let jar = self.jar.as_mut().filter(|_| (300..400).contains(&status))?;
        let before = jar.field(is_secure);
        jar.take(&self.head);
        Some(JarCookies { before, after: jar.field(is_secure) })
    }

    /// Takes cookies and values from a complete reply. Returns false if it lacks a value for later requests, or the text
    /// that it must have.
    pub fn take(&mut self, script: &Script, request: RequestId) -> bool {
        let step = script.step(request);
        if let Some(jar) = &mut self.jar {
            jar.take(&self.head);
        }
        let has_values = self.capture(step);
        let has_text = step.expect_text.as_ref().is_none_or(|text| contains(&self.content, text.as_bytes()));
        self.head.clear();
        self.content = Vec::new();
        has_values && has_text
    }

    /// Captures the values of a request; returns false without all of them.
    fn capture(&mut self, step: &Step) -> bool {
        let needs_json = step.captures.iter().any(|(_, place)| matches!(place, Capture::Pointer(_)));
        let json =
            needs_json.then(|| serde_json::from_slice::<serde_json::Value>(&self.content).ok()).flatten();
        let mut has_all = true;
        for (slot, place) in &step.captures {
            let value = match place {
                Capture::Header(wanted) => field(&self.head, wanted),
                Capture::Pointer(pointer) => {
                    json.as_ref().and_then(|json| json.pointer(pointer)).and_then(text_of)
                }
            };
            has_all &= value.is_some();
            self.captured[*slot] = value.unwrap_or_default();
        }
        has_all
    }
}

/// A value of JSON as text; `None` for null.
fn text_of(value: &serde_json::Value) -> Option<Vec<u8>> {
    match value {
        serde_json::Value::Null => None,
        serde_json::Value::String(text) => Some(text.clone().into_bytes()),
        other => Some(other.to_string().into_bytes()),
    }
}

fn contains(content: &[u8], text: &[u8]) -> bool {
    text.is_empty() || content.windows(text.len()).any(|window| window == text)
}
