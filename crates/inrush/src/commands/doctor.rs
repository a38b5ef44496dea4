//! `inrush doctor`: the capabilities of this machine, as text or JSON.

use std::fmt::Display;

use lab::doctor::{Finding, Findings, finding};
use serde::Serialize;

use crate::cli::{DoctorFlags, TextOrJson};
use crate::commands::load::{self, Generator};
use crate::exit::Exit;
use crate::output;

/// Prints the findings, or the table of event mechanisms.
pub fn run(flags: DoctorFlags) -> Result<(), Exit> {
    if flags.mechanisms {
        print(&dispatch::table::table(), flags.output)
    } else {
        let mut findings = Findings::of_this_machine();
        findings.0.extend([
            guarding(),
            load_by_kernel(),
            load_over("load over TUN", load::most_over_tun()),
            load_over("load over AF_XDP", load::most_over_af_xdp()),
        ]);
        print(&findings, flags.output)
    }
}

fn print(answer: &(impl Display + Serialize), form: TextOrJson) -> Result<(), Exit> {
    output::result("the findings", form, answer, || answer.to_string())
}

/// The best signal and hook of a guard here.
fn guarding() -> Finding {
    let what = "guard";
    match guard::probe() {
        Ok(()) => {
            let found = "counts requests, and refuses at the server's cgroup; its starter alone keeps rights";
            finding(what, found, None)
        }
        Err(error) => finding(what, "reads the accept queue, and refuses by a sink", Some(error.to_string())),
    }
}

/// The clean rate of kernel sockets, which a calibration has measured.
fn load_by_kernel() -> Finding {
    let what = "load by the kernel";
    match load::clean_rate(&Generator::of_kernel(1)) {
        Some(per_s) => finding(what, format!("{per_s:.0} connects/s from one thread"), None),
        None => finding(what, "not measured: inrush load --calibrate", None),
    }
}

/// The connects that one thread offers over a link of TCP in user space, which exists for a second.
fn load_over(what: &'static str, measured: Result<f64, Exit>) -> Finding {
    match measured {
        Ok(per_s) => finding(what, format!("at most {per_s:.0} connects/s from one thread"), None),
        Err(exit) => finding(what, "not here", Some(exit.into_message())),
    }
}
