//! The polling sets on real descriptors: which events a wait may leave for later, and which it may not.

use std::os::fd::{AsRawFd, OwnedFd};

use base::{Clock, Nanos, RealClock, SimulatedClock, WallTime};
use dispatch::Waited;
use dispatch::locality::{Event, LONGEST, PollingSets, Settings};
use sys::readiness::poll::bits;

fn pipe() -> (OwnedFd, OwnedFd) {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).unwrap()
}

fn call<C: Clock>(sets: &mut PollingSets<C>) -> Vec<Event> {
    let mut events = Vec::new();
    assert_eq!(sets.wait(&mut events, Some(Nanos::ZERO)).unwrap(), Waited::Ready);
    events
}

/// Sets with one descriptor that six calls have made idle, and the descriptor's other end.
fn with_an_idle_one(settings: Settings) -> (PollingSets, OwnedFd, OwnedFd) {
    let mut sets = PollingSets::new(settings, RealClock::new());
    let (reader, writer) = pipe();
    sets.register(reader.as_raw_fd(), bits::IN, 1, false);
    for _ in 0..6 {
        assert!(call(&mut sets).is_empty());
    }
    assert_eq!(sets.lengths(), [0, 0, 1]);
    (sets, reader, writer)
}

#[test]
fn nonblocking_call_polls_only_due_sets() {
    let (mut sets, reader, writer) = with_an_idle_one(Settings::default());
    rustix::io::write(&writer, b"x").unwrap();
    assert!(call(&mut sets).is_empty() && call(&mut sets).is_empty());
    let ninth = call(&mut sets);
    let event = Event { fd: reader.as_raw_fd(), payload: 1, bits: bits::IN, timed_out: false };
    assert_eq!(ninth, [event]);
}

#[test]
fn blocking_wait_sees_the_idle_set_in_any_sleep() {
    let at_once = Settings { sleep_threshold: 0, ..Settings::default() };
    let spinning = Settings { nap: Nanos::ZERO, ..Settings::default() };
    let napping = Settings { sleep_threshold: u32::MAX, ..Settings::default() };
    for settings in [at_once, spinning, napping] {
        for timeout in [None, Some(Nanos::from_micros(1)), Some(Nanos::from_secs(20))] {
            let (mut sets, _reader, writer) = with_an_idle_one(settings);
            rustix::io::write(&writer, b"x").unwrap();
            let mut events = Vec::new();
            sets.wait(&mut events, timeout).unwrap();
            assert_eq!(events.len(), 1, "{settings:?} {timeout:?}");
        }
    }
}

#[test]
fn locked_descriptor_stays_active_others_come_back() {
    let mut sets = PollingSets::new(Settings::default(), RealClock::new());
    let ((listener, _to_listener), (reader, writer)) = (pipe(), pipe());
    sets.register(listener.as_raw_fd(), bits::IN, 1, true);
    sets.register(reader.as_raw_fd(), bits::IN, 2, false);
    for _ in 0..6 {
        call(&mut sets);
    }
    assert_eq!(sets.lengths(), [1, 0, 1]);
    rustix::io::write(&writer, b"x").unwrap();
    // The bytes are not drained, so that two consecutive polls of the set find them.
    for _ in 0..12 {
        call(&mut sets);
    }
    assert_eq!(sets.lengths(), [2, 0, 0]);
    assert!(sets.unregister(reader.as_raw_fd()) && !sets.unregister(reader.as_raw_fd()));
    assert_eq!(sets.lengths(), [1, 0, 0]);
}

#[test]
fn deadline_is_reported_once_when_its_set_is_polled() {
    let clock = SimulatedClock::new(WallTime::default());
    let mut sets = PollingSets::new(Settings::default(), clock.clone());
    let (reader, _writer) = pipe();
    let fd = reader.as_raw_fd();
    sets.register(fd, bits::IN, 1, false);
    assert!(sets.update(fd, bits::IN, 2, Some(Nanos::from_secs(5))));
    for _ in 0..6 {
        assert!(call(&mut sets).is_empty());
    }
    clock.advance(Nanos::from_secs(10));
    assert!(call(&mut sets).is_empty() && call(&mut sets).is_empty());
    assert_eq!(call(&mut sets), [Event { fd, payload: 2, bits: 0, timed_out: true }]);
    for _ in 0..9 {
        assert!(call(&mut sets).is_empty());
    }
    assert!(!sets.update(fd + 1, bits::IN, 3, None));
}

#[test]
fn a_wait_without_a_timeout_ends_with_a_deadline() {
    // The last of these would nap for a day.
    for (sleep_threshold, live_counter) in [(0, 3), (100, 3), (u32::MAX, 1_000_000_000)] {
        let settings = Settings { sleep_threshold, live_counter, ..Settings::default() };
        let clock = RealClock::new();
        let mut sets = PollingSets::new(settings, clock);
        let (reader, _writer) = pipe();
        sets.register(reader.as_raw_fd(), bits::IN, 1, false);
        let soon = clock.now() + Nanos::from_millis(5);
        sets.update(reader.as_raw_fd(), bits::IN, 1, Some(soon));
        let mut events = Vec::new();
        while events.is_empty() {
            sets.wait(&mut events, None).unwrap();
        }
        assert!(events[0].timed_out);
    }
}

#[test]
fn settings_out_of_range_count_as_the_nearest_in_it() {
    let settings = Settings { sets: 0, live_counter: 0, ..Settings::default() };
    let mut sets = PollingSets::new(settings, RealClock::new());
    let (reader, writer) = pipe();
    sets.register(reader.as_raw_fd(), bits::IN, 1, false);
    for _ in 0..20 {
        call(&mut sets);
    }
    assert_eq!(sets.lengths(), [1]);
    rustix::io::write(&writer, b"x").unwrap();
    assert_eq!(call(&mut sets).len(), 1);
}

#[test]
fn adaptive_sets_tune_themselves_during_calls() {
    let settings = Settings { adapts: dispatch::locality::Adapts::BOTH, ..Settings::default() };
    let clock = SimulatedClock::new(WallTime::default());
    let mut sets = PollingSets::new(settings, clock.clone());
    let before = sets.tuning();
    assert_eq!((before.live_counter, before.sleep_threshold, before.longest), (3, 100, LONGEST));
    let (reader, _writer) = pipe();
    sets.register(reader.as_raw_fd(), bits::IN, 1, false);
    for _ in 0..600 {
        clock.advance(settings.nap);
        assert!(call(&mut sets).is_empty());
    }
    let after = sets.tuning();
    assert_eq!(after.sleep_threshold, 18, "one descriptor is cheap to sleep on");
    assert!(after.longest < LONGEST, "and to look at: {after:?}");
}

#[test]
fn empty_wait_may_have_polled_sets_a_little_before() {
    let settings = Settings { freshness: Nanos::from_secs(100), ..Settings::default() };
    let (mut sets, _reader, writer) = with_an_idle_one(settings);
    rustix::io::write(&writer, b"x").unwrap();
    let mut events = Vec::new();
    let mut waits = 0;
    while events.is_empty() {
        sets.wait(&mut events, Some(Nanos(1))).unwrap();
        waits += 1;
    }
    // The first wait would poll every set at its end if it did not take the sets' last polls for fresh.
    assert_eq!(waits, 3, "the ninth call finds it, after six and a call in each wait");
}
