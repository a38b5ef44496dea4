//! Tests on pipes, which the tests make ready, and on a simulated clock.

use std::io::Write;
use std::os::fd::AsRawFd;

use base::{SimulatedClock, WallTime};

use super::*;

struct Bench {
    instance: Instance<u32, SimulatedClock>,
    clock: SimulatedClock,
}

impl Bench {
    fn new() -> Bench {
        let clock = SimulatedClock::new(WallTime { seconds: 0 });
        Bench { instance: Instance::new(3, 3, clock.clone()).unwrap(), clock }
    }

    /// A pipe with a byte in it, whose reading end is registered with this payload.
    fn ready_pipe(&mut self, payload: u32) -> std::io::PipeReader {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"x").unwrap();
        self.instance.register(reader.as_raw_fd(), bits::IN, false).unwrap();
        self.instance.update(reader.as_raw_fd(), bits::IN, payload, None).unwrap();
        reader
    }

    /// The payloads that a wait delivers, at most `room` of them.
    fn payloads(&mut self, room: usize) -> Vec<u32> {
        self.instance.wait(Some(Nanos::ZERO)).unwrap();
        let next = std::iter::from_fn(|| self.instance.next_event());
        next.take(room).map(|event| event.payload.unwrap()).collect()
    }
}

#[test]
fn settings_out_of_range_are_refused() {
    for (sets, live_counter) in [(0, 3), (-1, 3), (256, 3), (3, 1), (3, -3)] {
        let refused = Instance::<u32>::new(sets, live_counter, RealClock::new());
        assert_eq!(refused.err(), Some(Error::Invalid), "{sets} sets, N = {live_counter}");
    }
    assert!(Instance::<u32>::new(255, i32::MAX, RealClock::new()).is_ok());
}

#[test]
fn events_beyond_the_room_come_first_in_the_next_call() {
    let mut bench = Bench::new();
    let _pipes: Vec<_> = (0..5).map(|payload| bench.ready_pipe(payload)).collect();
    let mut delivered = bench.payloads(2);
    delivered.extend(bench.payloads(2));
    delivered.extend(bench.payloads(2));
    delivered.sort_unstable();
    assert_eq!(delivered, [0, 1, 2, 3, 4]);
    assert_eq!(bench.payloads(9).len(), 5);
}

#[test]
fn no_event_outlives_its_payload() {
    let mut bench = Bench::new();
    let pipes: Vec<_> = (0..3).map(|payload| bench.ready_pipe(payload)).collect();
    let first = bench.payloads(1)[0];
    let (updated, unregistered) = ((first + 1) % 3, (first + 2) % 3);
    let fd = |payload: u32| pipes[payload as usize].as_raw_fd();
    bench.instance.update(fd(updated), bits::IN, 10, None).unwrap();
    bench.instance.unregister(fd(unregistered)).unwrap();
    bench.instance.register(fd(unregistered), bits::IN, false).unwrap();
    bench.instance.update(fd(unregistered), bits::IN, 20, None).unwrap();
    let mut delivered = bench.payloads(9);
    delivered.sort_unstable();
    assert_eq!(delivered, [first, 10, 20]);
}

#[test]
fn a_deadline_and_readiness_at_once_are_one_event() {
    let mut bench = Bench::new();
    let pipe = bench.ready_pipe(7);
    let fd = pipe.as_raw_fd();
    bench.instance.update(fd, bits::IN, 8, Some(Nanos::from_secs(2))).unwrap();
    // The writing end is closed.
    let ready = bits::IN | bits::HUP;
    for (bits, passed) in [(ready, 1), (ready | TIMED_OUT, 1), (ready, 0)] {
        bench.clock.advance(Nanos::from_secs(passed));
        bench.instance.wait(Some(Nanos::ZERO)).unwrap();
        let event = Event { fd, bits, payload: Some(8) };
        assert_eq!((bench.instance.next_event(), bench.instance.next_event()), (Some(event), None));
    }
}

#[test]
fn one_direction_at_a_time() {
    let mut bench = Bench::new();
    let pipe = bench.ready_pipe(1);
    for wrong in [0, bits::IN | bits::OUT, bits::RDHUP] {
        assert_eq!(bench.instance.update(pipe.as_raw_fd(), wrong, 1, None), Err(Error::Invalid));
    }
    assert_eq!(bench.payloads(9), [1]);
}
