//! The commands that a build may leave out, each with the cargo feature that has it.
//!
//! Owns the message about a command that this build lacks. The commands themselves are in the lists of `cli` and `commands`.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// The commands, each with its feature.
const PARTS: [(&str, &str); 9] = [
    ("guard", "guard"),
    ("load", "load"),
    ("fleet", "fleet"),
    ("capacity", "lab"),
    ("fileset", "lab"),
    ("demo", "lab"),
    ("lab", "lab"),
    ("herd", "lab"),
    ("wan", "lab"),
];

/// The message for a command that this build leaves out; `None` for any other error.
pub fn left_out(error: &clap::Error) -> Option<String> {
    let (ErrorKind::InvalidSubcommand, Some(ContextValue::String(asked))) =
        (error.kind(), error.get(ContextKind::InvalidSubcommand))
    else {
        return None;
    };
    let (command, feature) = PARTS.iter().find(|(command, _)| command == asked)?;
    Some(format!("this build has no {command}: build it with cargo build --release --features {feature}"))
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory};

    use super::*;
    use crate::cli::Cli;

    #[track_caller]
    fn said(asked: &str) -> Option<String> {
        let server_alone = Command::new("inrush").subcommand(Command::new("serve"));
        left_out(&server_alone.try_get_matches_from(["inrush", asked]).unwrap_err())
    }

    #[test]
    fn a_command_left_out_names_its_feature() {
        let expected = "this build has no demo: build it with cargo build --release --features lab";
        assert_eq!(said("demo").as_deref(), Some(expected));
        assert_eq!((said("no-such-command"), said("--no-such-flag")), (None, None));
    }

    #[test]
    fn each_part_is_a_command_of_its_feature_alone() {
        let built = [
            ("guard", cfg!(feature = "guard")),
            ("load", cfg!(feature = "load")),
            ("fleet", cfg!(feature = "fleet")),
            ("lab", cfg!(feature = "lab")),
        ];
        let program = Cli::command();
        for (command, feature) in PARTS {
            let is_built = built.iter().any(|(name, is_built)| *name == feature && *is_built);
            assert_eq!(program.find_subcommand(command).is_some(), is_built, "{command}");
        }
    }
}
