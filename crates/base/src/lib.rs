//! The foundation of every other crate: units with names, clocks that can be simulated, a slab whose keys
//! have a generation, and randomness with a seed.
//!
//! Owns no I/O but reading the clock.
//!
//! The modules: `units` has rates, sizes and durations; `clock` has time as a value; `rng` has seeded
//! randomness; `slab` has keys with generations; `counts` has totals with names; `digits` has numbers for
//! readers; `nearest` finds the name that was meant; `network` has sets of addresses; `lock` has mutexes that a panic may
//! have poisoned; `printable` escapes control characters; `setting` has settings of some designs only; `texts` has
//! all short texts, for tests.
#![forbid(unsafe_code)]

pub mod clock;
mod counts;
pub mod digits;
mod lock;
mod nearest;
mod network;
mod printable;
pub mod rng;
pub mod setting;
pub mod slab;
mod texts;
pub mod units;

pub use clock::{Clock, RealClock, SimulatedClock, WallTime};
pub use lock::lock;
pub use nearest::nearest;
pub use network::Network;
pub use printable::{printable, printable_lines};
pub use rng::{Rng, Seed};
pub use slab::{Key, Slab};
pub use texts::every_text;
pub use units::{Bytes, Limit, Nanos, PerSecond, UnitError};
