//! The memory and the descriptors of a server during a trial without an act. Neither may grow.
//!
//! The first fifth of the time fills caches, pools and tables. The second fifth is compared with the last, by the medians of
//! their samples. Leaves out trials with an act: a server may keep what it needed to survive it.

use std::fs;

use base::{Bytes, Nanos};
use rustix::process::Pid;
use stage::memory::anonymous_memory;
use statistics::median;

use super::server::number;

/// The time between two samples.
const SAMPLE_EVERY: Nanos = Nanos::from_millis(200);
/// The fewest samples of a fifth of the time. A shorter trial says nothing.
const SAMPLES_LEAST: usize = 50;
/// The most that the memory may grow by: an allocator keeps some pages now and then.
const MEMORY: u64 = 1 << 20;
/// The most descriptors more, because a sample finds more connections now and then.
const DESCRIPTORS: f64 = 5.0;

/// The possessions of processes, at one moment or by medians.
#[derive(Clone, Copy, Default)]
struct Held {
    /// Anonymous memory in RAM.
    memory: Bytes,
    /// Open descriptors.
    descriptors: f64,
}

/// The samples of a trial.
#[derive(Default)]
pub struct Usage {
    samples: Vec<Held>,
    next: Nanos,
}

impl Usage {
    /// Adds a sample of the processes, if one is due.
    pub fn sample(&mut self, since: Nanos, processes: impl FnOnce() -> Vec<Pid>) {
        if since >= self.next {
            self.next = since + SAMPLE_EVERY;
            let held = processes().into_iter().filter_map(held_by);
            self.samples.push(held.fold(Held::default(), |sum, one| Held {
                memory: Bytes(sum.memory.0 + one.memory.0),
                descriptors: sum.descriptors + one.descriptors,
            }));
        }
    }

    /// The memory of the second fifth and of the last, in words, and the objections; `None` for a short trial.
    pub fn judge(&self) -> Option<(String, Vec<String>)> {
        let fifth = self.samples.len() / 5;
        if fifth < SAMPLES_LEAST {
            return None;
        }
        let early = medians(&self.samples[fifth..2 * fifth]);
        let late = medians(&self.samples[self.samples.len() - fifth..]);
        let memory = format!("{} to {}", early.memory, late.memory);
        let mut objections = Vec::new();
        if late.memory.0 > early.memory.0 + MEMORY {
            objections.push(format!("its memory grew from {memory}"));
        }
        if late.descriptors > early.descriptors + DESCRIPTORS {
            objections
                .push(format!("its descriptors grew from {} to {}", early.descriptors, late.descriptors));
        }
        Some((memory, objections))
    }
}

fn medians(part: &[Held]) -> Held {
    let of = |value: fn(&Held) -> f64| median(&part.iter().map(value).collect::<Vec<_>>());
    Held { memory: Bytes(of(|held| held.memory.0 as f64) as u64), descriptors: of(|held| held.descriptors) }
}

/// Returns the possessions of a process; `None` if it has ended.
fn held_by(process: Pid) -> Option<Held> {
    let pid = number(process);
    let memory = anonymous_memory(pid).ok()?;
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as f64;
    Some(Held { memory, descriptors })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(held: impl Fn(usize) -> Held) -> Vec<String> {
        Usage { samples: (0..500).map(held).collect(), next: Nanos::ZERO }.judge().unwrap().1
    }

    #[test]
    fn growth_after_the_beginning_is_an_objection() {
        let grows = |to: usize| {
            judged(move |at| Held { memory: Bytes(8_000_000 + at.min(to) as u64 * 10_000), descriptors: 9.0 })
        };
        assert!(grows(100).is_empty(), "caches fill");
        let leaks = grows(500);
        assert!(leaks.len() == 1 && leaks[0].starts_with("its memory grew from "), "{leaks:?}");
        assert!(
            judged(|at| Held { descriptors: (at / 50) as f64, ..Held::default() })[0]
                .starts_with("its descriptors grew from ")
        );
    }

    #[test]
    fn short_trial_says_nothing() {
        assert!(Usage { samples: vec![Held::default(); 249], next: Nanos::ZERO }.judge().is_none());
    }
}
