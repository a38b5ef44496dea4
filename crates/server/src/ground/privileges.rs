//! The time at a server's start in which its threads still have privileges.
//!
//! Owns the wait of every serving thread, and the drop of its capabilities. `confinement` owns everything else that
//! the server gives up.
//!
//! Invariant: a server whose start fails serves no client. Its threads wait until the process ends.

use std::io;
use std::mem::ManuallyDrop;
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};

/// Locked for writing while this process opens its resources with privileges that it will drop. The value is true if
/// its threads drop their capabilities afterwards. Global, because privileges belong to the process.
static OPENING: RwLock<bool> = RwLock::new(false);

/// The privileged time. Threads wait for [`Opening::end`], and for ever if this value is only dropped.
pub struct Opening(ManuallyDrop<RwLockWriteGuard<'static, bool>>);

impl Opening {
    /// Begins the privileged time.
    pub fn begin() -> Opening {
        Opening(ManuallyDrop::new(OPENING.write().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Ends the privileged time and releases the waiting threads. With `without_capabilities`, each of them and the
    /// calling thread drop their capabilities first.
    ///
    /// # Errors
    /// The kernel rejects the change of capabilities, which never happens.
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
/// confined server starts.
///
/// # Errors
/// As [`Opening::end`].
pub fn wait_until_confined() -> io::Result<()> {
    let drops = *OPENING.read().unwrap_or_else(PoisonError::into_inner);
    if drops { confine::drop_capabilities() } else { Ok(()) }
}
