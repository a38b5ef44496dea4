//! Worker processes: our own program started again, supervised, and told what to do.
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
//! How an architecture uses it: its `start` makes a [`Fleet`] in a thread that stays - the kernel kills workers
//! when the *thread* that started them ends - and has it start workers in numbered places. That thread watches
//! [`Fleet::ready`] for reading, among whatever else it waits for, and calls [`Fleet::attend`] then and
//! when [`Fleet::due`] has come. It hands out [`Fleet::board`] as the counters of all workers. Its `work` is
//! called in the worker with a [`Worker`]: a whole `Plan` of the same configuration, the control socket, and
//! the descriptors that the fleet was given to be inherited. A worker that has nothing else to listen for
//! leaves its control socket to [`Worker::obey`].
//!
//! A worker is given the effective configuration as text, in a memfd, and not the names of files: one that
//! is started later has the same as the others. It is started from the very file that runs (`/proc/self/exe`),
//! so that a replaced program does not mix its versions.
//!
//! Owns starting, ending, counting and talking. Does not know what is said (an architecture's messages are
//! bytes and descriptors) or how many workers there should be.
//!
//! Invariants: no worker outlives its parent, by the kernel's signal and, where that was lost, by the end of its
//! control socket; a place has one worker at most, so that each word of shared memory has one writer; what a
//! dead worker counted stays counted.

mod control;
mod fleet;
mod reclaim;
mod scoreboard;
mod text;
mod worker;

pub use control::{Changed, Control, Heard, Message, Sent};
pub use fleet::{Event, Fleet, Role};
pub use reclaim::Reclaims;
pub use scoreboard::{IDLE_FROM, Slot};
pub use text::ConfigText;
pub use worker::{Parse, Worker, orphaned, run};
