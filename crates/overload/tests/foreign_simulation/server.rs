//! The servers of other programs: when they accept, and how they spend their workers' time.

use std::collections::VecDeque;

use base::{Nanos, Rng};
use rand::RngExt;
use rand_distr::Exp1;

/// The moment at which a server accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepting {
    /// At once, by a thread of its own: Java, HAProxy. The accept queue is always empty.
    AtOnce,
    /// Up to this many connections each time that the acceptor's turn has come: 1 for nginx and Go, all for Node.
    EachTurn(usize),
    /// One connection when a worker is free and nothing else is to do: gunicorn, Apache.
    WhenFree,
}

/// A server, described.
#[derive(Clone, Debug)]
pub struct Server {
    pub accepting: Accepting,
    /// The requests served at the same time.
    pub workers: usize,
    /// The work for the first, second and further answers of a connection; the last value repeats.
    pub work: Vec<Nanos>,
    /// The exponentially distributed fraction of the work; the rest is constant.
    pub variation: f64,
    /// The time that a backend adds to each answer: steps with their end; none after the last.
    pub backend: Vec<(Nanos, Nanos)>,
    /// True if a worker waits for the backend, and false if it serves others meanwhile.
    pub blocks: bool,
    pub backlog: u32,
}

impl Server {
    /// Two workers that take 4 ms for a request: 500 requests per second.
    pub fn new(accepting: Accepting) -> Server {
        Server {
            accepting,
            workers: 2,
            work: vec![Nanos::from_millis(4)],
            variation: 0.3,
            backend: Vec::new(),
            blocks: false,
            backlog: 511,
        }
    }

    /// nginx over TLS with two workers: three answers a connection, of which the first costs nearly everything.
    pub fn tls() -> Server {
        let micros = Nanos::from_micros;
        Server { work: vec![micros(3900), micros(50), micros(50)], ..Server::new(Accepting::EachTurn(1)) }
    }

    /// Connections that the server can serve per second.
    pub fn capacity(&self, requests: u16) -> f64 {
        let work: f64 = (0..requests).map(|nth| self.work(nth).as_secs_f64()).sum();
        self.workers as f64 / work
    }

    pub fn work(&self, nth: u16) -> Nanos {
        *self.work.get(usize::from(nth)).or(self.work.last()).expect("a server has work")
    }

    pub fn backend_delay(&self, now: Nanos) -> Nanos {
        self.backend.iter().find(|(until, _)| now < *until).map_or(Nanos::ZERO, |(_, delay)| *delay)
    }
}

/// The key of a connection.
pub type Connection = usize;

/// An entry of the server's list of things to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Takes connections from the accept queue.
    Accept,
    /// Answers the pending request of a connection.
    Serve(Connection),
}

/// The state of a server.
pub struct Working {
    server: Server,
    draws: Rng,
    /// Connections in the accept queue, with requests that came before they were accepted.
    pub queue: VecDeque<Connection>,
    ready: VecDeque<Task>,
    free: usize,
}

/// A request that a worker has begun to serve.
pub struct Begun {
    pub connection: Connection,
    /// The time at which the worker is free again, and at which the answer is sent.
    pub free_at: Nanos,
    pub answered_at: Nanos,
}

impl Working {
    pub fn new(server: &Server, draws: Rng) -> Working {
        let ready = match server.accepting {
            Accepting::EachTurn(_) => VecDeque::from([Task::Accept]),
            Accepting::AtOnce | Accepting::WhenFree => VecDeque::new(),
        };
        let (queue, free) = (VecDeque::new(), server.workers);
        Working { server: server.clone(), draws, queue, ready, free }
    }

    /// Adds a request of an accepted connection.
    pub fn ask(&mut self, connection: Connection) {
        self.ready.push_back(Task::Serve(connection));
    }

    pub fn free_worker(&mut self) {
        self.free += 1;
    }

    /// Gives the free workers something to do. `accept` tells that a connection is accepted, and returns true if it has a
    /// request to serve; `nth` is the number of a connection's pending request, or `None` if the connection is gone.
    pub fn dispatch(
        &mut self,
        now: Nanos,
        mut accept: impl FnMut(Connection) -> bool,
        nth: impl Fn(Connection) -> Option<u16>,
    ) -> Vec<Begun> {
        if self.server.accepting == Accepting::AtOnce {
            self.accept(usize::MAX, &mut accept);
        }
        let mut begun = Vec::new();
        while self.free > 0 {
            if self.server.accepting == Accepting::WhenFree && self.ready.is_empty() {
                self.accept(1, &mut accept);
            }
            let Some(connection) = self.next(&mut accept) else { break };
            if let Some(nth) = nth(connection) {
                begun.push(self.serve(connection, nth, now));
            }
        }
        begun
    }

    /// The next connection to serve; the acceptor takes its turns meanwhile.
    fn next(&mut self, accept: &mut impl FnMut(Connection) -> bool) -> Option<Connection> {
        loop {
            match self.ready.pop_front()? {
                Task::Serve(connection) => return Some(connection),
                Task::Accept => {
                    let Accepting::EachTurn(limit) = self.server.accepting else { unreachable!() };
                    self.accept(limit, accept);
                    self.ready.push_back(Task::Accept);
                    if self.ready.len() == 1 && self.queue.is_empty() {
                        return None;
                    }
                }
            }
        }
    }

    fn accept(&mut self, limit: usize, accept: &mut impl FnMut(Connection) -> bool) {
        for _ in 0..limit {
            let Some(connection) = self.queue.pop_front() else { return };
            if accept(connection) {
                self.ready.push_back(Task::Serve(connection));
            }
        }
    }

    fn serve(&mut self, connection: Connection, nth: u16, now: Nanos) -> Begun {
        let random: f64 = self.draws.sample(Exp1);
        let factor = 1.0 - self.server.variation + self.server.variation * random;
        let work = Nanos::from_secs_f64(self.server.work(nth).as_secs_f64() * factor);
        let delay = self.server.backend_delay(now);
        self.free -= 1;
        let answered_at = now + work + delay;
        let free_at = if self.server.blocks { answered_at } else { now + work };
        Begun { connection, free_at, answered_at }
    }
}
