//! The laboratory: the commands that measure, and those that make what they measure.
//!
//! `experiments` is `inrush lab`, which carries out the experiment of `demo` too. `capacity` surveys a server, `herd` counts
//! wake-ups, `wan` runs a command over a path, and `fileset` writes files to serve.

mod capacity;
mod demo;
mod experiments;
mod fileset;
mod herd;
mod wan;

pub use ::lab::facilities::findings;

use crate::cli::Instrument;
use crate::exit::Exit;

/// Carries out a command of the laboratory.
pub fn run(instrument: Instrument) -> Result<(), Exit> {
    if matches!(instrument, Instrument::Demo(_) | Instrument::Lab(_) | Instrument::Wan(_)) {
        // Without a user namespace these commands still run, and report the missing privileges.
        let _ = sys::network::userns::enter_unless_privileged();
    }
    match instrument {
        Instrument::Capacity(flags) => capacity::run(*flags),
        Instrument::Fileset(flags) => fileset::run(flags),
        Instrument::Demo(flags) => demo::run(flags),
        Instrument::Lab(flags) => experiments::run(flags),
        Instrument::Herd(flags) => herd::run(flags),
        Instrument::Wan(flags) => wan::run(*flags),
        Instrument::HerdWaiter(arguments) => herd::run_waiter(&arguments),
    }
}
