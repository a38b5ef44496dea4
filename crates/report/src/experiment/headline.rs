//! The main finding of an experiment in one sentence, computed from its records.
//!
//! It has the values of all lines of a figure, at the farthest x that all of them reach. A point whose trials all
//! have a flaw counts only if no x has better ones. The sentence then says so.

use analysis::Analysed;
use analysis::points::{Line, Plot, PlottedPoint, Scale, Source};

use super::figures::written;
use crate::format::percent;

/// A remark behind a finding that rests on flawed trials.
const DOUBT: &str = " (Trials had flaws: see the warnings before you believe it.)";

/// Returns the place of the leading figure among the experiment's, with its sentence, if the records have one.
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

/// The values of all measured lines at one x.
#[derive(Clone, Debug, PartialEq)]
struct Headline {
    /// Their place, in the units of the figure.
    x: f64,
    /// Each line's name and median there, in the order of the figure; at least one.
    values: Vec<(String, f64)>,
    /// True if one of the values rests only on flawed trials.
    is_doubtful: bool,
}

/// Reads the finding off a figure; `None` if no x is common to all measured lines.
fn headline(plot: &Plot) -> Option<Headline> {
    let lines: Vec<&Line> = plot.lines.iter().filter(|line| line.source == Source::Measured).collect();
    let xs: Vec<f64> = lines.first()?.points.iter().rev().map(|point| point.x).collect();
    let found: Vec<Headline> = xs.into_iter().filter_map(|x| at(&lines, x)).collect();
    found.iter().find(|headline| !headline.is_doubtful).or(found.first()).cloned()
}

fn at(lines: &[&Line], x: f64) -> Option<Headline> {
    let point = |line: &&Line| line.points.iter().find(|point| point.x == x).cloned();
    let points: Vec<PlottedPoint> = lines.iter().map(point).collect::<Option<_>>()?;
    let values = lines.iter().zip(&points).map(|(line, point)| (line.name.clone(), point.y.value));
    Some(Headline { x, values: values.collect(), is_doubtful: points.iter().any(PlottedPoint::is_doubtful) })
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
    use analysis::points::PointTrial;
    use record::experiment::Flaw;
    use statistics::{Estimate, Interval};

    #[test]
    fn words_in_a_row() {
        let of = |words: &[&str]| in_a_row(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!([of(&[]), of(&["a"]), of(&["a", "b"])], ["", "a", "a and b"]);
        assert_eq!(of(&["a", "b", "c"]), "a, b and c");
    }

    /// Points at x = 1, 2, 3 with y = 10 x; those of `flawed` rest on a noisy trial.
    fn line(name: &str, flawed: &[f64]) -> Line {
        let point = |x: f64| {
            let flaws = if flawed.contains(&x) { vec![Flaw::Noisy] } else { Vec::new() };
            let (value, ci95) = (10.0 * x, Interval { low: 10.0 * x, high: 10.0 * x });
            let trials = vec![PointTrial { order: 0, attempt: 1, y: value, flaws }];
            PlottedPoint { x, y: Estimate { value, ci95 }, confidence: 0.0, trials }
        };
        let points = [1.0, 2.0, 3.0].map(point).to_vec();
        let (name, series) = (name.to_owned(), name.to_owned());
        Line { name, series, quantity: 0, source: Source::Measured, points }
    }

    fn of(lines: Vec<Line>) -> Option<(f64, bool)> {
        let scale = || Scale { title: String::new(), unit: None, is_multiple: false, categories: Vec::new() };
        let found = headline(&Plot { x: scale(), y: scale(), quantities: Vec::new(), lines })?;
        assert!(found.values.iter().all(|(_, y)| *y == 10.0 * found.x));
        Some((found.x, found.is_doubtful))
    }

    #[test]
    fn headline_uses_the_farthest_common_sound_x() {
        assert_eq!(of(vec![line("a", &[]), line("b", &[])]), Some((3.0, false)));
        assert_eq!(of(vec![line("a", &[]), line("b", &[3.0])]), Some((2.0, false)));
        assert_eq!(of(vec![line("a", &[]), line("b", &[1.0, 2.0, 3.0])]), Some((3.0, true)));
        let mut short = line("c", &[]);
        short.points.truncate(1);
        assert_eq!(of(vec![line("a", &[]), short]), Some((1.0, false)));
        assert_eq!(of(Vec::new()), None);
    }
}
