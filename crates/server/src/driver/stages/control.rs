//! The two controllers of a staged server (SEDA, section 3.4, and its authors' later papers; SMPED, section 2): the
//! threads of a stage, and the rate of admitted requests. Pure: callers pass the time in.
//!
//! ```text
//!   threads:    queue above the threshold ──> one more      idle for a while ──> one less, never below 1
//!   admission:  p90 <- 0.7 p90 + 0.3 p90(sample)      a sample: 100 responses, or 1 s
//!               p90 < 0.9 target ──> rate + 0.5/s     p90 > 1.2 target ──> rate / 2
//! ```
//!
//! Deviations: a pool grows when an event finds the queue too long, at most once a period; SEDA looks at it by a timer.
//! The rate is unlimited until a sample of ten or more first misses the target. It is then half of the responses a second
//! in that sample; SEDA begins at a configured rate. A token bucket admits the requests; it holds a tenth of a second of
//! them. After a halving the percentile begins anew, with requests that came since. SEDA's controller keeps it
//! ([`Percentile::Kept`]), so that older requests halve the rate again for an overload that has been dealt with.

use base::Nanos;

use crate::ground::choices::named;
use crate::ground::counters::AdmissionFigures;

/// The shortest time between two growths of a pool: a new thread needs it to show an effect.
const GROW_EVERY: Nanos = Nanos::from_millis(100);
/// Responses in a sample [SEDA].
const SAMPLE: usize = 100;
/// The fewest responses of a sample that sets the first rate. Fewer show neither an overload nor a capacity.
const LEAST_FIRST_SAMPLE: usize = SAMPLE / 10;
/// The longest sample [SEDA].
const SAMPLE_TIME: Nanos = Nanos::SECOND;
/// Weight of the past in the smoothed response time [SEDA].
const PAST: f64 = 0.7;
/// Below this share of the target the rate grows [SEDA].
const COMFORTABLE: f64 = 0.9;
/// The growth of the rate at each step, in requests per second [SEDA].
const STEP_PER_S: f64 = 0.5;
/// Above this multiple of the target the rate is halved [SEDA].
const OVERLOADED: f64 = 1.2;
/// The lowest rate, in requests per second. Without some responses nothing would show that the overload is over.
const LEAST_PER_S: f64 = 1.0;
/// The capacity of the bucket, in seconds of requests. Requests come in clusters, and every response is sampled.
const BUCKET_S: f64 = 0.1;

/// Decides when a stage gets another thread.
#[derive(Debug)]
pub struct PoolController {
    threshold: usize,
    most: usize,
    last_grown: Option<Nanos>,
}

impl PoolController {
    /// Makes the controller of a pool of at most `most` threads, which grows while more than `threshold` events are
    /// queued.
    pub fn new(threshold: usize, most: usize) -> PoolController {
        PoolController { threshold, most, last_grown: None }
    }

    /// Returns true if a pool of `threads` threads with `queued` events gets another thread.
    pub fn grows(&mut self, queued: usize, threads: usize, now: Nanos) -> bool {
        let lately = self.last_grown.is_some_and(|last| now.saturating_sub(last) < GROW_EVERY);
        let grows = queued > self.threshold && threads < self.most && !lately;
        if grows {
            self.last_grown = Some(now);
        }
        grows
    }
}

named! {
    /// The smoothed percentile after a halving of the rate.
    #[derive(Default)]
    Percentile {
        /// Begins anew, with the requests that came since.
        #[default]
        Anew = "anew",
        /// Goes on, as in SEDA.
        Kept = "kept",
    }
}

/// Decides which requests are admitted, by their rate.
#[derive(Debug)]
pub struct AdmissionController {
    target: Nanos,
    percentile: Percentile,
    /// Response times since the last decision.
    sample: Vec<Nanos>,
    sampled_since: Option<Nanos>,
    /// The smoothed percentile, in ns; `None` before the first sample of a rate.
    smoothed: Option<f64>,
    /// The value of `smoothed` at the last decision.
    decided_on: f64,
    /// Admitted requests per second; unlimited until the target is missed.
    rate_per_s: Option<f64>,
    bucket: f64,
    filled: Nanos,
    /// The time when the rate was last halved and the percentile began anew.
    halved_at: Nanos,
    refused: u64,
}

impl AdmissionController {
    /// Makes a controller that keeps the smoothed 90th percentile of the response time below `target`.
    pub fn new(target: Nanos, percentile: Percentile) -> AdmissionController {
        AdmissionController {
            target,
            percentile,
            sample: Vec::with_capacity(SAMPLE),
            sampled_since: None,
            smoothed: None,
            decided_on: 0.0,
            rate_per_s: None,
            bucket: 0.0,
            filled: Nanos::ZERO,
            halved_at: Nanos::ZERO,
            refused: 0,
        }
    }

    /// Returns true if a request that comes now is admitted.
    pub fn admits(&mut self, now: Nanos) -> bool {
        let Some(rate) = self.rate_per_s else { return true };
        let since = now.saturating_sub(self.filled).as_secs_f64();
        self.filled = now.max(self.filled);
        self.bucket = (self.bucket + since * rate).min(depth(rate));
        let admitted = self.bucket >= 1.0;
        if admitted {
            self.bucket -= 1.0;
        } else {
            self.refused += 1;
        }
        admitted
    }

    /// Notes the response time of an admitted request. Under [`Percentile::Anew`] a request that came before the last
    /// halving is ignored: it says nothing about the new rate.
    pub fn answered(&mut self, response_time: Nanos, now: Nanos) {
        if now.saturating_sub(response_time) < self.halved_at {
            return;
        }
        let since = *self.sampled_since.get_or_insert(now);
        self.sample.push(response_time);
        if self.sample.len() >= SAMPLE || now.saturating_sub(since) >= SAMPLE_TIME {
            self.sampled_since = None;
            self.decide(now.saturating_sub(since), now);
        }
    }

    /// Returns the current figures.
    pub fn figures(&self) -> AdmissionFigures {
        AdmissionFigures {
            rate_per_s: self.rate_per_s,
            response_time_p90_s: self.decided_on / 1e9,
            refused: self.refused,
        }
    }

    fn decide(&mut self, took: Nanos, now: Nanos) {
        let count = self.sample.len();
        self.sample.sort_unstable();
        let percentile = self.sample[(count * 9).div_ceil(10) - 1].0 as f64;
        self.sample.clear();
        let smoothed = self.smoothed.map_or(percentile, |past| PAST * past + (1.0 - PAST) * percentile);
        self.decided_on = smoothed;
        if self.rate_per_s.is_none() && count < LEAST_FIRST_SAMPLE {
            return;
        }
        self.smoothed = Some(smoothed);
        let load = smoothed / self.target.0 as f64;
        if load > OVERLOADED {
            // The last response of a sample may have come after a pause.
            let took = took.clamp(Nanos::MILLISECOND, SAMPLE_TIME);
            let answered_per_s = count as f64 / took.as_secs_f64();
            let half = self.rate_per_s.unwrap_or(answered_per_s) / 2.0;
            self.rate_per_s = Some(half.max(LEAST_PER_S));
            if self.percentile == Percentile::Anew {
                (self.halved_at, self.smoothed) = (now, None);
            }
        } else if load < COMFORTABLE
            && let Some(rate) = &mut self.rate_per_s
        {
            *rate += STEP_PER_S;
        }
    }
}

/// The capacity of the bucket at a rate.
fn depth(rate_per_s: f64) -> f64 {
    (rate_per_s * BUCKET_S).max(1.0)
}

#[cfg(test)]
mod tests;
