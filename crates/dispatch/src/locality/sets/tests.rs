use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Makes one call in which the given descriptors have events if their set is polled. Returns the reported
/// ones.
fn call(sets: &mut Sets, number: u64, with_events: &[RawFd]) -> Vec<RawFd> {
    let due = sets.due();
    let mut reported = Vec::new();
    let happened = |polled: &PollFd| i16::from(with_events.contains(&polled.fd()));
    sets.apply_rules((due, 1, Nanos::from_millis(number)), happened, |fd, _, _, _| reported.push(fd));
    reported
}

/// Asserts that the parts of the array agree.
fn consistent(sets: &Sets) {
    assert_eq!(sets.fds.len(), sets.members.len());
    assert_eq!(sets.ends.last(), Some(&sets.fds.len()));
    assert!(sets.ends.is_sorted());
    for (place, polled) in sets.fds.iter().enumerate() {
        assert_eq!(sets.place(polled.fd()), Some(place));
    }
    let known = sets.places.iter().filter(|place| **place != ABSENT).count();
    assert_eq!(known, sets.fds.len());
}

#[test]
fn each_set_is_polled_by_its_frequency() {
    let due_of = |mut sets: Sets, calls: u64| -> Vec<usize> {
        let one = |number| {
            let due = sets.due();
            call(&mut sets, number, &[]);
            due
        };
        (1..=calls).map(one).collect()
    };
    assert_eq!(due_of(Sets::new(3, 3), 18), [1, 1, 2, 1, 1, 2, 1, 1, 3, 1, 1, 2, 1, 1, 2, 1, 1, 3]);
    assert_eq!(due_of(Sets::new(1, 3), 9), [1; 9]);
    assert_eq!(due_of(Sets::new(4, 2), 8), [1, 2, 1, 3, 1, 2, 1, 4]);
}

#[test]
fn a_poll_of_every_set_begins_the_frequencies_anew() {
    let mut sets = Sets::new(3, 3);
    (1..=2).for_each(|number| drop(call(&mut sets, number, &[])));
    assert_eq!((sets.due(), sets.until_due()), (2, 0));
    sets.apply_rules((3, 1, Nanos::from_millis(3)), |_| 0, |_, _, _, _| ());
    assert_eq!((sets.due(), sets.until_due()), (1, 2));
}

#[test]
fn silent_member_falls_after_n_1_then_n2_n_calls() {
    for n in [2, 3, 5, 10] {
        let mut sets = Sets::new(3, n);
        let n = u64::from(n);
        // A member enters a set at a poll of that set, so whole periods pass.
        sets.insert(7, 1, Member::new(0, false, Nanos::ZERO));
        for number in 1..n - 1 {
            call(&mut sets, number, &[]);
            assert_eq!(sets.set_of_member(7), 0, "N = {n}, call {number}");
        }
        call(&mut sets, n - 1, &[]);
        assert_eq!(sets.set_of_member(7), 1, "N = {n}");
        for number in n..n * n - n {
            call(&mut sets, number, &[]);
            assert_eq!(sets.set_of_member(7), 1, "N = {n}, call {number}");
        }
        call(&mut sets, n * n - n, &[]);
        assert_eq!(sets.set_of_member(7), 2, "N = {n}");
    }
}

#[test]
fn member_rises_after_events_in_two_polls() {
    let mut sets = Sets::new(3, 3);
    sets.insert(7, 1, Member::new(0, false, Nanos::ZERO));
    let mut number = 0;
    let mut next = |sets: &mut Sets, events: &[RawFd]| {
        number += 1;
        call(sets, number, events)
    };
    (0..8).for_each(|_| drop(next(&mut sets, &[])));
    assert_eq!(sets.set_of_member(7), 2);
    // The idle set is polled by calls 9, 18, 27, 36.
    assert_eq!(next(&mut sets, &[7]), [7]);
    (0..8).for_each(|_| assert!(next(&mut sets, &[7]).is_empty()));
    assert_eq!(sets.set_of_member(7), 2);
    assert!(next(&mut sets, &[]).is_empty());
    (0..8).for_each(|_| drop(next(&mut sets, &[])));
    assert_eq!(next(&mut sets, &[7]), [7]);
    assert_eq!(sets.set_of_member(7), 2, "the poll before found nothing");
    (0..8).for_each(|_| drop(next(&mut sets, &[])));
    assert_eq!(next(&mut sets, &[7]), [7]);
    assert_eq!(sets.set_of_member(7), 0, "two in a row");
}

#[test]
fn an_event_within_the_horizon_brings_it_up_by_itself() {
    let mut sets = Sets::new(3, 3);
    sets.insert(7, 1, Member::new(0, false, Nanos::ZERO));
    sets.insert(8, 1, Member::new(0, false, Nanos::ZERO));
    sets.tune(3, Nanos::from_millis(20));
    // A call takes a millisecond; the idle set is polled by calls 9, 18, 27, ...
    let mut found = Vec::new();
    for number in 1..=36 {
        let with_events: &[RawFd] = if number % 18 == 0 { &[7] } else { &[] };
        found.extend(call(&mut sets, number, with_events));
        if number == 27 {
            assert_eq!(sets.set_of_member(7), 2, "it came up with the first event, and fell again");
        }
    }
    let happened = |polled: &PollFd| i16::from(polled.fd() == 8);
    sets.apply_rules((3, 1, Nanos::from_millis(37)), happened, |fd, _, _, _| found.push(fd));
    assert_eq!((found, sets.set_of_member(7), sets.set_of_member(8)), (vec![7, 7, 8], 0, 2));
}

#[test]
fn first_sets_hold_all_members_until_one_falls() {
    let mut sets = Sets::new(3, 3);
    assert!(sets.are_all(1), "there is none");
    sets.insert(7, 1, Member::new(0, false, Nanos::ZERO));
    assert!(sets.are_all(1));
    call(&mut sets, 1, &[]);
    call(&mut sets, 2, &[]);
    assert_eq!(sets.set_of_member(7), 1);
    assert_eq!([1, 2, 3].map(|first| sets.are_all(first)), [false, true, true]);
}

#[test]
fn a_locked_descriptor_stays_active() {
    let mut sets = Sets::new(3, 3);
    sets.insert(7, 1, Member::new(0, true, Nanos::ZERO));
    (1..100).for_each(|number| drop(call(&mut sets, number, &[])));
    assert_eq!(sets.set_of_member(7), 0);
}

/// The rules in their plainest form, for one descriptor.
#[derive(Clone, Copy, Debug)]
struct Plain {
    set: u32,
    quiet_polls: u64,
    event_before: bool,
}

impl Plain {
    fn call(&mut self, number: u64, n: u64, event: bool) {
        if !number.is_multiple_of(n.pow(self.set)) {
            return;
        }
        if event {
            if self.set > 0 && self.event_before {
                *self = Plain { set: 0, quiet_polls: 0, event_before: false };
                return;
            }
            (self.quiet_polls, self.event_before) = (0, true);
            return;
        }
        self.quiet_polls += 1;
        self.event_before = false;
        if self.quiet_polls >= n - 1 && self.set < 2 {
            *self = Plain { set: self.set + 1, quiet_polls: 0, event_before: false };
        }
    }
}

proptest! {
    #[test]
    fn many_descriptors_follow_the_plain_rules(
        n in 2_u32..6,
        calls in prop::collection::vec((prop::collection::vec(0_i32..8, 0..4), prop::option::of(0_i32..8)), 1..150),
    ) {
        let mut sets = Sets::new(3, n);
        let mut plain = BTreeMap::new();
        for (number, (with_events, changed)) in calls.into_iter().enumerate() {
            let number = number as u64 + 1;
            // A descriptor comes or goes.
            if let Some(fd) = changed {
                if plain.remove(&fd).is_some() {
                    prop_assert_eq!(sets.remove(fd).map(|member| member.payload), Some(fd as u64));
                } else {
                    sets.insert(fd, 1, Member::new(fd as u64, false, Nanos::ZERO));
                    plain.insert(fd, Plain { set: 0, quiet_polls: 0, event_before: false });
                }
            }
            call(&mut sets, number, &with_events);
            consistent(&sets);
            for (fd, rules) in &mut plain {
                rules.call(number, u64::from(n), with_events.contains(fd));
                prop_assert_eq!(sets.set_of_member(*fd), rules.set as usize, "descriptor {}", fd);
            }
        }
    }
}

#[test]
fn counter_moves_member_by_silences_and_events() {
    let mut sets = Sets::new(2, 3);
    sets.rule = Rule::Counter;
    sets.insert(7, 1, Member::new(0, false, Nanos::ZERO));
    let mut number = 0;
    // The set after each call in which the descriptor has an event (1) or none (0), if its set is polled.
    let mut sets_after = |events: &[u8]| -> Vec<usize> {
        let one = |event: &u8| {
            number += 1;
            sets.apply_rules((2, 1, Nanos::from_millis(number)), |_| i16::from(*event == 1), |_, _, _, _| ());
            consistent(&sets);
            sets.set_of_member(7)
        };
        events.iter().map(one).collect()
    };
    // Events of an active descriptor do not delay its fall beyond N silences; an event between them delays it by one.
    assert_eq!(sets_after(&[1, 1, 1, 0, 0, 1, 0, 0]), [0, 0, 0, 0, 0, 0, 0, 1]);
    // A silence takes back an event, unlike the rule of two consecutive polls.
    assert_eq!(sets_after(&[1, 0, 1, 1]), [1, 1, 1, 0]);
}
