//! `inrush completions` and `inrush man`: shell completions and manual pages, from the only definition of the
//! flags.

use std::fs;
use std::io;
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use crate::cli::{Cli, CompletionsFlags, ManFlags};
use crate::exit::Exit;
use crate::output;
use crate::reference;

/// Prints a shell's completions.
pub fn completions(flags: &CompletionsFlags) -> Result<(), Exit> {
    let mut script = Vec::new();
    clap_complete::generate(flags.shell, &mut Cli::command(), "inrush", &mut script);
    output::write("the completions", |out| out.write_all(&script))
}

/// Prints the manual pages one after another, or writes each to a file.
pub fn pages(flags: &ManFlags) -> Result<(), Exit> {
    match &flags.out {
        Some(folder) => {
            write(folder).map_err(|cause| Exit::Failed(format!("--out {}: {cause}", folder.display())))
        }
        None => output::write("the manual", |out| out.write_all(&manual())),
    }
}

fn write(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    all_pages().iter().try_for_each(|page| page.generate_to(folder).map(drop))
}

fn manual() -> Vec<u8> {
    let mut text = Vec::new();
    for page in all_pages() {
        page.render(&mut text).expect("memory takes every page");
    }
    text
}

/// Pages for the program and for every command below it, except hidden ones.
fn all_pages() -> Vec<Man> {
    fn push(command: &Command, pages: &mut Vec<Man>) {
        pages.push(Man::new(command.clone()));
        command.get_subcommands().filter(|below| !below.is_hide_set()).for_each(|below| push(below, pages));
    }
    let mut pages = Vec::new();
    push(&reference::command(), &mut pages);
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_commands_and_flags_have_manual_pages() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path()).unwrap();
        let page = |name: &str| fs::read_to_string(folder.path().join(name));
        assert!(page("inrush.1").unwrap().contains("inrush\\-serve(1)"));
        let serve = page("inrush-serve.1").unwrap();
        assert!(serve.contains("\\-\\-idle\\-timeout"), "{serve}");
        assert!(page("inrush-import-nginx.1").is_ok() && page("inrush-worker.1").is_err());
    }

    #[test]
    fn the_printed_manual_has_every_page_that_is_written() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path()).unwrap();
        let printed = String::from_utf8(manual()).unwrap();
        let pages = fs::read_dir(folder.path()).unwrap();
        let texts = pages.map(|page| fs::read_to_string(page.unwrap().path()).unwrap());
        let mut length = 0;
        for text in texts {
            assert!(printed.contains(&text), "{text}");
            length += text.len();
        }
        assert_eq!(length, printed.len());
    }
}
