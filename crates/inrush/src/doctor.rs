//! `inrush doctor`: the capabilities of this machine, as text or JSON.

use std::fmt::Display;

use lab::doctor::{Finding, Findings, finding};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType};
use serde::Serialize;

use crate::cli::{DoctorFlags, DoctorOutput};
use crate::exit::Exit;
use crate::load::{self, Generator};
use crate::output;

/// Prints the findings, or the table of event mechanisms.
pub fn run(flags: DoctorFlags) -> Result<(), Exit> {
    if flags.mechanisms {
        print(&dispatch::table::table(), flags.output)
    } else {
        let mut findings = Findings::of_this_machine();
        findings.0.extend([load_by_kernel(), load_over_tun(), load_over_af_xdp()]);
        print(&findings, flags.output)
    }
}

fn print(answer: &(impl Display + Serialize), form: DoctorOutput) -> Result<(), Exit> {
    match form {
        DoctorOutput::Text => output::text("the findings", &answer.to_string()),
        DoctorOutput::Json => output::json("the findings", answer),
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

/// The connects that one thread offers in user space. Makes a TUN device for a second.
fn load_over_tun() -> Finding {
    let what = "load over TUN";
    match load::most_per_s(&Generator::of_user()) {
        Ok(per_s) => finding(what, format!("at most {per_s:.0} connects/s from one thread"), None),
        Err(exit) => finding(what, "not here", Some(exit.into_message())),
    }
}

/// Tells whether this user may make the sockets of AF_XDP. The rate depends on the interface.
fn load_over_af_xdp() -> Finding {
    let what = "load over AF_XDP";
    match rustix::net::socket(AddressFamily::XDP, SocketType::RAW, None) {
        Ok(_) => {
            finding(what, "on an interface of yours: inrush load --stack user --link af-xdp:IFACE", None)
        }
        Err(Errno::AFNOSUPPORT) => finding(what, "not in this kernel", None),
        Err(error) => finding(what, "not here", Some(format!("A socket cannot be made: {error}."))),
    }
}
