//! The events of a run.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use base::Nanos;
use overload::AcceptQueueReading;

use super::clients::{self, Client};
use super::guard::{Asked, Guard};
use super::server::{Connection, Working};
use super::{Ledger, Scenario};

const ROUND_TRIP: Nanos = Nanos::from_micros(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A client sends a SYN.
    Syn(usize),
    /// A handshake ends, and the first request arrives.
    Established(Connection),
    /// A further request arrives.
    Asked(Connection),
    /// A worker has ended its part of a request.
    WorkerFree,
    /// An answer is sent.
    Answered(Connection),
    /// A client waits no longer for the answer to its request with this number.
    GivesUp(Connection, u16),
    /// The guard decides.
    Tick,
}

/// An established connection. Its key is the number of its client.
#[derive(Clone, Copy, Debug, Default)]
struct Open {
    accepted: bool,
    gone: bool,
    /// Answers so far.
    answers: u16,
    pending: Option<Asked>,
    /// The longest wait of an answer, that for the connection included.
    longest: Nanos,
}

struct Run<'a> {
    scenario: &'a Scenario,
    now: Nanos,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    order: u64,
    clients: Vec<Client>,
    open: Vec<Open>,
    server: Working,
    guard: Guard,
    ledger: Ledger,
    accepted: u64,
}

/// Runs a scenario until the end of its load, and for two seconds more.
pub fn run(scenario: &Scenario) -> Ledger {
    let clients = clients::draw(scenario, &mut scenario.seed.child("clients").rng());
    let end = scenario.end() + Nanos::from_secs(2);
    let mut run = Run {
        scenario,
        now: Nanos::ZERO,
        events: BinaryHeap::new(),
        order: 0,
        open: vec![Open::default(); clients.len()],
        server: Working::new(&scenario.server, scenario.seed.child("server").rng()),
        guard: Guard::new(scenario),
        ledger: Ledger::new(end),
        accepted: 0,
        clients,
    };
    for number in 0..run.clients.len() {
        let Client { due, beside, .. } = run.clients[number];
        if beside.is_none() {
            run.ledger.offered(due);
        }
        run.at(due, Event::Syn(number));
    }
    if scenario.guard.is_some() {
        run.at(run.guard.control.due(), Event::Tick);
    }
    while let Some(Reverse((at, _, event))) = run.events.pop().filter(|Reverse((at, ..))| *at < end) {
        run.now = at;
        run.happens(event);
    }
    run.ledger
}

impl Run<'_> {
    fn at(&mut self, at: Nanos, event: Event) {
        self.order += 1;
        self.events.push(Reverse((at, self.order, event)));
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Syn(number) => self.syn(number),
            Event::Established(connection) => {
                self.server.queue.push_back(connection);
                self.ask(connection);
                self.dispatch();
            }
            Event::Asked(connection) => {
                self.ask(connection);
                if self.clients[connection].beside.is_none() {
                    self.server.ask(connection);
                }
                self.dispatch();
            }
            Event::WorkerFree => {
                self.server.free_worker();
                self.dispatch();
            }
            Event::Answered(connection) => self.answered(connection),
            Event::GivesUp(connection, request) => self.gives_up(connection, request),
            Event::Tick => {
                let depth = self.server.queue.len() as u32;
                let (limit, accepted) = (self.scenario.server.backlog, self.accepted);
                let queue = AcceptQueueReading { depth, limit, accepted, dropped: self.ledger.dropped };
                self.guard.tick(self.now, queue, &mut self.ledger);
                self.at(self.guard.control.due(), Event::Tick);
            }
        }
    }

    fn syn(&mut self, number: usize) {
        let client = self.clients[number];
        self.ledger.syns += 1;
        let full = self.server.queue.len() > self.scenario.server.backlog as usize;
        let refused = self.guard.refuses(&client, self.now);
        self.ledger.refused += u64::from(refused);
        self.ledger.dropped += u64::from(full && !refused);
        if !full && !refused {
            return self.at(self.now + ROUND_TRIP, Event::Established(number));
        }
        if let Some(at) = self.clients[number].again(self.now, self.scenario.patience) {
            self.at(at, Event::Syn(number));
        }
    }

    /// Counts a request at the guard, and tells when it ends by itself.
    fn ask(&mut self, connection: Connection) {
        let first = self.open[connection].answers == 0;
        self.open[connection].pending = Some(self.guard.ask(self.now, first));
        match self.clients[connection].beside {
            None => {
                let request = self.open[connection].answers;
                self.at(self.now + self.scenario.patience, Event::GivesUp(connection, request));
            }
            Some(beside) => {
                if let Some(after) = beside.answered_after {
                    self.at(self.now + after, Event::Answered(connection));
                }
            }
        }
    }

    fn dispatch(&mut self) {
        let (open, clients, accepted) =
            (std::cell::RefCell::new(&mut self.open), &self.clients, &mut self.accepted);
        let begun = self.server.dispatch(
            self.now,
            |connection| {
                *accepted += 1;
                let connection_is = &mut open.borrow_mut()[connection];
                connection_is.accepted = true;
                clients[connection].beside.is_none() && !connection_is.gone
            },
            |connection| {
                let Open { gone, answers, .. } = open.borrow()[connection];
                (!gone).then_some(answers)
            },
        );
        for begun in begun {
            self.at(begun.free_at, Event::WorkerFree);
            self.at(begun.answered_at, Event::Answered(begun.connection));
        }
    }

    fn answered(&mut self, connection: Connection) {
        let (now, client) = (self.now, self.clients[connection]);
        let open = &mut self.open[connection];
        let Some(asked) = open.pending.take() else { return };
        self.guard.answer(&asked, now);
        let since = if open.answers == 0 { client.due } else { asked.at };
        open.longest = open.longest.max(now - since);
        open.answers += 1;
        let done = match client.beside {
            None => open.answers == self.scenario.requests,
            Some(beside) => !beside.again,
        };
        if !done {
            return self.at(now + ROUND_TRIP, Event::Asked(connection));
        }
        if client.beside.is_none() {
            self.ledger.served(client.due, open.longest);
        }
    }

    /// A client that waits no longer closes its connection. The server learns of it when it reads.
    fn gives_up(&mut self, connection: Connection, request: u16) {
        let open = &mut self.open[connection];
        if open.answers == request && open.pending.take().is_some() {
            open.gone = true;
            self.guard.end();
        }
    }
}
