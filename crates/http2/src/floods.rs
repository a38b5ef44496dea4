//! Bounds on frames that cost a client little, by rate.
//!
//! Each kind has a burst and a rate. A connection that exceeds both ends with ENHANCE_YOUR_CALM. The bound is the generic
//! cell rate algorithm (ITU-T I.371): one time for each kind, and no timer. WINDOW_UPDATE frames that acknowledge content
//! are free: a DATA frame pays for two, so that neither a long download nor many small responses are a flood.

use base::Nanos;

use crate::counts::Counts;
#[cfg(doc)]
use crate::limits::LEAST_DATA_BYTES;

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
    /// CVE-2019-9511 and CVE-2019-9517: many small windows. DATA frames sent pay for two each.
    WindowUpdates,
    /// CVE-2019-9513.
    Priorities,
}

const KINDS: usize = 6;
/// A client answers a DATA frame with one WINDOW_UPDATE for the connection and one for the stream.
const UPDATES_A_FRAME: u64 = 2;
/// Minimum bytes of a DATA frame that pays for WINDOW_UPDATE frames. Few frames are smaller unless the client wants
/// it: see [`LEAST_DATA_BYTES`].
const DRIBBLE_BYTES: u64 = 64;

impl Flood {
    /// The burst in frames, and the rate afterwards in frames per second.
    fn allowance(self) -> (u64, u64) {
        match self {
            // A browser that leaves a page resets every stream. The burst is twice that, and the rate is nghttp2's.
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
pub(crate) struct Floods {
    /// For each kind, the time at which all frames so far have been paid off.
    paid_until: [u64; KINDS],
    /// WINDOW_UPDATE frames that DATA frames have paid for, and that have not come yet.
    awaited_updates: u64,
}

impl Floods {
    /// Charges one frame to its bound. Returns false, and counts, if the bound is exceeded.
    pub(crate) fn admit(&mut self, flood: Flood, now: Nanos, counts: &mut Counts) -> bool {
        if flood == Flood::WindowUpdates && self.awaited_updates > 0 {
            self.awaited_updates -= 1;
            return true;
        }
        let paid_until = &mut self.paid_until[flood as usize];
        *paid_until = (*paid_until).max(now.0).saturating_add(flood.interval());
        let admitted = *paid_until - now.0 <= flood.allowance().0 * flood.interval();
        if !admitted {
            *flood.counter(counts) += 1;
        }
        admitted
    }

    /// Records a DATA frame that the server has sent.
    pub(crate) fn sent(&mut self, bytes: u64, ends_stream: bool) {
        if bytes >= DRIBBLE_BYTES || ends_stream {
            self.awaited_updates = self.awaited_updates.saturating_add(UPDATES_A_FRAME);
        }
    }
}
