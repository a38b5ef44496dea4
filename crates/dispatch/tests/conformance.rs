//! The contract of event dispatching, for every mechanism, on real descriptors.
//!
//! A case is a function that is generic in the mechanism. Each mechanism runs the case in a thread named
//! after it. A failure then names its mechanism, and state that a mechanism keeps per thread does not leak. A
//! case may assume only the contract. A report may come in a later wait or more than once, and an edge may be
//! reported without need. But every ready descriptor is reported within [`bench::ROUNDS`] waits.

#[path = "conformance/bench.rs"]
mod bench;
#[path = "conformance/cases.rs"]
mod cases;
#[path = "conformance/endings.rs"]
mod endings;
#[path = "conformance/model.rs"]
mod model;
#[path = "conformance/reconciliation.rs"]
mod reconciliation;

use std::io;
use std::os::fd::RawFd;

use base::Nanos;
use dispatch::mechanism::{Change, RtFetch, RtSignals};
use dispatch::{Capabilities, Event, Mechanism, Waited};

/// Makes one test for each case, over all mechanisms.
macro_rules! conformance {
    ($($module:ident: $($case:ident,)*;)*) => {
        struct Cases {
            $($($case: fn(),)*)*
        }

        impl Cases {
            fn of<M: Mechanism>() -> Cases {
                Cases { $($($case: $module::$case::<M>,)*)* }
            }
        }

        $($(
            #[test]
            fn $case() {
                for (name, cases) in all() {
                    run(name, cases.$case);
                }
            }
        )*)*
    };
}

conformance! {
    cases:
        what_was_ready_before_it_was_registered_is_reported,
        what_becomes_ready_later_is_reported,
        registering_twice_changes_token_and_interest,
        modifying_changes_the_interest,
        an_unknown_descriptor_is_neither_modified_nor_forgotten,
        a_deregistered_descriptor_is_silent,
        without_interest_it_is_silent_until_there_is_some_again,
        a_level_is_reported_until_drained_and_an_edge_with_every_change,
        pipes_and_counters_are_watched_too,
        a_zero_timeout_returns_at_once,
        a_short_timeout_ends_not_before_its_time,
        without_a_timeout_the_wait_ends_with_an_event,
        a_signal_interrupts_and_nothing_is_lost,
        five_thousand_descriptors_are_all_reported,;
    endings:
        a_pending_event_of_a_closed_descriptor_is_not_reported,
        a_number_used_again_at_once_has_a_new_life,
        closing_a_descriptor_that_is_watched_ends_the_connection,
        shared_listener_is_silent_after_its_close,
        a_hang_up_is_readable,
        a_half_close_is_readable_and_the_other_half_still_works,
        a_reset_is_reported,
        a_refused_connect_is_reported,
        a_connect_that_completes_is_writable,
        a_listener_reports_connections,;
    reconciliation:
        a_descriptor_is_updated_at_most_once_a_turn,
        a_change_that_is_taken_back_is_not_carried_out,
        closing_is_never_an_update,
        a_number_closed_and_used_again_in_a_turn_is_one_update,;
    model:
        random_operations_agree_with_a_model,;
}

fn all() -> Vec<(&'static str, Cases)> {
    macro_rules! of_each {
        ($($name:literal => $mechanism:ty,)*) => { vec![$(($name, Cases::of::<$mechanism>()),)*] };
    }
    let mut all = dispatch::for_each_mechanism!(of_each);
    all.push(("rt-signals, one a call", Cases::of::<OneACall>()));
    all
}

/// A mechanism with other settings than those of its own `new`.
struct OneACall(RtSignals);

impl Mechanism for OneACall {
    const CAPABILITIES: Capabilities = RtSignals::CAPABILITIES;

    fn new() -> io::Result<OneACall> {
        RtSignals::with(RtFetch::One).map(OneACall)
    }

    fn update(&mut self, change: Change) -> io::Result<()> {
        self.0.update(change)
    }

    fn closing(&mut self, fd: RawFd) {
        self.0.closing(fd);
    }

    fn wait(&mut self, events: &mut Vec<Event>, timeout: Option<Nanos>) -> io::Result<Waited> {
        self.0.wait(events, timeout)
    }
}

fn run(name: &str, case: fn()) {
    let thread = std::thread::Builder::new().name(name.to_owned());
    let outcome = thread.spawn(case).expect("a thread").join();
    if let Err(panic) = outcome {
        eprintln!("the mechanism was {name}");
        std::panic::resume_unwind(panic);
    }
}
