//! A C_max that adapts itself: a worker is full while another worker would relieve it (SMPED's open question).
//!
//! The paper gives C_max no value and no rule. Another worker serves more only if two things come together:
//!
//! - A worker is *occupied*: it spends nearly all its time in turns. Either it computes, or the disk blocks it. Its
//!   connections wait for each other.
//! - A processor is *free*. Otherwise another worker only divides the same time among more processes.
//!
//! In every other case no number of connections is too many.
//!
//! ```text
//!   a worker's time:      | waits for events |  turns: computes, or is blocked  |
//!                                            └──────── summed up ───────────────┘
//!   a processor's time:   |    idle    |   any work, packets and other programs included   |
//!                         └─ summed up ┘
//! ```
//!
//! Each worker shows the sum of its turns in shared memory, and the dispatcher reads it once a period. A turn under way
//! counts when it ends.
//!
//! Owns the word and the rule. Leaves out the bounds of the pool ([`resources`](crate::architecture::smped::resources)), and its growth by one
//! worker a period ([`pool`](super::pool)).

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use base::Nanos;
use sys::cpu::IdleTime;
use sys::proc_file::ProcFile;

use super::handover;
use crate::operation::confinement::PROCESSORS;

/// The word of a worker in shared memory, beside those of the hand-over: the sum of its turns in nanoseconds.
const IN_TURNS: usize = handover::WORDS;
pub const WORDS: usize = IN_TURNS + 1;

/// The part of its time in turns from which a worker is occupied.
const OCCUPIED: f64 = 0.75;
/// The part of a processor that must be idle for another worker. The kernel counts a processor's idle time in steps of
/// 10 ms, which are a tenth of the default period.
const FREE: f64 = 0.25;

/// Adds a turn to a worker's sum.
pub fn turned(took: Nanos, words: &[AtomicU64]) {
    // Only the worker writes the word.
    words[IN_TURNS].store(words[IN_TURNS].load(Ordering::Relaxed) + took.0, Ordering::Relaxed);
}

/// The dispatcher's side: it finds the workers that another one would relieve.
#[derive(Debug)]
pub struct Relief {
    stat: ProcFile,
    cpus: Vec<usize>,
    idle: IdleTime,
    /// The sums of the workers at the last look, by slot, and its time.
    turns: Vec<u64>,
    looked_at: Nanos,
}

impl Relief {
    /// Begins with the workers of so many slots, which may use these processors.
    ///
    /// # Errors
    /// The kernel does not show the idle time of processors.
    pub fn new(cpus: &[usize], slots: usize, now: Nanos) -> io::Result<Relief> {
        let mut relief = Relief {
            stat: ProcFile::open(PROCESSORS)?,
            cpus: cpus.to_vec(),
            idle: IdleTime::default(),
            turns: vec![0; slots],
            looked_at: now,
        };
        relief.idle = relief.read_idle()?;
        Ok(relief)
    }

    /// Tells for each slot whether another worker would relieve its worker, by the time since the last call.
    pub fn needed<'a>(&mut self, words: impl Fn(usize) -> &'a [AtomicU64], now: Nanos) -> Vec<bool> {
        let over_s = now.saturating_sub(std::mem::replace(&mut self.looked_at, now)).as_secs_f64();
        // A failed reading counts as no idle time, so that the pool does not grow.
        let idle = self.read_idle().unwrap_or(self.idle);
        let free = idle.cores_idle_since(std::mem::replace(&mut self.idle, idle), over_s);
        let workers = self.turns.iter_mut().enumerate().map(|(slot, before)| {
            let sum = words(slot)[IN_TURNS].load(Ordering::Relaxed);
            let in_turns = Nanos(sum.saturating_sub(std::mem::replace(before, sum)));
            would_help(in_turns.as_secs_f64() / over_s, free)
        });
        workers.collect()
    }

    fn read_idle(&mut self) -> io::Result<IdleTime> {
        Ok(IdleTime::read(&self.stat.read()?, &self.cpus))
    }
}

/// Tells whether another worker would relieve one that spends this part of its time in turns.
fn would_help(in_turns: f64, free_processors: f64) -> bool {
    in_turns >= OCCUPIED && free_processors >= FREE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worker_relieves_another_while_a_cpu_is_free() {
        assert!(would_help(0.9, 0.5));
        assert!(!would_help(0.9, 0.1));
        assert!(!would_help(0.5, 1.5));
    }

    #[test]
    fn only_the_turns_since_the_last_look_count() {
        let words: Vec<[AtomicU64; WORDS]> = (0..2).map(|_| [const { AtomicU64::new(0) }; WORDS]).collect();
        let mut relief = Relief::new(&sys::cpu::allowed().unwrap(), 2, Nanos::ZERO).unwrap();
        let mut needed = |idle: bool, now| {
            // As if the processors had been idle for ever, or not at all.
            relief.idle = if idle { IdleTime::default() } else { relief.read_idle().unwrap() };
            relief.needed(|slot| &words[slot], Nanos::from_millis(now))
        };
        turned(Nanos::from_millis(90), &words[1]);
        assert_eq!(needed(true, 100), [false, true]);
        assert_eq!(needed(true, 200), [false, false]);
        turned(Nanos::from_millis(50), &words[0]);
        turned(Nanos::from_millis(50), &words[0]);
        assert_eq!(needed(true, 300), [true, false]);
        turned(Nanos::from_millis(100), &words[0]);
        assert_eq!(needed(false, 1_000_000), [false, false]);
    }
}
