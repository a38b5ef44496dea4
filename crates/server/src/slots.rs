//! The connection limit of threads that accept side by side.
//!
//! A [`Slot`] is the right to have one connection open. It is taken before the accept and given back when
//! it is dropped, however its connection ends.
//!
//! Invariant: never more slots than the limit, but for connections that others have accepted.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// So many connections at once, for everybody who shares this.
#[derive(Debug)]
pub struct Slots {
    most: usize,
    taken: Mutex<usize>,
    given_back: Condvar,
}

/// The right to have one connection open.
#[derive(Debug)]
pub struct Slot(Arc<Slots>);

impl Slots {
    /// A limit that nobody has used any of.
    pub fn new(most: usize) -> Arc<Slots> {
        Arc::new(Slots { most, taken: Mutex::new(0), given_back: Condvar::new() })
    }

    /// A slot, if there is one left.
    pub fn take(self: &Arc<Slots>) -> Option<Slot> {
        let mut taken = self.lock();
        (*taken < self.most).then(|| {
            *taken += 1;
            Slot(Arc::clone(self))
        })
    }

    /// A slot for a connection that is open already, whatever the limit.
    pub fn take_beyond(self: &Arc<Slots>) -> Slot {
        *self.lock() += 1;
        Slot(Arc::clone(self))
    }

    /// Whether one is left.
    pub fn any_left(&self) -> bool {
        *self.lock() < self.most
    }

    /// How many are taken.
    pub fn taken(&self) -> usize {
        *self.lock()
    }

    /// Sleeps until a slot is left, or `given_up` says to wait no longer, which is asked after each
    /// [`Slots::wake_all`] too. Blocks.
    pub fn wait(&self, given_up: impl Fn() -> bool) {
        let full = |taken: &mut usize| *taken >= self.most && !given_up();
        drop(self.given_back.wait_while(self.lock(), full));
    }

    /// Has everybody who waits look again.
    pub fn wake_all(&self) {
        // Under the lock nobody is between looking and sleeping.
        let _taken = self.lock();
        self.given_back.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
        self.0.given_back.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn so_many_and_no_more() {
        let slots = Slots::new(2);
        let first = slots.take().unwrap();
        let _second = slots.take().unwrap();
        assert!(slots.take().is_none());
        drop(first);
        assert!(slots.take().is_some());
        assert_eq!(slots.taken(), 1);
    }

    #[test]
    fn who_waits_is_woken_by_a_slot_and_by_giving_up() {
        let slots = Slots::new(1);
        let slot = slots.take().unwrap();
        let given_up = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| slots.wait(|| false));
            drop(slot);
            waiting.join().unwrap();
            let _slot = slots.take().unwrap();
            let waiting = scope.spawn(|| slots.wait(|| given_up.load(Ordering::Relaxed)));
            given_up.store(true, Ordering::Relaxed);
            slots.wake_all();
            waiting.join().unwrap();
        });
    }
}
