//! The tests under a sanitizer.
//!
//! AddressSanitizer checks each load and store of our code, and names what nobody freed. ThreadSanitizer names accesses of
//! two threads that nothing orders. A nightly compiler builds every crate again, into a folder of its own below `target`.
//!
//! ThreadSanitizer must have seen the standard library too, so it needs the component rust-src, and its build is part of the
//! run.
//!
//! A sanitizer writes its reports into files, because a test reads or drops what its servers print, and a killed server has no
//! exit code that would tell. A server that Landlock confines cannot make the file: the sanitizer then ends it, and its test
//! fails.
//!
//! Leaves out what the kernel and libraries in C read and write, and the models of `wake` and `words`, whose broken variants
//! leave their tasks behind.

use std::path::{Path, PathBuf};
use std::{fs, io};

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
    let (name, settings, more): (_, _, &[&str]) = match options.sanitizer {
        Sanitizer::Address => ("address", "ASAN_OPTIONS", &[]),
        Sanitizer::Thread => ("thread", "TSAN_OPTIONS", &["-Zbuild-std"]),
    };
    let flag = format!("-Zsanitizer={name}");
    let reports = empty_folder(Path::new(&format!("target/sanitize/{name}/reports")))
        .context("cannot make a folder for reports")?;
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
        .environment(settings, reporting_to(&reports, std::env::var(settings).ok()))
        .with_streams(Streams::Messages)
        .start()
        .context("cannot start rustup")?;
    let exit = child.output(TICK, || true)?.exit.status;
    check_reports(&reports)?;
    ensure!(exit.success(), "the tests failed ({exit})");
    Ok(())
}

/// Makes an empty folder. Returns its path from the root, because the tests run in folders of their own.
fn empty_folder(folder: &Path) -> io::Result<PathBuf> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    folder.canonicalize()
}

/// The settings that make a sanitizer write its reports into a folder, behind the user's own.
fn reporting_to(folder: &Path, own: Option<String>) -> String {
    let log = format!("log_path={}", folder.join("report").display());
    own.into_iter().chain([log]).collect::<Vec<_>>().join(":")
}

/// Prints the reports in a folder.
///
/// # Errors
/// There is a report.
fn check_reports(folder: &Path) -> anyhow::Result<()> {
    let mut found = 0;
    for entry in fs::read_dir(folder).context("cannot read the reports")? {
        println!("{}", String::from_utf8_lossy(&fs::read(entry?.path())?));
        found += 1;
    }
    ensure!(found == 0, "the sanitizer has found something: {found} reports in {}", folder.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_of_any_process_fails_the_campaign() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = empty_folder(&temporary.path().join("reports")).unwrap();
        check_reports(&folder).unwrap();
        fs::write(folder.join("report.4711"), "WARNING: ThreadSanitizer: data race").unwrap();
        let error = check_reports(&folder).unwrap_err().to_string();
        assert!(error.starts_with("the sanitizer has found something: 1 reports in /"), "{error}");
        check_reports(&empty_folder(&folder).unwrap()).unwrap();
    }

    #[test]
    fn sanitizer_keeps_the_users_settings() {
        let folder = Path::new("/reports");
        assert_eq!(reporting_to(folder, None), "log_path=/reports/report");
        let own = Some("history_size=7".to_owned());
        assert_eq!(reporting_to(folder, own), "history_size=7:log_path=/reports/report");
    }
}
