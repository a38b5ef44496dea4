use super::*;

fn at(millis: u64) -> Nanos {
    Nanos::from_millis(10_000 + millis)
}

/// Workers that have all begun, and have nothing to do.
fn account(settings: &str) -> Account {
    let settings: SmpedSettings = settings.parse().unwrap();
    let mut account = Account::new(&settings);
    for slot in 0..settings.initial {
        account.started(slot, true, at(0));
        assert_eq!(see(&mut account, slot, Seen { turns: 1, ..Seen::default() }, at(0)), Sight::Answers);
    }
    account
}

/// A look at a worker whose queue is empty.
fn see(account: &mut Account, slot: usize, seen: Seen, now: Nanos) -> Sight {
    account.evaluate_reading(slot, seen, || false, now).0
}

fn has(connections: u64) -> Seen {
    Seen { turns: 1, open: connections, connections, assigned: connections }
}

#[test]
fn new_worker_gets_connections_after_its_first_turn() {
    let mut account = account("p-min=1,initial=1,p-max=2");
    let slot = account.vacancy(at(0)).unwrap();
    assert!(account.is_idle());
    account.started(slot, false, at(0));
    assert!(!account.is_idle(), "it is about to begin");
    assert!(!account.places[slot].alive && !account.another_is_alive(0));
    assert_eq!(see(&mut account, slot, Seen::default(), at(500)), Sight::Nothing);
    assert!(!account.places[slot].alive);
    assert_eq!(see(&mut account, slot, Seen { turns: 3, ..Seen::default() }, at(520)), Sight::Answers);
    assert!(account.places[slot].alive && account.another_has_room(0));
}

#[test]
fn workers_start_one_at_a_time_with_a_pause() {
    let mut account = account("p-min=1,initial=1,p-max=3");
    assert_eq!(account.vacancy(at(0)), Some(1));
    account.started(1, false, at(0));
    assert!(account.may_grow(at(0)));
    assert_eq!(account.vacancy(at(999)), None, "one is on its way");
    assert_eq!(account.vacancy(at(1000)), Some(2), "it does not begin");
    see(&mut account, 1, Seen { turns: 1, ..Seen::default() }, at(20));
    account.pause(at(1000));
    assert_eq!((account.vacancy(at(999)), account.vacancy(at(1000))), (None, Some(2)));
    account.started(2, false, at(1000));
    assert!(account.may_grow(at(1010)), "it helps soon");
    see(&mut account, 2, Seen { turns: 1, ..Seen::default() }, at(1020));
    assert!(!account.may_grow(at(1020)));
    assert_eq!(account.vacancy(at(1020)), None);
}

#[test]
fn worker_without_turns_is_silent_while_clients_wait() {
    let mut account = account("p-min=2,initial=2,p-max=2");
    let seen = has(3);
    assert_eq!(see(&mut account, 0, seen, at(0)), Sight::Nothing);
    assert_eq!(account.evaluate_reading(0, seen, || true, at(20)).0, Sight::Nothing);
    assert_eq!(account.evaluate_reading(0, seen, || true, at(119)).0, Sight::Nothing);
    // The worker slept with an empty queue, so the next connection has not waited yet.
    assert_eq!(account.evaluate_reading(0, seen, || false, at(120)).0, Sight::Nothing);
    assert_eq!(account.evaluate_reading(0, seen, || true, at(140)).0, Sight::Nothing);
    assert_eq!(
        account.evaluate_reading(0, Seen { turns: 2, ..seen }, || true, at(200)).0,
        Sight::Nothing,
        "a turn"
    );
    assert_eq!(account.evaluate_reading(0, Seen { turns: 2, ..seen }, || true, at(220)).0, Sight::Nothing);
    assert_eq!(
        account.evaluate_reading(0, Seen { turns: 2, ..seen }, || true, at(320)).0,
        Sight::FallsSilent
    );
    assert!(!account.places[0].alive && account.another_is_alive(0) && !account.another_is_alive(1));
    assert_eq!(account.evaluate_reading(0, Seen { turns: 2, ..seen }, || true, at(900)).0, Sight::Nothing);
    assert_eq!(account.evaluate_reading(0, Seen { turns: 3, ..seen }, || true, at(920)).0, Sight::Answers);
    assert!(account.places[0].alive);
}

#[test]
fn the_longest_idle_worker_goes_down_to_the_floor() {
    let mut account = account("c-max=4,p-min=1,initial=3,p-max=3,idle=5s");
    for (slot, millis) in [(0, 300), (1, 100), (2, 200)] {
        see(&mut account, slot, has(1), at(millis));
        see(
            &mut account,
            slot,
            Seen { assigned: 1, ..Seen { turns: 2, ..Seen::default() } },
            at(millis + 10),
        );
    }
    assert_eq!(account.take_surplus(at(5099)), None);
    assert_eq!(account.take_surplus(at(5100)), Some(1));
    assert!(!account.places[1].alive && account.state(1) == State::Leaving);
    assert_eq!(account.listening().collect::<Vec<_>>(), [0, 2]);
    assert_eq!(account.take_surplus(at(5300)), Some(2));
    assert_eq!(account.take_surplus(at(60_000)), None, "one is the floor");
    account.left(1);
    assert_eq!(account.vacancy(at(60_000)), Some(1));
}

#[test]
fn short_connection_between_two_reads_counts() {
    let mut account = account("p-min=1,initial=2,p-max=2,idle=5s");
    see(&mut account, 0, Seen { turns: 9, assigned: 1, ..Seen::default() }, at(4000));
    assert_eq!(account.take_surplus(at(5000)), Some(1));
}

#[test]
fn dead_worker_is_down_until_its_successor_begins() {
    let mut account = account("p-min=2,initial=2,p-max=2");
    account.died(0);
    account.died(0);
    assert!(account.state(0) == State::Down && !account.places[0].alive && account.another_is_alive(0));
    assert_eq!(account.vacancy(at(0)), None, "it comes back");
    account.started(0, false, at(100));
    assert_eq!(account.state(0), State::Starting);
    see(&mut account, 0, Seen { turns: 1, ..Seen::default() }, at(120));
    assert!(account.places[0].alive);
    account.died(1);
    account.died(0);
    assert!(!account.another_is_alive(1), "a queue has nowhere to go");
}

#[test]
fn a_worker_that_dies_while_it_leaves_is_not_replaced() {
    let mut account = account("p-min=1,initial=2,p-max=2,idle=5s");
    let slot = account.take_surplus(at(5000)).unwrap();
    account.died(slot);
    assert_eq!(account.state(slot), State::Vacant);
}

#[test]
fn full_workers_and_those_with_room_are_told_apart() {
    let mut account = account("c-max=2,p-min=2,initial=2,p-max=2");
    see(&mut account, 0, has(2), at(0));
    assert!(account.is_full(0) && account.another_has_room(0) && !account.is_full(1) && !account.is_idle());
    // A worker that its queue fills has no room either.
    see(&mut account, 1, Seen { open: 1, ..has(2) }, at(0));
    assert!(!account.is_full(1) && !account.another_has_room(0));
}

#[test]
fn missing_connections_are_recounted_after_a_second() {
    let mut account = account("p-min=1,initial=1,p-max=1");
    let ghosts = Seen { turns: 1, open: 0, connections: 3, assigned: 3 };
    assert_eq!(account.evaluate_reading(0, ghosts, || false, at(100)), (Sight::Nothing, true));
    assert_eq!(account.evaluate_reading(0, ghosts, || false, at(1099)), (Sight::Nothing, false));
    assert_eq!(see(&mut account, 0, ghosts, at(1100)), Sight::Ghosts);
    assert_eq!(see(&mut account, 0, ghosts, at(1120)), Sight::Nothing, "it was told");
    assert_eq!(see(&mut account, 0, Seen { turns: 2, connections: 0, ..ghosts }, at(1140)), Sight::Nothing);
    assert!(account.is_idle());
}
