//! The control of a real accept queue.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

use base::Nanos;
use overload::{Admission, Hook, Progress, QueueControl, Settings, State, Ticked};
use sys::socket::accept_queue;

/// A hook that records its calls.
#[derive(Clone, Default)]
struct Noting(Arc<Mutex<Noted>>);

#[derive(Default)]
struct Noted {
    last: Option<Admission>,
    refused: u64,
    broken: bool,
}

impl Hook for Noting {
    fn name(&self) -> &'static str {
        "noting"
    }

    fn admit(&mut self, admission: &Admission) -> io::Result<()> {
        self.0.lock().unwrap().last = Some(*admission);
        Ok(())
    }

    fn refused(&mut self) -> io::Result<u64> {
        let noted = self.0.lock().unwrap();
        if noted.broken { Err(io::Error::other("the hook is gone")) } else { Ok(noted.refused) }
    }
}

struct Bench {
    listener: TcpListener,
    clients: Vec<TcpStream>,
    control: QueueControl,
    hook: Noting,
    now: Nanos,
    progress: Progress,
}

impl Bench {
    fn new() -> Bench {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let hook = Noting::default();
        let settings = Settings { backlog: 128, ..Settings::default() };
        let control = QueueControl::new(settings, Box::new(hook.clone()), Nanos::SECOND);
        Bench {
            listener,
            clients: Vec::new(),
            control,
            hook,
            now: Nanos::SECOND,
            progress: Progress::default(),
        }
    }

    /// Adds clients to the queue.
    fn connect(&mut self, clients: u32) {
        let address = self.listener.local_addr().unwrap();
        self.clients.extend((0..clients).map(|_| TcpStream::connect(address).unwrap()));
    }

    /// A tick in which the control is told of this number of accepts.
    fn tick(&mut self, taken: u64) -> Ticked {
        self.now += Nanos::from_millis(5);
        assert!(self.control.due(self.now));
        self.progress.accepted += taken;
        self.control.tick(self.now, std::iter::once(self.listener.as_fd()), self.progress)
    }
}

#[test]
fn unserved_queue_is_bounded_and_its_hook_set() {
    let mut bench = Bench::new();
    assert_eq!(bench.control.wakes_at(), None, "an idle server sleeps");
    bench.connect(70);
    // One connection in 5 ms: 200 per second.
    for _ in 0..10 {
        assert!(bench.tick(1).failure.is_none());
        assert_eq!(bench.control.signals().queued, 70);
    }
    assert!((bench.control.decision().service_rate.unwrap().0 - 200.0).abs() < 1.0);
    assert_eq!(accept_queue(bench.listener.as_fd()).unwrap().limit, 128);
    let mut change = None;
    for _ in 0..3 {
        bench.hook.0.lock().unwrap().refused += 50;
        change = change.or(bench.tick(1).change);
    }
    assert_eq!(change.unwrap().decision.state, State::Shedding);
    assert!(bench.hook.0.lock().unwrap().last.unwrap().share < 1.0);
    assert_eq!(accept_queue(bench.listener.as_fd()).unwrap().limit, 64, "the kernel was told the bound");
    assert!(bench.control.wakes_at().is_some(), "a server that refuses looks again");
}

#[test]
fn failing_hook_is_reported_and_control_goes_on() {
    let mut bench = Bench::new();
    bench.connect(10);
    bench.hook.0.lock().unwrap().broken = true;
    for _ in 0..10 {
        assert_eq!(bench.tick(100).failure.unwrap().to_string(), "the hook is gone");
    }
    assert_eq!(bench.control.decision().service_rate.unwrap().0.round(), 20_000.0);
    assert_eq!(bench.control.signals().refused, 0);
}
