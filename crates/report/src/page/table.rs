//! A table on a page; the table of the machine and the command line, which every kind of page has.

use record::Manifest;
use serde::Serialize;

use crate::format::date;

/// A table; the first column names the row.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Table {
    /// The columns' names.
    pub head: Vec<String>,
    /// The rows, each as long as the head.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// A table; every row has as many cells as the head.
    pub fn new(head: &[&str], rows: Vec<Vec<String>>) -> Table {
        Table { head: head.iter().map(|name| (*name).to_owned()).collect(), rows }
    }
}

/// The machine and the settings.
pub fn machine(schema: &str, manifest: &Manifest) -> Table {
    let seed = manifest.seed.map_or("none".to_owned(), |seed| seed.to_string());
    let limit = manifest.descriptor_limit.map_or("unknown".to_owned(), |limit| limit.to_string());
    let mut rows = vec![
        ("schema".to_owned(), schema.to_owned()),
        ("Inrush".to_owned(), manifest.version.clone()),
        ("started".to_owned(), date(manifest.started_unix_s)),
        ("kernel".to_owned(), manifest.kernel.clone()),
        ("processor".to_owned(), manifest.cpu.clone()),
        ("CPUs online".to_owned(), manifest.cpus.to_string()),
        ("CPUs allowed".to_owned(), manifest.cpus_allowed.clone()),
        ("descriptor limit".to_owned(), limit),
        ("seed".to_owned(), seed),
    ];
    rows.extend(manifest.sysctls.iter().map(|(name, value)| (name.clone(), value.clone())));
    rows.extend(manifest.config.iter().map(|(name, value)| (format!("setting {name}"), value.clone())));
    Table::new(&["what", "value"], rows.into_iter().map(|(name, value)| vec![name, value]).collect())
}

/// Words as a shell reads them back.
pub fn command_line(arguments: &[String]) -> String {
    let plain = |argument: &str| {
        let safe = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=,@%+".contains(letter);
        !argument.is_empty() && argument.chars().all(safe)
    };
    let quoted = arguments.iter().map(|argument| {
        if plain(argument) { argument.clone() } else { format!("'{}'", argument.replace('\'', r"'\''")) }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_can_be_pasted_into_a_shell() {
        let arguments = ["inrush", "load", "http://[::1]:80/?a=b c", "it's", ""].map(str::to_owned);
        assert_eq!(command_line(&arguments), r"inrush load 'http://[::1]:80/?a=b c' 'it'\''s' ''");
    }
}
