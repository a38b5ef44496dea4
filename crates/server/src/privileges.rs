//! The time at a server's start in which its threads still have privileges.
//!
//! Owns the wait of every thread that serves, and its capabilities. Leaves out everything else that is given up, which
//! is `confinement`'s.
//!
//! Invariant: a server whose start fails serves no client. Its threads wait until the process ends.

use std::io;
use std::mem::ManuallyDrop;
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};

/// Held while this process opens what it needs with privileges that it will drop. True if its threads drop capabilities
/// then. Privileges are the process's, and so is this.
static OPENING: RwLock<bool> = RwLock::new(false);

/// The privileged time. Threads wait for [`Opening::end`], and for ever if this value is only dropped.
pub struct Opening(ManuallyDrop<RwLockWriteGuard<'static, bool>>);

impl Opening {
    /// Begins it.
    pub fn begin() -> Opening {
        Opening(ManuallyDrop::new(OPENING.write().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Ends it, and lets the threads go that wait. With `without_capabilities` each of them, and the calling one, drops
    /// its capabilities first.
    ///
    /// # Errors
    /// The kernel does not take the capabilities, which never happens.
    pub fn end(self, without_capabilities: bool) -> io::Result<()> {
        let Opening(mut drops) = self;
        if without_capabilities {
            confine::drop_capabilities()?;
        }
        **drops = without_capabilities;
        drop(ManuallyDrop::into_inner(drops));
        Ok(())
    }
}

/// Waits until this process has dropped its privileges, then drops the calling thread's capabilities. Blocks while a
/// server starts that is to be confined.
///
/// # Errors
/// As [`Opening::end`].
pub fn wait_until_confined() -> io::Result<()> {
    let drops = *OPENING.read().unwrap_or_else(PoisonError::into_inner);
    if drops { confine::drop_capabilities() } else { Ok(()) }
}
