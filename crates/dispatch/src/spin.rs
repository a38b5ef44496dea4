//! The wait of the FDM paper's servers, for any mechanism: calls that do not block, and short sleeps.
//!
//! ```text
//!     call, call, call, ...  threshold reached   sleep, call, sleep, call, ...   an event: counts from 0 again
//! ```
//!
//! A call is one wait of the mechanism without blocking. With the locality-aware mechanism it polls the sets that
//! are due, and a sleep polls none. An event in a rarer set therefore waits until its set is due, however long the
//! sleeps before it are. The paper tunes the threshold for each mechanism and each machine: it has 100 for its own
//! and 50 for the others.
//!
//! [D]: every further empty call is followed by a nap. The released source sleeps for 500 us; the
//! paper's kernel had a tick of 10 ms, and slept for one or two.
//!
//! Such a server keeps its processor busy until the threshold, and sees an event up to a sleep late after it. A
//! blocking wait is better in both. This wait exists for the paper's figures.

use std::io;

use base::Nanos;
use base::setting::Chosen;
use sys::readiness::poll;

use crate::mechanism::Mechanism;
use crate::patience::Patience;
use crate::wait_settings::{NAP, SLEEP_THRESHOLD, Tunable, spins};
use crate::{Event, Waited, locality, unless_interrupted};

/// The empty calls since the last event.
pub(crate) struct Spin {
    threshold: u32,
    nap: Nanos,
    empty_calls: u32,
}

impl Spin {
    /// Sleeps for `nap` after each empty call once `threshold` consecutive calls were empty.
    pub(crate) fn new(threshold: u32, nap: Nanos) -> Spin {
        Spin { threshold, nap, empty_calls: 0 }
    }

    /// Returns the wait over a mechanism that was chosen; `None` if the mechanism waits by itself.
    pub(crate) fn over<M: Mechanism>(chosen: &Chosen) -> Option<Spin> {
        let threshold = match chosen.get(&SLEEP_THRESHOLD) {
            Some(Tunable::Fixed(number)) => number,
            _ => M::SPINS,
        };
        let nap = chosen.get(&NAP).unwrap_or(locality::Settings::default().nap);
        spins(chosen).then(|| Spin::new(threshold, nap))
    }

    /// Waits as [`Mechanism::wait`] does, without blocking in the mechanism.
    pub(crate) fn wait(
        &mut self,
        mechanism: &mut impl Mechanism,
        events: &mut Vec<Event>,
        timeout: Option<Nanos>,
    ) -> io::Result<Waited> {
        let (before, patience) = (events.len(), Patience::new(timeout));
        loop {
            let waited = mechanism.wait(events, Some(Nanos::ZERO))?;
            if events.len() > before {
                self.empty_calls = 0;
                return Ok(waited);
            }
            self.empty_calls = self.empty_calls.saturating_add(1);
            if waited == Waited::Interrupted || patience.is_over() {
                return Ok(waited);
            }
            if self.empty_calls >= self.threshold {
                let sleep = patience.left().map_or(self.nap, |left| left.min(self.nap));
                if unless_interrupted(poll::wait(&mut [], Some(sleep)))?.is_none() {
                    return Ok(Waited::Interrupted);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::os::fd::RawFd;

    use base::{Clock, RealClock};

    use super::*;
    use crate::mechanism::{Change, Epoll};
    use crate::{Capabilities, Token};

    const SHORT: Nanos = Nanos::from_micros(500);

    /// Reports an event in the calls that say so, and notes the timeouts.
    #[derive(Default)]
    struct Scripted {
        script: VecDeque<bool>,
        timeouts: Vec<Option<Nanos>>,
    }

    impl Mechanism for Scripted {
        const CAPABILITIES: Capabilities = Epoll::CAPABILITIES;

        fn new() -> io::Result<Scripted> {
            Ok(Scripted::default())
        }

        fn update(&mut self, _change: Change) -> io::Result<()> {
            Ok(())
        }

        fn closing(&mut self, _fd: RawFd) {}

        fn wait(&mut self, events: &mut Vec<Event>, timeout: Option<Nanos>) -> io::Result<Waited> {
            self.timeouts.push(timeout);
            if self.script.pop_front().unwrap_or(true) {
                events.push(Event { token: Token(1), readable: true, writable: false, failed: false });
            }
            Ok(Waited::Ready)
        }
    }

    #[test]
    fn empty_calls_past_the_threshold_sleep() {
        let mut mechanism = Scripted::default();
        for nap in [SHORT, SHORT * 20] {
            mechanism.script.extend([false; 6]);
            mechanism.timeouts.clear();
            let (mut spin, mut events, clock) = (Spin::new(3, nap), Vec::new(), RealClock::new());
            let began = clock.now();
            spin.wait(&mut mechanism, &mut events, None).unwrap();
            assert!(clock.now() - began >= nap * 4, "it sleeps after the calls 3 to 6");
            assert_eq!((events.len(), mechanism.timeouts.len()), (1, 7));
            assert!(mechanism.timeouts.iter().all(|timeout| *timeout == Some(Nanos::ZERO)));
            assert_eq!(spin.empty_calls, 0);
        }
    }

    #[test]
    fn empty_calls_add_up_over_waits() {
        let mut mechanism = Scripted::default();
        mechanism.script.extend([false; 2]);
        let (mut spin, mut events) = (Spin::new(100, SHORT), Vec::new());
        for empty in 1..=2 {
            spin.wait(&mut mechanism, &mut events, Some(Nanos::ZERO)).unwrap();
            assert_eq!(
                (spin.empty_calls, mechanism.timeouts.len(), events.len()),
                (empty, empty as usize, 0)
            );
        }
    }
}
