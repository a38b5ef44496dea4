//! A page for each command: its usage, flags, defaults and help texts.

use clap::{Arg, Command};

use super::{Pages, literal, row};

/// The index, and the page of each command that users see.
pub fn pages() -> Pages {
    let program = inrush::reference::command();
    let mut index = "# Commands\n\nEach page has the usage of a command, its flags and their defaults. `inrush COMMAND --help` \
                     prints the same.\n\n| command | task |\n|---|---|\n"
        .to_owned();
    let mut pages = Pages::new();
    for command in visible(&program) {
        let name = command.get_name();
        let link = format!("[`inrush {name}`]({name}.md)");
        index += &row([&link, &literal(&about(command))]);
        pages.insert(format!("commands/{name}.md").into(), page(command, 1));
    }
    pages.insert("commands/README.md".into(), index);
    pages
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|below| !below.is_hide_set())
}

fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

/// Writes a command and its subcommands, which are a level of headings deeper.
fn page(command: &Command, level: usize) -> String {
    let mut command = command.clone();
    let usage = command.render_usage().to_string();
    let marks = "#".repeat(level);
    let help = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let lines: Vec<&str> = usage.trim_start_matches("Usage: ").lines().map(str::trim).collect();
    let usage = lines.join("\n");
    let mut page = format!("{marks} {name}\n\n{}```text\n{usage}\n```\n\n", paragraphs(&help));
    if let Some(examples) = command.get_after_help() {
        let examples = examples.to_string();
        let lines: Vec<&str> = examples.lines().skip(1).map(str::trim_start).collect();
        page += &format!("Examples:\n\n```text\n{}\n```\n\n", lines.join("\n"));
    }
    let shown: Vec<&Arg> = command
        .get_arguments()
        .filter(|arg| !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str()))
        .collect();
    let mut headings: Vec<&str> = Vec::new();
    for heading in shown.iter().map(|arg| heading(arg)) {
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    for title in headings {
        page += &format!("{marks}# {title}\n\n");
        let group = shown.iter().filter(|arg| heading(arg) == title);
        group.for_each(|arg| page += &flag(arg, &format!("{marks}##")));
    }
    visible(&command).for_each(|below| page += &self::page(below, level + 1));
    page
}

fn heading(arg: &Arg) -> &str {
    arg.get_help_heading().unwrap_or(if arg.is_positional() { "Arguments" } else { "Options" })
}

fn flag(arg: &Arg, marks: &str) -> String {
    let values: Vec<&str> =
        arg.get_value_names().unwrap_or_default().iter().map(|name| name.as_str()).collect();
    let takes_value = arg.get_action().takes_values() && !values.is_empty();
    let value = if takes_value { values.join(" ") } else { String::new() };
    let title = match (arg.get_long(), arg.get_short()) {
        (Some(long), Some(short)) => format!("-{short}, --{long} {value}"),
        (Some(long), None) => format!("--{long} {value}"),
        _ => value,
    };
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut entry = format!("{marks} `{}`\n\n{}", title.trim(), paragraphs(&help));
    let accepted = arg.get_possible_values();
    if takes_value && accepted.iter().any(|value| value.get_help().is_some()) {
        for value in accepted.iter().filter(|value| !value.is_hide_set()) {
            let help = value.get_help().map(ToString::to_string).unwrap_or_default();
            entry += &format!("- `{}`: {}\n", value.get_name(), literal(&help));
        }
        entry += "\n";
    } else if takes_value && !accepted.is_empty() {
        let names: Vec<String> = accepted.iter().map(|value| format!("`{}`", value.get_name())).collect();
        entry += &format!("Accepted: {}.\n\n", names.join(", "));
    }
    let defaults: Vec<String> =
        arg.get_default_values().iter().map(|value| format!("`{}`", value.to_string_lossy())).collect();
    if takes_value && !defaults.is_empty() && !arg.is_hide_default_value_set() {
        entry += &format!("Default: {}.\n\n", defaults.join(", "));
    }
    let aliases = arg.get_visible_aliases().unwrap_or_default();
    if !aliases.is_empty() {
        let names: Vec<String> = aliases.iter().map(|alias| format!("`--{alias}`")).collect();
        entry += &format!("Also: {}.\n\n", names.join(", "));
    }
    entry
}

/// Writes a help text: paragraphs, and lists for lines that begin with a name and a colon.
fn paragraphs(help: &str) -> String {
    let mut blocks: Vec<String> = Vec::new();
    for paragraph in help.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
        let mut block = String::new();
        for line in paragraph.trim().lines().map(str::trim) {
            let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
            let is_item = paragraph.trim() != line
                && first.contains(':')
                && first.starts_with(|letter: char| letter.is_ascii_lowercase());
            if is_item {
                let item = first.trim_end_matches(':');
                let colon = &first[item.len()..];
                block += &format!("\n- `{item}`{colon} {}", words(rest));
            } else {
                block += &format!(" {}", words(line));
            }
        }
        // A list needs an empty line before it.
        let lines = block.trim();
        let list = if lines.starts_with('-') { None } else { lines.split_once("\n- ") };
        blocks.push(list.map_or(lines.to_owned(), |(text, items)| format!("{text}\n\n- {items}")));
    }
    blocks.iter().map(|block| format!("{block}\n\n")).collect()
}

/// A line of help, with flags as code.
fn words(line: &str) -> String {
    let word = |word: &str| {
        let flag = word.trim_end_matches(['.', ',', ':', ';', ')']);
        match flag.strip_prefix("--") {
            Some(name) if name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-') => {
                format!("`{flag}`{}", &word[flag.len()..])
            }
            _ => literal(word),
        }
    };
    line.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flag_shows_its_visible_aliases() {
        let arg =
            Arg::new("follow").long("follow").visible_alias("location").alias("hidden").help("Follows.");
        assert_eq!(flag(&arg, "##"), "## `--follow`\n\nFollows.\n\nAlso: `--location`.\n\n");
        assert_eq!(flag(&Arg::new("plain").long("plain"), "##"), "## `--plain`\n\n");
    }
}
