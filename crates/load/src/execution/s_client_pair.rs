//! A run by the paper's pair of processes (Banga 1997, section 4.2): this process connects, another one reads
//! replies.
//!
//! ```text
//!   this process: establisher, populations ==connections==> handler
//!         |                                                    |
//!         +---------- one ledger, one series, one verdict <----+  its lines (crate::execution::protocol)
//! ```
//!
//! The handler runs this program too. The socket between the two tells it when the establisher has ended; it
//! goes on for as long as replies are on their way. It accounts for every connection it was given. However
//! the run ends, the two ledgers therefore add up to one that balances. A handler that ends earlier makes the
//! run fail.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use base::{Clock, Nanos, RealClock};
use record::LoadResult;
use sys::process::{Child, Program};
use sys::socket::passing;

use crate::engine::wire::transport::Links;
use crate::error::LoadError;
use crate::execution::protocol::{Assignment, Line, read};
use crate::execution::run::{Gathering, Member, ThreadInterval, carry_out};
use crate::execution::stop::Stop;
use crate::execution::threads::{Start, run_handler};
use crate::measurement::observer::Observer;
use crate::measurement::result::Reports;
use crate::plan::Plan;
use crate::plan::terms::share::Share;

/// From now to the run's start, so that the handler is ready for the first connection.
const HEAD_START: Nanos = Nanos::from_millis(200);

/// Timeout for the end of a handler that has closed its output.
const END_PATIENCE: Nanos = Nanos::SECOND;

const HANDLER: &str = "the handler of the pair";

/// The handler's lines; an error for text that is not a line, or for a complaint of the handler.
type Lines = Receiver<(u32, io::Result<Line>)>;

/// Carries out a planned run; `program` describes how to start this program as the handler.
pub(crate) fn run(
    plan: &Plan,
    program: &dyn Fn(Assignment) -> Program<'static>,
    observer: &mut dyn Observer,
    stop: &Stop,
) -> Result<LoadResult, LoadError> {
    let (ours, theirs) = passing::pair().map_err(LoadError::system("a socket to the handler"))?;
    sys::process::descriptors::make_room(u64::MAX);
    let origin = RealClock.now() + HEAD_START;
    let assignment = Assignment::handler(theirs.as_raw_fd(), origin);
    let started = program(assignment).inheriting(&[theirs.as_fd()]).start();
    let mut handler = started.map_err(LoadError::system("starting the handler of the pair"))?;
    // The handler has inherited its end of the socket, so only the handler keeps it open now.
    drop(theirs);
    let mut gathering = Gathering::new(plan, observer);
    let (given_up, handler_ended) = (gathering.given_up.clone(), Stop::new());
    let should_stop = || stop.is_requested() || given_up.is_requested() || handler_ended.is_requested();
    let reports = thread::scope(|scope| -> Result<_, LoadError> {
        let (sender, lines) = channel();
        let (stdout, stderr, to_gather) = (handler.stdout.take(), handler.stderr.take(), sender.clone());
        let handler_ended = &handler_ended;
        scope.spawn(move || {
            read(0, stdout, stderr, &to_gather);
            handler_ended.request();
        });
        let should_stop = &should_stop;
        let establisher = scope.spawn(move || {
            // The receiver outlives the establisher unless the gathering thread panicked.
            let mut tell = |told| drop(sender.send((0, Ok(Line::Interval(Box::new(told))))));
            carry_out(
                plan,
                Share::ALL,
                Start::at(origin),
                Links::default(),
                Some(ours),
                should_stop,
                &mut tell,
            )
        });
        let handled = gather(&lines, &mut gathering);
        let established = establisher.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        // Without its handler the establisher fails too; the handler's error gives the reason.
        let handled = handled.and_then(|reports| reports.map_or_else(|| Err(how_it_ended(&mut handler)), Ok));
        let mut reports = handled.map_err(LoadError::system(HANDLER))?;
        reports.merge(&established?);
        Ok(reports)
    });
    Ok(gathering.result(*reports?))
}

/// Gathers the lines of both halves until both have ended; returns the handler's report, if one came.
fn gather(lines: &Lines, gathering: &mut Gathering<'_>) -> io::Result<Option<Box<Reports>>> {
    let (mut reports, mut failure) = (None, None);
    for (process, line) in lines {
        match line {
            Ok(Line::Interval(told)) => gathering.add_interval(process, *told),
            Ok(Line::Reports(of_handler)) => reports = Some(of_handler),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    failure.map_or(Ok(reports), Err)
}

/// The reason why a handler sent no report.
fn how_it_ended(handler: &mut Child) -> io::Error {
    io::Error::other(match handler.wait(END_PATIENCE) {
        Ok(Some(exit)) => format!("it ended before the run did ({})", exit.status),
        Ok(None) => "it says nothing more".to_owned(),
        Err(error) => return error,
    })
}

/// Runs as the handler; `socket` is the inherited descriptor of its end of the socket.
pub(crate) fn handle(
    plan: &Plan,
    socket: RawFd,
    start: Start,
    add_interval: &mut dyn FnMut(ThreadInterval),
) -> Result<Reports, LoadError> {
    let socket =
        sys::process::inherited(socket).map_err(LoadError::system("the socket to the establisher"))?;
    report(plan, socket, start, add_interval)
}

fn report(
    plan: &Plan,
    establisher: OwnedFd,
    start: Start,
    add_interval: &mut dyn FnMut(ThreadInterval),
) -> Result<Reports, LoadError> {
    let lane = Member::Lane(plan.lanes());
    let lanes =
        run_handler(plan, start, establisher, &mut |interval| add_interval(ThreadInterval(lane, interval)))?;
    Ok(Reports { lanes, ..Reports::of(plan) })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use base::PerSecond;
    use record::Outcome;

    use super::*;
    use crate::measurement::observer::Snapshot;
    use crate::plan::choices::arrivals::Process;
    use crate::plan::config::{Client, Config, Processes, Sockets};
    use crate::plan::preflight::prepare;

    const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

    /// 400 sessions per second for 250 ms after 50 ms of warm-up. The server answers every request with
    /// `reply`.
    fn config(reply: &'static [u8]) -> Config {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                thread::spawn(move || {
                    while matches!(stream.read(&mut [0; 1024]), Ok(1..)) {
                        // The client may have closed the connection.
                        let _ = stream.write_all(reply);
                    }
                });
            }
        });
        let (rate, arrivals, sockets) = (PerSecond(400.0), Process::constant(), Sockets::Auto);
        Config {
            warmup: Nanos::from_millis(50),
            duration: Nanos::from_millis(250),
            interval: Nanos::from_millis(50),
            connect_timeout: Nanos::from_secs(5),
            processes: Processes::Pair,
            ..Config::new(vec![url], Client::SClient { rate, arrivals, sockets })
        }
    }

    /// Runs both halves in threads of this process; `before_handling` delays the handler.
    fn run_both(plan: &Plan, before_handling: impl FnOnce() + Send) -> LoadResult {
        let (ours, theirs) = passing::pair().unwrap();
        // Room for a few connections only, so that some have to wait.
        rustix::net::sockopt::set_socket_send_buffer_size(&ours, 4096).unwrap();
        let origin = RealClock.now();
        let mut ignore = |_: &Snapshot<'_>| {};
        let mut gathering = Gathering::new(plan, &mut ignore);
        let (sender, receiver) = channel();
        let reports = thread::scope(|scope| {
            let to_gather = sender.clone();
            let handler = scope.spawn(move || {
                before_handling();
                report(plan, theirs, Start::at(origin), &mut |told| to_gather.send(told).unwrap()).unwrap()
            });
            let establisher = scope.spawn(move || {
                let mut tell = |told| sender.send(told).unwrap();
                carry_out(
                    plan,
                    Share::ALL,
                    Start::at(origin),
                    Links::default(),
                    Some(ours),
                    &|| false,
                    &mut tell,
                )
                .unwrap()
            });
            receiver.into_iter().for_each(|told| gathering.add_interval(0, told));
            let mut reports = establisher.join().unwrap();
            let handled = handler.join().unwrap();
            assert_eq!(handled.lanes.ledger.all().offered(), 0, "only the establisher offers");
            assert_eq!(reports.lanes.totals.replies, 0, "only the handler reads replies");
            reports.merge(&handled);
            reports
        });
        let result = gathering.result(reports);
        result.balance().unwrap();
        assert_eq!(result.offered, 100, "400/s for 250 ms, whatever the server and the handler do");
        result
    }

    #[test]
    fn the_ledger_of_both_is_that_of_one() {
        let result = run_both(&prepare(config(REPLY)).unwrap(), || {});
        assert!(result.outcomes.get(Outcome::Ok) > 0, "{:?}", result.outcomes);
        assert_eq!(result.outcomes.get(Outcome::Ok), result.outcomes.total(), "{:?}", result.outcomes);
        assert_eq!(result.latency_intended_ns.answered.count, result.outcomes.get(Outcome::Ok));
        assert_eq!(result.lateness_ns.count, 100);
        assert_eq!(result.manifest.config["client"], "s-client-pair");
    }

    /// Blocks for this time on a channel without a sender's message.
    fn pass_time(time: Nanos) {
        let (_sender, receiver) = channel::<()>();
        assert!(receiver.recv_timeout(time.into()).is_err());
    }

    #[test]
    fn slow_handler_delays_connections_not_establisher() {
        let result = run_both(&prepare(config(REPLY)).unwrap(), || pass_time(Nanos::from_millis(150)));
        assert!(result.outcomes.get(Outcome::Ok) > 0, "{:?}", result.outcomes);
        assert_eq!(result.outcomes.get(Outcome::Ok), result.outcomes.total(), "{:?}", result.outcomes);
    }

    #[test]
    fn late_handler_still_reads_the_replies() {
        let late = config(REPLY);
        let until = late.window().until;
        let result = run_both(&prepare(late).unwrap(), || pass_time(until));
        assert!(result.outcomes.get(Outcome::Ok) > 0, "{:?}", result.outcomes);
        assert_eq!(result.outcomes.get(Outcome::Ok), result.outcomes.total(), "{:?}", result.outcomes);
        assert_eq!(result.goodput_per_s, 0.0, "nothing of it came in the measured time");
    }

    #[test]
    fn hung_servers_requests_end_in_flight() {
        let mut hung = config(b"");
        hung.populations = vec!["idle:3".parse().unwrap()];
        let result = run_both(&prepare(hung).unwrap(), || {});
        assert_eq!((result.in_flight_at_end, result.failed()), (100, 100), "{:?}", result.outcomes);
        assert_eq!(result.latency_intended_ns.unanswered, 100);
        assert!(result.connections.established > 0);
        assert_eq!(result.populations["idle:3"].offered, 3);
    }

    #[test]
    fn handler_gives_up_a_missing_reply() {
        let mut impatient = config(b"");
        impatient.request_timeout = Nanos::from_millis(30);
        let result = run_both(&prepare(impatient).unwrap(), || {});
        assert!(result.outcomes.get(Outcome::ResponseTimeout) > 0, "{:?}", result.outcomes);
        assert_eq!(result.outcomes.get(Outcome::ResponseTimeout), result.outcomes.total());
    }

    #[test]
    fn what_a_pair_is_not_made_for_is_refused() {
        let refused = |change: fn(&mut Config), expected: &str| {
            let mut config = config(REPLY);
            change(&mut config);
            let error = prepare(config).unwrap_err().to_string();
            assert!(error.starts_with("--client s-client-pair: ") && error.contains(expected), "{error}");
        };
        refused(|config| config.threads = "2".parse().unwrap(), "leave --threads out");
        refused(|config| config.retry = "fixed:1ms,3".parse().unwrap(), "leave --retry out");
        refused(|config| config.workload = "hot".parse().unwrap(), "--requests-per-connection 1");
        refused(|config| config.urls = vec!["https://127.0.0.1/".parse().unwrap()], "http://");
        refused(
            |config| config.client = Client::Closed { clients: std::num::NonZeroU32::MIN },
            "expected an open loop",
        );
    }
}
