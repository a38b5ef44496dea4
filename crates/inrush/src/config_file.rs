//! `--config FILE`: the flags of a command as TOML.
//!
//! The file is turned into flags, which are put behind those of the command line. Each setting thus has one
//! definition, one parser, and one wording of each mistake. Flags win: the file's value of a setting is
//! dropped if the command line gives one. Keys are the long flags without their dashes. Positional arguments
//! go by their name in lower case (`root = "public"`). An array repeats a flag. Tables are in `hosts`.
//!
//! The reverse direction gives the effective configuration: the parsed settings of file and flags, as a file.
//! Worker processes are started with it.

pub mod hosts;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::Path;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Args, CommandFactory, FromArgMatches};

use crate::cli::{Cli, ServeFlags};
use crate::exit::Exit;
use hosts::HOST;

/// Flags that act on settings and are no settings themselves.
const NO_SETTINGS: [&str; 4] = ["config", "print_config", "check", "help"];

/// The content of a config file.
#[derive(Debug)]
pub struct ConfigFile {
    path: String,
    text: String,
    /// False for a pipe, which gives its content once.
    is_regular: bool,
}

impl ConfigFile {
    /// The file that a command line names; `None` if it names none.
    ///
    /// # Errors
    /// [`Exit::Usage`] if the file cannot be read.
    fn named_in(arguments: &[OsString]) -> Result<Option<ConfigFile>, Exit> {
        let mut lenient = Cli::command().ignore_errors(true);
        let Ok(matches) = lenient.try_get_matches_from_mut(arguments) else { return Ok(None) };
        let named = matches.subcommand().map(|(_, matches)| matches.try_get_one::<String>("config"));
        let Some(Ok(Some(path))) = named else { return Ok(None) };
        ConfigFile::read(path).map(Some)
    }

    fn read(path: &str) -> Result<ConfigFile, Exit> {
        let wrong = |cause: io::Error| Exit::Usage(format!("--config {path}: cannot read it: {cause}"));
        let file = File::open(path).map_err(wrong)?;
        let is_regular = file.metadata().map_err(wrong)?.is_file();
        let text = io::read_to_string(file).map_err(wrong)?;
        Ok(ConfigFile { path: path.to_owned(), text, is_regular })
    }

    /// The path, if the file can be read again. A pipe cannot: its second reader finds it empty.
    pub fn rereadable(&self) -> Option<&Path> {
        self.is_regular.then(|| Path::new(&self.path))
    }

    /// Reads the file again.
    ///
    /// # Errors
    /// [`Exit::Usage`] if it cannot be read, is not [`rereadable`](Self::rereadable), or seems to be half written.
    pub fn read_again(&self) -> Result<ConfigFile, Exit> {
        if self.rereadable().is_none() {
            return Err(self.not_rereadable());
        }
        let newest = ConfigFile::read(&self.path)?;
        newest.check_complete(self)?;
        Ok(newest)
    }

    /// The error about a file that is not [`rereadable`](Self::rereadable).
    pub fn not_rereadable(&self) -> Exit {
        let path = &self.path;
        Exit::Usage(format!(
            "--config {path}: it cannot be read again, because it is no regular file; expected a regular file, or a restart"
        ))
    }

    /// Refuses a file that seems to be half written, although it is valid. `before` counts as complete,
    /// whatever its content.
    ///
    /// # Errors
    /// [`Exit::Usage`] if its settings are gone or its last line has no end.
    fn check_complete(&self, before: &ConfigFile) -> Result<(), Exit> {
        let is_empty =
            |file: &ConfigFile| file.text.parse::<toml::Table>().is_ok_and(|table| table.is_empty());
        let wrong = if is_empty(self) && !is_empty(before) {
            "it has no settings any more; if all of them should have their defaults, restart the server"
        } else if before.text.ends_with('\n') && !self.text.ends_with('\n') {
            "its last line does not end, so it may not be complete; expected a file that ends with a line end"
        } else {
            return Ok(());
        };
        Err(Exit::Usage(format!("--config {}: {wrong}", self.path)))
    }

    /// The command line with the settings of the file that it names.
    ///
    /// # Errors
    /// [`Exit::Usage`] if the file is not TOML, or has a key that is not a setting of the command, or a value that the
    /// setting does not accept.
    pub fn expand(&self, given: Vec<OsString>) -> Result<Vec<OsString>, Exit> {
        let expanded = self.put_into(given.clone())?;
        let mistake = |words| Cli::command().try_get_matches_from(words).err();
        let is_whole = mistake(given).is_none_or(|error| error.kind() == ErrorKind::MissingRequiredArgument);
        match mistake(expanded.clone()).map(Exit::from) {
            Some(Exit::Usage(wrong)) if is_whole => {
                Err(Exit::Usage(format!("--config {}: {wrong}", self.path)))
            }
            _ => Ok(expanded),
        }
    }

    fn put_into(&self, mut arguments: Vec<OsString>) -> Result<Vec<OsString>, Exit> {
        let mut lenient = Cli::command().ignore_errors(true);
        let matches = lenient.try_get_matches_from_mut(&arguments)?;
        let (name, matches) = matches.subcommand().expect("it named the file");
        let command = lenient.find_subcommand(name).expect("it was matched");
        let flags = flags_of(command, matches, &self.text)
            .map_err(|wrong| Exit::Usage(format!("--config {}: {wrong}", self.path)))?;
        // Words behind two dashes alone are no flags. The file's dashes take the place of the command line's.
        let end = arguments.iter().position(|word| word == "--").unwrap_or(arguments.len());
        let dashes = usize::from(end < arguments.len() && flags.iter().any(|word| word == "--"));
        arguments.splice(end..end + dashes, flags);
        Ok(arguments)
    }
}

/// The command line with its file's settings, and the file. The command line is unchanged if it names no file.
///
/// # Errors
/// [`Exit::Usage`] if the file cannot be read, is not TOML, or has a key that is not a setting of the command, or a value
/// that the setting does not accept.
pub fn read(arguments: Vec<OsString>) -> Result<(Vec<OsString>, Option<ConfigFile>), Exit> {
    match ConfigFile::named_in(&arguments)? {
        Some(file) => Ok((file.expand(arguments)?, Some(file))),
        None => Ok((arguments, None)),
    }
}

/// The command line with its file's settings; unchanged if it names no file.
///
/// # Errors
/// The errors of [`read`].
pub fn expand(arguments: Vec<OsString>) -> Result<Vec<OsString>, Exit> {
    read(arguments).map(|(expanded, _)| expanded)
}

/// The effective configuration of a command line and its file: every setting. Settings without a value or a
/// default are comments.
///
/// # Errors
/// [`Exit::Usage`] if the command line is wrong, or if a value is not UTF-8 and cannot be in a file.
pub fn effective(arguments: &[OsString]) -> Result<String, Exit> {
    let mut program = Cli::command();
    let matches = program.try_get_matches_from_mut(arguments)?;
    let (name, matches) = matches.subcommand().expect("a command is required");
    let command = program.find_subcommand(name).expect("it was matched");
    // A key behind a table would be the table's.
    let (tables, others): (Vec<_>, Vec<_>) = settings(command).partition(|setting| is_table(setting));
    let lines = others.into_iter().chain(tables).map(|setting| line_for(setting, matches));
    lines.collect::<Result<_, _>>().map_err(Exit::Usage)
}

/// Parses an effective configuration into the flags of `serve`.
///
/// # Errors
/// A description of the mistake in the text.
pub fn serve_flags(text: &str) -> Result<ServeFlags, String> {
    // The other commands would take most of the time, and every worker reads its configuration here.
    let mut serve = ServeFlags::augment_args(clap::Command::new("serve"));
    let bare = serve.try_get_matches_from_mut(["serve"]).expect("serve has no required argument");
    let flags = flags_of(&serve, &bare, text)?;
    let matches = serve.try_get_matches_from_mut(std::iter::once("serve".into()).chain(flags));
    let matches = matches.map_err(|error| Exit::from(error).into_message())?;
    ServeFlags::from_arg_matches(&matches).map_err(|error| Exit::from(error).into_message())
}

/// The differences between the effective configuration in force and a newer one.
#[derive(Debug, PartialEq)]
pub struct Change {
    /// The configuration in force from now on.
    pub text: String,
    /// The settings that change now.
    pub applied: Vec<String>,
    /// The settings that would change only if the server were restarted.
    pub needs_restart: Vec<String>,
}

impl Change {
    /// Compares two configurations. The settings in `live` may change without a restart.
    pub fn between(in_force: &str, newest: &str, live: &[String]) -> Change {
        let table = |text: &str| text.parse::<toml::Table>().expect("an effective configuration is TOML");
        let (mut merged, newest) = (table(in_force), table(newest));
        let names: BTreeSet<&String> = merged.keys().chain(newest.keys()).collect();
        let changed = names.into_iter().filter(|name| merged.get(*name) != newest.get(*name)).cloned();
        let (mut applied, mut needs_restart): (Vec<String>, Vec<String>) =
            changed.filter(|name| name != HOST).partition(|name| live.contains(name));
        let hosts = hosts::changes(merged.get(HOST), newest.get(HOST), live);
        let accepted = hosts.are_live.then(|| HOST.to_owned());
        for name in applied.iter().chain(&accepted) {
            match newest.get(name) {
                Some(value) => drop(merged.insert(name.clone(), value.clone())),
                None => drop(merged.remove(name)),
            }
        }
        if hosts.are_live { &mut applied } else { &mut needs_restart }.extend(hosts.hosts);
        Change { text: merged.to_string(), applied, needs_restart }
    }
}

fn line_for(setting: &clap::Arg, matches: &ArgMatches) -> Result<String, String> {
    let (name, id) = (name_of(setting), setting.get_id().as_str());
    if matches!(setting.get_action(), ArgAction::SetTrue) {
        return Ok(format!("{name} = {}\n", matches.get_flag(id)));
    }
    let texts = matches.get_raw(id).into_iter().flatten().map(|text| text.to_str());
    let texts = texts
        .collect::<Option<Vec<_>>>()
        .ok_or_else(|| format!("{name}: expected UTF-8, because the server keeps its settings as text"))?;
    if is_table(setting) && !texts.is_empty() {
        let tables = texts.into_iter().map(|text| Ok(format!("\n[[{name}]]\n{}", hosts::table(text)?)));
        return tables.collect();
    }
    let mut values: Vec<toml::Value> = texts.into_iter().map(value_of).collect();
    match values.len() {
        0 => {
            let help = setting.get_help().map(ToString::to_string).unwrap_or_default();
            Ok(format!("# {name}: {}\n", help.replace('\n', " ")))
        }
        1 => Ok(format!("{name} = {}\n", values.remove(0))),
        _ => Ok(format!("{name} = {}\n", toml::Value::Array(values))),
    }
}

/// A number if it prints as the same text, as a person would write it.
fn value_of(text: &str) -> toml::Value {
    match text.parse::<i64>() {
        Ok(number) if number.to_string() == text => toml::Value::Integer(number),
        _ => toml::Value::String(text.to_owned()),
    }
}

fn settings(command: &clap::Command) -> impl Iterator<Item = &clap::Arg> {
    command.get_arguments().filter(|known| !NO_SETTINGS.contains(&known.get_id().as_str()))
}

fn name_of(setting: &clap::Arg) -> &str {
    setting.get_long().unwrap_or(setting.get_id().as_str())
}

fn is_table(setting: &clap::Arg) -> bool {
    setting.get_id() == HOST
}

/// The flags for the text of a file, without those that the command line gives.
fn flags_of(command: &clap::Command, matches: &ArgMatches, text: &str) -> Result<Vec<OsString>, String> {
    let table: toml::Table = text.parse().map_err(|cause: toml::de::Error| {
        let line = cause.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        format!("line {line}: {}", cause.message().replace('\n', " "))
    })?;
    flags_of_table(command, matches, &table)
}

/// The flags for a table. Positional arguments, which may begin with a dash, come last, behind two dashes.
fn flags_of_table(
    command: &clap::Command,
    matches: &ArgMatches,
    table: &toml::Table,
) -> Result<Vec<OsString>, String> {
    let (mut flags, mut positional) = (Vec::new(), Vec::new());
    for (key, value) in table {
        let setting = setting_of(command, key)?;
        if matches.value_source(setting.get_id().as_str()) != Some(ValueSource::CommandLine) {
            let words = if setting.is_positional() { &mut positional } else { &mut flags };
            words.extend(words_for(setting, key, value)?);
        }
    }
    if !positional.is_empty() {
        flags.push("--".into());
    }
    flags.extend(positional);
    Ok(flags)
}

fn setting_of<'a>(command: &'a clap::Command, key: &str) -> Result<&'a clap::Arg, String> {
    settings(command).find(|known| name_of(known) == key).ok_or_else(|| {
        let names: Vec<&str> = settings(command).map(name_of).collect();
        let name = command.get_name();
        match base::nearest(key, names.iter().copied()) {
            Some(meant) => format!("'{key}' is not a setting of {name}; did you mean '{meant}'?"),
            None => format!("'{key}' is not a setting of {name}; expected one of: {}", names.join(", ")),
        }
    })
}

fn words_for(setting: &clap::Arg, key: &str, value: &toml::Value) -> Result<Vec<OsString>, String> {
    let values = match value {
        toml::Value::Array(values) => values.clone(),
        single => vec![single.clone()],
    };
    let mut words = Vec::new();
    for value in values {
        let text = match &value {
            toml::Value::String(text) => text.clone(),
            toml::Value::Integer(_) | toml::Value::Float(_) | toml::Value::Boolean(_) => value.to_string(),
            toml::Value::Table(_) if is_table(setting) => value.to_string(),
            other => {
                return Err(format!(
                    "'{key}' is a {}; expected text, a number, true or false",
                    other.type_str()
                ));
            }
        };
        match (setting.get_long(), setting.get_action(), text.as_str()) {
            (None, _, _) => words.push(text.into()),
            (Some(long), ArgAction::SetTrue, "true") => words.push(format!("--{long}").into()),
            (Some(_), ArgAction::SetTrue, "false") => {}
            (Some(_), ArgAction::SetTrue, _) => {
                return Err(format!("'{key}' is '{text}'; expected true or false"));
            }
            (Some(long), _, _) => words.push(format!("--{long}={text}").into()),
        }
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use proptest::prelude::*;
    use proptest::sample::{Index, select};

    use super::*;
    use crate::cli::Command;

    /// A value of any kind, as TOML.
    fn any_value() -> impl Strategy<Value = toml::Value> {
        let known =
            select(vec!["on", "off", "auto", "inf", "127.0.0.1:0", "per-core", "20ms", "64KiB", "5%"]);
        let one = prop_oneof![
            known.prop_map(|text| text.into()),
            any::<i64>().prop_map(toml::Value::Integer),
            any::<bool>().prop_map(toml::Value::Boolean),
            any::<String>().prop_map(toml::Value::String),
        ];
        prop_oneof![4 => one.clone(), 1 => prop::collection::vec(one, 0..3).prop_map(toml::Value::Array)]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_file_reads_back_or_is_refused_in_a_line(
            given in prop::collection::vec((any::<Index>(), any_value()), 0..4),
        ) {
            let command = Cli::command();
            let names: Vec<&str> = settings(command.find_subcommand("serve").unwrap()).map(name_of).collect();
            let table: toml::Table = given.into_iter().map(|(at, value)| (at.get(&names).to_string(), value)).collect();
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("any.toml");
            std::fs::write(&path, table.to_string()).unwrap();
            let read = expand(line(&[&format!("--config={}", path.display())]));
            match read.and_then(|arguments| Ok((effective(&arguments)?, arguments))) {
                Err(refused) => {
                    let why = refused.into_message();
                    prop_assert!(why.starts_with("--") && why.lines().count() == 1, "{}", why);
                }
                Ok((text, arguments)) => {
                    let again = serve_flags(&text).unwrap();
                    prop_assert_eq!(format!("{again:?}"), format!("{:?}", parsed(arguments)));
                }
            }
        }
    }

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

    fn line(words: &[&str]) -> Vec<OsString> {
        ["inrush", "serve"].iter().chain(words).map(OsString::from).collect()
    }

    fn parsed(arguments: Vec<OsString>) -> ServeFlags {
        match Cli::try_parse_from(arguments).unwrap().command {
            Command::Serve(flags) => ServeFlags { config: None, ..*flags },
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_files_flags_stand_before_two_dashes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.toml");
        std::fs::write(&path, "workers = 3\n").unwrap();
        let config = format!("--config={}", path.display());
        let check = |words: &[&str]| {
            let flags = parsed(expand(line(&[&[&*config], words].concat())).unwrap());
            assert_eq!(
                (flags.workers, flags.root.as_deref()),
                (Some(3), Some(std::path::Path::new("-site")))
            );
        };
        check(&["--", "-site"]);
        std::fs::write(&path, "root = '-site'\nworkers = 3\n").unwrap();
        check(&[]);
        check(&["--"]);
    }

    #[cfg(feature = "mechanisms")]
    #[test]
    fn effective_configuration_reads_back_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("effective.toml");
        let from_file = format!("--config={}", path.display());
        for given in [
            &[][..],
            &["a \"folder\" \\ of\tsorts", "--listen=[::1]:0", "--listen=127.0.0.1:0", "--show-dot-files"],
            &["--arch=mt", "--wake=mutex", "--workers=7", "--accept-limit=inf", "--cpus=0", "--burn=1ms"],
            &["--dispatch=fdm", "--fdm-live-counter=4", "--sleep-threshold=adaptive", "--access-log=-"],
            &["--redirect=/a* /b/* 301", "--redirect=/c /d", "--header=/* X: \"y\" 'z'", "--listing"],
            &["--error-page=404 /4.html", "--fallback=/i", "--index=a", "--index=b"],
            &["--admin=127.0.0.1:9", "--log-format=json", "--max-head=2KiB", "--max-requests=3", "007"],
            &["--", "-site"],
        ] {
            let text = effective(&line(given)).unwrap();
            std::fs::write(&path, &text).unwrap();
            let again = expand(line(&[&from_file])).unwrap();
            assert_eq!(format!("{:?}", parsed(again.clone())), format!("{:?}", parsed(line(given))));
            assert_eq!(effective(&again).unwrap(), text);
            assert_eq!(format!("{:?}", serve_flags(&text).unwrap()), format!("{:?}", parsed(line(given))));
        }
    }

    #[test]
    fn effective_configuration_has_every_setting() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("given.toml");
        std::fs::write(&path, "workers = 3\nbacklog = 9\n").unwrap();
        let arguments = expand(line(&["--backlog=8", &format!("--config={}", path.display())])).unwrap();
        let text = effective(&arguments).unwrap();
        assert!(text.contains("workers = 3\n") && text.contains("backlog = 8\n"), "{text}");
        assert!(text.contains("# wake: "), "{text}");
        let command = Cli::command();
        assert_eq!(text.lines().count(), settings(command.find_subcommand("serve").unwrap()).count());
    }

    #[cfg(feature = "mechanisms")]
    #[test]
    fn of_a_changed_file_what_may_change_does() {
        let live = crate::cli::LiveFlags::names();
        assert!(live.contains(&"accept-limit".to_owned()) && live.contains(&"max-head".to_owned()));
        let before = effective(&line(&["--workers=2", "--accept-limit=5"])).unwrap();
        let after = effective(&line(&["--workers=3", "--idle-timeout=9s", "--dispatch=poll"])).unwrap();
        let change = Change::between(&before, &after, &live);
        assert_eq!(change.applied, ["accept-limit", "idle-timeout"]);
        assert_eq!(change.needs_restart, ["dispatch", "workers"]);
        let flags = serve_flags(&change.text).unwrap();
        assert_eq!((flags.workers, flags.live.accept_limit, flags.dispatch), (Some(2), None, None));
        assert_eq!(flags.live.idle_timeout, base::Nanos::from_secs(9));
        let again = Change::between(&change.text, &after, &live);
        assert_eq!((again.applied.len(), again.needs_restart.len()), (0, 2));
    }

    #[test]
    fn truncated_config_file_is_incomplete() {
        let file =
            |text: &str| ConfigFile { path: "FILE".to_owned(), text: text.to_owned(), is_regular: true };
        for (before, now, complete) in [
            ("a = 1\n", "a = 2\n", true),
            ("a = 1\nb = 2\n", "a = 1\n", true),
            ("a = 1\n", "", false),
            ("a = 1\n", "# nothing yet\n", false),
            ("", "", true),
            ("# nothing yet\n", "\n", true),
            ("a = 10\n", "a = 1", false),
            ("a = 10", "a = 1", true),
            // A text that is not TOML gets the TOML parser's error.
            ("a = 1\n", "a = \n", true),
        ] {
            let checked = file(now).check_complete(&file(before));
            assert_eq!(checked.is_ok(), complete, "{before:?} {now:?}");
        }
    }

    #[test]
    fn settings_become_flags_and_the_command_line_wins() {
        let file =
            "root = 'public'\naccept-limit = 10\nlisten = ['127.0.0.1:0', '[::1]:0']\nshow-dot-files = true";
        assert_eq!(
            expanded(file, &["--accept-limit", "inf"]).unwrap(),
            ["--listen=127.0.0.1:0", "--listen=[::1]:0", "--show-dot-files", "--", "public"]
        );
    }

    #[test]
    fn config_mistake_names_file_setting_and_choices() {
        let error = expanded("acept-limit = 1", &[]).unwrap_err();
        assert_eq!(
            error,
            "--config FILE: 'acept-limit' is not a setting of serve; did you mean 'accept-limit'?"
        );
        let error = expanded("zzz = 1", &[]).unwrap_err();
        assert!(error.starts_with("--config FILE: 'zzz' is not a setting of serve; expected one of: root, "));
        let error = expanded("workers = 2.5", &[]).unwrap_err();
        assert!(error.starts_with("--config FILE: invalid value '2.5' for '--workers <N>'"), "{error}");
        let error = expanded("root = ", &[]).unwrap_err();
        assert!(error.starts_with("--config FILE: line 1: "), "{error}");
        let error = expanded("burn = '1s'\nburn = '2s'", &[]).unwrap_err();
        assert!(error.starts_with("--config FILE: line 2: "), "{error}");
        let error = expanded("burn = 1979-05-27", &[]).unwrap_err();
        assert_eq!(error, "--config FILE: 'burn' is a datetime; expected text, a number, true or false");
        let error = serve_flags("workers = 'many'").unwrap_err();
        assert!(error.starts_with("invalid value 'many'") && error.lines().count() == 1, "{error}");
    }
}
