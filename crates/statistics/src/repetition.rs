//! The repetition as the unit: its measurements at several places, and the order in which they are made.
//!
//! Measurements of one repetition at several places share the state of the machine, and the places differ among
//! themselves. They count as one measurement of the whole. A repetition counts only if it has a value at every place at
//! which any repetition looked for one: without a place, its mean would be that of other places.

use std::collections::{BTreeMap, BTreeSet};

use base::Rng;
use rand::seq::SliceRandom;

/// Returns the measurements of each complete repetition, in order of the repetitions and then of the places. `None` is a
/// measurement that failed.
pub fn complete<P: Ord, T>(measurements: impl IntoIterator<Item = (u32, P, Option<T>)>) -> Vec<Vec<T>> {
    let mut repetitions: BTreeMap<u32, BTreeMap<P, Option<T>>> = BTreeMap::new();
    for (repeat, place, value) in measurements {
        repetitions.entry(repeat).or_default().insert(place, value);
    }
    let places = repetitions.values().flat_map(BTreeMap::keys).collect::<BTreeSet<&P>>().len();
    let whole = repetitions.into_values().filter(|found| found.len() == places);
    whole.filter_map(|found| found.into_values().collect()).collect()
}

/// Returns the order of all measurements, with their repetition from 0. The items of a group are compared with
/// each other: they are neighbours. Groups, and the items of each, are in random order. Every second repetition
/// has the order of the one before, reversed (A B B A): a steady drift then shifts all items alike.
pub fn mirrored<T: Clone>(groups: &[Vec<T>], repetitions: u32, rng: &mut Rng) -> Vec<(u32, T)> {
    let mut all = Vec::new();
    let mut round: Vec<T> = Vec::new();
    for repeat in 0..repetitions {
        if repeat % 2 == 1 {
            round.reverse();
        } else {
            let mut groups = groups.to_vec();
            groups.iter_mut().for_each(|group| group.shuffle(rng));
            groups.shuffle(rng);
            round = groups.concat();
        }
        all.extend(round.iter().map(|item| (repeat, item.clone())));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Seed;
    use proptest::prelude::*;

    #[test]
    fn a_repetition_without_a_place_does_not_count() {
        let measured = [(1, "b", 4), (0, "a", 1), (0, "b", 2), (1, "a", 3), (2, "a", 5), (3, "a", 6)];
        let measured = measured.map(|(repeat, place, value)| (repeat, place, Some(value)));
        assert_eq!(complete(measured.into_iter().chain([(3, "b", None)])), [[1, 2], [3, 4]]);
        assert!(complete::<u8, u8>([]).is_empty());
    }

    #[test]
    fn place_failing_everywhere_leaves_no_repetition() {
        let found = complete((0..3).flat_map(|repeat| [(repeat, "a", Some(1)), (repeat, "b", None)]));
        assert!(found.is_empty());
    }

    #[test]
    fn each_group_and_each_item_comes_first_at_times() {
        let groups = [0, 1, 2].map(|group| [0, 1, 2].map(|item| (group, item)).to_vec());
        let (mut first_groups, mut first_items) = ([0; 3], [[0; 3]; 3]);
        for seed in 0..100 {
            let order = mirrored(&groups, 1, &mut Seed(seed).rng());
            first_groups[order[0].1.0] += 1;
            for of_group in order.chunks(3) {
                let (_, (group, item)) = of_group[0];
                first_items[group][item] += 1;
            }
        }
        for times in first_items.as_flattened().iter().chain(&first_groups) {
            assert!(*times >= 15, "{first_groups:?} {first_items:?}");
        }
    }

    proptest! {
        #[test]
        fn mirrored_order_has_each_item_and_an_even_drift(
            sizes in prop::collection::vec(1..5_usize, 1..6), pairs in 1..4_u32, seed: u64,
        ) {
            let group = |(group, size): (usize, &usize)| (0..*size).map(|item| (group, item)).collect();
            let groups: Vec<Vec<(usize, usize)>> = sizes.iter().enumerate().map(group).collect();
            let count = groups.concat().len();
            let order = mirrored(&groups, 2 * pairs, &mut Seed(seed).rng());
            prop_assert_eq!(&order, &mirrored(&groups, 2 * pairs, &mut Seed(seed).rng()));
            for (repeat, round) in order.chunks(count).enumerate() {
                prop_assert!(round.iter().all(|(of, _)| *of == repeat as u32));
                let changes = round.windows(2).filter(|pair| pair[0].1.0 != pair[1].1.0).count();
                prop_assert_eq!(changes + 1, groups.len());
            }
            for both in order.chunks(2 * count) {
                for item in groups.concat() {
                    let sum: usize = both.iter().enumerate().filter(|(_, (_, one))| *one == item).map(|(at, _)| at).sum();
                    prop_assert_eq!(sum, 2 * count - 1);
                }
            }
        }
    }
}
