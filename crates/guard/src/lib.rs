//! Overload control for a listener that belongs to another program, which runs unchanged.
//!
//! ```text
//!                        ┌── program at the cgroup: requests, answers ──┐
//!   the server's sockets ┤                                              ├──> law ──> hook: which SYNs pass
//!                        └── sock_diag: the accept queue ───────────────┘   every 5 ms
//! ```
//!
//! Three parts: the signals say how much waits and how fast it is served, the law (`overload::ForeignControl`) decides,
//! and a hook refuses. [`Guard`] joins them for one listener and keeps up with a server that is restarted or reloaded.
//! [`survey`] looks at all listeners of the machine.
//!
//! The modules: `address` is what the user names, and `search` finds the listener there, its processes and its cgroup.
//! `queue` reads the accept queue. `attachment` chooses the parts in the kernel, and `sink` is the hook without BPF.
//! `starter` keeps the rights and attaches, for `session`, the guard itself, which may be another process and has the
//! `parts` alone. `confinement` takes its rights away. `status` has its figures, `survey` the list of all listeners, and
//! `error` the reasons why a listener cannot be guarded.
//!
//! Leaves out the law, the programs (`bpf`), printing, and serving the figures.
//!
//! Invariants: whatever fails, connections are admitted. The guard changes nothing of the server but, for a sink, the
//! listener's SO_REUSEPORT. It holds no descriptor of the server's.

#![forbid(unsafe_code)]

mod address;
mod attachment;
mod confinement;
mod error;
mod parts;
mod queue;
mod search;
mod session;
mod sink;
mod starter;
mod status;
pub mod survey;

pub use address::Address;
pub use attachment::{HookChoice, Refusal, SignalChoice, Wanted, probe};
pub use bpf::Exempt;
pub use confine::Rights;
pub use confinement::Confinement;
pub use error::GuardError;
pub use search::owner::Owner;
pub use search::target::{Place, Server};
pub use session::{Event, Guard, Settings};
pub use starter::Starter;
pub use status::Status;
