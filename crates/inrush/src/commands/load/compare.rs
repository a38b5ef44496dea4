//! `inrush load compare`: two results side by side, or several runs of each.

use std::path::PathBuf;

use analysis::load_gates::{self, Judged, PairComparison, RunsComparison, Verdict};
use analysis::load_runs::{Change, compare};
use base::Seed;
use record::LoadResult;

use super::outputs::read;
use crate::cli::LoadCompareFlags;
use crate::exit::Exit;
use crate::output;

/// Seed of the drawn blocks: the same two files give the same comparison.
const SEED: Seed = Seed(1);

/// Reads the results, compares them, prints the comparison, and judges it.
pub fn run(flags: &LoadCompareFlags) -> Result<(), Exit> {
    let [first, second] = sides(flags)?;
    let results = |paths: &[PathBuf]| paths.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>();
    let (a, b) = (results(&first)?, results(&second)?);
    let names = |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect();
    let names = [names(&first), names(&second)];
    let judged = load_gates::judge(&flags.fail_if, &a, &b);
    let is_worse = match (&a[..], &b[..]) {
        ([a], [b]) => print_one(flags, names, [a, b], &judged)?,
        _ => print_several(flags, load_gates::compare(names, &a, &b, judged.clone()))?,
    };
    let crossed = judged.iter().filter(|judged| judged.verdict == Verdict::Crossed);
    let crossed: Vec<String> =
        crossed.map(|judged| format!("{}: {:.2} times", judged.threshold, judged.ratio)).collect();
    match (crossed.is_empty(), flags.fail_if.is_empty() && is_worse) {
        (true, false) => Ok(()),
        (false, _) => Err(Exit::Threshold(crossed.join("; "))),
        (true, true) => {
            Err(Exit::Threshold("a figure is worse; --fail-if names the ones that matter".to_owned()))
        }
    }
}

/// The files of both sides.
fn sides(flags: &LoadCompareFlags) -> Result<[Vec<PathBuf>; 2], Exit> {
    match (&flags.first[..], &flags.second[..]) {
        ([a, b], []) => Ok([vec![a.clone()], vec![b.clone()]]),
        (_, []) => {
            Err(Exit::Usage("expected A.json B.json, or several of each: A.json... -- B.json...".to_owned()))
        }
        (first, second) => Ok([first.to_vec(), second.to_vec()]),
    }
}

/// Prints the comparison of two results, and tells whether a figure is worse.
fn print_one(
    flags: &LoadCompareFlags,
    names: [Vec<String>; 2],
    results: [&LoadResult; 2],
    thresholds: &[Judged],
) -> Result<bool, Exit> {
    let named = [(&*names[0][0], results[0]), (&*names[1][0], results[1])];
    let comparison = compare(named, SEED).map_err(|error| Exit::Usage(error.to_string()))?;
    let text = || report::load_runs::text(&comparison) + &report::load_runs::thresholds(thresholds);
    let document = PairComparison { comparison: &comparison, thresholds };
    output::result("the comparison", flags.output, &document, text)?;
    Ok(comparison.rows.iter().any(|row| row.change == Change::Worse))
}

/// Prints the comparison of several runs, and tells whether a figure is worse.
fn print_several(flags: &LoadCompareFlags, comparison: RunsComparison) -> Result<bool, Exit> {
    output::result("the comparison", flags.output, &comparison, || report::load_runs::of_runs(&comparison))?;
    Ok(comparison.figures.iter().any(|figure| figure.change == Change::Worse))
}
