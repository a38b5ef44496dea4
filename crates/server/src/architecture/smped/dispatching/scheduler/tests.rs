use proptest::prelude::*;

use super::*;

const SCHEDULES: [Schedule; 4] =
    [Schedule::Smped, Schedule::LeastConnections, Schedule::RoundRobin, Schedule::Random];

fn loads(of: &[(f64, u32)]) -> Vec<Option<Load>> {
    of.iter()
        .map(|&(throughput, connections)| Some(Load { throughput, connections, is_full: false }))
        .collect()
}

/// All choices that many different seeds give.
fn choices(schedule: Schedule, c_max: u32, loads: &[Option<Load>], may_start: bool) -> Vec<Choice> {
    let mut seen = Vec::new();
    for seed in 0..64 {
        let choice = Scheduler::new(schedule, c_max, Seed(seed)).choose(loads, may_start);
        if !seen.contains(&choice) {
            seen.push(choice);
        }
    }
    seen.sort_by_key(|choice| format!("{choice:?}"));
    seen
}

#[test]
fn step_1_a_random_one_of_those_without_a_connection() {
    let loads = loads(&[(0.0, 0), (50.0, 1), (0.0, 0)]);
    let expected = [Choice::Assign(0, Reason::Idle), Choice::Assign(2, Reason::Idle)];
    assert_eq!(choices(Schedule::Smped, 4, &loads, true), expected);
}

#[test]
fn step_2_and_3_the_least_product_of_shares() {
    // 0.5 x 0.2, 0.1 x 0.6, 0.4 x 0.2
    let loads = loads(&[(50.0, 2), (10.0, 6), (40.0, 2)]);
    assert_eq!(choices(Schedule::Smped, 8, &loads, true), [Choice::Assign(1, Reason::First)]);
    assert_eq!(
        choices(Schedule::LeastConnections, 8, &loads, true),
        [Choice::Assign(0, Reason::First), Choice::Assign(2, Reason::First)]
    );
}

#[test]
fn step_4_the_pool_grows_although_others_have_room() {
    let loads = loads(&[(50.0, 2), (10.0, 6)]);
    assert_eq!(choices(Schedule::Smped, 6, &loads, true), [Choice::Start]);
}

#[test]
fn step_5_the_next_where_the_pool_may_not_grow() {
    let loads = loads(&[(50.0, 2), (10.0, 6), (90.0, 3)]);
    assert_eq!(choices(Schedule::Smped, 6, &loads, false), [Choice::Assign(0, Reason::Next)]);
}

#[test]
fn step_6_nobody_where_all_are_full() {
    for schedule in SCHEDULES {
        assert_eq!(choices(schedule, 6, &loads(&[(50.0, 6), (10.0, 6)]), false), [Choice::Full]);
        assert_eq!(choices(schedule, 6, &[None, None], false), [Choice::Full]);
        assert_eq!(choices(schedule, 6, &[None, None], true), [Choice::Start]);
    }
}

#[test]
fn fewer_connections_win_before_any_reply() {
    let loads = loads(&[(0.0, 2), (0.0, 1), (0.0, 1)]);
    let expected = [Choice::Assign(1, Reason::First), Choice::Assign(2, Reason::First)];
    assert_eq!(choices(Schedule::Smped, 8, &loads, true), expected);
}

#[test]
fn round_robin_skips_full_and_missing_workers() {
    let mut loads = loads(&[(0.0, 1), (0.0, 1), (0.0, 9), (0.0, 1)]);
    loads[1] = None;
    let mut scheduler = Scheduler::new(Schedule::RoundRobin, 8, Seed(0));
    let chosen: Vec<Choice> = (0..4).map(|_| scheduler.choose(&loads, false)).collect();
    assert_eq!(chosen[0], Choice::Assign(0, Reason::First));
    assert_eq!(chosen[1], Choice::Assign(3, Reason::Next));
    assert_eq!(chosen[2..], chosen[..2]);
}

#[test]
fn equal_seeds_choose_alike() {
    let loads = loads(&[(1.0, 1); 8]);
    let chosen = |seed| -> Vec<Choice> {
        let mut scheduler = Scheduler::new(Schedule::Random, 8, Seed(seed));
        (0..20).map(|_| scheduler.choose(&loads, false)).collect()
    };
    assert_eq!(chosen(5), chosen(5));
    assert_ne!(chosen(5), chosen(6));
}

fn any_throughput() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), 0.0..1e9, Just(f64::MIN_POSITIVE), Just(f64::MAX / 1e6)]
}

/// A worker that step 1 passes over and that has room, so that the schedule's first choice stands.
fn any_busy_load() -> impl Strategy<Value = Load> {
    let load = (any_throughput(), 1_u32..6);
    load.prop_map(|(throughput, connections)| Load { throughput, connections, is_full: false })
}

fn any_load() -> impl Strategy<Value = Option<Load>> {
    let load = (any_throughput(), 0_u32..6, any::<bool>());
    let load = load.prop_map(|(throughput, connections, is_full)| Load { throughput, connections, is_full });
    prop::option::weighted(0.8, load)
}

proptest! {
    #[test]
    fn schedule_stays_within_c_max_and_full_means_no_room(
        loads in prop::collection::vec(any_load(), 1..40),
        schedule in prop::sample::select(&SCHEDULES[..]),
        (c_max, may_start, seed) in (1_u32..6, any::<bool>(), any::<u64>()),
    ) {
        // Step 1 comes first: who has no connection is not full.
        let is_idle = |load: &Load| schedule == Schedule::Smped && load.connections == 0;
        let has_room = |load: &Load| load.has_room(c_max) || is_idle(load);
        match Scheduler::new(schedule, c_max, Seed(seed)).choose(&loads, may_start) {
            Choice::Assign(slot, reason) => {
                let load = loads[slot].expect("there is such a worker");
                prop_assert!(has_room(&load));
                prop_assert_eq!(reason == Reason::Idle, schedule == Schedule::Smped && load.connections == 0);
                prop_assert!(reason != Reason::Next || !may_start);
            }
            Choice::Start => prop_assert!(may_start),
            Choice::Full => prop_assert!(!may_start && !loads.iter().flatten().any(has_room)),
        }
    }

    #[test]
    fn smped_choice_has_the_least_product(
        loads in prop::collection::vec(prop::option::weighted(0.8, any_busy_load()), 0..40),
        (last, seed) in (any_busy_load(), any::<u64>()),
    ) {
        let loads = [loads, vec![Some(last)]].concat();
        let there: Vec<Load> = loads.iter().flatten().copied().collect();
        let share = |part: f64, sum: f64| if sum > 0.0 { part / sum } else { 1.0 / there.len() as f64 };
        let throughput: f64 = there.iter().map(|load| load.throughput).sum();
        let connections: u32 = there.iter().map(|load| load.connections).sum();
        let rank = |load: &Load| {
            let of_connections = share(load.connections.into(), connections.into());
            (share(load.throughput, throughput) * of_connections, load.connections)
        };
        let choice = Scheduler::new(Schedule::Smped, 100, Seed(seed)).choose(&loads, false);
        let Choice::Assign(slot, Reason::First) = choice else { panic!("{choice:?}: all have room") };
        let chosen = rank(&loads[slot].unwrap());
        for other in &there {
            prop_assert!(chosen <= rank(other), "{chosen:?}, but {other:?} has {:?}", rank(other));
        }
    }
}
