//! A minimal TCP server for simulations: no clock, no sockets, and no code shared with the client.
//!
//! The server reads a task, checks the request, and sends the reply with a FIN. When its timer expires it
//! retransmits from the oldest unacknowledged byte. It keeps early segments.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

use base::Nanos;
use usertcp::endpoint::refusal;
use usertcp::frame::{Flags, Options, Received, Segment, Timestamps};
use usertcp::wrapping::Seq;

use super::client::{TASK_LENGTH, Task};
use super::pattern;

const MSS: u32 = 1448;
const TIMEOUT: Nanos = Nanos::from_millis(200);
/// The server's first number, near the wrap, so that every longer reply crosses it.
const FIRST: Seq = Seq(u32::MAX - 3000);
const SCALE: u8 = 7;

/// One connection at the server's end. Offsets are those of the streams, without the SYN.
struct Peer {
    client_first: Seq,
    /// The client's bytes in order; `early` holds the bytes that came early.
    request: Vec<u8>,
    early: BTreeMap<u32, Vec<u8>>,
    client_fin: Option<u32>,
    reply: Option<Vec<u8>>,
    established: bool,
    acked: u32,
    /// The next offset to send; `highest` is the first one never sent. Retransmission sets `sent` back.
    sent: u32,
    highest: u32,
    window: u32,
    echo: u32,
    repeat_at: Option<Nanos>,
}

/// The server.
#[derive(Default)]
pub struct Model {
    peers: HashMap<SocketAddr, Peer>,
    /// The server drops the final ACK of one connection out of this number, as with a full accept queue; 0
    /// drops none.
    pub drops_every: u32,
    seen: u32,
    dropped: HashMap<SocketAddr, ()>,
    pub wrong: u32,
}

impl Model {
    /// Handles a segment from a client; returns the answers.
    pub fn receive(
        &mut self,
        received: &Received,
        payload: &[u8],
        now: Nanos,
    ) -> Vec<(SocketAddr, Segment, Vec<u8>)> {
        let (client, segment) = (received.flow.remote, &received.segment);
        if segment.flags.has(Flags::RST) {
            self.peers.remove(&client);
            return Vec::new();
        }
        if segment.flags.has(Flags::SYN) {
            return self.answer_syn(client, segment, now);
        }
        let Some(peer) = self.peers.get_mut(&client) else {
            let reset = refusal(segment, payload.len());
            return reset.map(|reset| (client, reset, Vec::new())).into_iter().collect();
        };
        if self.dropped.contains_key(&client) {
            return Vec::new();
        }
        peer.established = true;
        let ack = segment.ack.since(FIRST + 1);
        if ack <= peer.highest && ack > peer.acked {
            peer.acked = ack;
            peer.sent = peer.sent.max(ack);
            peer.repeat_at = None;
        }
        peer.window = u32::from(segment.window) << SCALE;
        peer.echo = segment.options.timestamps.map_or(peer.echo, |timestamps| timestamps.value);
        if peer.take(segment, payload) {
            self.wrong += 1;
        }
        let is_news = !payload.is_empty() || segment.flags.has(Flags::FIN);
        let mut out = peer.send(now);
        if out.is_empty() && is_news {
            out.push(peer.segment(peer.sent, Flags::ACK, Vec::new(), now));
        }
        let over = peer.is_over();
        let out = out.into_iter().map(|(segment, payload)| (client, segment, payload)).collect();
        if over {
            self.peers.remove(&client);
        }
        out
    }

    fn answer_syn(
        &mut self,
        client: SocketAddr,
        segment: &Segment,
        now: Nanos,
    ) -> Vec<(SocketAddr, Segment, Vec<u8>)> {
        if !self.peers.contains_key(&client) {
            self.seen += 1;
            if self.drops_every > 0 && self.seen.is_multiple_of(self.drops_every) {
                self.dropped.insert(client, ());
            }
        }
        let echo = segment.options.timestamps.map_or(0, |timestamps| timestamps.value);
        let peer = self.peers.entry(client).or_insert_with(|| Peer {
            client_first: segment.seq,
            request: Vec::new(),
            early: BTreeMap::new(),
            client_fin: None,
            reply: None,
            established: false,
            acked: 0,
            sent: 0,
            highest: 0,
            window: 0,
            echo,
            repeat_at: Some(now + Nanos::SECOND),
        });
        vec![(client, peer.syn_ack(now), Vec::new())]
    }

    /// The next timeout.
    pub fn next_due(&self) -> Option<Nanos> {
        self.peers.values().filter_map(|peer| peer.repeat_at).min()
    }

    /// Retransmits segments that were not acknowledged in time.
    pub fn expire(&mut self, now: Nanos) -> Vec<(SocketAddr, Segment, Vec<u8>)> {
        let mut out = Vec::new();
        let mut due: Vec<_> =
            self.peers.iter_mut().filter(|(_, peer)| peer.repeat_at.is_some_and(|at| at <= now)).collect();
        // A hash map has no order, but a simulation must be repeatable.
        due.sort_by_key(|(client, _)| **client);
        for (client, peer) in due {
            if !peer.established {
                peer.repeat_at = Some(now + Nanos::SECOND);
                out.push((*client, peer.syn_ack(now), Vec::new()));
                continue;
            }
            peer.sent = peer.acked;
            peer.repeat_at = None;
            let mut segments = peer.send(now);
            segments.truncate(1);
            if let Some((segment, payload)) = segments.first() {
                peer.sent = peer.acked + payload.len() as u32 + u32::from(segment.flags.has(Flags::FIN));
            } else {
                // A closed window is probed with a byte that the client already has.
                segments.push(peer.segment(peer.acked.wrapping_sub(1), Flags::ACK, vec![0], now));
                peer.repeat_at = Some(now + TIMEOUT);
            }
            out.extend(segments.into_iter().map(|(segment, payload)| (*client, segment, payload)));
        }
        out
    }

    /// Returns true if there are no connections. A connection whose client gave up never ends.
    pub fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }
}

impl Peer {
    fn syn_ack(&self, now: Nanos) -> Segment {
        let options = Options {
            mss: Some(1460),
            sack_permitted: true,
            timestamps: Some(self.timestamps(now)),
            window_scale: Some(SCALE),
            ..Options::default()
        };
        Segment {
            seq: FIRST,
            ack: self.client_first + 1,
            flags: Flags::SYN | Flags::ACK,
            window: 65_535,
            options,
        }
    }

    fn timestamps(&self, now: Nanos) -> Timestamps {
        Timestamps { value: (now.0 / 1_000_000) as u32, echo: self.echo }
    }

    /// Handles payload and FIN; returns true if the request has just become complete and is wrong.
    fn take(&mut self, segment: &Segment, payload: &[u8]) -> bool {
        let offset = segment.seq.since(self.client_first + 1);
        if !payload.is_empty() && offset < 1 << 30 {
            self.early.insert(offset, payload.to_vec());
        }
        if segment.flags.has(Flags::FIN) {
            self.client_fin = Some(offset.wrapping_add(payload.len() as u32));
        }
        while let Some((&offset, _)) = self.early.first_key_value() {
            let have = self.request.len() as u32;
            if offset > have {
                break;
            }
            let bytes = self.early.remove(&offset).unwrap();
            self.request.extend(bytes.iter().skip((have - offset) as usize));
        }
        if self.reply.is_some() || self.request.len() < TASK_LENGTH {
            return false;
        }
        let task = Task::read(self.request[..TASK_LENGTH].try_into().unwrap());
        if self.request.len() < TASK_LENGTH + task.request as usize {
            return false;
        }
        self.reply = Some((0..u64::from(task.reply)).map(|n| pattern(n, true)).collect());
        self.request != task.bytes()
    }

    /// New segments, within the window.
    fn send(&mut self, now: Nanos) -> Vec<(Segment, Vec<u8>)> {
        let mut out = Vec::new();
        let Some(length) = self.reply.as_ref().map(|reply| reply.len() as u32) else { return out };
        loop {
            let room = (self.acked + self.window.min(20 * MSS)).saturating_sub(self.sent);
            let size = length.saturating_sub(self.sent).min(MSS).min(room);
            let fin = self.sent + size == length && self.sent <= length;
            if size == 0 && !(fin && self.sent == length) {
                break;
            }
            let start = self.sent as usize;
            let payload = self.reply.as_ref().unwrap()[start..start + size as usize].to_vec();
            let flags = if fin { Flags::ACK | Flags::PSH | Flags::FIN } else { Flags::ACK | Flags::PSH };
            out.push(self.segment(self.sent, flags, payload, now));
            self.sent += size + u32::from(fin);
            self.highest = self.highest.max(self.sent);
        }
        if self.acked < length + 1 && self.repeat_at.is_none() {
            self.repeat_at = Some(now + TIMEOUT);
        }
        out
    }

    fn segment(&self, offset: u32, flags: Flags, payload: Vec<u8>, now: Nanos) -> (Segment, Vec<u8>) {
        let taken = self.request.len() as u32;
        let fin = u32::from(self.client_fin == Some(taken));
        let options = Options { timestamps: Some(self.timestamps(now)), ..Options::default() };
        let ack = self.client_first + 1 + taken + fin;
        (Segment { seq: FIRST + 1 + offset, ack, flags, window: 512, options }, payload)
    }

    fn is_over(&self) -> bool {
        let all = self.reply.as_ref().is_some_and(|reply| self.acked == reply.len() as u32 + 1);
        all && self.client_fin == Some(self.request.len() as u32)
    }
}
