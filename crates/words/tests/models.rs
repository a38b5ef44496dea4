//! The protocols of shared memory under a model checker, which tries each order of a few tasks' steps and each value
//! that the memory model lets a load return. Crate `wake` has those of its mutex and its wait queue.
//!
//! Beside each protocol a fault of its words is tried, and the model must find it: a check that cannot fail proves
//! nothing. The tasks are few and their preemptions bounded, so that each model ends within seconds.

mod models {
    mod bell;
    mod claims;
    mod limit;
    mod received;
    mod version;
    mod word;
}
