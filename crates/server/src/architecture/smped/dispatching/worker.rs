//! A worker: a SPED loop that gets its connections from the dispatcher and reports on them.
//!
//! Owns the [`Arrivals`] of the loop. The loop itself is SPED's. The dispatcher enforces the worker's
//! connection limit, and counts the accepted connections.
//!
//! Invariant: every connection that the worker has claimed is reported closed exactly once, even one that was
//! lost on the way because descriptors ran out.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{Limit, Nanos};
use connection::clients::Admission;
use dispatch::{Dispatcher, Mechanism};
use overload::AdaptiveLimit;
use overload::law::{Sessions, State};
use sys::socket::AcceptQueue;
use sys::thread::stop::Stop;

use super::handover::{SEEN, claim};
use super::messages::{Handed, Report, unpack};
use super::relief;
use crate::architecture::smped::settings::NUMBERS;
use crate::connections::accept::{Accepted, Arrived, Phase};
use crate::connections::slots::Share;
use crate::driver::event_loop::{Arrivals, News, Parts, count};
use crate::ground::counters::LoopCounts;
use crate::ground::error::{ServeError, system};
use crate::ground::instructions::Instructions;
use crate::ground::scoreboard::Slot;
use crate::observation::access_log::LogSender;
use crate::processes::{Changed, Control, Heard, Message, Sent, Worker, orphaned};

/// Delay before another attempt to send a report that the dispatcher had no room for.
const RETRY: Nanos = Nanos::MILLISECOND;

/// Runs a worker until the dispatcher tells it to end and its connections have ended. Blocks.
///
/// # Errors
/// [`ServeError::System`] if descriptors run out, or if the loop fails by a mistake of ours.
pub fn work(worker: Worker, control: Control) -> Result<(), ServeError> {
    let log = worker.plan.log();
    let board = worker.board(move |counters| {
        counters.loops.log_lines_dropped = log.as_ref().map_or(0, LogSender::dropped);
    });
    let (stop, reconfigure) = (Stop::new().map_err(system("make an eventfd"))?, worker.reconfigurer());
    let Worker { plan, slot, .. } = worker;
    let settings = plan.config().chosen.get(&NUMBERS).unwrap_or_default();
    let arrivals = Passed::new(control, slot, settings.period, stop.clone(), reconfigure);
    let parts = Parts { board, stop, ..plan.parts_for(arrivals)? };
    plan.run_worker(parts).map_err(system("run the event loop of a worker"))
}

/// The connections that a dispatcher passes to this worker.
pub struct Passed {
    control: Control,
    /// The words that the dispatcher reads.
    slot: Arc<Slot>,
    /// Connections that were received and are not yet claimed; `None` for one that was lost on the way.
    waiting: VecDeque<Option<Handed>>,
    /// The number of the first connection in `waiting`.
    first: u64,
    /// Number of idle connections that the dispatcher wants closed.
    asked: usize,
    /// Connections were taken back, and the dispatcher does not know yet that the worker answers again.
    owes_an_answer: bool,
    share: Share,
    /// Measures the cost of a request.
    work: AdaptiveLimit,
    /// The length of the last turn.
    turn: Nanos,
    /// Maximum time that replies go unreported.
    period: Nanos,
    /// The totals that were reported, and the time of the report.
    heard: Report,
    heard_at: Nanos,
    /// Number of connections lost on the way.
    lost: u64,
    /// The stop of this worker's loop, for the end of the dispatcher's connections.
    stop: Stop,
    reconfigure: Box<dyn Fn(&Changed)>,
}

impl Passed {
    /// Connections that arrive over a control socket. When no more will come, the loop is told to stop.
    pub fn new(
        control: Control,
        slot: Arc<Slot>,
        period: Nanos,
        stop: Stop,
        reconfigure: impl Fn(&Changed) + 'static,
    ) -> Passed {
        Passed {
            control,
            slot,
            waiting: VecDeque::new(),
            first: 0,
            asked: 0,
            owes_an_answer: false,
            work: AdaptiveLimit::new(overload::Settings::default().target),
            turn: Nanos::ZERO,
            share: Share::alone(usize::MAX),
            period,
            heard: Report::default(),
            heard_at: Nanos::ZERO,
            lost: 0,
            stop,
            reconfigure: Box::new(reconfigure),
        }
    }

    /// Receives connections that the dispatcher has sent.
    fn receive(&mut self, message: Message) {
        self.waiting.extend(unpack(&message.bytes, message.descriptors));
        let received = self.first + self.waiting.len() as u64;
        self.slot.own()[SEEN].store(received, Ordering::Release);
    }

    /// Claims the next connection. Connections that the dispatcher took back belong to other workers.
    fn claim(&mut self, counts: &mut LoopCounts) -> Option<Handed> {
        while let Some(handed) = self.waiting.pop_front() {
            self.first += 1;
            let is_ours = claim(self.slot.own(), self.first - 1);
            match handed {
                Some(handed) if is_ours => return Some(handed),
                None if is_ours => {
                    counts.no_descriptor += 1;
                    self.lost += 1;
                }
                _ => self.owes_an_answer = true,
            }
        }
        None
    }
}

impl Arrivals for Passed {
    fn sources(&self) -> impl ExactSizeIterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.control.as_fd())
    }

    /// The dispatcher enforces the accept-limit.
    fn limit(&self) -> Limit {
        Limit::Infinite
    }

    /// The dispatcher counts the phases.
    fn count(&self, _phase: &Phase, _counts: &mut LoopCounts) {}

    fn accept(&mut self, _index: usize, now: Nanos, counts: &mut LoopCounts) -> Accepted {
        loop {
            if let Some(Handed { socket, peer }) = self.claim(counts) {
                let slot = self.share.take_beyond();
                return Accepted::Connection(Arrived {
                    socket,
                    peer,
                    at: now,
                    slot,
                    admission: Admission::Free,
                });
            }
            match self.control.receive() {
                Ok(Heard::Message(message)) => self.receive(message),
                Ok(Heard::Changed(changed)) => (self.reconfigure)(&changed),
                Ok(Heard::Reclaim) => self.asked += 1,
                Ok(Heard::Drain) => {
                    self.stop.ask();
                    return Accepted::Empty;
                }
                Ok(Heard::Nothing) => return Accepted::Empty,
                Ok(Heard::Gone) | Err(_) => orphaned(),
            }
        }
    }

    fn asked(&mut self) -> usize {
        std::mem::take(&mut self.asked)
    }

    fn queue(&self) -> AcceptQueue {
        AcceptQueue::default()
    }

    fn close<M: Mechanism>(&mut self, dispatcher: &mut Dispatcher<M>) {
        // The socket stays open for the remaining reports.
        dispatcher.deregister(self.control.as_fd());
    }

    fn worked(&mut self, turns: u64, closed: u64, took: Nanos) {
        self.work.worked(count(turns), count(closed), took);
    }

    /// The dispatcher's instructions. Besides, the connections of this worker alone may be too many for it, while none waits
    /// in the dispatcher's queue.
    fn sessions(&self) -> Sessions {
        let Instructions { sessions, target } = self.slot.instructions();
        let own = target.map_or_else(Sessions::default, |target| {
            Sessions::advised(State::Open, target, 0.0, self.turn).for_requests(self.work.work_cost())
        });
        Sessions { late_after: sessions.late_after.or(own.late_after), ..sessions }
    }

    /// Reports closed connections at once, and replies each period.
    fn take_news(&mut self, news: News, now: Nanos) -> Option<Nanos> {
        self.slot.show_idle(news.idle_from);
        self.turn = news.turn;
        relief::turned(news.turn, self.slot.own());
        let total = Report { replies: news.replies, closed: news.closed + self.lost };
        if total == self.heard && !self.owes_an_answer {
            return None;
        }
        let due = self.heard_at + self.period;
        if total.closed == self.heard.closed && !self.owes_an_answer && now < due {
            return Some(due);
        }
        let news =
            Report { replies: total.replies - self.heard.replies, closed: total.closed - self.heard.closed };
        match self.control.send(&news.to_bytes(), &[]) {
            Ok(Sent::Yes) => {
                (self.heard, self.heard_at, self.owes_an_answer) = (total, now, false);
                None
            }
            Ok(Sent::Full) => Some(now + RETRY),
            // The dispatcher is gone; the loop learns of that as its end.
            Ok(Sent::Gone) | Err(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    use super::super::handover::NEXT;
    use super::super::messages::pack;

    const PERIOD: Nanos = Nanos::from_millis(100);

    struct Bench {
        dispatcher: Control,
        passed: Passed,
        counts: LoopCounts,
    }

    fn news(replies: u64, closed: u64) -> News {
        News { replies, closed, idle_from: Nanos::MAX, turn: Nanos::ZERO }
    }

    impl Bench {
        fn new() -> Bench {
            let (dispatcher, control) = Control::pair().unwrap();
            let slot = Arc::new(Slot::with_own_words(relief::WORDS));
            let passed = Passed::new(control, slot, PERIOD, Stop::new().unwrap(), |_| {});
            Bench { dispatcher, passed, counts: LoopCounts::default() }
        }

        /// Sends a connection `descriptors` times, and once more without a descriptor.
        fn pass(&self, descriptors: usize) -> TcpStream {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (socket, peer) = listener.accept().unwrap();
            let handed = Handed { socket: socket.into(), peer: Some(peer) };
            let (bytes, sockets) = pack(std::iter::repeat_n(&handed, descriptors + 1));
            assert_eq!(self.dispatcher.send(&bytes, &sockets[..descriptors]).unwrap(), Sent::Yes);
            client
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
    fn worker_takes_connections_and_reports_lost_ones() {
        let mut bench = Bench::new();
        assert!(matches!(bench.accept(), Accepted::Empty));
        let client = bench.pass(1);
        let Accepted::Connection(arrived) = bench.accept() else { panic!("it was passed") };
        assert_eq!(arrived.peer, Some(client.local_addr().unwrap()));
        assert!(matches!(bench.accept(), Accepted::Empty));
        assert_eq!(bench.counts.no_descriptor, 1);
        assert_eq!(bench.passed.take_news(news(0, 0), Nanos::ZERO), None);
        assert_eq!(bench.reports(), [Report { replies: 0, closed: 1 }]);
    }

    #[test]
    fn worker_skips_connections_taken_back_and_answers() {
        let mut bench = Bench::new();
        let _client = bench.pass(2);
        bench.passed.slot.own()[NEXT].store(3, Ordering::Release);
        assert!(matches!(bench.accept(), Accepted::Empty));
        assert_eq!(bench.passed.slot.own()[SEEN].load(Ordering::Acquire), 3);
        assert_eq!(bench.passed.take_news(news(0, 0), Nanos::ZERO), None);
        assert_eq!(bench.reports(), [Report::default()]);
        assert_eq!((bench.passed.lost, bench.counts.no_descriptor), (0, 0));
    }

    #[test]
    fn closes_are_reported_at_once_and_replies_by_period() {
        let mut bench = Bench::new();
        let at = Nanos::from_millis;
        let mut hear = |replies, closed, now| bench.passed.take_news(news(replies, closed), at(now));
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
    fn report_without_room_is_retried_without_loss() {
        let mut bench = Bench::new();
        let (mut heard, mut closed) = (0, 0);
        while bench.passed.take_news(news(0, closed), Nanos::SECOND).is_none() {
            closed += 1;
        }
        assert_eq!(bench.passed.take_news(news(0, closed + 1), Nanos::SECOND), Some(Nanos::SECOND + RETRY));
        for _ in 0..2 {
            heard += bench.reports().iter().map(|report| report.closed).sum::<u64>();
            assert_eq!(bench.passed.take_news(news(0, closed + 1), Nanos::SECOND), None);
        }
        assert_eq!(heard, closed + 1);
    }
}
