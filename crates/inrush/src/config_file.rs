//! `--config FILE`: the flags of a command as TOML.
//!
//! A file is turned into the flags it stands for and put before those of the command line, so that there
//! is one definition of each setting, one parser, and one wording of each mistake. Flags win: a setting
//! that the command line gives is left out of the file's. Keys are the long flags without their dashes;
//! positional arguments go by their name in lower case (`root = "public"`); an array repeats a flag.

use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, CommandFactory};

use crate::cli::Cli;
use crate::exit::Exit;

/// The command line with the file's settings in it; unchanged where it names no file.
///
/// # Errors
/// [`Exit::Usage`]: the file cannot be read, is no TOML, or has a key that is no setting of the command.
pub fn expand(arguments: Vec<OsString>) -> Result<Vec<OsString>, Exit> {
    let mut lenient = Cli::command().ignore_errors(true);
    let Ok(matches) = lenient.try_get_matches_from_mut(&arguments) else { return Ok(arguments) };
    let Some((name, matches)) = matches.subcommand() else { return Ok(arguments) };
    let Some(path) = matches.try_get_one::<String>("config").ok().flatten() else { return Ok(arguments) };
    let text = std::fs::read_to_string(path)
        .map_err(|cause| Exit::Usage(format!("--config {path}: cannot read it: {cause}")))?;
    let table: toml::Table = text.parse().map_err(|cause: toml::de::Error| {
        let line = cause.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        Exit::Usage(format!("--config {path}: line {line}: {}", cause.message().replace('\n', " ")))
    })?;
    let command = lenient.find_subcommand(name).expect("it was matched").clone();
    let mut expanded = arguments;
    for (key, value) in table {
        let flags = flags_for(&command, matches, &key, &value)
            .map_err(|wrong| Exit::Usage(format!("--config {path}: {wrong}")))?;
        expanded.extend(flags);
    }
    Ok(expanded)
}

fn flags_for(
    command: &clap::Command,
    matches: &ArgMatches,
    key: &str,
    value: &toml::Value,
) -> Result<Vec<OsString>, String> {
    let settings =
        || command.get_arguments().filter(|known| !matches!(known.get_id().as_str(), "config" | "help"));
    let name_of = |known: &clap::Arg| known.get_long().unwrap_or(known.get_id().as_str()).to_owned();
    let Some(setting) = settings().find(|known| name_of(known) == key) else {
        let names: Vec<String> = settings().map(name_of).collect();
        return Err(format!(
            "'{key}' is no setting of {}; accepted are: {}",
            command.get_name(),
            names.join(", ")
        ));
    };
    if matches.value_source(setting.get_id().as_str()) == Some(ValueSource::CommandLine) {
        return Ok(Vec::new());
    }
    let values = match value {
        toml::Value::Array(values) => values.clone(),
        single => vec![single.clone()],
    };
    let mut flags = Vec::new();
    for value in values {
        let text = match &value {
            toml::Value::String(text) => text.clone(),
            toml::Value::Integer(_) | toml::Value::Float(_) | toml::Value::Boolean(_) => value.to_string(),
            other => {
                return Err(format!(
                    "'{key}' is a {}; accepted are text, numbers, true and false",
                    other.type_str()
                ));
            }
        };
        match (setting.get_long(), setting.get_action(), text.as_str()) {
            (None, _, _) => flags.push(text.into()),
            (Some(long), ArgAction::SetTrue, "true") => flags.push(format!("--{long}").into()),
            (Some(_), ArgAction::SetTrue, "false") => {}
            (Some(_), ArgAction::SetTrue, _) => {
                return Err(format!("'{key}' is '{text}'; accepted are true and false"));
            }
            (Some(long), _, _) => flags.push(format!("--{long}={text}").into()),
        }
    }
    Ok(flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(file: &str, arguments: &[&str]) -> Result<Vec<String>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.toml");
        std::fs::write(&path, file).unwrap();
        let mut line: Vec<OsString> = ["inrush", "serve"].map(OsString::from).to_vec();
        line.extend(arguments.iter().map(OsString::from));
        line.push(format!("--config={}", path.display()).into());
        let fixed = line.len();
        match expand(line) {
            Ok(all) => Ok(all[fixed..].iter().map(|part| part.to_str().unwrap().to_owned()).collect()),
            Err(Exit::Usage(message)) => Err(message.replace(path.to_str().unwrap(), "FILE")),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn settings_become_flags_and_the_command_line_wins() {
        let file =
            "root = 'public'\naccept-limit = 10\nlisten = ['127.0.0.1:0', '[::1]:0']\nshow-dot-files = true";
        assert_eq!(
            expanded(file, &["--accept-limit", "inf"]).unwrap(),
            ["--listen=127.0.0.1:0", "--listen=[::1]:0", "public", "--show-dot-files"]
        );
    }

    #[test]
    fn mistakes_name_the_file_the_setting_and_what_is_accepted() {
        let error = expanded("acept-limit = 1", &[]).unwrap_err();
        assert!(
            error.starts_with("--config FILE: 'acept-limit' is no setting of serve; accepted are: root, "),
            "{error}"
        );
        let error = expanded("root = ", &[]).unwrap_err();
        assert!(error.starts_with("--config FILE: line 1: "), "{error}");
        let error = expanded("burn = '1s'\nburn = '2s'", &[]).unwrap_err();
        assert!(error.starts_with("--config FILE: line 2: "), "{error}");
        let error = expanded("burn = 1979-05-27", &[]).unwrap_err();
        assert_eq!(error, "--config FILE: 'burn' is a datetime; accepted are text, numbers, true and false");
    }
}
