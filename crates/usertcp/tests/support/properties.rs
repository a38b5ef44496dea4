//! Properties that hold for any input: tests replay them on corpora, and fuzz targets explore them.

use std::net::IpAddr;

use usertcp::counts::Shared;
use usertcp::endpoint::{Endpoint, News, State, Window};
use usertcp::frame::ethernet::{self, Frame};
use usertcp::frame::{self, Arriving, Flags, Flow, Leaving, Options, Segment, Timestamps};
use usertcp::wrapping::{Millis, Seq};

use super::{pattern, server};

/// Any bytes as a frame: no panic, and a frame that could be read is the same after writing and reading.
pub fn frame_property(data: &[u8]) {
    for arriving in [Arriving::Verified, Arriving::Whole, Arriving::WholeOrPartial] {
        let Ok(received) = frame::read(data, arriving) else { continue };
        let payload = &data[received.payload.clone()];
        // The flow seen from the other side.
        let flow = Flow { local: received.flow.remote, remote: received.flow.local };
        let length = frame::length(&flow, &received.segment, payload.len());
        if received.segment.options.length() > frame::options::LENGTH_MAX || length > 65_535 {
            continue;
        }
        let mut written = vec![0; length];
        frame::write(&mut written, &flow, &received.segment, payload, Leaving::Whole);
        let again = frame::read(&written, Arriving::Whole).expect("what was written can be read");
        assert_eq!((again.segment, again.flow), (received.segment, received.flow));
        assert_eq!(&written[again.payload], payload);
    }
    if let Frame::Question { target, asker } = ethernet::read(data)
        && matches!((target, asker.0), (IpAddr::V4(_), IpAddr::V4(_)) | (IpAddr::V6(_), IpAddr::V6(_)))
    {
        let mac = [2, 0, 0, 0, 0, 1];
        let answer = ethernet::answer(target, mac, asker);
        assert_eq!(ethernet::read(&answer), Frame::Neighbour(target, mac));
    }
}

/// Reads numbers from the input; zeros follow its end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        byte
    }

    fn word(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// One endpoint and a server that breaks all rules, except that its stream has fixed bytes.
struct Play {
    endpoint: Endpoint,
    shared: Shared,
    now: Millis,
    client_first: Seq,
    server_first: Seq,
    /// Bytes that the application has sent; `received` counts the bytes it received.
    given: u64,
    received: u64,
    /// The next number that the server expects; `edge` is the edge of the window it was promised.
    acked: Seq,
    edge: Seq,
    timestamps: bool,
}

/// Plays the segments, calls and times that the input describes.
pub fn endpoint_property(data: &[u8]) {
    let mut input = Input(data);
    let setting = input.byte();
    let window = if setting & 1 != 0 { Window::Granted(u32::from(input.word())) } else { Window::Open };
    let client_first = Seq(u32::from(input.word()).wrapping_sub(30_000));
    let server_first = Seq(u32::from(input.word()).wrapping_sub(30_000));
    let mut play = Play {
        endpoint: Endpoint::connect(client_first, 1460, window),
        shared: Shared::default(),
        now: Millis(u32::MAX - 1000),
        client_first,
        server_first,
        given: 0,
        received: 0,
        acked: server_first,
        edge: server_first,
        timestamps: setting & 2 != 0,
    };
    play.transmit();
    if setting & 4 != 0 {
        play.answer_syn(setting);
    }
    while !input.is_empty() {
        play.step(&mut input);
        play.transmit();
    }
    let held = play.endpoint.is_held();
    let reset = play.endpoint.abort(play.now, &mut play.shared);
    assert!(reset.is_none() || play.endpoint.state() == State::Closed);
    assert_eq!(play.shared.stored(), 0, "everything stored is accounted for");
    assert!(!play.endpoint.is_held() && (held || reset.is_none() || play.endpoint.is_over()));
}

impl Play {
    fn answer_syn(&mut self, setting: u8) {
        let options = Options {
            mss: Some(1460),
            window_scale: (setting & 8 != 0).then_some(7),
            sack_permitted: setting & 16 != 0,
            timestamps: self.timestamps.then_some(Timestamps { value: 1, echo: self.now.0 }),
            ..Options::default()
        };
        let flags = Flags::SYN | Flags::ACK;
        let ack = self.client_first + 1;
        self.receive(&Segment { seq: self.server_first, ack, flags, window: 5000, options }, &[]);
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() % 10 {
            0 => {
                let bytes: Vec<u8> =
                    (0..u64::from(input.word() % 9000)).map(|n| pattern(self.given + n, false)).collect();
                self.given += self.endpoint.send(&bytes, self.now) as u64;
            }
            1 => self.endpoint.finish(),
            2 => self.endpoint.close(self.now, &mut self.shared),
            3 => self.endpoint.grant(u32::from(input.word())),
            4 => self.wait(u32::from(input.word())),
            _ => self.receive_any(input),
        }
    }

    fn wait(&mut self, millis: u32) {
        self.now = self.now + millis;
        let before = self.endpoint.is_held();
        let failed = self.endpoint.on_timer(self.now, &mut self.shared);
        assert!(failed.is_none() || before, "a failure is told to the one who holds the connection");
        if let Some(deadline) = self.endpoint.deadline(self.now) {
            assert!(!deadline.is_due(self.now) || self.endpoint.wants_to_send(), "what is due is done");
        }
    }

    /// Receives a segment near a correct one, or any segment.
    fn receive_any(&mut self, input: &mut Input<'_>) {
        let kind = input.byte();
        let near = |base: Seq, offset: u16| Seq(base.0.wrapping_add((offset as i16) as u32));
        let seq = if kind & 1 != 0 { near(self.acked, input.word()) } else { self.acked };
        let client_next = self.client_first + 1 + self.given as u32;
        let ack = if kind & 2 != 0 { near(client_next, input.word()) } else { client_next };
        let flags = if kind & 4 != 0 { Flags::from_bits(input.byte()) } else { Flags::ACK };
        let value = u32::from(if kind & 8 != 0 { input.word() } else { u16::MAX });
        let timestamps =
            (self.timestamps && kind & 16 == 0).then_some(Timestamps { value, echo: self.now.0 });
        let options = Options { timestamps, ..Options::default() };
        let length = if kind & 32 != 0 { input.word() % 4000 } else { 0 };
        let first = u64::from(seq.since(self.server_first).wrapping_sub(1));
        let payload: Vec<u8> =
            (0..u64::from(length)).map(|n| pattern((first + n) & 0xffff_ffff, true)).collect();
        self.receive(&Segment { seq, ack, flags, window: input.word(), options }, &payload);
    }

    fn receive(&mut self, segment: &Segment, payload: &[u8]) {
        let held = self.endpoint.is_held();
        let news = self.endpoint.receive(segment, payload, self.now, &mut self.shared);
        let News { established, delivered, filled, ended, failed, .. } = news;
        let told = established || !delivered.is_empty() || !filled.is_empty() || ended || failed.is_some();
        assert!(held || !told, "there is no news for one who has closed");
        if established {
            self.server_first = segment.seq;
            self.acked = segment.seq + 1;
            self.edge = segment.seq + 1;
        }
        for byte in payload[delivered].iter().chain(&filled) {
            assert_eq!(*byte, pattern(self.received, true), "byte {}", self.received);
            self.received += 1;
        }
        if failed.is_some() {
            assert_eq!(self.endpoint.state(), State::Closed);
        }
    }

    /// Transmits all pending segments, which must come to an end.
    fn transmit(&mut self) {
        for _ in 0..100 {
            let Some(outgoing) = self.endpoint.transmit(self.now) else { return };
            let segment = outgoing.segment;
            let payload = self.endpoint.payload(outgoing.payload).to_vec();
            for (n, byte) in payload.iter().enumerate() {
                let offset = u64::from(segment.seq.since(self.client_first + 1)) + n as u64;
                assert_eq!(*byte, pattern(offset, false), "byte {offset} of what is sent");
            }
            let flow = Flow { local: "10.94.0.1:1024".parse().unwrap(), remote: server() };
            let mut packet = vec![0; frame::length(&flow, &segment, payload.len())];
            assert!(packet.len() <= 1500, "{} bytes", packet.len());
            frame::write(&mut packet, &flow, &segment, &payload, Leaving::Whole);
            if segment.flags.has(Flags::ACK) && !segment.flags.has(Flags::SYN) {
                assert!(!segment.ack.is_before(self.acked), "acknowledgments do not go back");
                self.acked = segment.ack;
            }
        }
        panic!("it sends without end");
    }
}
