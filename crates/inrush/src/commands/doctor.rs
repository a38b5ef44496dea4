//! `inrush doctor`: the capabilities of this machine, as text or JSON.

use std::fmt::Display;

use ::doctor::{Finding, Findings};
use serde::Serialize;

use crate::cli::{DoctorFlags, TextOrJson};
#[cfg(feature = "guard")]
use crate::commands::guard;
#[cfg(feature = "lab")]
use crate::commands::lab;
#[cfg(feature = "load")]
use crate::commands::load;
use crate::exit::Exit;
use crate::output;

/// The findings of the parts that this build has.
const OF_PARTS: &[fn() -> Vec<Finding>] = &[
    #[cfg(feature = "lab")]
    lab::findings,
    #[cfg(feature = "guard")]
    guard::findings,
    #[cfg(feature = "load")]
    load::findings,
];

/// Prints the findings, or the table of event mechanisms.
pub fn run(flags: DoctorFlags) -> Result<(), Exit> {
    // Without a user namespace some facilities cannot be tried, and count as missing.
    let _ = sys::network::userns::enter_unless_privileged();
    if flags.mechanisms {
        print(&dispatch::table::table(), flags.output)
    } else {
        let mut findings = Findings::of_this_machine();
        findings.0.extend(OF_PARTS.iter().flat_map(|of_part| of_part()));
        print(&findings, flags.output)
    }
}

fn print(answer: &(impl Display + Serialize), form: TextOrJson) -> Result<(), Exit> {
    output::result("the findings", form, answer, || answer.to_string())
}
