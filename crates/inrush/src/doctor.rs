//! `inrush doctor`: the capabilities of this machine, as text or JSON.

use std::fmt::Display;

use lab::doctor::Findings;
use serde::Serialize;

use crate::cli::{DoctorFlags, DoctorOutput};
use crate::exit::Exit;
use crate::output;

/// Prints the findings, or the table of event mechanisms.
pub fn run(flags: DoctorFlags) -> Result<(), Exit> {
    if flags.mechanisms {
        print(&dispatch::table::table(), flags.output)
    } else {
        print(&Findings::of_this_machine(), flags.output)
    }
}

fn print(answer: &(impl Display + Serialize), form: DoctorOutput) -> Result<(), Exit> {
    match form {
        DoctorOutput::Text => output::text("the findings", &answer.to_string()),
        DoctorOutput::Json => output::json("the findings", answer),
    }
}
