//! Event dispatching: readiness of many descriptors, by any mechanism, behind one contract.
//!
//! *Interest* is the readiness that a caller asks for; *readiness* is the state that a mechanism reports. A
//! [`Dispatcher`] holds the interest of every descriptor and reconciles it with its [`Mechanism`] just before
//! it waits. A descriptor therefore costs at most one system call a turn, however often its interest changed.
//! It costs none if the change was taken back or the descriptor was closed before the wait.
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
//! A [`Token`] carries a generation, so an event of a descriptor number's past life finds nothing in the
//! owner's table. Mechanisms *declare* their [`Capabilities`]; no code outside this crate asks which
//! mechanism it has.
//!
//! ```
//! use std::io::Write;
//! use std::os::fd::AsFd;
//!
//! use dispatch::mechanism::Poll;
//! use dispatch::{Dispatcher, Interest, Token};
//!
//! let (reader, mut writer) = std::io::pipe()?;
//! // Another mechanism is another type here, and changes nothing below.
//! let mut dispatcher = Dispatcher::<Poll>::new()?;
//! dispatcher.register(reader.as_fd(), Token(7), Interest::Read);
//! writer.write_all(b"x")?;
//! let mut events = Vec::new();
//! dispatcher.wait(&mut events, None)?;
//! assert!(events[0].token == Token(7) && events[0].readable);
//! dispatcher.closing(reader.as_fd());
//! # Ok::<_, std::io::Error>(())
//! ```
//!
//! Owns interest, waiting and [`Timers`]. Does not own descriptors: their owner calls [`closing`] before it
//! closes one, or [`closing_shared`] if others may have the same file open.
//!
//! The modules: `dispatcher` keeps interest. `mechanism` has one file for each mechanism, `capabilities`
//! their properties, and `table` compares them. `locality` is the mechanism of Liu and Chen. `spin` is
//! a wait that does not block, and `patience` a timeout over several calls. `timers` is a wheel of deadlines.
//! `wait_settings` has the settings of a wait that spins.
//!
//! [`closing`]: Dispatcher::closing
//! [`closing_shared`]: Dispatcher::closing_shared
#![forbid(unsafe_code)]

pub mod capabilities;
mod dispatcher;
pub mod locality;
pub mod mechanism;
mod patience;
mod spin;
pub mod table;
mod timers;
mod wait_settings;

pub use capabilities::{Capabilities, Trigger};
pub use dispatcher::{Dispatcher, Reconciled};
pub use mechanism::{Mechanism, MechanismCounts};
pub use timers::Timers;
pub use wait_settings::spins;

use std::io;

use base::Key;

/// Names the owner of a descriptor: 64 bits that come back with every event.
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

/// The readiness that is asked for of one descriptor. Any interest but `None` includes errors and hang-ups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// No events, not even hang-ups. The descriptor stays known and costs nothing.
    None,
    /// Readable, or a connection to accept.
    Read,
    /// Writable, or a connect completed.
    Write,
    /// Readable or writable.
    Both,
}

impl Interest {
    /// True if the interest includes reading.
    pub fn reads(self) -> bool {
        matches!(self, Interest::Read | Interest::Both)
    }

    /// True if the interest includes writing.
    pub fn writes(self) -> bool {
        matches!(self, Interest::Write | Interest::Both)
    }
}

/// The readiness that is reported of one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The token given with the interest.
    pub token: Token,
    /// A read would not block: there are bytes, a connection to accept, the end of the stream, or an error.
    pub readable: bool,
    /// A write would not block: there is room, the connect has completed, or there is an error.
    pub writable: bool,
    /// The descriptor has failed, or both directions are closed. Reading or writing returns the cause.
    pub failed: bool,
}

/// The reason why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// Events came, or the timeout passed.
    Ready,
    /// Events came, and the kernel may have more: there was no room for them, or they are fetched one at a time.
    More,
    /// A signal arrived first. No event is lost; wait again.
    Interrupted,
}

/// Turns an interruption by a signal from an error into `None`.
fn unless_interrupted(waited: io::Result<usize>) -> io::Result<Option<usize>> {
    match waited {
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
        Err(error) => Err(error),
    }
}
