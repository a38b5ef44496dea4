//! The cost of changes of interest, as the dispatcher counts it, for every mechanism.

use std::os::fd::AsFd;

use dispatch::{Interest, Mechanism, Reconciled};

use crate::bench::{Bench, pair, send};

pub fn a_descriptor_is_updated_at_most_once_a_turn<M: Mechanism>() {
    let mut bench = Bench::<M>::new();
    let (ours, _peer) = pair();
    bench.register(&ours, 1, Interest::Read);
    bench.dispatcher.modify(ours.as_fd(), Interest::Both);
    bench.dispatcher.modify(ours.as_fd(), Interest::Write);
    bench.register(&ours, 2, Interest::Both);
    assert!(bench.report_of(2).writable);
    assert_eq!(bench.dispatcher.reconciled(), Reconciled { applied: 1, taken_back: 0 });

    for interest in [Interest::Read, Interest::None, Interest::Write, Interest::Read] {
        bench.dispatcher.modify(ours.as_fd(), interest);
    }
    bench.silent();
    assert_eq!(bench.dispatcher.reconciled(), Reconciled { applied: 2, taken_back: 0 });
}

pub fn a_change_that_is_taken_back_is_not_carried_out<M: Mechanism>() {
    let mut bench = Bench::<M>::new();
    let (ours, peer) = pair();
    bench.register(&ours, 1, Interest::Read);
    bench.silent();
    bench.dispatcher.modify(ours.as_fd(), Interest::Write);
    bench.dispatcher.modify(ours.as_fd(), Interest::Read);
    bench.silent();
    assert_eq!(bench.dispatcher.reconciled(), Reconciled { applied: 1, taken_back: 1 });

    bench.dispatcher.deregister(ours.as_fd());
    bench.register(&ours, 1, Interest::Read);
    send(&peer, b"x");
    bench.report_of(1);
    assert_eq!(bench.dispatcher.reconciled(), Reconciled { applied: 1, taken_back: 2 });

    // The same interest again is not a change.
    bench.dispatcher.modify(ours.as_fd(), Interest::Read);
    bench.report_of_if_level();
    assert_eq!(bench.dispatcher.reconciled(), Reconciled { applied: 1, taken_back: 2 });
}

impl<M: Mechanism> Bench<M> {
    fn report_of_if_level(&mut self) {
        assert!(Self::is_edge() || !self.reports().is_empty());
    }
}

pub fn closing_is_never_an_update<M: Mechanism>() {
    let mut bench = Bench::<M>::new();
    let (known, _known_peer) = pair();
    bench.register(&known, 1, Interest::Read);
    bench.silent();
    assert_eq!(bench.dispatcher.reconciled().applied, 1);
    bench.dispatcher.modify(known.as_fd(), Interest::Both);
    bench.dispatcher.closing(known.as_fd());
    drop(known);

    let (fresh, _fresh_peer) = pair();
    bench.register(&fresh, 2, Interest::Both);
    bench.dispatcher.closing(fresh.as_fd());
    drop(fresh);
    bench.silent();
    assert_eq!(bench.dispatcher.reconciled().applied, 1);
}

pub fn a_number_closed_and_used_again_in_a_turn_is_one_update<M: Mechanism>() {
    let mut bench = Bench::<M>::new();
    let (mut ours, _peer) = pair();
    bench.register(&ours, 1, Interest::Read);
    bench.silent();
    let (fresh, fresh_peer) = pair();
    bench.dispatcher.closing(ours.as_fd());
    rustix::io::dup2(&fresh, &mut ours).unwrap();
    drop(fresh);
    bench.register(&ours, 2, Interest::Read);
    send(&fresh_peer, b"x");
    assert!(bench.report_of(2).readable);
    assert_eq!(bench.dispatcher.reconciled(), Reconciled { applied: 2, taken_back: 0 });
}
