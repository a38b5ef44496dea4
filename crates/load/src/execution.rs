//! The execution of a plan: the threads, processes and machines that carry it out together.
//!
//! Leaves out the work of one thread, which is the engine's, and the judgement of the result.
//!
//! The modules, from the bottom up: `stop` ends a run early, `threads` runs one engine each, `run` starts all threads of one
//! process. `protocol` has the messages between processes. `s_client_pair` is a run by an establisher and a handler,
//! `processes` a run in any number of processes, and `agents` one machine's share of a fleet's run. `calibrate` searches
//! the highest rate at which the generator itself is not a limit.

pub(crate) mod agents;
pub mod calibrate;
pub(crate) mod processes;
pub(crate) mod protocol;
pub(crate) mod run;
mod s_client_pair;
pub(crate) mod stop;
mod threads;
