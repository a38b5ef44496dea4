//! `inrush doctor`: what this machine can do, as text or JSON.

use std::fmt::Display;

use lab::doctor::Findings;
use serde::Serialize;

use crate::cli::{DoctorFlags, DoctorOutput};
use crate::exit::Exit;

/// Prints the findings, or the table of event mechanisms.
pub fn run(flags: DoctorFlags) -> Result<(), Exit> {
    if flags.mechanisms {
        print(&dispatch::capabilities::table(), flags.output)
    } else {
        print(&Findings::of_this_machine(), flags.output)
    }
}

fn print(answer: &(impl Display + Serialize), output: DoctorOutput) -> Result<(), Exit> {
    match output {
        DoctorOutput::Text => print!("{answer}"),
        DoctorOutput::Json => {
            let text =
                serde_json::to_string_pretty(answer).map_err(|error| Exit::Failed(error.to_string()))?;
            println!("{text}");
        }
    }
    Ok(())
}
