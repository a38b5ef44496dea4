//! TCP in user space: a stack of the crate `usertcp` over a link of this thread's own.
//!
//! An event lends its bytes from the packet that brought them. Clients that read slowly have receive buffers
//! instead, which bound the window ([`slow`]).

mod pauses;
mod slow;

use std::io;

use base::{Key, Nanos};
use dispatch::Token;
use rustix::io::Errno;
use sys::errno::{self, classify};
use usertcp::{Config, Failure, Kind, Link, Stack, Window};

use super::{Event, Transport};
use crate::plan::config::Close;
use pauses::Pauses;
use slow::SlowReads;

/// The time that closed connections have after the run for an orderly close with the server.
const LINGER: Nanos = Nanos::from_millis(200);

/// A connection of the stack, and its owner's token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UserSocket {
    connection: Key,
    token: Token,
}

/// Connections over a stack in user space.
pub(crate) struct UserTcp<L> {
    stack: Stack<L>,
    /// Receive buffers, for clients that read slowly.
    slow: Option<SlowReads>,
    close: Close,
    /// The time of the current turn; never decreases.
    now: Nanos,
    /// The event returned last, until its bytes are received.
    news: Option<usertcp::Event>,
    /// True if timers must expire before the events of this wait.
    expires: bool,
    /// True while the events of a wait are being returned.
    is_waited_for: bool,
    pauses: Pauses,
    /// The packets received before the current turn.
    received: u64,
}

impl<L: Link> UserTcp<L> {
    /// A stack without connections. Clients receive at once, or slowly with receive buffers of `slow_bytes`.
    pub fn new(link: L, config: Config, close: Close, slow_bytes: Option<u32>) -> UserTcp<L> {
        UserTcp {
            stack: Stack::new(link, config, Nanos::ZERO),
            slow: slow_bytes.map(SlowReads::new),
            close,
            now: Nanos::ZERO,
            news: None,
            expires: false,
            is_waited_for: false,
            pauses: Pauses::default(),
            received: 0,
        }
    }

    /// Pauses after a turn with packets, for at most `timeout`. Returns false without a pause.
    fn gather(&mut self, now: Nanos, timeout: Nanos) -> io::Result<bool> {
        let received = self.stack.counts().received;
        let was_busy = std::mem::replace(&mut self.received, received) != received;
        let pause = self.pauses.after(now).min(timeout);
        if !was_busy || pause == Nanos::ZERO {
            return Ok(false);
        }
        match sys::readiness::poll::wait(&mut [], Some(pause)) {
            Err(error) if classify(&error) != errno::Failure::Retry => Err(error),
            _ => Ok(true),
        }
    }

    /// The kind of the current event, if it belongs to this connection.
    fn news_of(&self, socket: &UserSocket) -> Option<Kind> {
        self.news.filter(|event| event.token == socket.token).map(|event| event.kind)
    }
}

impl<L: Link> Transport for UserTcp<L> {
    type Socket = UserSocket;

    fn connect(&mut self, key: Key) -> io::Result<UserSocket> {
        let token = key.into();
        let window = self.slow.as_ref().map_or(Window::Open, SlowReads::window);
        let connection = self.stack.connect(token, window, self.now).ok_or(Errno::ADDRNOTAVAIL)?;
        Ok(UserSocket { connection, token })
    }

    /// The key stays: the stack reports nothing about closed connections.
    fn connect_again(&mut self, socket: &mut UserSocket, key: Key) -> io::Result<()> {
        self.stack.close(socket.connection, self.now);
        *socket = self.connect(key)?;
        Ok(())
    }

    fn established(&mut self, socket: &UserSocket) -> io::Result<()> {
        match self.news_of(socket) {
            Some(Kind::Established) => Ok(()),
            Some(Kind::Failed(failure)) => Err(error(failure)),
            _ => Err(Errno::AGAIN.into()),
        }
    }

    fn send(&mut self, socket: &UserSocket, bytes: &[u8]) -> io::Result<usize> {
        match (self.stack.send(socket.connection, bytes, self.now), self.news_of(socket)) {
            (0, Some(Kind::Failed(failure))) => Err(error(failure)),
            (0, _) => Err(Errno::AGAIN.into()),
            (taken, _) => Ok(taken),
        }
    }

    fn receive<'b>(&'b mut self, socket: &UserSocket, scratch: &'b mut [u8]) -> io::Result<&'b [u8]> {
        if let Some(slow) = &mut self.slow {
            let length = slow.buffer(socket.token).read(scratch)?;
            self.stack.grant(socket.connection, length as u32);
            return Ok(&scratch[..length]);
        }
        let Some(kind) = self.news_of(socket) else { return Err(Errno::AGAIN.into()) };
        self.news = None;
        match kind {
            Kind::Received => Ok(self.stack.bytes()),
            Kind::Ended => Ok(&[]),
            Kind::Failed(failure) => Err(error(failure)),
            Kind::Established | Kind::HasRoom => Err(Errno::AGAIN.into()),
        }
    }

    fn watch(&mut self, socket: &UserSocket, _key: Key, _is_sending: bool) {
        if let Some(slow) = &mut self.slow {
            slow.buffer(socket.token).is_watched = true;
        }
    }

    fn unwatch(&mut self, socket: &UserSocket) {
        if let Some(slow) = &mut self.slow {
            slow.buffer(socket.token).is_watched = false;
        }
    }

    fn is_acknowledged(&mut self, socket: &UserSocket) -> bool {
        self.stack.is_acknowledged(socket.connection)
    }

    fn close(&mut self, socket: UserSocket) {
        if let Some(slow) = &mut self.slow {
            slow.forget(socket.token);
        }
        match self.close {
            Close::Fin => self.stack.close(socket.connection, self.now),
            Close::Reset => self.stack.abort(socket.connection, self.now),
        }
    }

    fn poll_connects(&mut self, now: Nanos) -> io::Result<bool> {
        self.now = now;
        self.stack.flush(now)?;
        Ok(false)
    }

    fn wait(&mut self, now: Nanos, timeout: Nanos) -> io::Result<()> {
        self.now = now;
        self.stack.flush(now)?;
        let has_paused = self.gather(now, timeout)?;
        if timeout > Nanos::ZERO && !has_paused {
            self.stack.wait(timeout)?;
        }
        (self.expires, self.is_waited_for) = (true, true);
        Ok(())
    }

    fn next(&mut self, now: Nanos) -> io::Result<Option<Event>> {
        self.now = now;
        if std::mem::take(&mut self.expires) {
            self.pauses.woken(now);
            self.stack.expire(now);
        }
        while self.is_waited_for {
            self.news = self.stack.next(now)?;
            let Some(event) = self.news else { break };
            let is_watched = self
                .slow
                .as_mut()
                .is_none_or(|slow| slow.buffer(event.token).take(event.kind, self.stack.bytes()));
            if is_watched {
                return Ok(Some(Event::Ready(event.token.into())));
            }
        }
        (self.news, self.is_waited_for) = (None, false);
        Ok(None)
    }

    fn next_due(&self) -> Option<Nanos> {
        self.stack.next_due()
    }

    fn unsent_packets(&self) -> u64 {
        self.stack.counts().unsent
    }

    fn finish(&mut self, now: &dyn Fn() -> Nanos) -> io::Result<()> {
        let deadline = now() + LINGER;
        while !self.stack.is_empty() && now() < deadline {
            let left = deadline.saturating_sub(now());
            self.wait(now(), self.next_due().map_or(left, |due| due.saturating_sub(now()).min(left)))?;
            while self.next(now())?.is_some() {}
        }
        self.stack.reset_all(now())
    }
}

/// The error that a kernel socket would have for the same failure.
fn error(failure: Failure) -> io::Error {
    match failure {
        Failure::Refused => Errno::CONNREFUSED.into(),
        Failure::Reset => Errno::CONNRESET.into(),
        Failure::TimedOut => Errno::TIMEDOUT.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::engine::settings::Settings;
    use crate::engine::time::schedule::Schedule;
    use crate::plan::choices::arrivals::{Lane, Process};
    use crate::plan::choices::tempo::Tempo;
    use crate::plan::config::{self, Client, Sockets};
    use crate::plan::preflight::prepare;
    use base::{Clock, PerSecond, SimulatedClock, WallTime};
    use record::Outcome;
    use usertcp::frame::{Arriving, Leaving};
    use usertcp::link::Packet;

    /// A link without room for any packet. A wait for it passes simulated time.
    struct Full(SimulatedClock);

    impl Link for Full {
        fn mtu(&self) -> usize {
            1500
        }

        fn leaving(&self) -> Leaving {
            Leaving::Whole
        }

        fn packet_out(&mut self, _length: usize) -> Option<&mut [u8]> {
            None
        }

        fn flush(&mut self) -> io::Result<u64> {
            Ok(0)
        }

        fn receive(&mut self) -> io::Result<bool> {
            Ok(false)
        }

        fn packet(&self) -> Packet<'_> {
            Packet { bytes: &[], checksum: Arriving::Verified }
        }

        fn wait(&mut self, timeout: Nanos) -> io::Result<()> {
            self.0.advance(timeout);
            Ok(())
        }
    }

    #[test]
    fn packets_that_find_the_link_full_are_in_the_report() {
        for warmup in [Nanos::ZERO, Nanos::SECOND] {
            assert_eq!(unsent_after(warmup), 100, "a SYN for each connection of the measured second");
        }
    }

    /// Packets that a full link lost in the second after a warm-up, of a hundred connections a second.
    fn unsent_after(warmup: Nanos) -> u64 {
        let (rate, arrivals) = (PerSecond(100.0), Process::constant());
        let client = Client::SClient { rate, arrivals: arrivals.clone(), sockets: Sockets::Auto };
        let plan = prepare(config::Config {
            warmup,
            duration: Nanos::SECOND,
            connect_timeout: Nanos::from_millis(100),
            ..config::Config::new(vec!["http://127.0.0.1:1/".parse().unwrap()], client)
        });
        let plan = plan.unwrap();
        let (clock, seed) = (SimulatedClock::new(WallTime::default()), plan.config.seed);
        let (origin, net) = (clock.now(), "10.94.0.0/16".parse().unwrap());
        let arrivals = arrivals.arrivals(rate, warmup + Nanos::SECOND, Lane { index: 0, count: 1 }, seed);
        let schedule = Schedule::open(arrivals, Tempo::default());
        let stack = Config { server: plan.user_target(), net, seed, epoch: origin, syn_linear_timeouts: 4 };
        let full = UserTcp::new(Full(clock.clone()), stack, Close::Fin, None);
        let engine = Engine::new(clock, origin, Settings::of(&plan), schedule, seed.rng(), full);
        let report = engine.run(&|| false, &mut |_| {}).unwrap();
        assert_eq!(report.ledger.all().outcomes().get(Outcome::ConnectTimeout), 100);
        report.unsent_packets
    }
}
