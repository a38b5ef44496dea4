//! Fuzzing: every target in turn for an equal time, with corpora that grow.
//!
//! `cargo fuzz` builds a target with coverage and AddressSanitizer, and changes inputs that reach new code. A target's
//! property is a function of its crate's tests, which replay the corpus in the tree without any of this.
//!
//! New inputs grow a corpus in target/fuzz. At the end those that reach an edge of the program which the tree's
//! corpus does not reach are merged into the tree, so that it stays small.
//!
//! Leaves out: making inputs. `cargo install cargo-fuzz` and a nightly compiler bring the program that does.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use report::columns::aligned;
use sys::process::Output;

use crate::test_bed::{TICK, nightly_cargo};

/// The longest input in bytes, unless the tree's corpus has a longer one. A connection of so many bytes reaches everything that
/// a longer one does.
const LONGEST: u64 = 4096;

/// Flags of `campaign fuzz`.
#[derive(clap::Args)]
pub struct FuzzOptions {
    /// Only these targets; all in fuzz/fuzz_targets without one
    targets: Vec<String>,
    /// Hours for all targets together
    #[arg(long, default_value = "1", value_parser = hours)]
    hours: f64,
}

/// The account that libFuzzer gives of a run.
#[derive(Debug, Default, PartialEq)]
struct Account {
    executions: u64,
    /// Edges of the program that inputs have reached.
    edges: u64,
    /// Edges with their counts and comparisons.
    features: u64,
}

/// Runs the campaign. Blocks.
///
/// # Errors
/// cargo-fuzz or a nightly compiler is missing, there is no such target, or an input breaks a property.
pub fn run(options: &FuzzOptions) -> anyhow::Result<()> {
    let known = targets()?;
    let unknown = options.targets.iter().find(|target| !known.contains(target));
    if let Some(target) = unknown {
        bail!("there is no target {target}: expected one of {}", known.join(", "));
    }
    let chosen = if options.targets.is_empty() { &known } else { &options.targets };
    let seconds = (options.hours * 3600.0 / chosen.len() as f64).ceil() as u64;
    let mut rows =
        vec![["target", "inputs tried", "edges", "features", "corpus", "added", ""].map(str::to_owned)];
    let mut broken = Vec::new();
    for target in chosen {
        eprintln!("{target}: {seconds} s");
        let (account, skip) = fuzz(target, seconds)?;
        let before = lengths(&corpus(target))?.len() as u64;
        let verdict = match (&account, skip) {
            (None, _) => {
                broken.push(target.as_str());
                "BROKEN".to_owned()
            }
            (Some(_), Some(reason)) => format!("SKIPPED: {reason}"),
            (Some(_), None) => merge(target).map(|()| String::new())?,
        };
        let Account { executions, edges, features } = account.unwrap_or_default();
        let now = lengths(&corpus(target))?.len() as u64;
        let numbers =
            [executions, edges, features, now, now.saturating_sub(before)].map(|number| number.to_string());
        let [executions, edges, features, now, added] = numbers;
        rows.push([target.clone(), executions, edges, features, now, added, verdict]);
    }
    println!("{}", aligned(&rows, &[]));
    ensure!(broken.is_empty(), "an input breaks the property of {}", broken.join(", "));
    Ok(())
}

/// The targets, by the files that define them.
fn targets() -> anyhow::Result<Vec<String>> {
    let entries = fs::read_dir("fuzz/fuzz_targets").context("run it in the top folder of the source")?;
    let mut names = Vec::new();
    for entry in entries {
        let path = entry?.path();
        names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
    }
    names.sort();
    Ok(names)
}

/// The corpus in the tree.
fn corpus(target: &str) -> PathBuf {
    Path::new("fuzz/corpus").join(target)
}

/// The corpus that grows.
fn growing(target: &str) -> PathBuf {
    Path::new("target/fuzz").join(target)
}

/// The lengths of the inputs in a folder.
fn lengths(folder: &Path) -> anyhow::Result<Vec<u64>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    entries.map(|entry| Ok(entry?.metadata()?.len())).collect()
}

/// The flag of libFuzzer that bounds the inputs, and cuts none of a corpus.
fn longest(corpus: &Path) -> anyhow::Result<String> {
    Ok(format!("-max_len={}", lengths(corpus)?.into_iter().fold(LONGEST, u64::max)))
}

/// Fuzzes a target. Returns its account, or prints the output and returns `None` if an input broke the property; and the right
/// or facility that the target lacks, without which it tries no input.
fn fuzz(target: &str, seconds: u64) -> anyhow::Result<(Option<Account>, Option<String>)> {
    let grows = growing(target);
    fs::create_dir_all(&grows).with_context(|| format!("cannot make {}", grows.display()))?;
    let time = format!("-max_total_time={seconds}");
    let dictionary = Path::new("fuzz/dictionaries").join(format!("{target}.dict"));
    let words = dictionary.exists().then(|| format!("-dict={}", dictionary.display()));
    let folders = [grows.display().to_string(), corpus(target).display().to_string()];
    let longest = longest(&corpus(target))?;
    let flags = [time.as_str(), &longest, "-print_final_stats=1"].into_iter().chain(words.as_deref());
    let output = run_target(target, folders.iter().map(String::as_str).chain(["--"]).chain(flags))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let account = Account::read(&said);
    ensure!(account.is_some(), "{target} did not run:\n{said}");
    if !output.exit.status.success() {
        println!("{said}");
        return Ok((None, None));
    }
    Ok((account, skip(&output.stdout)))
}

/// Takes the inputs that reach new code into the tree.
fn merge(target: &str) -> anyhow::Result<()> {
    let folders = [corpus(target), growing(target)].map(|folder| folder.display().to_string());
    // Without counters an input is new if it reaches an edge, and not if it reaches one more often.
    let longest = longest(&corpus(target))?;
    let flags = ["--", "-merge=1", "-use_counters=0", &longest];
    let arguments = folders.iter().map(String::as_str).chain(flags);
    let output = run_target(target, arguments)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.exit.status.success(), "cannot merge the corpus of {target}:\n{said}");
    Ok(())
}

/// Builds and runs a target with these arguments.
fn run_target<'a>(target: &'a str, arguments: impl Iterator<Item = &'a str>) -> anyhow::Result<Output> {
    let arguments = ["fuzz", "run", target].into_iter().chain(arguments);
    let child = nightly_cargo().arguments(arguments).start().context("cannot start rustup")?;
    Ok(child.output(TICK, || true)?)
}

/// The reason that a target prints when it tries no input.
fn skip(printed: &[u8]) -> Option<String> {
    let printed = String::from_utf8_lossy(printed);
    printed.lines().find_map(|line| line.strip_prefix("skipped: ")).map(str::to_owned)
}

impl Account {
    /// Reads what libFuzzer printed; `None` if it did not begin.
    fn read(said: &str) -> Option<Account> {
        let status = said.lines().rfind(|line| line.starts_with('#') && line.contains(" cov: "))?;
        let number = |key: &str| {
            let mut words = status.split_whitespace().skip_while(|word| *word != key).skip(1);
            words.next()?.parse().ok()
        };
        let executions = status.trim_start_matches('#').split_whitespace().next()?.parse().ok()?;
        Some(Account { executions, edges: number("cov:")?, features: number("ft:")? })
    }
}

fn hours(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(hours) if hours > 0.0 && hours <= 10_000.0 => Ok(hours),
        _ => Err("expected a number of hours above 0, such as 0.5 or 12".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn account_is_that_of_the_last_status_line() {
        let said = "INFO: seed\n#2\tINITED cov: 5 ft: 6 corp: 1/1b exec/s: 0 rss: 30Mb\n\
                    #4096\tpulse  cov: 77 ft: 90 corp: 9/40b lim: 8 exec/s: 2048 rss: 40Mb\nDONE";
        let account = Account { executions: 4096, edges: 77, features: 90 };
        assert_eq!(Account::read(said), Some(account));
        assert_eq!(Account::read("error: no such subcommand: `fuzz`"), None);
    }

    #[test]
    fn target_without_rights_is_a_skip() {
        let printed = b"skipped: bpf(2) needs CAP_BPF\n";
        assert_eq!(skip(printed).as_deref(), Some("bpf(2) needs CAP_BPF"));
        assert_eq!(skip(b""), None);
    }

    #[test]
    fn no_input_of_a_corpus_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("short"), [0; 10]).unwrap();
        assert_eq!(longest(folder.path()).unwrap(), "-max_len=4096");
        fs::write(folder.path().join("long"), [0; 8750]).unwrap();
        assert_eq!(longest(folder.path()).unwrap(), "-max_len=8750");
    }

    #[test]
    fn hours_are_a_positive_number() {
        assert_eq!(hours("0.5"), Ok(0.5));
        for wrong in ["0", "-1", "inf", "NaN", "an hour"] {
            assert!(hours(wrong).is_err(), "{wrong}");
        }
    }
}
