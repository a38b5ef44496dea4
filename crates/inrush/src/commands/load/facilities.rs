//! The rates that load generators reach on this machine, as findings of `inrush doctor`.

use doctor::{Finding, finding};

use super::calibrate::{Generator, kept, most_over_af_xdp, most_over_tun};
use crate::exit::Exit;

/// The rates of one thread: over kernel sockets, and over each link of TCP in user space.
pub fn findings() -> Vec<Finding> {
    vec![
        by_kernel(),
        finding_of("load over TUN", most_over_tun()),
        finding_of("load over AF_XDP", most_over_af_xdp()),
    ]
}

/// The clean rate of kernel sockets, which a calibration has measured.
fn by_kernel() -> Finding {
    let what = "load by the kernel";
    match kept(&Generator::of_kernel(1)) {
        Some(kept) => finding(what, format!("{:.0} connects/s from one thread", kept.clean_per_s), None),
        None => finding(what, "not measured: inrush load calibrate", None),
    }
}

/// The connects that one thread offers over a link of TCP in user space, which exists for a second.
fn finding_of(what: &'static str, measured: Result<f64, Exit>) -> Finding {
    match measured {
        Ok(per_s) => finding(what, format!("at most {per_s:.0} connects/s from one thread"), None),
        Err(exit) => finding(what, "not here", Some(exit.into_message())),
    }
}
