//! `inrush doctor`: the capabilities of this machine, as text or JSON.
//!
//! Each finding is made with the rights of the command that it is about: the lab's in the user namespace that
//! `inrush lab` enters, all others without one.

use std::fmt::Display;

use ::doctor::{Finding, Findings};
#[cfg(feature = "lab")]
use base::Nanos;
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

/// The findings of the parts that this build has. The lab's come last, because they end in a user namespace.
const OF_PARTS: &[fn() -> Vec<Finding>] = &[
    #[cfg(feature = "guard")]
    guard::findings,
    #[cfg(feature = "load")]
    load::findings,
    #[cfg(feature = "lab")]
    of_lab,
];

/// Attempts to enter a user namespace, and the pause after one that found a second thread.
#[cfg(feature = "lab")]
const ENTRIES: u32 = 100;
#[cfg(feature = "lab")]
const ENTRY_PAUSE: Nanos = Nanos::from_millis(10);

/// Prints the findings, or the table of event mechanisms.
pub fn run(flags: DoctorFlags) -> Result<(), Exit> {
    if flags.mechanisms {
        print(&dispatch::table::table(), flags.output)
    } else {
        let mut findings = Findings::of_this_machine();
        findings.0.extend(OF_PARTS.iter().flat_map(|of_part| of_part()));
        print(&findings, flags.output)
    }
}

/// The lab's findings. Enters a user namespace for good, as `inrush lab` does.
#[cfg(feature = "lab")]
fn of_lab() -> Vec<Finding> {
    // The kernel removes a thread shortly after it was joined, and a process with threads cannot enter.
    for _ in 0..ENTRIES {
        match sys::network::userns::enter_unless_privileged() {
            Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => {
                let _ = sys::readiness::poll::wait(&mut [], Some(ENTRY_PAUSE));
            }
            // Without a user namespace the findings name the missing privileges.
            _ => break,
        }
    }
    lab::findings()
}

fn print(answer: &(impl Display + Serialize), form: TextOrJson) -> Result<(), Exit> {
    output::result("the findings", form, answer, || answer.to_string())
}
