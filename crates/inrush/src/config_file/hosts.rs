//! `[[host]]` in a config file: the settings of one host, as a TOML table.
//!
//! A table becomes the value of `--host`, so that a file is turned into flags as a whole. The keys of a table are the
//! flags of a command of their own ([`HostFlags`]), so a host's settings have the same definitions and errors.

use clap::{CommandFactory, Parser};
use toml::{Table, Value};

use super::flags_of_table;
use crate::cli::HostFlags;
use crate::exit::Exit;

/// The setting that a file writes as `[[host]]`.
pub const HOST: &str = "host";

/// Parses the value of one `--host`, a TOML table on one line.
///
/// # Errors
/// A description of the mistake, which names the host. `place` counts the hosts from 1.
pub fn parse(place: usize, text: &str) -> Result<HostFlags, String> {
    let table = table(text)?;
    let mistake = |said: String| format!("{}: {said}", title(place, &table));
    let mut command = HostFlags::command();
    let bare = command.try_get_matches_from_mut([HOST]).expect("it has no required argument");
    let flags = flags_of_table(&command, &bare, &table).map_err(&mistake)?;
    let words = std::iter::once(HOST.into()).chain(flags);
    HostFlags::try_parse_from(words).map_err(|error| mistake(Exit::from(error).into_message()))
}

/// Returns the words for a host in messages: its first name, or its place.
fn title(place: usize, table: &Table) -> String {
    match table.get("names").and_then(|names| names.as_array().map_or(Some(names), |names| names.first())) {
        Some(Value::String(name)) => format!("host {name}"),
        _ => format!("host number {place}"),
    }
}

/// Parses a table on one line.
pub fn table(text: &str) -> Result<Table, String> {
    let wrong = || {
        format!(
            "--host {text}: it is not a table; expected a TOML table such as {{ names = [\"example.org\"], root = \"site\" }}, in a \
             config file [[host]]"
        )
    };
    let mut document: Table = format!("{HOST} = {text}").parse().map_err(|_| wrong())?;
    match document.remove(HOST) {
        Some(Value::Table(table)) if document.is_empty() => Ok(table),
        _ => Err(wrong()),
    }
}

/// The differences between the hosts of two configurations.
pub struct Changes {
    /// The hosts that differ, in the words of messages.
    pub hosts: Vec<String>,
    /// True if all differences are in settings that may change without a restart.
    pub are_live: bool,
}

/// Compares the hosts of two configurations. The settings in `live` may change without a restart.
pub fn changes(before: Option<&Value>, after: Option<&Value>, live: &[String]) -> Changes {
    let tables = |value: Option<&Value>| -> Vec<Table> {
        let all = value.and_then(Value::as_array).into_iter().flatten();
        all.filter_map(Value::as_table).cloned().collect()
    };
    let (before, after) = (tables(before), tables(after));
    let fixed = |table: &Table| -> Table {
        let kept = table.iter().filter(|(key, _)| !live.contains(key));
        kept.map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    let most = before.len().max(after.len());
    let differ = (0..most).filter(|place| before.get(*place) != after.get(*place));
    let named = |place: usize| title(place + 1, after.get(place).unwrap_or_else(|| &before[place]));
    Changes {
        hosts: differ.map(named).collect(),
        are_live: before.iter().map(fixed).eq(after.iter().map(fixed)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_the_settings_of_a_host() {
        let text = "{ names = ['a.test', '*.a.test'], root = 'x', redirect = '/a /b', listing = true }";
        let host = parse(1, text).unwrap();
        assert_eq!(host.names.iter().map(ToString::to_string).collect::<Vec<_>>(), ["a.test", "*.a.test"]);
        assert_eq!(host.root.as_deref(), Some(std::path::Path::new("x")));
        assert!(host.site.rules().listing && host.site.rules().redirects.len() == 1);
        assert_eq!(host.site.rules().index, ["index.html"]);
    }

    #[test]
    fn mistakes_name_the_host_and_what_is_accepted() {
        for (text, said) in [
            ("x", "it is not a table; expected a TOML table such as"),
            ("{}\nburn = '1s'", "it is not a table"),
            ("{ rot = 'x' }", "host number 7: 'rot' is not a setting of host; did you mean 'root'?"),
            ("{ names = 'a:80' }", "host a:80: invalid value 'a:80' for '--names <NAME>': "),
            ("{ names = ['a'], listing = 'x' }", "host a: 'listing' is 'x'; expected true or false"),
            ("{ names = ['a'], redirect = '/a' }", "host a: invalid value '/a' for '--redirect"),
            ("{ names = ['a'], host = {} }", "host a: 'host' is not a setting of host"),
            ("{ names = ['a'], root = {} }", "host a: 'root' is a table; expected text, a number"),
            ("{ names = ['a'], max-body = 1 }", "host a: 'max-body' is not a setting of host"),
        ] {
            let error = parse(7, text).unwrap_err();
            assert!(error.contains(said) && error.lines().count() <= text.lines().count(), "{text}: {error}");
        }
    }

    #[test]
    fn only_rules_change_without_a_restart() {
        let value = |text: &str| text.parse::<Table>().unwrap().remove(HOST).unwrap();
        let live = ["listing".to_owned()];
        let before = value("[[host]]\nnames = ['a']\nroot = 'x'\n[[host]]\nnames = ['b']");
        let check = |after: &str, hosts: &[&str], are_live: bool| {
            let changes = changes(Some(&before), Some(&value(after)), &live);
            assert_eq!(
                (changes.hosts, changes.are_live),
                (hosts.iter().map(ToString::to_string).collect(), are_live)
            );
        };
        check(
            "[[host]]\nnames = ['a']\nroot = 'x'\n[[host]]\nnames = ['b']\nlisting = true",
            &["host b"],
            true,
        );
        check("[[host]]\nnames = ['a']\nroot = 'y'\n[[host]]\nnames = ['b']", &["host a"], false);
        check("[[host]]\nnames = ['a']\nroot = 'x'", &["host b"], false);
        check("[[host]]\nnames = ['b']\n[[host]]\nnames = ['a']\nroot = 'x'", &["host b", "host a"], false);
        assert!(!changes(Some(&before), None, &live).are_live);
    }
}
