//! A worker: a SPED loop that takes connections from the dispatcher and tells it what became of them.
//!
//! Owns the [`Arrivals`] of the loop. The loop itself is SPED's. A worker's connection limit is the dispatcher's
//! business, and so are the counts of connections accepted.
//!
//! Invariant: every connection that the dispatcher has passed is reported closed exactly once, also one that was
//! lost on the way for want of a descriptor.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};

use base::{Limit, Nanos};
use dispatch::{Dispatcher, Mechanism};
use sys::socket::AcceptQueue;

use super::messages::{Handed, Report, unpack};
use crate::accept::Accepted;
use crate::access_log::LogSender;
use crate::counters::LoopCounts;
use crate::driver::Stop;
use crate::driver::readiness::{Arrivals, ByPhases, Parts};
use crate::error::{ServeError, system};
use crate::plan::run_on;
use crate::processes::{Control, Heard, Sent, Worker, orphaned};

/// How soon a report is tried again that the dispatcher had no room for.
const RETRY: Nanos = Nanos::MILLISECOND;

/// Is a worker until it is told to end and its connections have. Blocks.
///
/// # Errors
/// [`ServeError::System`]: descriptors; its loop fails in a way that is our mistake.
pub fn work(worker: Worker, control: Control) -> Result<(), ServeError> {
    let log = worker.plan.log();
    let board = worker.board(move |counters| {
        counters.loops.log_lines_dropped = log.as_ref().map_or(0, LogSender::dropped);
    });
    let (stop, reconfigure) = (Stop::new().map_err(system("make an eventfd"))?, worker.reconfigurer());
    let plan = worker.plan;
    let settings = plan.config().smped.clone().unwrap_or_default();
    let arrivals = Passed::new(control, settings.period, stop.clone(), reconfigure);
    let parts = Parts { board, stop, ..plan.parts_for(arrivals, usize::MAX)? };
    run_on::<_, ByPhases, _>(plan.dispatch(), parts).map_err(system("run the event loop of a worker"))
}

/// Connections that a dispatcher passes.
pub struct Passed {
    control: Control,
    waiting: VecDeque<Handed>,
    /// How long replies may go unreported.
    period: Nanos,
    /// What the dispatcher has heard of, and when.
    heard: Report,
    heard_at: Nanos,
    /// Connections lost on the way.
    lost: u64,
    /// The loop's own, for when the dispatcher has no more.
    stop: Stop,
    reconfigure: Box<dyn Fn(&str)>,
}

impl Passed {
    /// Connections that come over a control socket; when there will be no more, the loop is told to stop.
    pub fn new(control: Control, period: Nanos, stop: Stop, reconfigure: impl Fn(&str) + 'static) -> Passed {
        Passed {
            control,
            waiting: VecDeque::new(),
            period,
            heard: Report::default(),
            heard_at: Nanos::ZERO,
            lost: 0,
            stop,
            reconfigure: Box::new(reconfigure),
        }
    }
}

impl Arrivals for Passed {
    fn sources(&self) -> impl ExactSizeIterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.control.as_fd())
    }

    /// The dispatcher keeps to the accept-limit, and counts.
    fn begin_phase(&mut self, _counts: &mut LoopCounts) -> Limit {
        Limit::Infinite
    }

    fn accept(&mut self, _index: usize, _now: Nanos, counts: &mut LoopCounts) -> Accepted {
        loop {
            if let Some(Handed { socket, peer }) = self.waiting.pop_front() {
                return Accepted::Connection(socket, peer);
            }
            match self.control.receive() {
                Ok(Heard::Message(message)) => {
                    let lost = unpack(&message.bytes, message.descriptors, &mut self.waiting);
                    counts.no_descriptor += lost;
                    self.lost += lost;
                }
                Ok(Heard::Changed(text)) => (self.reconfigure)(&text),
                Ok(Heard::Drain) => {
                    self.stop.ask();
                    return Accepted::Empty;
                }
                Ok(Heard::Nothing) => return Accepted::Empty,
                Ok(Heard::Gone) | Err(_) => orphaned(),
            }
        }
    }

    fn queue(&self) -> AcceptQueue {
        AcceptQueue::default()
    }

    fn close<M: Mechanism>(&mut self, dispatcher: &mut Dispatcher<M>) {
        // It stays open for what is still to be reported.
        dispatcher.deregister(self.control.as_fd());
    }

    /// Reports closed connections at once, and replies each period.
    fn hear(&mut self, replies: u64, closed: u64, now: Nanos) -> Option<Nanos> {
        let total = Report { replies, closed: closed + self.lost };
        if total == self.heard {
            return None;
        }
        let due = self.heard_at + self.period;
        if total.closed == self.heard.closed && now < due {
            return Some(due);
        }
        let news =
            Report { replies: total.replies - self.heard.replies, closed: total.closed - self.heard.closed };
        match self.control.send(&news.to_bytes(), &[]) {
            Ok(Sent::Yes) => {
                (self.heard, self.heard_at) = (total, now);
                None
            }
            Ok(Sent::Full) => Some(now + RETRY),
            // Nobody listens any more; the loop hears of that as its end.
            Ok(Sent::Gone) | Err(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    use crate::architecture::smped::messages::pack;

    const PERIOD: Nanos = Nanos::from_millis(100);

    struct Bench {
        dispatcher: Control,
        passed: Passed,
        counts: LoopCounts,
    }

    impl Bench {
        fn new() -> Bench {
            let (dispatcher, control) = Control::pair().unwrap();
            let passed = Passed::new(control, PERIOD, Stop::new().unwrap(), |_| {});
            Bench { dispatcher, passed, counts: LoopCounts::default() }
        }

        fn accept(&mut self) -> Accepted {
            self.passed.accept(0, Nanos::ZERO, &mut self.counts)
        }

        fn reports(&self) -> Vec<Report> {
            let reports = std::iter::from_fn(|| match self.dispatcher.receive().unwrap() {
                Heard::Message(message) => Some(Report::from_bytes(&message.bytes).unwrap()),
                _ => None,
            });
            reports.collect()
        }
    }

    #[test]
    fn takes_what_is_passed_and_reports_what_was_lost_on_the_way() {
        let mut bench = Bench::new();
        assert!(matches!(bench.accept(), Accepted::Empty));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, peer) = listener.accept().unwrap();
        let handed = Handed { socket: socket.into(), peer: Some(peer) };
        let (bytes, sockets) = pack([&handed, &handed].into_iter());
        assert_eq!(bench.dispatcher.send(&bytes, &sockets[..1]).unwrap(), Sent::Yes);
        let Accepted::Connection(_, peer) = bench.accept() else { panic!("it was passed") };
        assert_eq!(peer, Some(client.local_addr().unwrap()));
        assert!(matches!(bench.accept(), Accepted::Empty));
        assert_eq!(bench.counts.no_descriptor, 1);
        assert_eq!(bench.passed.hear(0, 0, Nanos::ZERO), None);
        assert_eq!(bench.reports(), [Report { replies: 0, closed: 1 }]);
    }

    #[test]
    fn closed_connections_are_reported_at_once_and_replies_each_period() {
        let mut bench = Bench::new();
        let at = Nanos::from_millis;
        let mut hear = |replies, closed, now| bench.passed.hear(replies, closed, at(now));
        assert_eq!(hear(0, 0, 500), None);
        assert_eq!(hear(3, 0, 500), None, "nothing was reported for a period");
        assert_eq!(hear(5, 0, 510), Some(at(600)));
        assert_eq!(hear(7, 1, 520), None);
        assert_eq!(hear(8, 1, 610), Some(at(620)));
        assert_eq!(hear(9, 1, 620), None);
        let reports = [(3, 0), (4, 1), (2, 0)].map(|(replies, closed)| Report { replies, closed });
        assert_eq!(bench.reports(), reports);
    }

    #[test]
    fn a_report_that_finds_no_room_is_tried_again_and_nothing_is_lost() {
        let mut bench = Bench::new();
        let (mut heard, mut closed) = (0, 0);
        while bench.passed.hear(0, closed, Nanos::SECOND).is_none() {
            closed += 1;
        }
        assert_eq!(bench.passed.hear(0, closed + 1, Nanos::SECOND), Some(Nanos::SECOND + RETRY));
        for _ in 0..2 {
            heard += bench.reports().iter().map(|report| report.closed).sum::<u64>();
            assert_eq!(bench.passed.hear(0, closed + 1, Nanos::SECOND), None);
        }
        assert_eq!(heard, closed + 1);
    }
}
