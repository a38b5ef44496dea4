//! The mutex and the wait queue under a model checker, as `words/tests/models.rs` has the other protocols.

mod models {
    mod mutex;
    mod queue;
    #[path = "../../../words/tests/models/word.rs"]
    mod word;
}
