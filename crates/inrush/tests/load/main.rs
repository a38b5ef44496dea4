//! `inrush load` and `inrush fileset` from the command line: mistakes are one clear line with the right exit code.

#[allow(dead_code, unused_imports, reason = "shared with the tests of the server, which need more of it")]
#[path = "../common/mod.rs"]
mod common;

mod comparing;
mod fileset;
mod judging;
mod mistakes;
mod pair;
mod planning;
mod processes;
mod stacks;
mod watching;

use std::time::Duration;

use assert_cmd::Command;
use assert_cmd::assert::Assert;

/// When a test gives up.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs `inrush` and asks for an exit code.
fn inrush(arguments: &[&str], code: i32) -> Assert {
    Command::new(env!("CARGO_BIN_EXE_inrush")).args(arguments).timeout(PATIENCE).assert().code(code)
}

/// What `inrush` writes to stdout, whether or not this machine keeps up.
fn written(arguments: &[&str]) -> Vec<u8> {
    Command::new(env!("CARGO_BIN_EXE_inrush")).args(arguments).timeout(PATIENCE).output().unwrap().stdout
}

/// What it said on stderr.
fn said(assert: &Assert) -> String {
    String::from_utf8(assert.get_output().stderr.clone()).unwrap()
}

/// Arguments that cannot work: one line on stderr with all these parts, nothing on stdout.
fn refused(arguments: &[&str], code: i32, expected: &[&str]) {
    let assert = inrush(arguments, code);
    let said = said(&assert);
    assert!(assert.get_output().stdout.is_empty(), "{arguments:?}");
    assert!(said.starts_with("inrush: ") && said.lines().count() == 1, "{arguments:?}: {said}");
    for part in expected {
        assert!(said.contains(part), "{arguments:?}: no {part:?} in: {said}");
    }
}
