//! One connection against a server that a script plays, in the manner of packetdrill.
//!
//! A script has one step per line. Times are seconds from the start; segments from the stack may be 8 ms
//! late, two slots of its timers. Sequence numbers are relative to each side's first number. A length is that
//! of the payload; the runner makes and checks its bytes.
//!
//! ```text
//!   0.000 connect                               the application: connect [window N], send N, finish, close,
//!   0.000 > SYN seq 0 win 64240 mss 1460          abort, grant N
//!   0.020 < SYN ACK seq 0 ack 1 win 65535 mss 1460 scale 7 ts sack
//!   0.020 event established                     event established | received N | ended | room | failed WHY
//!   0.020 > ACK seq 1 ack 1
//!   0.020 connections 1                         also: acknowledged yes, count NAME N
//! ```
//!
//! `>` is a segment that the stack must send now, `<` a segment from the server. Every segment must be
//! expected. The runner always checks the flags of a `>` line, and other properties only if the line names
//! them. `client-isn N` and `server-isn N` may come before all steps.

mod support;

use std::net::SocketAddr;

use base::{Key, Nanos, Seed};
use dispatch::Token;
use support::{ClientEnd, Wire, pattern, server, stack};
use usertcp::frame::{Flags, Options, Received, Segment, Timestamps};
use usertcp::wrapping::Seq;
use usertcp::{Event, Failure, Kind, Stack, Window};

/// Two slots of the timers.
const LATE: Nanos = Nanos::from_millis(8);
const TOKEN: Token = Token(7);

macro_rules! scripts {
    ($($name:ident,)*) => {$(
        #[test]
        fn $name() {
            let name = concat!("scripts/", stringify!($name), ".script");
            Run::new(name).play(include_str!(concat!("scripts/", stringify!($name), ".script")));
        }
    )*};
}

scripts! {
    a_closed_connection_waits_a_minute_for_the_servers_fin,
    a_connect_that_is_given_up_says_nothing,
    a_connect_that_is_refused,
    a_fin_is_taken_where_the_window_is_closed,
    a_keep_alive_probe_is_answered,
    a_reply_that_comes_with_the_fin_of_both,
    a_request_and_a_reply_that_ends_the_connection,
    a_request_beside_a_gap_leaves_room_for_its_options,
    a_reset_after_the_server_finished,
    a_reset_after_we_finished,
    a_reset_instead_of_the_last_acknowledgment,
    a_reset_needs_the_expected_number,
    a_reset_while_both_finish,
    a_reset_while_we_wait_for_the_servers_fin,
    a_segment_of_the_past_is_dropped,
    a_server_that_answers_no_probe_is_given_up,
    a_server_that_dropped_the_final_ack,
    a_server_that_vanishes_is_given_up,
    a_server_without_options,
    a_slow_server_acknowledges_the_request,
    a_syn_in_the_middle_is_challenged,
    a_syn_is_sent_again_until_the_connect_times_out,
    a_window_that_the_server_closes_is_probed,
    acknowledgments_of_an_interactive_exchange_wait,
    an_acknowledgment_of_what_was_never_sent,
    an_answer_to_another_syn_is_reset,
    an_application_that_reads_slowly_closes_the_window,
    both_finish_at_the_same_time,
    data_after_the_application_closed_is_refused,
    more_than_the_window_is_cut_off,
    sequence_numbers_wrap_around,
    the_send_buffer_is_bounded,
    the_server_goes_on_after_we_finished,
    three_duplicate_acknowledgments_mean_a_loss,
    what_comes_early_is_stored_and_reported,
    what_was_lost_is_sent_again_a_segment_at_a_time,
}

/// A segment as named by a line; absent properties are not checked, or left to the runner.
#[derive(Debug, Default)]
struct Line {
    flags: Option<Flags>,
    seq: Option<u32>,
    ack: Option<u32>,
    win: Option<u32>,
    len: Option<u32>,
    mss: Option<u32>,
    scale: Option<u32>,
    /// The value of the timestamp, if the line gives one.
    ts: Option<u32>,
    has_ts: bool,
    sack_permitted: bool,
    sack: Vec<(u32, u32)>,
}

struct Run {
    name: &'static str,
    line: usize,
    wire: Wire,
    stack: Stack<ClientEnd>,
    now: Nanos,
    key: Option<Key>,
    /// The client's name and first number; set when its SYN was seen.
    client: Option<(SocketAddr, Seq)>,
    client_isn: Option<u32>,
    server_isn: Seq,
    /// The last timestamp of the client.
    echo: u32,
    /// Segments that the stack sent, with their times.
    sent: Vec<(Nanos, Received, Vec<u8>)>,
    events: Vec<(Kind, usize)>,
    received: u64,
    to_send: u64,
}

impl Run {
    fn new(name: &'static str) -> Run {
        let wire = Wire::default();
        let stack = stack(&wire, Seed(1), Nanos::SECOND);
        Run {
            name,
            line: 0,
            wire,
            stack,
            now: Nanos::ZERO,
            key: None,
            client: None,
            client_isn: None,
            server_isn: Seq(5000),
            echo: 0,
            sent: Vec::new(),
            events: Vec::new(),
            received: 0,
            to_send: 0,
        }
    }

    fn play(mut self, script: &str) {
        for (number, text) in script.lines().enumerate() {
            self.line = number + 1;
            let text = text.split('#').next().unwrap_or_default().trim();
            let mut words = text.split_whitespace();
            let Some(first) = words.next() else { continue };
            let rest: Vec<&str> = words.collect();
            match first {
                "client-isn" => self.client_isn = Some(self.number(&rest, 0)),
                "server-isn" => self.server_isn = Seq(self.number(&rest, 0)),
                time => {
                    let seconds: f64 = time.parse().unwrap_or_else(|_| self.fail("begins with no time"));
                    self.step(Nanos::from_secs_f64(seconds), &rest);
                }
            }
        }
        self.line += 1;
        self.nothing_unexpected();
    }

    fn step(&mut self, at: Nanos, words: &[&str]) {
        let (&verb, rest) = words.split_first().unwrap_or_else(|| self.fail("has no step"));
        if verb == ">" {
            if self.sent.is_empty() {
                self.advance(at + LATE);
            }
            return self.expect(at, rest);
        }
        // An expectation must come before any later step of the script.
        self.advance(at);
        match verb {
            "event" => return self.expect_event(rest),
            "connections" => {
                return assert_eq!(self.stack.len() as u32, self.number(rest, 0), "{}", self.here());
            }
            "acknowledged" => {
                let acknowledged = self.key.is_some_and(|key| self.stack.is_acknowledged(key));
                return assert_eq!(acknowledged, rest == ["yes"], "{}", self.here());
            }
            "count" => {
                let found = self.stack.counts().named().find(|(name, _)| *name == rest[0]);
                let count = found.unwrap_or_else(|| self.fail("names no counter")).1;
                return assert_eq!(count, u64::from(self.number(rest, 1)), "{}", self.here());
            }
            "nothing" => return self.nothing_unexpected(),
            _ => {}
        }
        if verb != "<" {
            self.nothing_unexpected();
        }
        match verb {
            "<" => self.inject(rest),
            "connect" => self.connect(rest),
            "send" => {
                let count = self.number(rest, 0);
                let bytes: Vec<u8> =
                    (0..u64::from(count)).map(|n| pattern(self.to_send + n, false)).collect();
                self.to_send += self.stack.send(self.key.unwrap(), &bytes, self.now) as u64;
            }
            "finish" => self.stack.finish(self.key.unwrap()),
            "close" => self.stack.close(self.key.unwrap(), self.now),
            "abort" => self.stack.abort(self.key.unwrap(), self.now),
            "grant" => {
                let bytes = self.number(rest, 0);
                self.stack.grant(self.key.unwrap(), bytes);
            }
            _ => self.fail("is no step"),
        }
        self.turn();
    }

    fn connect(&mut self, words: &[&str]) {
        let window = match words {
            ["window", _] => Window::Granted(self.number(words, 1)),
            _ => Window::Open,
        };
        if let Some(wanted) = self.client_isn.take() {
            // The first number rises every 64 ns of the epoch, so the epoch is chosen to give the wanted
            // number.
            let (wire, epoch) = (Wire::default(), Nanos::SECOND);
            let mut probe = stack(&wire, Seed(1), epoch);
            probe.connect(TOKEN, window, Nanos::ZERO).unwrap();
            probe.flush(Nanos::ZERO).unwrap();
            let first = wire.take().unwrap().0.segment.seq;
            let ahead = Nanos(u64::from(Seq(wanted).since(first)) * 64);
            self.stack = stack(&self.wire, Seed(1), epoch + ahead);
        }
        self.key = self.stack.connect(TOKEN, window, self.now);
    }

    /// Advances the time and handles due timers on the way.
    fn advance(&mut self, until: Nanos) {
        while let Some(due) = self.stack.next_due().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            self.turn();
        }
        self.now = self.now.max(until);
    }

    fn turn(&mut self) {
        self.stack.expire(self.now);
        while let Some(Event { token, kind }) = self.stack.next(self.now).unwrap() {
            assert_eq!(token, TOKEN);
            let bytes = self.stack.bytes();
            for byte in bytes {
                assert_eq!(*byte, pattern(self.received, true), "{}: byte {}", self.here(), self.received);
                self.received += 1;
            }
            self.events.push((kind, bytes.len()));
        }
        self.stack.flush(self.now).unwrap();
        while let Some((received, payload)) = self.wire.take() {
            assert_eq!(received.flow.local, server());
            if received.segment.flags.has(Flags::SYN) {
                self.client = Some((received.flow.remote, received.segment.seq));
            }
            self.echo = received.segment.options.timestamps.map_or(self.echo, |timestamps| timestamps.value);
            self.sent.push((self.now, received, payload));
        }
    }

    fn inject(&mut self, words: &[&str]) {
        let line = self.parse(words);
        let (client, isn) = self.client.unwrap_or_else(|| self.fail("answers nobody"));
        let value = line.ts.unwrap_or((self.now.0 / 1_000_000) as u32 + 1000);
        let timestamps = line.has_ts.then_some(Timestamps { value, echo: self.echo });
        let options = Options {
            mss: line.mss.map(|mss| mss as u16),
            window_scale: line.scale.map(|scale| scale as u8),
            sack_permitted: line.sack_permitted,
            timestamps,
            ..Options::default()
        };
        let seq = line.seq.unwrap_or(0);
        let segment = Segment {
            seq: self.server_isn + seq,
            ack: line.ack.map_or(Seq(0), |ack| isn + ack),
            flags: line.flags.unwrap_or_default(),
            window: line.win.unwrap_or(65_535) as u16,
            options,
        };
        let first = u64::from(seq).saturating_sub(1);
        let payload: Vec<u8> =
            (0..u64::from(line.len.unwrap_or(0))).map(|n| pattern(first + n, true)).collect();
        self.wire.inject(client, &segment, &payload);
    }

    fn expect(&mut self, at: Nanos, words: &[&str]) {
        if self.sent.is_empty() {
            self.fail("expects a segment, and none was sent");
        }
        let (time, received, payload) = self.sent.remove(0);
        let (line, segment) = (self.parse(words), received.segment);
        let (_, isn) = self.client.unwrap_or_else(|| self.fail("has no client"));
        let seen =
            format!("{} sent at {}: {segment:?}, {} bytes", self.here(), time.as_secs_f64(), payload.len());
        assert!(time >= at && time <= at + LATE, "{seen}");
        assert_eq!(line.flags, Some(segment.flags), "{seen}");
        let relative = |number: Seq, first: Seq| number.since(first);
        assert!(line.seq.is_none_or(|seq| relative(segment.seq, isn) == seq), "{seen}");
        assert!(line.ack.is_none_or(|ack| relative(segment.ack, self.server_isn) == ack), "{seen}");
        assert!(line.win.is_none_or(|win| u32::from(segment.window) == win), "{seen}");
        assert_eq!(payload.len() as u32, line.len.unwrap_or(0), "{seen}");
        assert!(line.mss.is_none_or(|mss| segment.options.mss == Some(mss as u16)), "{seen}");
        assert!(line.scale.is_none_or(|scale| segment.options.window_scale == Some(scale as u8)), "{seen}");
        assert!(!line.has_ts || segment.options.timestamps.is_some(), "{seen}");
        assert!(line.ts.is_none_or(|echo| segment.options.timestamps.unwrap().echo == echo), "{seen}");
        let blocks = segment.options.sack.iter().flatten();
        let blocks: Vec<_> = blocks
            .map(|(first, end)| (relative(*first, self.server_isn), relative(*end, self.server_isn)))
            .collect();
        assert_eq!(line.sack, blocks, "{seen}");
        for (n, byte) in payload.iter().enumerate() {
            let offset = u64::from(relative(segment.seq, isn)) - 1 + n as u64;
            assert_eq!(*byte, pattern(offset, false), "{seen}: byte {offset}");
        }
    }

    fn expect_event(&mut self, words: &[&str]) {
        if self.events.is_empty() {
            self.fail("expects an event, and there was none");
        }
        let (kind, bytes) = self.events.remove(0);
        let seen = match kind {
            Kind::Established => "established".to_owned(),
            Kind::Received => format!("received {bytes}"),
            Kind::Ended => "ended".to_owned(),
            Kind::HasRoom => "room".to_owned(),
            Kind::Failed(Failure::Refused) => "failed refused".to_owned(),
            Kind::Failed(Failure::Reset) => "failed reset".to_owned(),
            Kind::Failed(Failure::TimedOut) => "failed timed-out".to_owned(),
        };
        assert_eq!(seen, words.join(" "), "{}", self.here());
    }

    fn nothing_unexpected(&self) {
        assert!(
            self.sent.is_empty(),
            "{} comes after segments that nobody expected: {:?}",
            self.here(),
            self.sent
        );
        assert!(
            self.events.is_empty(),
            "{} comes after events that nobody expected: {:?}",
            self.here(),
            self.events
        );
    }

    fn parse(&self, words: &[&str]) -> Line {
        let mut line = Line::default();
        let mut flags = Flags::default();
        let mut at = 0;
        while let Some(word) = words.get(at) {
            at += 1;
            match *word {
                "SYN" => flags = flags | Flags::SYN,
                "ACK" => flags = flags | Flags::ACK,
                "PSH" => flags = flags | Flags::PSH,
                "FIN" => flags = flags | Flags::FIN,
                "RST" => flags = flags | Flags::RST,
                "ts" => {
                    line.has_ts = true;
                    if let Some(value) = words.get(at).and_then(|value| value.parse().ok()) {
                        line.ts = Some(value);
                        at += 1;
                    }
                }
                "sack" => match words.get(at).and_then(|blocks| parse_blocks(blocks)) {
                    Some(blocks) => {
                        line.sack = blocks;
                        at += 1;
                    }
                    None => line.sack_permitted = true,
                },
                other => {
                    let field = match other {
                        "seq" => &mut line.seq,
                        "ack" => &mut line.ack,
                        "win" => &mut line.win,
                        "len" => &mut line.len,
                        "mss" => &mut line.mss,
                        "scale" => &mut line.scale,
                        _ => self.fail("has a word that means nothing"),
                    };
                    *field = Some(self.number(words, at));
                    at += 1;
                }
            }
        }
        line.flags = Some(flags);
        line
    }

    fn number(&self, words: &[&str], at: usize) -> u32 {
        let number = words.get(at).and_then(|word| word.parse().ok());
        number.unwrap_or_else(|| self.fail("lacks a number"))
    }

    fn here(&self) -> String {
        format!("{}:{}", self.name, self.line)
    }

    fn fail(&self, what: &str) -> ! {
        panic!("{} {what}; events: {:?}, segments: {:?}", self.here(), self.events, self.sent)
    }
}

/// Parses `100-200,300-400`.
fn parse_blocks(text: &str) -> Option<Vec<(u32, u32)>> {
    text.split(',')
        .map(|block| {
            let (first, end) = block.split_once('-')?;
            Some((first.parse().ok()?, end.parse().ok()?))
        })
        .collect()
}
