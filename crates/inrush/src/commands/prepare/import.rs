//! `inrush import`: prints a config file for `inrush serve` that does the work of another server's.
//!
//! Owns the form of the printed file: settings, hosts, and a comment for each directive that has no equal. [`nginx`]
//! reads the other server's file.

mod nginx;

use std::fmt::Write;

use crate::cli::ImportCommand;
use crate::exit::Exit;
use crate::output;

/// Prints the config file.
pub fn run(command: &ImportCommand) -> Result<(), Exit> {
    let ImportCommand::Nginx { file } = command;
    let imported = nginx::import(file).map_err(Exit::Usage)?;
    output::text("the config file", &imported.text(&format!("inrush import nginx {}", file.display())))
}

/// Settings, by name. A setting with several values is a list.
#[derive(Clone, Debug, Default, PartialEq)]
struct Settings(Vec<(&'static str, Vec<toml::Value>)>);

impl Settings {
    /// Adds a value to a setting.
    fn add(&mut self, name: &'static str, value: impl Into<toml::Value>) {
        let value = value.into();
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, values)) if !values.contains(&value) => values.push(value),
            Some(_) => {}
            None => self.0.push((name, vec![value])),
        }
    }

    /// Gives a setting its one value. Returns false if it has another value, which it keeps.
    #[must_use]
    fn set(&mut self, name: &'static str, value: impl Into<toml::Value>) -> bool {
        let value = value.into();
        match self.0.iter().find(|(known, _)| *known == name) {
            Some((_, values)) => values[..] == [value],
            None => {
                self.0.push((name, vec![value]));
                true
            }
        }
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| *known == name)
    }

    fn extend(&mut self, other: &Settings) {
        for (name, values) in &other.0 {
            values.iter().for_each(|value| self.add(name, value.clone()));
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (name, values) in &self.0 {
            // Writing to a String cannot fail.
            let _ = match &values[..] {
                [value] => writeln!(text, "{name} = {value}"),
                values => {
                    let lines = values.iter().map(|value| format!("    {value},\n"));
                    writeln!(text, "{name} = [\n{}]", lines.collect::<String>())
                }
            };
        }
        text
    }
}

/// A configuration of another server in our terms.
#[derive(Debug, Default)]
struct Imported {
    server: Settings,
    hosts: Vec<Settings>,
    /// The directives that have no equal, each with its place and the reason.
    notes: Vec<String>,
}

impl Imported {
    fn text(&self, command: &str) -> String {
        let mut text = format!("# Printed by: {command}\n");
        if !self.notes.is_empty() {
            text.push_str("#\n# These have no equal here:\n");
        }
        for note in &self.notes {
            text.extend(["# ", note, "\n"]);
        }
        text.extend(["\n", &self.server.text()]);
        for host in &self.hosts {
            text.extend(["\n[[host]]\n", &host.text()]);
        }
        text
    }
}
