//! The access log's view: one entry for each response, written when the response has left or its connection
//! has ended.

use std::collections::VecDeque;
use std::net::SocketAddr;

use base::Nanos;

use crate::request::{Request, Version};
use crate::status::Status;

/// Receives an entry for each response. The maker of the connection knows the peer's address.
pub trait Log {
    /// Receives a response that has been sent or whose connection has ended.
    fn entry(&mut self, entry: &Entry<'_>);

    /// Learns the address of the connection's client, which a proxy has told. It holds for this turn of the connection.
    fn client_is(&mut self, _address: SocketAddr) {}
}

/// A response and its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The method; empty if the request could not be read.
    pub method: &'a str,
    /// The target as the service saw it; empty if the request could not be read.
    pub target: &'a str,
    /// The version; `None` if the request could not be read.
    pub version: Option<Version>,
    /// The host as the service saw it.
    pub host: &'a str,
    /// The value of `Referer`, empty if absent. Contains any bytes but controls.
    pub referer: &'a [u8],
    /// The value of `User-Agent`, empty if absent. Contains any bytes but controls.
    pub user_agent: &'a [u8],
    /// The status of the response.
    pub status: Status,
    /// Bytes of the response that the transport took, head included. An estimate for a response that is cut over
    /// HTTP/2, because streams share the connection's output.
    pub sent_bytes: u64,
    /// Bytes of content among `sent_bytes`.
    pub body_bytes: u64,
    /// True if the transport took the whole response.
    pub complete: bool,
    /// Time at which the machine read the request's first byte: on its arrival, or after earlier responses
    /// had left.
    pub started: Nanos,
    /// Time at which the transport took the last byte, or the connection ended.
    pub finished: Nanos,
}

/// An entry that waits for its response to be sent. One allocation holds its texts.
#[derive(Debug)]
pub struct Record {
    text: Vec<u8>,
    method: u32,
    target: u32,
    host: u32,
    referer: u32,
    version: Option<Version>,
    status: Status,
    started: Nanos,
    /// Length of the response in bytes.
    pub length: u64,
    /// Bytes of the response that are not content: its head, and the heads of HTTP/2's frames.
    pub head: u64,
    /// End of the response in the connection's output.
    end: u64,
}

impl Record {
    /// The entry of a response with `status`; `None` stands for a request that could not be read.
    pub fn new(request: Option<&Request<'_>>, status: Status, started: Nanos) -> Record {
        let mut record = Record {
            text: Vec::new(),
            method: 0,
            target: 0,
            host: 0,
            referer: 0,
            version: request.map(|request| request.version),
            status,
            started,
            length: 0,
            head: 0,
            end: 0,
        };
        if let Some(request) = request {
            record.method = record.append(request.method.as_str().as_bytes());
            record.target = record.append(request.target.as_bytes());
            record.host = record.append(request.host.as_bytes());
            record.referer = record.append(request.value("referer").unwrap_or_default());
            record.append(request.value("user-agent").unwrap_or_default());
        }
        record
    }

    /// Appends a text and returns its end. A head is less than 4 GiB long.
    fn append(&mut self, text: &[u8]) -> u32 {
        self.text.extend_from_slice(text);
        self.text.len() as u32
    }

    /// Reports a response that ends early: `queued` bytes of it became output, and `left` bytes did not.
    pub fn report_cut(mut self, queued: u64, left: u64, now: Nanos, log: &mut dyn Log) {
        self.end = left.max(1);
        self.length = queued + self.end;
        self.report(0, now, log);
    }

    fn report(&self, sent: u64, now: Nanos, log: &mut dyn Log) {
        let text = |from: u32, to: u32| &self.text[from as usize..to as usize];
        let ascii = |from, to| std::str::from_utf8(text(from, to)).unwrap_or_default();
        let sent_bytes = self.length.saturating_sub(self.end.saturating_sub(sent));
        log.entry(&Entry {
            method: ascii(0, self.method),
            target: ascii(self.method, self.target),
            host: ascii(self.target, self.host),
            referer: text(self.host, self.referer),
            user_agent: text(self.referer, self.text.len() as u32),
            version: self.version,
            status: self.status,
            sent_bytes,
            body_bytes: sent_bytes.saturating_sub(self.head),
            complete: sent_bytes == self.length,
            started: self.started,
            finished: now,
        });
    }
}

/// The queued responses that are not sent yet, in order. Exists only while a log is kept and output is
/// pending.
#[derive(Debug, Default)]
pub struct Unsent {
    /// Output that the transport took since this value was made.
    sent: u64,
    records: VecDeque<Record>,
}

impl Unsent {
    /// Adds the response just queued. `pending` is all pending output, including this response.
    pub fn push(&mut self, mut record: Record, pending: u64) {
        record.end = self.sent + pending;
        self.records.push_back(record);
    }

    /// Records that the transport took `bytes` bytes, and reports the responses that are complete.
    pub fn advance(&mut self, bytes: u64, now: Nanos, log: &mut dyn Log) {
        self.sent += bytes;
        while self.records.front().is_some_and(|record| record.end <= self.sent) {
            let record = self.records.pop_front().expect("there is a first record");
            record.report(self.sent, now, log);
        }
    }

    /// Reports the remaining responses because the connection has ended.
    pub fn end(&mut self, now: Nanos, log: &mut dyn Log) {
        for record in self.records.drain(..) {
            record.report(self.sent, now, log);
        }
    }

    /// True if no response is pending.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Header;

    /// The status, the bytes sent, those of content, the completeness and the end of each response.
    #[derive(Default)]
    struct Ends(Vec<(u16, u64, u64, bool, Nanos)>);

    impl Log for Ends {
        fn entry(&mut self, entry: &Entry<'_>) {
            let Entry { status, sent_bytes, body_bytes, complete, finished, .. } = *entry;
            self.0.push((status.0, sent_bytes, body_bytes, complete, finished));
        }
    }

    fn record(status: u16, length: u64, head: u64) -> Record {
        Record { length, head, ..Record::new(None, Status(status), Nanos(1)) }
    }

    #[test]
    fn response_is_reported_when_its_last_byte_leaves() {
        let mut unsent = Unsent::default();
        let mut log = Ends::default();
        unsent.push(record(200, 100, 40), 100);
        unsent.push(record(404, 50, 30), 150);
        unsent.advance(99, Nanos(5), &mut log);
        assert_eq!(log.0, []);
        unsent.advance(1, Nanos(6), &mut log);
        assert_eq!(log.0, [(200, 100, 60, true, Nanos(6))]);
        unsent.push(record(206, 10, 4), 60);
        unsent.advance(60, Nanos(7), &mut log);
        assert_eq!(log.0[1..], [(404, 50, 20, true, Nanos(7)), (206, 10, 6, true, Nanos(7))]);
        assert!(unsent.is_empty());
    }

    #[test]
    fn end_of_connection_reports_cut_responses() {
        let mut unsent = Unsent::default();
        let mut log = Ends::default();
        unsent.push(record(200, 100, 40), 100);
        unsent.push(record(404, 50, 30), 150);
        unsent.advance(60, Nanos(5), &mut log);
        assert!(!unsent.is_empty());
        unsent.end(Nanos(8), &mut log);
        assert_eq!(log.0, [(200, 60, 20, false, Nanos(8)), (404, 0, 0, false, Nanos(8))]);
        assert!(unsent.is_empty());
    }

    #[test]
    fn cut_response_is_never_complete() {
        let mut log = Ends::default();
        record(200, 0, 40).report_cut(70, 30, Nanos(3), &mut log);
        record(200, 0, 40).report_cut(70, 0, Nanos(4), &mut log);
        assert_eq!(log.0, [(200, 70, 30, false, Nanos(3)), (200, 70, 30, false, Nanos(4))]);
    }

    /// The texts of each entry, one after the other.
    #[derive(Default)]
    struct Texts(Vec<String>);

    impl Log for Texts {
        fn entry(&mut self, entry: &Entry<'_>) {
            let Entry { method, target, version, host, referer, user_agent, started, .. } = *entry;
            let [referer, agent] = [referer, user_agent].map(String::from_utf8_lossy);
            self.0.push(format!("{method}|{target}|{version:?}|{host}|{referer}|{agent}|{}", started.0));
        }
    }

    #[test]
    fn entry_has_the_texts_of_its_request() {
        let field = |name, value| Header { name, value };
        let fields = [field("User-Agent", b"agent".as_slice()), field("Referer", b"from")];
        let request =
            Request { version: Version::Http2, host: "c:80", fields: &fields, ..Request::get("/a?b") };
        let mut log = Texts::default();
        for request in [Some(&request), None] {
            let mut unsent = Unsent::default();
            unsent.push(Record::new(request, Status::OK, Nanos(9)), 0);
            unsent.end(Nanos(9), &mut log);
        }
        assert_eq!(log.0, ["GET|/a?b|Some(Http2)|c:80|from|agent|9", "||None||||9"]);
    }
}
