//! What a server holds during a trial without an act: its memory and its descriptors must not grow.
//!
//! The first fifth of the time fills caches, pools and tables. The second fifth is compared with the last, by the medians of
//! their samples. Leaves out trials with an act: a server may keep what it needed to survive it.

use std::fs;

use base::{Bytes, Nanos};
use rustix::process::Pid;
use stage::proc;
use statistics::median;

/// The time between two samples.
const SAMPLE_EVERY: Nanos = Nanos::from_millis(200);
/// The fewest samples of a fifth of the time. A shorter trial says nothing.
const SAMPLES_LEAST: usize = 50;
/// The most that the memory may grow by: an allocator keeps some pages now and then.
const MEMORY: f64 = (1 << 20) as f64;
/// The most descriptors more, because a sample finds more connections now and then.
const DESCRIPTORS: f64 = 5.0;

/// What processes hold at one moment: bytes in RAM, and open descriptors.
type Held = [f64; 2];

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
            self.samples.push(held.fold([0.0; 2], |sum, one| [sum[0] + one[0], sum[1] + one[1]]));
        }
    }

    /// The memory of the second fifth and of the last, in words, and the objections; `None` for a short trial.
    pub fn judge(&self) -> Option<(String, Vec<String>)> {
        let fifth = self.samples.len() / 5;
        if fifth < SAMPLES_LEAST {
            return None;
        }
        let middle =
            |part: &[Held], which: usize| median(&part.iter().map(|held| held[which]).collect::<Vec<_>>());
        let [early, late] = [&self.samples[fifth..2 * fifth], &self.samples[self.samples.len() - fifth..]]
            .map(|part| [middle(part, 0), middle(part, 1)]);
        let memory = [early[0], late[0]].map(|bytes| Bytes(bytes as u64).to_string()).join(" to ");
        let mut objections = Vec::new();
        if late[0] > early[0] + MEMORY {
            objections.push(format!("its memory grew from {memory}"));
        }
        if late[1] > early[1] + DESCRIPTORS {
            objections.push(format!("its descriptors grew from {} to {}", early[1], late[1]));
        }
        Some((memory, objections))
    }
}

/// What a process holds; `None` if it has ended.
fn held_by(process: Pid) -> Option<Held> {
    let folder = format!("/proc/{}", process.as_raw_nonzero());
    let memory = proc::memory(&fs::read_to_string(format!("{folder}/status")).ok()?, "VmRSS")?;
    let descriptors = fs::read_dir(format!("{folder}/fd")).ok()?.count();
    Some([memory.0 as f64, descriptors as f64])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(held: impl Fn(usize) -> Held) -> Vec<String> {
        Usage { samples: (0..500).map(held).collect(), next: Nanos::ZERO }.judge().unwrap().1
    }

    #[test]
    fn growth_after_the_beginning_is_an_objection() {
        let grows = |to: usize| judged(move |at| [8e6 + at.min(to) as f64 * 1e4, 9.0]);
        assert!(grows(100).is_empty(), "caches fill");
        let leaks = grows(500);
        assert!(leaks.len() == 1 && leaks[0].starts_with("its memory grew from "), "{leaks:?}");
        assert!(judged(|at| [8e6, (at / 50) as f64])[0].starts_with("its descriptors grew from "));
    }

    #[test]
    fn short_trial_says_nothing() {
        assert!(Usage { samples: vec![[0.0; 2]; 249], next: Nanos::ZERO }.judge().is_none());
    }
}
