//! The tests under a sanitizer.
//!
//! AddressSanitizer checks each load and store of our code, and names what nobody freed. ThreadSanitizer names accesses of
//! two threads that nothing orders. A nightly compiler builds every crate again, into a folder of its own below `target`.
//!
//! ThreadSanitizer must have seen the standard library too, so it needs the component rust-src, and its build is part of the
//! run.
//!
//! Leaves out what the kernel and libraries in C read and write, and the models of `wake` and `words`, whose broken variants
//! leave their tasks behind.

use anyhow::{Context, ensure};
use clap::ValueEnum;
use sys::process::Streams;

use crate::test_bed::{TICK, nightly_cargo};

/// A sanitizer of the compiler.
#[derive(Clone, Copy, ValueEnum)]
enum Sanitizer {
    /// Loads, stores and leaks.
    Address,
    /// Unordered accesses of two threads. Needs `rustup component add rust-src --toolchain nightly`.
    Thread,
}

/// Flags of `campaign sanitize`.
#[derive(clap::Args)]
pub struct SanitizeOptions {
    /// The crates whose tests run
    #[arg(default_values = ["inrush-sys", "inrush-dispatch", "inrush-fdm", "connection", "server", "inrush-usertcp", "inrush"])]
    crates: Vec<String>,
    /// The sanitizer
    #[arg(long, value_enum, default_value = "address")]
    sanitizer: Sanitizer,
    /// Parts of the names of the tests that run; all tests without any
    #[arg(last = true)]
    tests: Vec<String>,
}

/// Runs the tests. Blocks.
///
/// # Errors
/// The nightly compiler is missing, a test fails, or the sanitizer has found something, which is printed.
pub fn run(options: &SanitizeOptions) -> anyhow::Result<()> {
    let (name, more): (_, &[&str]) = match options.sanitizer {
        Sanitizer::Address => ("address", &[]),
        Sanitizer::Thread => ("thread", &["-Zbuild-std"]),
    };
    let flag = format!("-Zsanitizer={name}");
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut arguments = vec!["test", "--no-fail-fast", "--target", &triple];
    arguments.extend(more);
    arguments.extend(options.crates.iter().flat_map(|name| ["--package", name]));
    arguments.push("--");
    arguments.extend(options.tests.iter().map(String::as_str));
    let child = nightly_cargo()
        .arguments(arguments)
        .environment("RUSTFLAGS", &flag)
        .environment("RUSTDOCFLAGS", &flag)
        .environment("CARGO_TARGET_DIR", format!("target/sanitize/{name}"))
        .with_streams(Streams::Messages)
        .start()
        .context("cannot start rustup")?;
    let exit = child.output(TICK, || true)?.exit.status;
    ensure!(exit.success(), "the tests failed, or the sanitizer has found something ({exit})");
    Ok(())
}
