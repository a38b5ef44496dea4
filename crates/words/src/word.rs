//! The atomic integer of the protocols, and the sleep on it.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use rustix::thread::futex::{self, Flags};
use rustix::thread::sched_yield;

/// The bits of a wake-up that is for sleepers of every kind.
pub const EVERY_SLEEPER: NonZeroU32 = NonZeroU32::MAX;

/// The number of pauses after which a task that spins lets others run: longer than the few loads and stores under a lock.
const SPINS: u32 = 64;

/// An atomic integer. The methods are those of the standard library's atomics.
pub trait Word: Sync {
    /// The integer.
    type Value: Copy + Eq;

    /// Loads the value.
    fn load(&self, order: Ordering) -> Self::Value;
    /// Stores a value.
    fn store(&self, value: Self::Value, order: Ordering);
    /// Stores a value and returns the one before.
    fn swap(&self, value: Self::Value, order: Ordering) -> Self::Value;
    /// Adds, and returns the value before.
    fn fetch_add(&self, value: Self::Value, order: Ordering) -> Self::Value;
    /// Subtracts, and returns the value before.
    fn fetch_sub(&self, value: Self::Value, order: Ordering) -> Self::Value;
    /// Stores the greater of both values, and returns the one before.
    fn fetch_max(&self, value: Self::Value, order: Ordering) -> Self::Value;
    /// Stores `new` if the value is `current`.
    ///
    /// # Errors
    /// The value, if it was another one.
    fn compare_exchange(
        &self,
        current: Self::Value,
        new: Self::Value,
        success: Ordering,
        failure: Ordering,
    ) -> Result<Self::Value, Self::Value>;
    /// Orders the accesses to all words before it against those after it.
    fn fence(order: Ordering);
    /// Passes a moment of a task that spins, of which this is number `spins`.
    fn pause(spins: u32);
}

/// A word on which tasks sleep, as futex(2) has it.
pub trait Futex: Word<Value = u32> {
    /// Sleeps while the value is `expected`, until a wake-up for one of these bits. May return earlier.
    fn sleep(&self, expected: u32, bits: NonZeroU32);
    /// Wakes the first `most` sleepers that have one of these bits, in the order in which they went to sleep.
    fn wake(&self, most: u32, bits: NonZeroU32);
}

macro_rules! word {
    ($atomic:ty, $value:ty) => {
        impl Word for $atomic {
            type Value = $value;

            fn load(&self, order: Ordering) -> $value {
                self.load(order)
            }

            fn store(&self, value: $value, order: Ordering) {
                self.store(value, order);
            }

            fn swap(&self, value: $value, order: Ordering) -> $value {
                self.swap(value, order)
            }

            fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                self.fetch_add(value, order)
            }

            fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                self.fetch_sub(value, order)
            }

            fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                self.fetch_max(value, order)
            }

            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }

            fn fence(order: Ordering) {
                fence(order);
            }

            fn pause(spins: u32) {
                if spins.is_multiple_of(SPINS) {
                    sched_yield();
                } else {
                    std::hint::spin_loop();
                }
            }
        }
    };
}

word!(AtomicU32, u32);
word!(AtomicU64, u64);

impl Futex for AtomicU32 {
    fn sleep(&self, expected: u32, bits: NonZeroU32) {
        // It fails if the value is another, or if a signal came. Both are an early return.
        let _ = futex::wait_bitset(self, Flags::empty(), expected, None, bits);
    }

    fn wake(&self, most: u32, bits: NonZeroU32) {
        // The kernel counts in signed integers. The call fails only for memory that is not mapped.
        futex::wake_bitset(self, Flags::empty(), most.min(i32::MAX as u32), bits).expect("a word is mapped");
    }
}
