//! The main finding of an experiment in one sentence, computed from its records.

use analysis::Analysed;
use analysis::headline::headline;
use analysis::points::Scale;

use super::figures::written;
use crate::format::percent;

/// What stands behind a finding that rests on flawed trials.
const DOUBT: &str = " (Trials had flaws: see the warnings before you believe it.)";

/// The place of the leading figure among the experiment's, and its sentence, where the records have one.
pub fn leading(analysed: &Analysed) -> Option<(usize, String)> {
    let figures = &analysed.experiment.figures;
    let (place, template) =
        figures.iter().enumerate().find_map(|(at, figure)| Some((at, figure.headline.as_ref()?)))?;
    let plot = &analysed.plots[place];
    let found = headline(plot)?;
    let each: Vec<String> =
        found.values.iter().map(|(name, y)| format!("{name} {}", part(&plot.y, *y))).collect();
    let value = |name: &str| match name {
        "x" => Some(written(&plot.x, found.x)),
        "y" => Some(in_a_row(&each)),
        _ => None,
    };
    let doubt = if found.is_doubtful { DOUBT } else { "" };
    Some((place, format!("{}{doubt}", experiment::fill(template, value))))
}

/// A multiple of another quantity reads best as a percentage of it.
fn part(scale: &Scale, value: f64) -> String {
    if scale.is_multiple { percent(value) } else { written(scale, value) }
}

/// `a`, `a and b`, `a, b and c`.
fn in_a_row(words: &[String]) -> String {
    match words {
        [most @ .., last] if !most.is_empty() => format!("{} and {last}", most.join(", ")),
        all => all.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_a_row() {
        let of = |words: &[&str]| in_a_row(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!([of(&[]), of(&["a"]), of(&["a", "b"])], ["", "a", "a and b"]);
        assert_eq!(of(&["a", "b", "c"]), "a, b and c");
    }
}
