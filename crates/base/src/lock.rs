//! The lock of a mutex whose data stay valid if a thread panics while it holds it.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, even one that a panic has poisoned.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
