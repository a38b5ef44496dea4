//! An application over a stack that knows the bytes it must receive: many exchanges, each with exactly one
//! outcome.

use std::fmt::Debug;

use base::{Key, Nanos, Rng, Slab};
use dispatch::Token;
use rand::RngExt;
use usertcp::{Event, Failure, Kind, Link, Stack, Window};

use super::pattern;

/// A request: eight bytes with the two lengths, then bytes of the client's pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    pub request: u32,
    pub reply: u32,
}

pub const TASK_LENGTH: usize = 8;

impl Task {
    pub fn random(rng: &mut Rng, longest: u32) -> Task {
        let size = |rng: &mut Rng| match rng.random_range(0..4) {
            0 => rng.random_range(0..10),
            1 | 2 => rng.random_range(0..longest.min(2000)),
            _ => rng.random_range(0..longest),
        };
        Task { request: size(rng), reply: size(rng) }
    }

    pub fn bytes(self) -> Vec<u8> {
        let mut bytes = self.request.to_be_bytes().to_vec();
        bytes.extend_from_slice(&self.reply.to_be_bytes());
        bytes.extend((0..u64::from(self.request)).map(|n| pattern(n, false)));
        bytes
    }

    pub fn read(bytes: [u8; TASK_LENGTH]) -> Task {
        let number = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Task { request: number(0), reply: number(4) }
    }
}

/// The end of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All bytes came, then the end.
    Complete,
    /// The end came too early.
    Short,
    Failed(Failure),
}

struct Exchange {
    key: Key,
    task: Task,
    unsent: Vec<u8>,
    received: u32,
    /// Received bytes that a slow reader has not granted yet.
    withheld: u32,
    slow: bool,
    finishes: bool,
}

/// The application.
pub struct Client {
    rng: Rng,
    exchanges: Slab<Exchange>,
    pub outcomes: Vec<Outcome>,
    longest: u32,
}

impl Client {
    /// A client with tasks of at most `longest` bytes in each direction.
    pub fn new(rng: Rng, longest: u32) -> Client {
        Client { rng, exchanges: Slab::new(), outcomes: Vec::new(), longest }
    }

    pub fn begin<L: Link>(&mut self, stack: &mut Stack<L>, now: Nanos) {
        let task = Task::random(&mut self.rng, self.longest);
        let (slow, finishes) = (self.rng.random_ratio(1, 5), self.rng.random());
        let window = if slow { Window::Granted(4096) } else { Window::Open };
        let name = self.exchanges.insert_with(|name| {
            let key = stack.connect(Token::from(name), window, now).expect("there are names enough");
            Exchange { key, task, unsent: task.bytes(), received: 0, withheld: 0, slow, finishes }
        });
        assert!(self.exchanges.get(name).is_some());
    }

    pub fn is_done(&self) -> bool {
        self.exchanges.is_empty()
    }

    /// Handles the events of one turn of the stack.
    pub fn attend<L: Link>(&mut self, stack: &mut Stack<L>, now: Nanos) {
        while let Some(event) = stack.next(now).unwrap() {
            self.handle(stack, event, now);
        }
        // Slow readers read a part of the received bytes.
        let names: Vec<Key> = self.exchanges.keys().collect();
        for name in names {
            let exchange = self.exchanges.get_mut(name).unwrap();
            if exchange.withheld > 0 {
                let granted = exchange.withheld.min(700);
                exchange.withheld -= granted;
                stack.grant(exchange.key, granted);
            }
        }
    }

    fn handle<L: Link>(&mut self, stack: &mut Stack<L>, event: Event, now: Nanos) {
        let name = Key::from(event.token);
        let exchange = self.exchanges.get_mut(name).unwrap_or_else(|| panic!("{event:?} of nobody"));
        match event.kind {
            Kind::Established | Kind::HasRoom => {
                let taken = stack.send(exchange.key, &exchange.unsent, now);
                exchange.unsent.drain(..taken);
                if exchange.unsent.is_empty() && exchange.finishes {
                    stack.finish(exchange.key);
                }
            }
            Kind::Received => {
                let bytes = stack.bytes();
                assert!(!bytes.is_empty());
                for byte in bytes {
                    let offset = u64::from(exchange.received);
                    assert_eq!(*byte, pattern(offset, true), "byte {offset} of {:?}", exchange.task);
                    exchange.received += 1;
                }
                if exchange.slow {
                    exchange.withheld += bytes.len() as u32;
                }
            }
            Kind::Ended => {
                let complete = exchange.received == exchange.task.reply;
                stack.close(exchange.key, now);
                self.end(name, if complete { Outcome::Complete } else { Outcome::Short });
            }
            Kind::Failed(failure) => self.end(name, Outcome::Failed(failure)),
        }
    }

    fn end(&mut self, name: Key, outcome: Outcome) {
        let exchange = self.exchanges.remove(name).unwrap();
        assert!(exchange.received <= exchange.task.reply);
        self.outcomes.push(outcome);
    }
}
