//! A minimal driver with overload control: a server with one loop and one small response.
//!
//!     cargo run --release -p inrush-overload --example server -- 127.0.0.1:8080 [BURN, such as 100us] [off]
//!
//! Prints each change of state, and its figures once a second. Ends on a signal.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use base::{Clock, Nanos, RealClock};
use bpf::Exempt;
use overload::hook::{Routing, Sinks};
use overload::{AdaptiveLimit, Decision, Hook, NoHook, Progress, QueueControl, Settings, Ticked};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use sys::readiness::epoll::{self, Event, Operation, bits};

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const LISTENER: u64 = u64::MAX;

struct Server {
    clock: RealClock,
    epoll: OwnedFd,
    listener: OwnedFd,
    connections: Vec<Option<OwnedFd>>,
    burn: Nanos,
    limit: AdaptiveLimit,
    control: Option<QueueControl>,
    progress: Progress,
    printed: Nanos,
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let text = |index: usize, default: &str| arguments.get(index).map_or(default, String::as_str).to_owned();
    let address: SocketAddr = text(0, "127.0.0.1:8080").parse().map_err(io::Error::other)?;
    let burn: Nanos = text(1, "0").parse().map_err(io::Error::other)?;
    let clock = RealClock::new();
    let settings = Settings::default();
    let listener = listen(address, settings.backlog)?;
    let hook: Box<dyn Hook> = match Sinks::join(
        &[(address, listener.as_fd())],
        1,
        1,
        Routing::Even,
        0x5eed,
        &Exempt::NONE,
        Vec::new(),
    ) {
        Ok(sinks) => Box::new(sinks.hook(0)),
        Err(error) => {
            eprintln!("{error}; only the backlog bounds the queue");
            Box::new(NoHook)
        }
    };
    let control = (text(2, "on") != "off").then(|| QueueControl::new(settings, hook, clock.now()));
    let epoll = epoll::create()?;
    epoll::control(&epoll, Operation::Add, listener.as_raw_fd(), bits::IN, LISTENER)?;
    let limit = AdaptiveLimit::new(settings.target);
    let progress = Progress::default();
    let connections = Vec::new();
    Server { clock, epoll, listener, connections, burn, limit, control, progress, printed: Nanos::ZERO }.run()
}

fn listen(address: SocketAddr, backlog: u32) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let listener = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK, None)?;
    sockopt::set_socket_reuseaddr(&listener, true)?;
    sockopt::set_socket_reuseport(&listener, true)?;
    rustix::net::bind(&listener, &address)?;
    rustix::net::listen(&listener, backlog.cast_signed())?;
    Ok(listener)
}

impl Server {
    fn run(mut self) -> io::Result<()> {
        let mut events = [Event::EMPTY; 1024];
        loop {
            let now = self.clock.now();
            let until = self.control.as_ref().and_then(QueueControl::wakes_at);
            let timeout = until.map(|until| until.saturating_sub(now));
            let ready = epoll::wait(&self.epoll, &mut events, timeout)?;
            let began = self.clock.now();
            let waiting = self.work(&events[..ready], began)?;
            self.control();
            if waiting {
                self.accept()?;
            }
            let turn = self.clock.now() - began;
            self.progress.lag = self.progress.lag.max(turn);
        }
    }

    /// Serves the connections that are ready. Returns true if connections wait to be accepted.
    fn work(&mut self, events: &[Event], began: Nanos) -> io::Result<bool> {
        let (mut turns, mut closed, mut waiting) = (0, 0, false);
        for event in events {
            if event.data() == LISTENER {
                waiting = true;
                continue;
            }
            turns += 1;
            let place = &mut self.connections[event.data() as usize];
            if place.as_ref().is_some_and(|connection| !serve(connection, self.burn)) {
                closed += 1;
                *place = None;
            }
        }
        self.limit.worked(turns, closed, self.clock.now() - began);
        Ok(waiting)
    }

    fn control(&mut self) {
        let now = self.clock.now();
        let Some(control) = self.control.as_mut().filter(|control| control.due(now)) else { return };
        let Ticked { change, failure } =
            control.tick(now, std::iter::once(self.listener.as_fd()), self.progress);
        self.progress = Progress { emptied: false, lag: Nanos::ZERO, ..self.progress };
        change.into_iter().for_each(|change| eprintln!("{change}"));
        failure.into_iter().for_each(|failure| eprintln!("{failure}; only the backlog bounds the queue"));
        if now - self.printed >= Nanos::SECOND {
            self.printed = now;
            print(control.decision(), control.signals().refused);
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        let began = self.clock.now();
        let most = if self.control.is_some() { self.limit.limit() } else { u32::MAX };
        let mut taken = 0;
        while taken < most {
            let Ok(connection) = rustix::net::accept_with(&self.listener, SocketFlags::NONBLOCK) else {
                self.progress.emptied = true;
                break;
            };
            taken += 1;
            let place = connection.as_raw_fd() as usize;
            epoll::control(&self.epoll, Operation::Add, connection.as_raw_fd(), bits::IN, place as u64)?;
            if self.connections.len() <= place {
                self.connections.resize_with(place + 1, || None);
            }
            self.connections[place] = Some(connection);
        }
        self.progress.accepted += u64::from(taken);
        self.limit.accepted(taken, self.clock.now() - began);
        Ok(())
    }
}

/// Answers a request. Returns true if the connection stays open.
fn serve(connection: &OwnedFd, burn: Nanos) -> bool {
    let mut request = [0_u8; 4096];
    let length = match rustix::net::recv(connection, &mut request, RecvFlags::empty()) {
        Ok((length, _)) if length > 0 => length,
        Err(rustix::io::Errno::AGAIN) => return true,
        _ => return false,
    };
    if burn > Nanos::ZERO {
        sys::cpu::burn(burn);
    }
    let sent = rustix::net::send(connection, RESPONSE, SendFlags::NOSIGNAL);
    sent.is_ok()
        && !request[..length].windows(17).any(|bytes| bytes.eq_ignore_ascii_case(b"connection: close"))
}

fn print(decision: &Decision, refused: u64) {
    let rate = decision.service_rate.map_or(0.0, |rate| rate.0);
    eprintln!(
        "{:?}: {} queued, {:.0}/s served, {:.0}/s offered, wait {:.1} ms, share {:.3}, backlog {}, {refused} refused",
        decision.state,
        decision.queued,
        rate,
        decision.offered.0,
        decision.wait.as_secs_f64() * 1e3,
        decision.admission.share,
        decision.backlog
    );
}
