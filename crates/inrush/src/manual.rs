//! `inrush completions` and `inrush man`: what shells and man(1) need to know of the flags, from their one
//! definition.

use std::fs;
use std::io::{self, Write};

use clap::CommandFactory;

use crate::cli::{Cli, CompletionsFlags, ManFlags};
use crate::exit::Exit;

/// Prints a shell's completions.
pub fn completions(flags: &CompletionsFlags) -> Result<(), Exit> {
    let mut script = Vec::new();
    clap_complete::generate(flags.shell, &mut Cli::command(), "inrush", &mut script);
    io::stdout()
        .write_all(&script)
        .map_err(|cause| Exit::Failed(format!("cannot write the completions: {cause}")))
}

/// Writes a page for the program and one for each command.
pub fn pages(flags: &ManFlags) -> Result<(), Exit> {
    let failed = |cause: io::Error| Exit::Failed(format!("--out {}: {cause}", flags.out.display()));
    fs::create_dir_all(&flags.out).map_err(failed)?;
    let program = Cli::command().disable_help_subcommand(true);
    clap_mangen::generate_to(program, &flags.out).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_with_its_flags_and_hidden_ones_have_none() {
        let folder = tempfile::tempdir().unwrap();
        pages(&ManFlags { out: folder.path().to_owned() }).unwrap();
        let page = |name: &str| fs::read_to_string(folder.path().join(name));
        assert!(page("inrush.1").unwrap().contains("inrush\\-load(1)"));
        let load = page("inrush-load.1").unwrap();
        assert!(load.contains("\\-\\-connect\\-timeout"), "{load}");
        assert!(page("inrush-herd-waiter.1").is_err());
    }
}
