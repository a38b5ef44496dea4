//! Bounds on frames that cost a client little, by rate.
//!
//! Each kind has a burst and a rate. A connection that exceeds both ends with ENHANCE_YOUR_CALM. The bound is the generic
//! cell rate algorithm (ITU-T I.371): one time for each kind, and no timer.

use base::Nanos;

use crate::counts::Counts;

/// A kind of frame that a client may send too often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flood {
    /// Streams that end early: by the client (CVE-2023-44487), or by its mistakes (CVE-2025-8671).
    Resets,
    /// CVE-2019-9512.
    Pings,
    /// CVE-2019-9515.
    Settings,
    /// CVE-2019-9518, and frames of unknown types.
    EmptyFrames,
    /// CVE-2019-9511 and CVE-2019-9517: many small windows. Bytes sent give credit.
    WindowUpdates,
    /// CVE-2019-9513.
    Priorities,
}

const KINDS: usize = 6;
/// Bytes of content that pay for one WINDOW_UPDATE: clients send two for each frame of 16 KiB.
const BYTES_A_WINDOW_UPDATE: u64 = 512;

impl Flood {
    /// Frames at once, and frames a second afterwards.
    fn allowance(self) -> (u64, u64) {
        match self {
            // A browser that leaves a page resets every stream; twice that, and then as nghttp2 does.
            Flood::Resets => (256, 33),
            Flood::Pings => (100, 10),
            Flood::Settings => (32, 1),
            Flood::EmptyFrames => (100, 10),
            Flood::WindowUpdates => (1000, 100),
            // A page of some hundred requests, each with one change.
            Flood::Priorities => (500, 50),
        }
    }

    fn interval(self) -> u64 {
        Nanos::SECOND.0 / self.allowance().1
    }

    fn counter(self, counts: &mut Counts) -> &mut u64 {
        match self {
            Flood::Resets => &mut counts.http2_limit_resets,
            Flood::Pings => &mut counts.http2_limit_pings,
            Flood::Settings => &mut counts.http2_limit_settings,
            Flood::EmptyFrames => &mut counts.http2_limit_empty_frames,
            Flood::WindowUpdates => &mut counts.http2_limit_window_updates,
            Flood::Priorities => &mut counts.http2_limit_priorities,
        }
    }
}

/// The bounds of one connection.
#[derive(Debug, Default)]
pub(crate) struct Floods([u64; KINDS]);

impl Floods {
    /// Takes one frame into account. Returns false, and counts, if the bound is exceeded.
    pub(crate) fn admit(&mut self, flood: Flood, now: Nanos, counts: &mut Counts) -> bool {
        let paid_until = &mut self.0[flood as usize];
        *paid_until = (*paid_until).max(now.0).saturating_add(flood.interval());
        let admitted = *paid_until - now.0 <= flood.allowance().0 * flood.interval();
        if !admitted {
            *flood.counter(counts) += 1;
        }
        admitted
    }

    /// Gives credit for content that has been sent.
    pub(crate) fn sent(&mut self, bytes: u64) {
        let paid_until = &mut self.0[Flood::WindowUpdates as usize];
        let credit = bytes.saturating_mul(Flood::WindowUpdates.interval()) / BYTES_A_WINDOW_UPDATE;
        *paid_until = paid_until.saturating_sub(credit);
    }
}
