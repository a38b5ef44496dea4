use super::*;
use crate::conditions::Changes;
use proptest::prelude::*;

fn impairment<P>(conditions: &str, seed: u64) -> Impairment<P> {
    let changes: Changes =
        if conditions.is_empty() { Changes::default() } else { conditions.parse().unwrap() };
    Impairment::new(changes.check().unwrap(), Seed(seed))
}

/// A packet of the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Probe {
    number: usize,
    offered_at: Nanos,
    length: usize,
}

/// Offers packets, given by the gap before each and its length, and takes all of them out.
fn pass(path: &mut Impairment<Probe>, packets: &[(u64, usize)]) -> Vec<Due<Probe>> {
    let mut now = Nanos::SECOND;
    let mut out = Vec::new();
    for (number, (gap, length)) in packets.iter().enumerate() {
        now += Nanos(*gap);
        out.extend(std::iter::from_fn(|| path.take_due(now)));
        path.offer(now, *length, Probe { number, offered_at: now, length: *length });
        let counts = path.counts();
        let ended = counts.forwarded + counts.lost + counts.queue_full + counts.too_many;
        assert_eq!(counts.received, ended + path.on_their_way() as u64);
    }
    out.extend(std::iter::from_fn(|| path.take_due(Nanos::MAX)));
    assert_eq!(path.next_due(), None);
    assert_eq!(out.len() as u64, path.counts().forwarded);
    out
}

fn steady(count: usize, gap: Nanos, length: usize) -> Vec<(u64, usize)> {
    vec![(gap.0, length); count]
}

fn packets() -> impl Strategy<Value = Vec<(u64, usize)>> {
    prop::collection::vec((0_u64..3_000_000, 20_usize..1500), 1..200)
}

proptest! {
    #[test]
    fn every_packet_comes_out_once_in_order_of_time(packets in packets(), seed: u64) {
        let conditions = "delay=5ms,jitter=3ms,loss=10%,reorder=20%,rate=2Mbit,queue=20KiB";
        let out = pass(&mut impairment(conditions, seed), &packets);
        prop_assert!(out.windows(2).all(|pair| pair[0].at <= pair[1].at));
        let mut numbers: Vec<usize> = out.iter().map(|due| due.packet.number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        prop_assert_eq!(numbers.len(), out.len());
        prop_assert!(out.iter().all(|due| due.at >= due.packet.offered_at));
    }

    #[test]
    fn jitter_alone_keeps_the_order_and_the_least_delay(packets in packets(), seed: u64) {
        let out = pass(&mut impairment("delay=5ms,jitter=3ms", seed), &packets);
        prop_assert_eq!(out.len(), packets.len());
        prop_assert!(out.windows(2).all(|pair| pair[0].packet.number < pair[1].packet.number));
        prop_assert!(out.iter().all(|due| due.at >= due.packet.offered_at + Nanos::from_millis(2)));
        // Only a packet in front can hold a packet back, by at most the longest delay.
        prop_assert!(out.iter().all(|due| due.at <= due.packet.offered_at + Nanos::from_millis(8)));
    }

    #[test]
    fn the_bottleneck_sends_one_packet_after_the_other(packets in packets()) {
        let out = pass(&mut impairment("rate=8Mbit,queue=1GiB", 1), &packets);
        prop_assert_eq!(out.len(), packets.len());
        let mut free_at = Nanos::ZERO;
        for due in &out {
            // One byte per microsecond.
            free_at = free_at.max(due.packet.offered_at) + Nanos::from_micros(due.packet.length as u64);
            prop_assert_eq!(due.at, free_at);
        }
    }

    #[test]
    fn no_more_waits_than_the_queue_holds(packets in packets()) {
        let mut path = impairment("rate=8Mbit,queue=5000", 1);
        let out = pass(&mut path, &packets);
        // An accepted packet is sent within the time of a full queue, at one byte per microsecond.
        prop_assert!(out.iter().all(|due| due.at <= due.packet.offered_at + Nanos::from_micros(5000)));
        prop_assert_eq!(path.counts().queue_full as usize, packets.len() - out.len());
    }

    #[test]
    fn equal_seeds_do_the_same(packets in packets(), seed: u64) {
        let run = || pass(&mut impairment("delay=5ms,jitter=5ms,loss=30%,reorder=10%", seed), &packets);
        prop_assert_eq!(run(), run());
    }
}

#[test]
fn without_conditions_packets_are_due_at_once() {
    let out = pass(&mut impairment("", 1), &steady(100, Nanos(7), 60));
    assert!(out.len() == 100 && out.iter().all(|due| due.at == due.packet.offered_at));
}

#[test]
fn queue_takes_the_bytes_it_has_room_for() {
    let mut path = impairment("rate=8Mbit,queue=5000", 1);
    let mut offer = || path.offer(Nanos::SECOND, 500, ()).is_none();
    assert!((0..10).all(|_| offer()));
    assert!(!offer(), "5,000 bytes wait");
}

#[test]
fn a_delay_is_exact() {
    let mut path = impairment("delay=50ms", 1);
    let out = pass(&mut path, &steady(1000, Nanos::from_micros(10), 60));
    assert!(out.iter().all(|due| due.at == due.packet.offered_at + Nanos::from_millis(50)));
    assert_eq!(path.take_due(Nanos::MAX), None);
}

#[test]
fn a_packet_is_not_taken_before_it_is_due() {
    let mut path = impairment("delay=50ms", 1);
    assert_eq!(path.offer(Nanos::SECOND, 60, 'a'), None);
    let due = Nanos::SECOND + Nanos::from_millis(50);
    assert_eq!(path.next_due(), Some(due));
    assert_eq!(path.take_due(Nanos(due.0 - 1)), None);
    assert_eq!(path.take_due(due), Some(Due { at: due, packet: 'a' }));
}

#[test]
fn loss_and_reordering_shares_are_as_configured() {
    const COUNT: usize = 200_000;
    let mut path = impairment("delay=1ms,loss=1%,reorder=2%", 5);
    pass(&mut path, &steady(COUNT, Nanos(1000), 60));
    // Five standard deviations of a binomial count.
    let within = |count: u64, expected: f64| (count as f64 - expected).abs() < 5.0 * expected.sqrt();
    let counts = path.counts();
    assert!(within(counts.lost, COUNT as f64 * 0.01), "{counts:?}");
    assert!(within(counts.reordered, (COUNT as u64 - counts.lost) as f64 * 0.02), "{counts:?}");
    let mut dead = impairment("loss=100%", 1);
    pass(&mut dead, &steady(50, Nanos(1), 60));
    assert_eq!(dead.counts().lost, 50);
}

#[test]
fn losses_are_independent_of_other_draws() {
    const COUNT: usize = 100_000;
    let lost = |conditions: &str| {
        let mut path = impairment(conditions, 11);
        let offered = |number| path.offer(Nanos(number), 60, ()).is_some();
        (1..=COUNT as u64).map(offered).collect::<Vec<_>>()
    };
    let alone = lost("loss=10%");
    assert_eq!(alone, lost("delay=1s,jitter=1s,loss=10%,reorder=50%"));
    let pairs = alone.windows(2).filter(|pair| pair[0] && pair[1]).count() as f64;
    let expected = COUNT as f64 * 0.01;
    assert!((pairs - expected).abs() < 5.0 * expected.sqrt(), "{pairs} pairs of losses in a row");
}

#[test]
fn losses_and_reordering_shift_no_draw_of_the_others() {
    // The packets are far apart, so that none waits for another.
    let packets = steady(1000, Nanos::from_millis(100), 60);
    let due = |conditions: &str| pass(&mut impairment(conditions, 3), &packets);
    let jittered = due("delay=50ms,jitter=10ms");
    let reordered = due("delay=50ms,jitter=10ms,reorder=10%");
    let lossy = due("delay=50ms,jitter=10ms,reorder=10%,loss=30%");
    assert!(!lossy.is_empty() && lossy.len() < reordered.len() && reordered.len() == jittered.len());
    assert!(lossy.iter().all(|due| *due == reordered[due.packet.number]));
    let is_ahead = |due: &Due<Probe>| due.at == due.packet.offered_at;
    assert!(reordered.iter().all(|due| is_ahead(due) || *due == jittered[due.packet.number]));
}

#[test]
fn jitter_is_uniform_where_packets_are_far_apart() {
    const COUNT: usize = 20_000;
    let out = pass(&mut impairment("delay=50ms,jitter=10ms", 3), &steady(COUNT, Nanos::from_millis(100), 60));
    let delays: Vec<f64> =
        out.iter().map(|due| (due.at - due.packet.offered_at).as_secs_f64() * 1e3).collect();
    let mean = delays.iter().sum::<f64>() / COUNT as f64;
    let variance = delays.iter().map(|delay| (delay - mean).powi(2)).sum::<f64>() / COUNT as f64;
    // A uniform distribution 20 ms wide has a variance of 20²/12.
    assert!((mean - 50.0).abs() < 0.25, "{mean}");
    assert!((variance - 400.0 / 12.0).abs() < 1.0, "{variance}");
    assert!(delays.iter().all(|delay| (40.0..=60.0).contains(delay)));
}

#[test]
fn reordered_packets_overtake() {
    let mut path = impairment("delay=5ms,reorder=10%", 9);
    let out = pass(&mut path, &steady(1000, Nanos::from_micros(100), 60));
    let overtaken = out.windows(2).filter(|pair| pair[0].packet.number > pair[1].packet.number).count();
    assert!(overtaken > 0 && path.counts().reordered > 50, "{overtaken} {:?}", path.counts());
    let early = out.iter().filter(|due| due.at == due.packet.offered_at).count();
    assert_eq!(early as u64, path.counts().reordered);
}

#[test]
fn fractional_packet_time_keeps_its_rate() {
    let mut path = impairment("rate=7Gbit,queue=1GiB", 1);
    let out = pass(&mut path, &steady(70_000, Nanos::ZERO, 1000));
    let took = out.last().unwrap().at - Nanos::SECOND;
    assert_eq!(took, Nanos::from_millis(80), "560 Mbit at 7 Gbit/s");
}

#[test]
fn an_idle_link_takes_a_packet_longer_than_its_queue() {
    let mut path = impairment("rate=8Mbit,queue=100", 1);
    assert_eq!(path.offer(Nanos::SECOND, 1500, 'a'), None);
    assert_eq!(path.offer(Nanos::SECOND, 20, 'b'), Some('b'));
    let sent = Nanos::SECOND + Nanos::from_micros(1500);
    assert_eq!(path.offer(sent, 1500, 'c'), None);
    assert_eq!(path.counts().queue_full, 1);
}

#[test]
fn packets_on_their_way_have_a_limit() {
    let mut path = impairment("delay=1s", 1);
    for _ in 0..MOST_ON_THEIR_WAY {
        assert_eq!(path.offer(Nanos::SECOND, 60, ()), None);
    }
    assert_eq!(path.offer(Nanos::SECOND, 60, ()), Some(()));
    assert_eq!(path.counts().too_many, 1);
    assert!(path.take_due(Nanos::from_secs(2)).is_some());
    assert_eq!(path.offer(Nanos::SECOND, 60, ()), None);
}
