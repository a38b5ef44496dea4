//! `inrush load` and `inrush fileset` from the command line: a mistake gives one clear line and the right
//! exit code.

#[allow(dead_code, unused_imports, reason = "shared with the tests of the server, which need more of it")]
#[path = "../common/mod.rs"]
mod common;

mod action;
mod api;
#[path = "../common/closed_port.rs"]
mod closed_port;
mod comparing;
mod documented;
mod fileset;
mod http2;
mod judging;
#[path = "../common/listening.rs"]
mod listening;
mod mistakes;
mod others;
mod pair;
mod planning;
mod pooled;
mod processes;
mod redirects;
mod replays;
#[path = "../common/schema.rs"]
mod schema;
mod stacks;
#[path = "../common/stand_ins.rs"]
mod stand_ins;
mod watching;
mod week;

use std::time::Duration;

use assert_cmd::Command;
use assert_cmd::assert::Assert;

/// Timeout of a test.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs `inrush` and asserts its exit code.
fn inrush(arguments: &[&str], code: i32) -> Assert {
    Command::new(env!("CARGO_BIN_EXE_inrush")).args(arguments).timeout(PATIENCE).assert().code(code)
}

/// The output of `inrush` on stdout, whether this machine keeps up or not.
fn written(arguments: &[&str]) -> Vec<u8> {
    Command::new(env!("CARGO_BIN_EXE_inrush")).args(arguments).timeout(PATIENCE).output().unwrap().stdout
}

/// The program's messages on stderr.
fn said(assert: &Assert) -> String {
    String::from_utf8(assert.get_output().stderr.clone()).unwrap()
}

/// Runs `inrush` with impossible arguments. Asserts one line on stderr with all these parts, and nothing on
/// stdout.
fn refused(arguments: &[&str], code: i32, expected: &[&str]) {
    let assert = inrush(arguments, code);
    let said = said(&assert);
    assert!(assert.get_output().stdout.is_empty(), "{arguments:?}");
    assert!(said.starts_with("inrush: ") && said.lines().count() == 1, "{arguments:?}: {said}");
    for part in expected {
        assert!(said.contains(part), "{arguments:?}: no {part:?} in: {said}");
    }
}
