//! The model checker's words, sound or with a fault, and the sleep on them. Each crate with models uses some of it.
#![allow(dead_code)]

use std::num::NonZeroU32;
use std::sync::atomic::Ordering;

use loom::sync::atomic::{AtomicU32, AtomicU64};
use loom::sync::{Condvar, Mutex};
use words::{Futex, Word};

/// A word without a fault.
pub const SOUND: u8 = 0;
/// No access is ordered with another, and fences do nothing.
pub const UNORDERED: u8 = 1;
/// A read-modify-write is a load and a store.
pub const TORN: u8 = 2;
/// A task goes to sleep whatever the value is.
pub const DEAF: u8 = 3;

/// Runs a model in every order of its tasks with at most three preemptions.
pub fn check(model: impl Fn() + Sync + Send + 'static) {
    check_with(3, model);
}

/// Runs a model in every order of its tasks with at most so many preemptions.
pub fn check_with(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    // A task that spins takes many.
    builder.max_branches = 10_000;
    builder.check(model);
}

/// A number, with a fault.
pub struct Number<const FAULT: u8>(AtomicU64);

impl<const FAULT: u8> Number<FAULT> {
    pub fn new() -> Number<FAULT> {
        Number(AtomicU64::new(0))
    }

    fn atomic(&self) -> &AtomicU64 {
        &self.0
    }
}

/// A word to sleep on, with a fault.
pub struct Bed<const FAULT: u8> {
    value: AtomicU32,
    sleepers: Mutex<Vec<Sleeper>>,
    rises: Condvar,
}

struct Sleeper {
    number: usize,
    bits: NonZeroU32,
}

impl<const FAULT: u8> Bed<FAULT> {
    pub fn new() -> Bed<FAULT> {
        let sleepers = Mutex::new(Vec::new());
        Bed { value: AtomicU32::new(0), sleepers, rises: Condvar::new() }
    }

    fn atomic(&self) -> &AtomicU32 {
        &self.value
    }
}

fn order<const FAULT: u8>(order: Ordering) -> Ordering {
    if FAULT == UNORDERED { Ordering::Relaxed } else { order }
}

macro_rules! word {
    ($word:ident, $value:ty) => {
        impl<const FAULT: u8> $word<FAULT> {
            /// A load and a store, between which other tasks may store.
            fn tear(&self, change: impl FnOnce($value) -> $value) -> $value {
                let before = self.atomic().load(Ordering::Acquire);
                self.atomic().store(change(before), Ordering::Release);
                before
            }
        }

        impl<const FAULT: u8> Word for $word<FAULT> {
            type Value = $value;

            fn load(&self, asked: Ordering) -> $value {
                self.atomic().load(order::<FAULT>(asked))
            }

            fn store(&self, value: $value, asked: Ordering) {
                self.atomic().store(value, order::<FAULT>(asked));
            }

            fn swap(&self, value: $value, asked: Ordering) -> $value {
                if FAULT == TORN {
                    return self.tear(|_| value);
                }
                self.atomic().swap(value, order::<FAULT>(asked))
            }

            fn fetch_add(&self, value: $value, asked: Ordering) -> $value {
                if FAULT == TORN {
                    return self.tear(|before| before + value);
                }
                self.atomic().fetch_add(value, order::<FAULT>(asked))
            }

            fn fetch_sub(&self, value: $value, asked: Ordering) -> $value {
                if FAULT == TORN {
                    return self.tear(|before| before - value);
                }
                self.atomic().fetch_sub(value, order::<FAULT>(asked))
            }

            fn fetch_max(&self, value: $value, asked: Ordering) -> $value {
                if FAULT == TORN {
                    return self.tear(|before| before.max(value));
                }
                self.atomic().fetch_max(value, order::<FAULT>(asked))
            }

            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                if FAULT == TORN {
                    let before = self.tear(|before| if before == current { new } else { before });
                    return if before == current { Ok(before) } else { Err(before) };
                }
                self.atomic().compare_exchange(current, new, order::<FAULT>(success), order::<FAULT>(failure))
            }

            fn fence(asked: Ordering) {
                if FAULT != UNORDERED {
                    loom::sync::atomic::fence(asked);
                }
            }

            fn pause(_: u32) {
                loom::thread::yield_now();
            }
        }
    };
}

word!(Number, u64);
word!(Bed, u32);

impl<const FAULT: u8> Futex for Bed<FAULT> {
    fn sleep(&self, expected: u32, bits: NonZeroU32) {
        // The kernel compares under a lock of its own, which wake-ups take as well.
        let mut sleepers = self.sleepers.lock().unwrap();
        if FAULT != DEAF && self.value.load(Ordering::Relaxed) != expected {
            return;
        }
        let number = sleepers.last().map_or(0, |last: &Sleeper| last.number + 1);
        sleepers.push(Sleeper { number, bits });
        while sleepers.iter().any(|sleeper| sleeper.number == number) {
            sleepers = self.rises.wait(sleepers).unwrap();
        }
    }

    fn wake(&self, most: u32, bits: NonZeroU32) {
        let mut left = most;
        self.sleepers.lock().unwrap().retain(|sleeper| {
            let wakes = left > 0 && sleeper.bits.get() & bits.get() != 0;
            left -= u32::from(wakes);
            !wakes
        });
        self.rises.notify_all();
    }
}
