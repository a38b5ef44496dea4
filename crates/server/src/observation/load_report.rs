//! Load reports in responses (ORCA), by which Envoy weighs its servers.
//!
//! ```text
//!   GET / HTTP/1.1                            HTTP/1.1 200 OK
//!   endpoint-load-metrics-format: TEXT   ──>  endpoint-load-metrics: TEXT cpu_utilization=0.31,rps_fractional=120,...
//! ```
//!
//! Only a request that asks gets a report, so that a load balancer decides who sees it. A report is made from the counters
//! of all loops, at most twice a second; requests in between get the same bytes.
//!
//! Sources: `xds.data.orca.v3.OrcaLoadReport`, and the text form in Envoy's `source/common/orca/orca_parser.cc`.
//!
//! Does not support out-of-band reports, which are a gRPC service.

use std::sync::{Arc, Mutex, OnceLock};

use base::{Nanos, lock};
use bytes::Bytes;
use http_semantics::{Request, Response};

use crate::observation::agent_check::{Meter, Reading};

/// The request field that asks for a report; its value is the wanted form.
const ASKS: &str = "endpoint-load-metrics-format";
/// The age at which a report is replaced by a new one.
const AGE: Nanos = Nanos::from_millis(500);

/// The reports of a server; empty until its [`ReportStarter`] is consumed. Clones share them.
#[derive(Clone)]
pub struct LoadReports(Arc<OnceLock<Mutex<Reporter>>>);

/// The right to start the reports, which needs the counters of loops that already hold the [`LoadReports`].
pub struct ReportStarter(LoadReports);

struct Reporter {
    meter: Meter,
    at: Nanos,
    line: Bytes,
}

impl ReportStarter {
    /// Starts the reports. The first report comes after half a second.
    pub fn start(self, meter: Meter, now: Nanos) {
        let reporter = Reporter { meter, at: now, line: Bytes::new() };
        self.0.0.get_or_init(|| Mutex::new(reporter));
    }
}

impl LoadReports {
    /// Makes the reports of a server, and the value that starts them.
    pub fn with_starter() -> (LoadReports, ReportStarter) {
        let reports = LoadReports(Arc::default());
        (reports.clone(), ReportStarter(reports))
    }

    /// Adds a report to a response if the request asks for one as text.
    pub fn add<F>(&self, request: &Request<'_>, response: &mut Response<F>, now: Nanos) {
        let asks = request.value(ASKS).is_some_and(|form| form.eq_ignore_ascii_case(b"text"));
        let Some(reporter) = self.0.get().filter(|_| asks) else { return };
        let line = lock(reporter).line(now);
        if !line.is_empty() {
            response.fields = [&response.fields[..], &line[..]].concat().into();
        }
    }
}

impl Reporter {
    fn line(&mut self, now: Nanos) -> Bytes {
        if now.saturating_sub(self.at) >= AGE {
            self.line = line(&self.meter.read(now));
            self.at = now;
        }
        self.line.clone()
    }
}

/// Returns the header line of a reading.
fn line(reading: &Reading) -> Bytes {
    let Reading { signals, requests_per_s, errors_per_s } = reading;
    let line = format!(
        "endpoint-load-metrics: TEXT cpu_utilization={:.4},application_utilization={:.4},rps_fractional={requests_per_s:.2},\
         eps={errors_per_s:.2}\r\n",
        signals.busy,
        signals.load()
    );
    line.into()
}
