//! Event dispatching: which descriptors are ready, by any mechanism, behind one contract.
//!
//! *Interest* is what was asked for, *readiness* is what is reported. A [`Dispatcher`] holds the
//! interest of every descriptor and reconciles it with its [`Mechanism`] just before it waits, so that a
//! descriptor costs at most one system call a turn however often its interest changed, and none where a
//! change was taken back or the descriptor was closed in between.
//!
//! ```text
//!     register / modify / deregister / closing          wait
//!                      |                                  |
//!              +-------v-------+   reconcile      +-------v-------+
//!              |  wanted       | ---------------> |  applied      |  the kernel's or the
//!              |  (this turn)  |  differences     |  (mechanism)  |  mechanism's own set
//!              +---------------+                  +---------------+
//! ```
//!
//! A [`Token`] carries a generation: an event of a past life of a descriptor number finds nothing in
//! the owner's table. Mechanisms *declare* what they can do ([`Capabilities`]); nobody outside this
//! crate asks which one it is.
//!
//! Owns interest, waiting and [`Timers`]. Does not own descriptors: whoever does says [`closing`] before
//! closing one.
//!
//! The modules: `dispatcher` keeps interest, `mechanism` has one file for each mechanism, `capabilities` says what
//! each can do, `locality` is the mechanism of Liu and Chen, and `timers` is a wheel of deadlines.
//!
//! [`closing`]: Dispatcher::closing
#![forbid(unsafe_code)]

pub mod capabilities;
mod dispatcher;
pub mod locality;
pub mod mechanism;
mod timers;

pub use capabilities::{Capabilities, Trigger};
pub use dispatcher::{Dispatcher, Reconciled};
pub use mechanism::{Mechanism, Settings, Statistics};
pub use timers::Timers;

use std::io;

use base::Key;

/// Names what a descriptor belongs to: 64 bits that come back with every event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub u64);

impl From<Key> for Token {
    fn from(key: Key) -> Token {
        Token(u64::from(key.generation) << 32 | u64::from(key.index))
    }
}

impl From<Token> for Key {
    fn from(token: Token) -> Key {
        Key { index: token.0 as u32, generation: (token.0 >> 32) as u32 }
    }
}

/// What is asked for, of one descriptor. Errors and hang-ups are always reported while there is any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Nothing, not even hang-ups: the descriptor stays known and costs nothing.
    None,
    /// To be able to read, or to accept.
    Read,
    /// To be able to write, or a connect to complete.
    Write,
    /// Either.
    Both,
}

impl Interest {
    /// Whether it includes reading.
    pub fn reads(self) -> bool {
        matches!(self, Interest::Read | Interest::Both)
    }

    /// Whether it includes writing.
    pub fn writes(self) -> bool {
        matches!(self, Interest::Write | Interest::Both)
    }
}

/// What is reported, of one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The token given with the interest.
    pub token: Token,
    /// A read would not block: there are bytes, a connection to accept, the end of the stream, or an error.
    pub readable: bool,
    /// A write would not block: there is room, the connect has completed, or there is an error.
    pub writable: bool,
    /// The descriptor has failed, or both directions are closed: reading or writing will tell.
    pub failed: bool,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// With events, or with none because the time was over.
    Ready,
    /// A signal came first: nothing was lost, wait again.
    Interrupted,
}

/// Makes an interruption an ordinary way for a wait to end.
fn unless_interrupted(waited: io::Result<usize>) -> io::Result<Option<usize>> {
    match waited {
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
        Err(error) => Err(error),
    }
}
