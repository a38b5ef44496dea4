//! Worker processes: this program started again, supervised, and instructed by its parent.
//!
//! ```text
//!   parent, in one thread                            worker (a process, named in ps)
//!     Fleet ──start──> argv "inrush: mp", "worker", "3"; its standard input is the control socket
//!       | <─── control socket: messages with descriptors ───>  Control      |
//!       |       start: configuration, scoreboard, limit, what it inherits   |
//!       |       drain; changed configuration; the architecture's own        |
//!       | <─── shared memory: counters and words of the architecture ─── Slot
//!       └──── pidfd: a death is counted, logged, and another is started after a delay that grows
//! ```
//!
//! An architecture's `start` makes a [`Fleet`] in a thread that stays, because the kernel kills workers when the
//! *thread* that started them ends. The fleet starts workers in numbered places. The thread watches
//! [`Fleet::ready`] for reading, among other descriptors. It calls [`Fleet::handle_events`] when that is readable and
//! when [`Fleet::due`] has come. It hands out [`Fleet::board`] as the counters of all workers. In the worker, the
//! architecture's `work` gets a [`Worker`]. It holds a `Plan` of the same configuration, the control socket, and
//! the descriptors from the fleet. A worker without other sources of messages leaves its control socket to
//! [`Worker::obey`].
//!
//! A worker gets the effective configuration as text, in a memfd, and not the names of files. So a worker that is
//! started later has the same configuration as the others. It is started from the running file (`/proc/self/exe`), so
//! that a replaced program does not mix its versions.
//!
//! Owns starting, ending, counting and talking. Does not interpret an architecture's messages, which are bytes and
//! descriptors, or choose the number of workers.
//!
//! Invariants: no worker outlives its parent: the kernel's signal ends it, or the end of its control socket if the
//! signal was lost. A place has one worker at most, so that each word of shared memory has one writer. The counts of
//! a dead worker stay counted.

mod control;
mod fleet;
mod reclaim;
mod worker;

pub use control::{Changed, Control, Heard, Message, Sent};
pub use fleet::{Event, Fleet, Role};
pub use reclaim::Reclaims;
pub use worker::{Parse, Work, Worker, orphaned, run};
