//! The completion loop on a simulated kernel and clock, with clients that pipeline, dawdle, end early and leave.
//!
//! The kernel decides by a seed in which order and when operations complete, and which of them fail. It checks that memory
//! lent to it stays as it was. The tests check that each connection has one outcome, that the bytes are right up to it, and
//! that nothing is left: no slot, no descriptor, no buffer.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::rc::Rc;
use std::sync::Arc;

use base::{Limit, Nanos, Rng, Seed, SimulatedClock, WallTime};
use connection::simulation::http2_requests;
use connection::{LiveSettings, SocketService};
use http_semantics::server::Settings;
use http_semantics::{Body, FileRange, Request, Response, Service, Status};
use rand::RngExt;
use sys::completion::{CompletionRing, Faults, SimulatedKernel};
use sys::thread::stop::Stop;
use tempfile::TempDir;

use super::{CompletionLoop, End, EventLoop};
use crate::connections::accept::{AcceptLimit, Acceptor, LiveLimit};
use crate::connections::overload_control::ControlledQueue;
use crate::connections::slots::Share;
use crate::driver::event_loop::{Listeners, Parts};
use crate::ground::counters::Board;
use crate::ground::listener::Listener;

const SEEDS: u64 = 100;
const CLIENTS: usize = 24;
/// Fewer than the clients, so that idle connections give way.
const MOST_CONNECTIONS: usize = 8;
/// The length of the file, which leaves in several parts.
const FILE_BYTES: usize = 300_000;
/// More turns than a run takes unless something hangs.
const MOST_TURNS: usize = 200_000;

/// Answers `/N` with N bytes, and `/file` with a file.
struct Answers(Arc<OwnedFd>);

impl Service for Answers {
    type File = Arc<OwnedFd>;

    fn respond(&mut self, request: &Request<'_>, _now: Nanos) -> Response<Arc<OwnedFd>> {
        let body = match request.path()[1..].parse() {
            Ok(length) => Body::Bytes(pattern(length).into()),
            Err(_) => {
                let length = FILE_BYTES as u64;
                Body::File(FileRange { file: Arc::clone(&self.0), offset: 0, length })
            }
        };
        Response { body, ..Response::error(Status::OK) }
    }
}

impl SocketService for Answers {
    fn counts(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 3 + length) as u8).collect()
}

/// The end of a connection as its client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Every request was answered.
    Answered,
    /// The server ended it before that.
    CutOff,
    /// The client left.
    Left,
}

/// One connection's other end.
struct Client {
    stream: Option<UnixStream>,
    /// The lengths of the answers.
    lengths: Vec<usize>,
    requests: Vec<u8>,
    received: Vec<u8>,
    /// Ends its sending side after its requests.
    is_half_closed: bool,
    /// Leaves once it has received this number of bytes.
    leaves_after: usize,
    outcome: Option<Outcome>,
}

impl Client {
    fn new(path: &std::path::Path, random: &mut Rng) -> Client {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_nonblocking(true).unwrap();
        let targets: Vec<usize> = (0..random.random_range(0..6))
            .map(|_| match random.random_range(0..10) {
                0 => FILE_BYTES,
                1 => 100_000,
                2 => 20_000,
                _ => random.random_range(0..2000),
            })
            .collect();
        let request = |length: &usize| {
            let path = if *length == FILE_BYTES { "file".to_owned() } else { length.to_string() };
            format!("GET /{path} HTTP/1.1\r\nHost: simulation\r\n\r\n")
        };
        let mut requests = targets.iter().map(request).collect::<String>().into_bytes();
        if random.random_range(0..12) == 0 {
            // An incomplete request, which runs into its deadline.
            requests.extend_from_slice(b"GET /1 HT");
        }
        Client {
            stream: Some(stream),
            lengths: targets,
            requests,
            received: Vec::new(),
            is_half_closed: random.random_range(0..3) == 0,
            leaves_after: if random.random_range(0..5) == 0 {
                random.random_range(0..50_000)
            } else {
                usize::MAX
            },
            outcome: None,
        }
    }

    /// Sends and receives a little.
    fn act(&mut self, random: &mut Rng) {
        let Some(stream) = &mut self.stream else { return };
        if !self.requests.is_empty() && random.random_range(0..3) > 0 {
            let count = random.random_range(1..=self.requests.len());
            match stream.write(&self.requests[..count]) {
                Ok(count) => drop(self.requests.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => self.requests.clear(),
            }
            if self.requests.is_empty() && self.is_half_closed {
                // The server may have gone.
                let _ = stream.shutdown(Shutdown::Write);
            }
        }
        let mut buffer = vec![0; random.random_range(1..100_000)];
        let ended = match stream.read(&mut buffer) {
            Ok(count) => {
                self.received.extend_from_slice(&buffer[..count]);
                count == 0
            }
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        };
        if ended {
            self.end(None);
        } else if self.received.len() > self.leaves_after {
            self.end(Some(Outcome::Left));
        }
    }

    fn end(&mut self, outcome: Option<Outcome>) {
        let answered = if self.answers() == self.lengths.len() { Outcome::Answered } else { Outcome::CutOff };
        assert_eq!(self.outcome.replace(outcome.unwrap_or(answered)), None, "one outcome");
        self.stream = None;
    }

    /// Checks what was received, and counts the whole answers.
    fn answers(&self) -> usize {
        let mut rest = &self.received[..];
        for (index, length) in self.lengths.iter().enumerate() {
            let Some(end) = rest.windows(4).position(|four| four == b"\r\n\r\n") else { return index };
            let head = String::from_utf8(rest[..end].to_vec()).expect("a head is text");
            if head.starts_with("HTTP/1.1 408 ") {
                return index;
            }
            assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
            assert!(head.contains(&format!("Content-Length: {length}")), "{index}: {head}");
            let body = &rest[end + 4..];
            let count = body.len().min(*length);
            assert!(body[..count] == pattern(*length)[..count], "answer {index} of {length} bytes");
            if count < *length {
                return index;
            }
            rest = &body[count..];
        }
        self.lengths.len()
    }
}

/// A loop on a simulated kernel, and its clients.
struct World {
    server: CompletionLoop<Answers, Listeners, SimulatedKernel, SimulatedClock>,
    faults: Rc<RefCell<Faults>>,
    arrivals: Rc<Cell<usize>>,
    stop: Stop,
    share: Share,
    limit: LiveLimit,
    random: Rng,
    clients: Vec<Client>,
    folder: TempDir,
}

impl World {
    fn new(seed: Seed, limit: Limit) -> World {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), pattern(FILE_BYTES)).unwrap();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        listener.set_nonblocking(true).unwrap();
        // Connections between sockets of this kind are deterministic. The loop uses the address for nothing.
        let listener = Listener::new(listener.into(), "127.0.0.1:1".parse().unwrap());
        let clock = SimulatedClock::new(WallTime { seconds: 1_000_000 });
        let kernel = SimulatedKernel::new(seed, clock.clone());
        let (faults, arrivals) = (kernel.faults(), kernel.arrivals());
        let (share, limit, stop) =
            (Share::alone(MOST_CONNECTIONS), LiveLimit::new(AcceptLimit::Fixed(limit)), Stop::new().unwrap());
        let acceptor = Acceptor::new(limit.clone(), share.clone(), None);
        let parts = Parts {
            arrivals: Listeners::new(ControlledQueue { listeners: vec![listener], control: None }, acceptor),
            service: Answers(Arc::new(File::open(folder.path().join("file")).unwrap().into())),
            settings: LiveSettings::new(Settings::default()),
            read_after_accept: false,
            log: None,
            board: Board::default(),
            mechanism: Default::default(),
            stop: stop.clone(),
            drain_timeout: Nanos::from_secs(300),
        };
        let server = CompletionLoop::new(parts, CompletionRing::over(kernel).unwrap(), clock);
        let random = seed.child("clients").rng();
        World { server, faults, arrivals, stop, share, limit, random, clients: Vec::new(), folder }
    }

    /// Runs a turn of the loop and one action of a client.
    fn turn(&mut self) {
        if self.clients.len() < CLIENTS && self.random.random_range(0..4) == 0 {
            self.connect();
        }
        self.go_on();
    }

    fn connect(&mut self) {
        self.clients.push(Client::new(&self.folder.path().join("socket"), &mut self.random));
        self.arrivals.set(self.arrivals.get() + 1);
    }

    fn go_on(&mut self) {
        for client in &mut self.clients {
            if self.random.random_range(0..2) == 0 {
                client.act(&mut self.random);
            }
        }
        self.server.turn().unwrap();
    }

    /// Runs until every client has its outcome; `watch` looks at the loop after each turn.
    fn run(mut self, watch: impl Fn(&mut World)) -> Vec<Client> {
        let mut turns = 0;
        while self.clients.len() < CLIENTS || self.clients.iter().any(|client| client.outcome.is_none()) {
            self.turn();
            watch(&mut self);
            turns += 1;
            assert!(turns < MOST_TURNS, "it hangs: {:?}", self.server.state.lender.counts);
        }
        let (loops, http) = (&self.server.state.lender.counts, &self.server.state.lender.http);
        let cut_off = self.clients.iter().filter(|client| client.outcome == Some(Outcome::CutOff)).count();
        let deadlines = http.timeouts_header + http.timeouts_idle + http.timeouts_write_stall;
        let reasons = loops.peers.broken + loops.reclaimed + deadlines;
        assert!(cut_off as u64 <= reasons, "{cut_off} without a reason: {loops:?} {http:?}");
        self.stop()
    }

    /// Stops the loop, and checks its books and that nothing is left.
    fn stop(mut self) -> Vec<Client> {
        self.stop.ask();
        let mut turns = 0;
        while !self.server.state.has_ended() {
            self.server.turn().unwrap();
            self.clients.iter_mut().for_each(|client| client.act(&mut self.random));
            turns += 1;
            assert!(turns < MOST_TURNS, "it does not end: {:?}", self.server.state.lender.counts);
        }
        self.server.finish();
        let loops = self.server.state.lender.counts.clone();
        drop(self.server);
        for client in self.clients.iter_mut().filter(|client| client.outcome.is_none()) {
            // A connection that does not close now never will.
            (0..100).for_each(|_| client.act(&mut self.random));
            assert!(client.outcome.is_some(), "a socket is open without a connection");
        }
        assert_eq!(loops.accepts, loops.closed, "{loops:?}");
        assert!(loops.accepts <= self.clients.len() as u64);
        assert_eq!(self.share.taken(), 0, "a slot is left");
        self.clients
    }
}

/// Runs a test with many seeds, and names the one that failed.
fn with_seeds(test: impl Fn(Seed)) {
    for number in 0..SEEDS {
        let printed = Printed(number);
        test(Seed(number));
        std::mem::forget(printed);
    }
}

/// Names the seed during a panic.
struct Printed(u64);

impl Drop for Printed {
    fn drop(&mut self) {
        println!("seed {}", self.0);
    }
}

fn limits(seed: Seed) -> Limit {
    [Limit::AtMost(1), Limit::AtMost(3), Limit::Infinite][seed.0 as usize % 3]
}

#[test]
fn every_connection_has_one_outcome_in_any_order() {
    let sum = RefCell::new(Faults::default());
    let answered = RefCell::new(0);
    with_seeds(|seed| {
        let world = World::new(seed, limits(seed));
        let faults = Rc::clone(&world.faults);
        let clients = world.run(|_| {});
        *answered.borrow_mut() += clients.iter().filter(|it| it.outcome == Some(Outcome::Answered)).count();
        sum.borrow_mut().add(&faults.borrow());
    });
    let sum = sum.into_inner();
    println!("{sum:?}");
    assert!(sum.all().into_iter().all(|count| count > 0), "a fault was never injected: {sum:?}");
    assert!(answered.into_inner() > CLIENTS * SEEDS as usize / 4);
}

#[test]
fn a_stop_at_any_time_leaves_nothing_behind() {
    with_seeds(|seed| {
        let mut world = World::new(seed, limits(seed));
        let turns = world.random.random_range(0..300);
        (0..turns).for_each(|_| world.turn());
        world.stop();
    });
}

#[test]
fn an_end_that_comes_while_output_waits_comes_once() {
    let told = Cell::new(0);
    with_seeds(|seed| {
        let mut world = World::new(seed, limits(seed));
        world.connect();
        let client = &mut world.clients[0];
        (client.lengths, client.leaves_after) = (Vec::new(), usize::MAX);
        let stream = client.stream.as_mut().unwrap();
        stream.write_all(&http2_requests(&["/file"])).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        client.requests.clear();
        // A report that comes late may miss a deadline, so that the connection closes.
        while world.server.state.lender.counts.closed == 0 {
            world.server.turn().unwrap();
            let peers = &mut world.server.state.peers;
            let Some(token) = peers.tokens().first().copied() else { continue };
            let flights = &peers.get_mut(token).unwrap().own;
            if flights.end == End::Told {
                assert!(flights.is_sending, "output waits");
                assert!(flights.receiving.is_none(), "the end would come again at once");
                told.set(told.get() + 1);
                break;
            }
        }
        world.stop();
    });
    assert!(told.get() > SEEDS / 2, "{told:?}");
}

#[test]
fn accepts_in_flight_are_the_accept_limit() {
    with_seeds(|seed| {
        let most = 1 + seed.0 as usize % 5;
        World::new(seed, Limit::AtMost(most as u32)).run(|world| {
            let source = &world.server.sources[0];
            let held = source.in_flight.len() + source.taken.len();
            let rests = source.by_hand
                || source.lacks_descriptors
                || world.server.state.accepting.paused_until.is_some();
            assert!(held == most || (rests && held < most), "{held} of {most}");
        });
    });
}

#[test]
fn the_accept_limit_can_be_changed_in_use() {
    with_seeds(|seed| {
        World::new(seed, Limit::Infinite).run(|world| {
            if world.random.random_range(0..20) == 0 {
                let most = world.random.random_range(0..5);
                world.limit.set(AcceptLimit::Fixed(if most == 0 {
                    Limit::Infinite
                } else {
                    Limit::AtMost(most)
                }));
            }
        });
    });
}

#[test]
fn connection_survives_a_cancelled_accept() {
    with_seeds(|seed| {
        let mut world = World::new(seed, Limit::Infinite);
        for _ in 0..CLIENTS {
            world.limit.set(AcceptLimit::Fixed(Limit::AtMost(4)));
            (0..20).for_each(|_| world.go_on());
            world.connect();
            let until = world.random.random_range(0..3);
            (0..until).for_each(|_| world.go_on());
            world.limit.set(AcceptLimit::Fixed(Limit::AtMost(1)));
            let mut turns = 0;
            while world.clients.iter().any(|client| client.outcome.is_none()) {
                world.go_on();
                turns += 1;
                assert!(turns < MOST_TURNS, "it waits in vain: {:?}", world.server.state.lender.counts);
            }
        }
        world.stop();
    });
}
