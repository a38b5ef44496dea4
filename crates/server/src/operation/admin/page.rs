//! The page at `/`: one embedded file that loads only the server's own figures.
//!
//! The server writes the table, which a browser without JavaScript reloads every five seconds. With JavaScript the
//! page follows `/events` and draws. A server with a token sends the page without figures, because the browser has no
//! token before the page asks for it.

use std::fmt::Write;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use http_semantics::{Body, Response, Status};

use super::history::{History, Sample};

const PAGE: &str = include_str!("page.html");
/// Samples in a row of the table.
const STEP: usize = 30;
/// Forbids resources from other origins. Forbids frames too, so that no other page can trick a reader into clicking
/// the buttons.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
                      img-src data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'";

/// The rights of a reader of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The reader sees everything and changes nothing.
    Read,
    /// With the token the reader sees and changes everything, without it nothing.
    Token,
    /// The reader sees and changes everything.
    All,
}

/// Makes the page. Without a history, it holds no figure.
pub fn page(about: &str, access: Access, history: Option<&History>) -> Response<Arc<OwnedFd>> {
    let (access, without_script) = match access {
        Access::Read => {
            ("read", "Without JavaScript this page is a table that is loaded again every five seconds.")
        }
        Access::All => {
            ("all", "Without JavaScript this page is a table that is loaded again every five seconds.")
        }
        Access::Token => (
            "token",
            "Without JavaScript this page cannot send the token. Ask for /status with Authorization: Bearer.",
        ),
    };
    let text = PAGE
        .replace("{{access}}", access)
        .replace("{{about}}", about)
        .replace("{{without-script}}", without_script)
        .replace("{{version}}", env!("CARGO_PKG_VERSION"))
        .replace("{{figures-hidden}}", if history.is_some() { "" } else { " hidden" })
        .replace("{{rows}}", &history.map_or_else(String::new, rows));
    let fields = format!(
        "Content-Type: text/html; charset=utf-8\r\nCache-Control: no-store\r\nContent-Security-Policy: {POLICY}\r\n\
         Referrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n"
    );
    Response {
        status: Status::OK,
        fields: fields.into(),
        body: Body::Bytes(text.into()),
        close: false,
        pace: None,
    }
}

/// Writes a row for the newest sample, then rows of means over [`STEP`] samples, the newest first.
fn rows(history: &History) -> String {
    let samples: Vec<&Sample> = history.samples().collect();
    let Some((newest, older)) = samples.split_last() else { return String::new() };
    let mut text = row("now", &[newest]);
    let mut ago = 1;
    for group in older.rchunks(STEP) {
        text += &row(&format!("{ago} to {}", ago + group.len() - 1), group);
        ago += group.len();
    }
    text
}

fn row(ago: &str, group: &[&Sample]) -> String {
    let state = group.iter().find(|sample| sample.state == "shedding").unwrap_or(&group[0]).state;
    let mean = |of: fn(&Sample) -> Option<f64>| {
        let sum: Option<f64> = group.iter().map(|sample| of(sample)).sum();
        sum.map_or_else(|| "–".to_owned(), |sum| format!("{:.1}", sum / group.len() as f64))
    };
    let cells: [fn(&Sample) -> Option<f64>; 5] = [
        |sample| Some(sample.offered_per_s),
        |sample| Some(sample.admitted_per_s),
        |sample| sample.refused_per_s,
        |sample| Some(sample.goodput_per_s),
        |sample| sample.queueing_delay_ms,
    ];
    let mut text = format!("<tr><th>{ago}</th><td>{state}</td>");
    for cell in cells {
        write!(text, "<td>{}</td>", mean(cell)).expect("writing to a string");
    }
    text + "</tr>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::accept::AcceptLimit;
    use crate::operation::admin::history::Reading;
    use base::Nanos;

    fn text(response: &Response<Arc<OwnedFd>>) -> String {
        match &response.body {
            Body::Bytes(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn page_table_has_newest_second_then_means() {
        let mut history = History::new(Nanos::ZERO);
        for second in 1..=62 {
            let mut reading =
                Reading { total: Default::default(), control: None, limit: AcceptLimit::Adaptive };
            reading.total.loops.accepts = second * second;
            history.take(Nanos::from_secs(second), &reading);
        }
        let text = text(&page("per-core on epoll", Access::Read, Some(&history)));
        for row in [
            "<tr><th>now</th><td>uncontrolled</td><td>123.0</td><td>123.0</td><td>–</td><td>0.0</td><td>–</td></tr>",
            "<tr><th>1 to 30</th><td>uncontrolled</td><td>92.0</td>",
            "<tr><th>31 to 60</th><td>uncontrolled</td><td>32.0</td>",
            "<tr><th>61 to 61</th><td>uncontrolled</td><td>1.0</td>",
        ] {
            assert!(text.contains(row), "{row} is not in {text}");
        }
        assert!(!text.contains("{{") && text.contains("per-core on epoll"));
    }

    #[test]
    fn the_page_names_no_other_place() {
        let text = text(&page("", Access::Token, None));
        assert!(text.contains("<html lang=\"en\" data-access=\"token\">") && !text.contains("<tr><th>now"));
        let elsewhere = text.replace("http://www.w3.org/2000/svg", "");
        for sign in ["http:", "https:", "src=", "url(", "import ", "@import", "href=\"/"] {
            assert!(!elsewhere.contains(sign), "{sign}");
        }
    }
}
