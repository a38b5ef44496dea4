//! Random operations on a few sockets, and a model that predicts the reports.
//!
//! Under level-triggering the model demands a report of every ready descriptor with interest, and of no
//! other. Under edge-triggering it demands a report of every descriptor that became ready, or was asked for
//! anew, since its last report. Needless edges are allowed. The test drains every reported descriptor.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

use dispatch::{Event, Interest, Mechanism};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rustix::net::Shutdown;

use crate::bench::{Bench, drain, fill, pair, send};

const SLOTS: usize = 5;

#[derive(Clone, Copy, Debug)]
enum Step {
    Register(Interest),
    Modify(Interest),
    Deregister,
    /// Closes the descriptor and uses its number again at once.
    Replace(Interest),
    PeerSends,
    PeerHalfCloses,
    PeerCloses,
    Read,
    FillUp,
    PeerReads,
    Wait,
}

fn interest() -> impl Strategy<Value = Interest> {
    prop_oneof![
        1 => Just(Interest::None),
        3 => Just(Interest::Read),
        2 => Just(Interest::Write),
        3 => Just(Interest::Both),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => interest().prop_map(Step::Register),
        3 => interest().prop_map(Step::Modify),
        1 => Just(Step::Deregister),
        2 => interest().prop_map(Step::Replace),
        4 => Just(Step::PeerSends),
        1 => Just(Step::PeerHalfCloses),
        1 => Just(Step::PeerCloses),
        2 => Just(Step::Read),
        2 => Just(Step::FillUp),
        3 => Just(Step::PeerReads),
        6 => Just(Step::Wait),
    ]
}

/// A socket, its peer, and the model's knowledge of both.
struct Slot {
    ours: OwnedFd,
    peer: Option<OwnedFd>,
    registered: Option<(u64, Interest)>,
    /// The registration that the dispatcher had at the last wait.
    applied: Option<(u64, Interest)>,
    state: State,
}

/// The part of a socket's state that its peer can change, and the directions reported so far.
#[derive(Default)]
struct State {
    unread: bool,
    half_closed: bool,
    full: bool,
    told_readable: bool,
    told_writable: bool,
}

impl Slot {
    fn new() -> Slot {
        let (ours, peer) = pair();
        Slot { ours, peer: Some(peer), registered: None, applied: None, state: State::default() }
    }

    fn gone(&self) -> bool {
        self.peer.is_none()
    }

    fn readable(&self) -> bool {
        self.state.unread || self.state.half_closed || self.gone()
    }

    fn writable(&self) -> bool {
        !self.state.full || self.gone()
    }

    /// Gives the number to another socket.
    fn replace(&mut self) {
        let (fresh, peer) = pair();
        rustix::io::dup2(&fresh, &mut self.ours).unwrap();
        (self.peer, self.applied, self.state) = (Some(peer), None, State::default());
    }

    /// Changes the sockets and the model's knowledge of them.
    fn step(&mut self, step: Step) {
        let state = &mut self.state;
        match (step, &self.peer) {
            (Step::Read, _) => {
                drain(&self.ours);
                state.unread = false;
            }
            (Step::PeerSends, Some(peer)) if !state.half_closed => {
                send(peer, b"x");
                (state.unread, state.told_readable) = (true, false);
            }
            (Step::PeerHalfCloses, Some(peer)) if !state.half_closed => {
                rustix::net::shutdown(peer, Shutdown::Write).unwrap();
                (state.half_closed, state.told_readable) = (true, false);
            }
            (Step::PeerCloses, Some(_)) => {
                (state.told_readable, state.told_writable) = (false, false);
                self.peer = None;
            }
            // Signals do not announce room in a Unix socket that was full before it was watched.
            (Step::FillUp, Some(_)) if self.applied.is_some() => {
                fill(&self.ours);
                (state.full, state.told_writable) = (true, false);
            }
            (Step::PeerReads, Some(peer)) => {
                drain(peer);
                state.full = false;
            }
            _ => {}
        }
    }
}

struct Model<M> {
    bench: Bench<M>,
    slots: Vec<Slot>,
    tokens: u64,
}

impl<M: Mechanism> Model<M> {
    fn new() -> Model<M> {
        Model { bench: Bench::new(), slots: (0..SLOTS).map(|_| Slot::new()).collect(), tokens: 0 }
    }

    fn step(&mut self, index: usize, step: Step) {
        let (slot, dispatcher) = (&mut self.slots[index], &mut self.bench.dispatcher);
        match step {
            Step::Wait => self.wait(),
            Step::Register(interest) => self.register(index, interest),
            Step::Modify(interest) => {
                dispatcher.modify(slot.ours.as_fd(), interest);
                slot.registered = slot.registered.map(|(token, _)| (token, interest));
            }
            Step::Deregister => {
                dispatcher.deregister(slot.ours.as_fd());
                slot.registered = None;
            }
            Step::Replace(interest) => {
                dispatcher.closing(slot.ours.as_fd());
                slot.replace();
                self.register(index, interest);
            }
            other => slot.step(other),
        }
    }

    fn register(&mut self, index: usize, interest: Interest) {
        self.tokens += 1;
        let slot = &mut self.slots[index];
        self.bench.register(&slot.ours, self.tokens, interest);
        slot.registered = Some((self.tokens, interest));
    }

    fn wait(&mut self) {
        for slot in &mut self.slots {
            if slot.applied != slot.registered {
                (slot.state.told_readable, slot.state.told_writable) = (false, false);
            }
            slot.applied = slot.registered;
        }
        let mut reports = self.bench.reports();
        for slot in &mut self.slots {
            let Some((token, interest)) = slot.registered else { continue };
            let report = reports.remove(&token);
            if Bench::<M>::is_edge() {
                judge_edge(slot, interest, report)
            } else {
                judge_level(slot, interest, report)
            }
        }
        assert_eq!(reports, BTreeMap::new(), "reported, and registered under no such token");
    }
}

fn judge_level(slot: &Slot, interest: Interest, report: Option<Event>) {
    let readable = interest.reads() && slot.readable();
    let writable = interest.writes() && slot.writable();
    let (told_readable, told_writable, told_failed) = parts(report);
    if slot.gone() && interest != Interest::None {
        // A hang-up may be reported in both directions, and must be reported in those with interest.
        assert!(told_readable >= readable && told_writable >= writable, "{interest:?}: {report:?}");
    } else {
        assert_eq!((told_readable, told_writable, told_failed), (readable, writable, false), "{interest:?}");
    }
}

fn judge_edge(slot: &mut Slot, interest: Interest, report: Option<Event>) {
    let readable = interest.reads() && slot.readable() && !slot.state.told_readable;
    let writable = interest.writes() && slot.writable() && !slot.state.told_writable;
    let (told_readable, told_writable, _) = parts(report);
    assert!(told_readable >= readable && told_writable >= writable, "{interest:?}: {report:?}");
    assert!(interest != Interest::None || report.is_none(), "nothing was asked for: {report:?}");
    if told_readable {
        slot.step(Step::Read);
    }
    slot.state.told_readable |= told_readable;
    slot.state.told_writable |= told_writable;
}

fn parts(report: Option<Event>) -> (bool, bool, bool) {
    report.map_or((false, false, false), |event| (event.readable, event.writable, event.failed))
}

pub fn random_operations_agree_with_a_model<M: Mechanism>() {
    let steps = prop::collection::vec((0..SLOTS, step()), 1..120);
    let mut runner = TestRunner::new(Config { cases: 150, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&steps, |steps| {
        let mut model = Model::<M>::new();
        for (index, step) in steps {
            model.step(index, step);
        }
        model.wait();
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}
