//! The settings of the engine threads of a run, and the share of each.

use std::num::NonZeroU32;

use base::{Nanos, PerSecond};

use crate::plan::Plan;
use crate::plan::choices::expected::Expected;
use crate::plan::choices::retry::Retry;
use crate::plan::choices::tls::Tls;
use crate::plan::config::{Client, Sockets};
use crate::plan::requests::Workload;
use crate::plan::terms::share::Share;
use crate::plan::terms::window::Window;

/// The settings that all engine threads share.
#[derive(Clone)]
pub(crate) struct Settings<'a> {
    /// TLS state; `None` for plain HTTP.
    pub tls: Option<&'a Tls>,
    pub workload: &'a Workload,
    pub connect_timeout: Nanos,
    pub request_timeout: Nanos,
    pub expected: &'a Expected,
    pub retry: Retry,
    pub follows_redirects: bool,
    /// The most streams of a connection, over HTTP/2.
    pub streams: Option<NonZeroU32>,
    /// The connections that this thread's requests share; `None` if each session has its own.
    pub kept_connections: Option<u32>,
    /// The most pending connects of this thread.
    pub pending_max: u32,
    /// True when `pending_max` was derived from the rate and grows with it.
    pub pending_follows_rate: bool,
    /// This thread among those that begin sessions.
    pub lane: Share,
    /// The highest rate of sessions per second in this thread; `None` for sessions without a rate.
    pub rate_peak: Option<PerSecond>,
    /// The measured window. Requests due in it count in the latencies.
    pub window: Window,
    /// Sessions scheduled in this window count in the ledger. It is the measured window; for a population it is the
    /// whole run, because its sessions begin in the warm-up. The latencies of holders follow their ledger.
    pub counted: Window,
    pub interval: Nanos,
}

impl Settings<'_> {
    /// The settings that all lanes of a plan share.
    pub(crate) fn of(plan: &Plan) -> Settings<'_> {
        let config = &plan.config;
        Settings {
            tls: plan.tls.as_ref(),
            workload: &plan.workload,
            connect_timeout: config.connect_timeout,
            request_timeout: config.request_timeout,
            expected: &config.expected,
            retry: config.retry,
            follows_redirects: config.follow,
            streams: config.streams,
            kept_connections: config.connections.map(|_| plan.pending_max_of(0)),
            // Other lanes may have one less.
            pending_max: plan.pending_max_of(0),
            pending_follows_rate: matches!(config.client, Client::SClient { sockets: Sockets::Auto, .. }),
            lane: Share::ALL,
            rate_peak: None,
            window: config.window(),
            counted: config.window(),
            interval: config.interval,
        }
    }
}
