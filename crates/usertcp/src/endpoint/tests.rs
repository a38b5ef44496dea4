use super::*;
use crate::frame::{Options, Timestamps};

/// A connection with timestamps that was established at `now`; its handshake is acknowledged.
fn established(now: Millis, shared: &mut Shared) -> Endpoint {
    let mut endpoint = Endpoint::connect(Seq(100), 1460, Window::Open);
    let syn = endpoint.transmit(now).unwrap();
    assert_eq!(syn.segment.flags, Flags::SYN);
    let options = Options {
        mss: Some(1460),
        timestamps: Some(Timestamps { value: 1, echo: now.0 }),
        ..Options::default()
    };
    let flags = Flags::SYN | Flags::ACK;
    let answer = Segment { seq: Seq(500), ack: Seq(101), flags, window: 65_535, options };
    assert!(endpoint.receive(&answer, &[], now, shared).established);
    assert!(endpoint.transmit(now).is_some());
    endpoint
}

#[test]
fn an_idle_connection_is_56_bytes_without_a_backlog() {
    assert_eq!(size_of::<Endpoint>(), 56);
    let mut shared = Shared::default();
    let mut endpoint = established(Millis(1000), &mut shared);
    assert!(endpoint.backlog.is_none());
    assert_eq!(endpoint.send(b"request", Millis(1000)), 7);
    assert!(endpoint.backlog.is_some() && endpoint.transmit(Millis(1000)).is_some());
    let ack =
        Segment { seq: Seq(501), ack: Seq(108), flags: Flags::ACK, window: 65_535, ..Segment::default() };
    endpoint.receive(&ack, &[], Millis(1001), &mut shared);
    assert!(endpoint.backlog.is_none(), "it is given back as soon as nothing is under way");
    assert_eq!(endpoint.deadline(Millis(1001)), None, "an idle connection has no timer");
}

#[test]
fn the_timeout_follows_the_measured_round_trips() {
    // The example of RFC 6298, section 2: SRTT = R, RTTVAR = R/2, RTO = SRTT + 4 RTTVAR.
    let mut endpoint = Endpoint::CLOSED;
    assert_eq!(endpoint.backed_off(0), RTO_FIRST_MS);
    endpoint.measure(400);
    assert_eq!(endpoint.backed_off(0), 400 + 4 * 200);
    // RTTVAR = 3/4 200 + 1/4 |400 - 800| = 250, SRTT = 7/8 400 + 1/8 800 = 450
    endpoint.measure(800);
    assert_eq!(endpoint.backed_off(0), 450 + 4 * 250);
    for _ in 0..100 {
        endpoint.measure(0);
    }
    assert_eq!(endpoint.backed_off(0), RTO_MIN_MS, "Linux's least");
    assert_eq!(endpoint.backed_off(3), 8 * RTO_MIN_MS);
    assert_eq!(endpoint.backed_off(15), RTO_MAX_MS);
    let before = endpoint.backed_off(0);
    endpoint.measure(u32::MAX - 5);
    assert_eq!(endpoint.backed_off(0), before, "the timestamp that came back was none of ours");
    for _ in 0..100 {
        endpoint.measure(50_000);
    }
    assert!(
        (RTT_MAX_MS - 8..=RTT_MAX_MS + RTO_MIN_MS).contains(&endpoint.backed_off(0)),
        "{}",
        endpoint.backed_off(0)
    );
}

#[test]
fn answer_before_its_late_timer_is_measured_whole() {
    let (mut shared, mut endpoint) = (Shared::default(), Endpoint::connect(Seq(100), 1460, Window::Open));
    assert!(endpoint.transmit(Millis(1000)).is_some());
    let flags = Flags::SYN | Flags::ACK;
    let answer = Segment { seq: Seq(500), ack: Seq(101), flags, window: 65_535, ..Segment::default() };
    assert!(endpoint.receive(&answer, &[], Millis(1000 + RTO_FIRST_MS + 200), &mut shared).established);
    assert_eq!(endpoint.backed_off(0), 1200 + 4 * 600);
}

/// The times at which an endpoint sends its SYN when nobody answers, in ms; the last one is the time of its failure.
fn syns_without_answer(syn_linear_timeouts: u8) -> Vec<u32> {
    let mut shared = Shared::new(syn_linear_timeouts);
    let mut endpoint = Endpoint::connect(Seq(100), 1460, Window::Open);
    let (mut now, mut times) = (Millis(0), Vec::new());
    loop {
        times.push(now.0);
        while endpoint.transmit(now).is_some() {}
        let Some(due) = endpoint.deadline(now) else { return times };
        now = due;
        endpoint.on_timer(now, &mut shared);
    }
}

#[test]
fn syns_are_sent_again_as_by_linux() {
    let seconds = [0, 1, 2, 3, 4, 5, 7, 11, 19, 35, 67, 131].map(|second| second * 1000);
    assert_eq!(syns_without_answer(4), seconds, "tcp_syn_linear_timeouts = 4");
    let seconds = [0, 1, 3, 7, 15, 31, 63, 127].map(|second| second * 1000);
    assert_eq!(syns_without_answer(0), seconds, "tcp_syn_linear_timeouts = 0");
}

#[test]
fn window_grows_with_delivery_up_to_its_limit() {
    let mut shared = Shared::default();
    let mut endpoint = established(Millis(0), &mut shared);
    let mut expected = Seq(501);
    let payload = vec![0; 60_000];
    for _ in 0..100 {
        let segment =
            Segment { seq: expected, ack: Seq(101), flags: Flags::ACK, window: 65_535, ..Segment::default() };
        let news = endpoint.receive(&segment, &payload, Millis(5), &mut shared);
        assert_eq!(news.delivered, 0..60_000);
        expected += 60_000;
        assert!(endpoint.transmit(Millis(5)).is_some());
    }
    assert_eq!(endpoint.window, WINDOW_MAX);
}

#[test]
fn a_timer_at_the_wrap_of_the_clock_is_set() {
    let mut shared = Shared::default();
    // The timeout would fall on the value that means an unset timer.
    let now = Millis(0u32.wrapping_sub(RTO_MIN_MS));
    let mut endpoint = established(now, &mut shared);
    endpoint.send(b"request", now);
    assert!(endpoint.transmit(now).is_some());
    assert_eq!(endpoint.deadline(now), Some(Millis(1)));
    assert_eq!(endpoint.on_timer(Millis(1), &mut shared), None);
    assert!(endpoint.wants_to_send());
}

#[test]
fn an_application_that_closed_gets_no_news() {
    let mut shared = Shared::default();
    let mut endpoint = established(Millis(0), &mut shared);
    endpoint.close(Millis(0), &mut shared);
    assert!(!endpoint.is_held() && endpoint.transmit(Millis(0)).is_some());
    let fin = Segment { seq: Seq(501), ack: Seq(102), flags: Flags::FIN | Flags::ACK, ..Segment::default() };
    let news = endpoint.receive(&fin, &[], Millis(1), &mut shared);
    assert!(!news.ended && news.failed.is_none());
    assert_eq!(endpoint.state(), State::TimeWait);
    assert!(endpoint.is_over());
}

#[test]
fn stored_bytes_are_freed_at_any_end_of_connection() {
    let mut shared = Shared::default();
    for end in 0..4 {
        let mut endpoint = established(Millis(0), &mut shared);
        let early = Segment { seq: Seq(600), ack: Seq(101), flags: Flags::ACK, ..Segment::default() };
        endpoint.receive(&early, &[0; 50], Millis(0), &mut shared);
        assert_eq!(shared.stored(), 50);
        match end {
            0 => drop(endpoint.abort(Millis(0), &mut shared)),
            1 => {
                let reset = Segment { seq: Seq(501), flags: Flags::RST, ..Segment::default() };
                let news = endpoint.receive(&reset, &[], Millis(0), &mut shared);
                assert_eq!(news.failed, Some(Failure::Reset));
            }
            2 => {
                let fin = Segment { seq: Seq(501), flags: Flags::FIN | Flags::ACK, ..early };
                assert!(endpoint.receive(&fin, &[], Millis(0), &mut shared).ended);
            }
            _ => {
                let missing = Segment { seq: Seq(501), ..early };
                let news = endpoint.receive(&missing, &[1; 99], Millis(0), &mut shared);
                assert_eq!((news.delivered, news.filled), (0..99, vec![0; 50]));
            }
        }
        assert_eq!(shared.stored(), 0);
    }
}
