//! The choice of the driver of event loops: by the settings, or else by what the kernel allows.
//!
//! Owns the choice, which is made once, before the server gives up rights: the confinement keeps io_uring only for a
//! server that uses it. A worker process tries the same kernel again.

use std::fmt;
use std::io;

use sys::completion::CompletionRing;

use crate::config::serve::ServeConfig;
use crate::ground::choices::Driver;

/// The driver of a server, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenDriver {
    /// The driver.
    pub driver: Driver,
    reason: Reason,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Reason {
    /// This setting selects it.
    Setting(String),
    /// No setting selects one, and the kernel allows io_uring.
    Allowed,
    /// No setting selects one, and the kernel refuses io_uring.
    Refused(String),
    /// A setting selects completion, and the kernel refuses io_uring.
    Replaced { setting: String, error: String },
}

impl ChosenDriver {
    /// Chooses by the settings, or else by an attempt to make a ring.
    pub fn of(config: &ServeConfig) -> ChosenDriver {
        let (driver, reason) = match config.selected_driver() {
            Some((Driver::Readiness, setting)) => (Driver::Readiness, Reason::Setting(setting)),
            selected => match (try_completions(), selected) {
                (Ok(()), None) => (Driver::Completion, Reason::Allowed),
                (Ok(()), Some((driver, setting))) => (driver, Reason::Setting(setting)),
                (Err(error), None) => (Driver::Readiness, Reason::Refused(error.to_string())),
                (Err(error), Some((_, setting))) => {
                    (Driver::Readiness, Reason::Replaced { setting, error: error.to_string() })
                }
            },
        };
        ChosenDriver { driver, reason }
    }
}

impl fmt::Display for ChosenDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, ", self.driver)?;
        match &self.reason {
            Reason::Setting(setting) => write!(f, "by {setting}"),
            Reason::Allowed => f.write_str("because the kernel allows io_uring"),
            Reason::Refused(error) => write!(f, "because io_uring is not available here ({error})"),
            Reason::Replaced { setting, error } => {
                write!(f, "because {setting} needs io_uring of Linux 6.1 ({error})")
            }
        }
    }
}

/// Makes a ring, as a completion loop does. Closing a ring interrupts a blocking call of the thread that made it, so
/// a short-lived thread makes this one.
fn try_completions() -> io::Result<()> {
    let tried = std::thread::spawn(|| CompletionRing::new().map(drop)).join();
    tried.unwrap_or_else(|_| Err(io::Error::other("the attempt to make a ring failed")))
}
