//! Claims in words: the expectation, the measurement and the judgement.
//!
//! A finding of a paper is reproduced or refuted; an experiment's own claim holds or does not hold. Both can be undecided
//! or not tested. `summary.json` has the first pair for both.

use analysis::claims::{Expectation, Judged, Judgement, Origin, Scale};
use serde::Serialize;

use crate::format::{count, multiple, number, percent, plural, rate, time};

/// The method, for a page with claims.
pub const HOW_JUDGED: &str = "A claim is decided by a one-sided test at 5 %, for all claims of this page together: p is \
     corrected for their number. The page 'The method' of the documentation has the tests, and how often they are wrong.";

/// The judgement of a claim without a verdict.
pub const NOT_TESTED: &str = "not tested";

/// The judgement in a word or three.
fn word(origin: Origin, judgement: Judgement) -> &'static str {
    match (origin, judgement) {
        (_, Judgement::NotTested) => NOT_TESTED,
        (Origin::Paper, judgement) => judgement.word(),
        (Origin::Own, Judgement::Reproduced) => "holds",
        (Origin::Own, Judgement::Refuted) => "does not hold",
        (Origin::Own, Judgement::Undecided) => "undecided",
    }
}

/// A line of the table of claims.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClaimRow {
    /// The experiment's name.
    pub experiment: String,
    /// Its section on a page.
    pub anchor: String,
    /// The statement.
    pub claim: String,
    /// The paper's finding; empty if it has none.
    pub paper: String,
    /// The difference from the paper's setting; empty if none is declared.
    pub differs: String,
    /// `at least 1.2×`.
    pub expected: String,
    /// `1.39×`, or a dash.
    pub measured: String,
    /// `1.31× to 1.45×`; empty without an interval.
    pub interval: String,
    /// `95 %`; empty without an interval.
    pub confidence: String,
    /// `reproduced` or `refuted`, and for a user's own claim `holds` or `does not hold`; `undecided`, `not tested`.
    pub judged: &'static str,
    /// The class of the judgement in the style sheet, which is the same for both.
    pub class: &'static str,
    /// A mark beside the judgement, so that no reader depends on colour.
    pub sign: &'static str,
    /// The reason.
    pub reason: String,
    /// The reason, with the number of measurements.
    pub because: String,
}

/// The score of claims by judgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Score {
    /// All claims.
    claims: usize,
    /// Reproduced.
    reproduced: usize,
    /// Refuted.
    refuted: usize,
    /// Undecided.
    undecided: usize,
    /// Not tested.
    not_tested: usize,
}

impl Score {
    /// The score of some claims.
    fn of<'a>(claims: impl Iterator<Item = &'a Judged>) -> Score {
        let mut score = Score::default();
        for claim in claims {
            score.claims += 1;
            match claim.judged {
                Judgement::Reproduced => score.reproduced += 1,
                Judgement::Refuted => score.refuted += 1,
                Judgement::Undecided => score.undecided += 1,
                Judgement::NotTested => score.not_tested += 1,
            }
        }
        score
    }

    /// `5 of 7 claims reproduced, 1 refuted, 1 undecided.`, or `5 of 7 claims hold, 1 does not, 1 is undecided.` Claims
    /// that were not tested stand at the end, if there are any.
    fn sentence(&self, origin: Origin) -> String {
        let all = plural(self.claims, "claim", "claims");
        let Score { reproduced, refuted, undecided, not_tested, .. } = self;
        let untested = match not_tested {
            0 => String::new(),
            count => format!(", {count} not tested"),
        };
        match origin {
            Origin::Paper => {
                format!(
                    "{reproduced} of {all} reproduced, {refuted} refuted, {undecided} undecided{untested}."
                )
            }
            Origin::Own => format!(
                "{reproduced} of {all} {}, {}, {}{untested}.",
                if *reproduced == 1 || self.claims == 1 { "holds" } else { "hold" },
                plural(*refuted, "does not", "do not"),
                plural(*undecided, "is undecided", "are undecided"),
            ),
        }
    }
}

/// Writes a sentence for the papers' claims, and one for the others.
pub fn score_sentences<'a>(claims: impl Iterator<Item = &'a Judged> + Clone) -> String {
    let sentence = |origin: Origin| {
        let score = Score::of(claims.clone().filter(|claim| claim.origin() == origin));
        (score.claims > 0).then(|| score.sentence(origin))
    };
    let (papers, own) = (sentence(Origin::Paper), sentence(Origin::Own));
    let own = own.map(|own| if papers.is_some() { format!("Of our own claims, {own}") } else { own });
    [papers, own].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// A claim in words.
pub fn row(judged: &Judged) -> ClaimRow {
    let show = |value: f64| show(judged.scale, value);
    let left_out = match judged.left_out {
        0 => String::new(),
        count => format!("; {} left out", plural(count, "trial", "trials")),
    };
    let chance = match judged.judged {
        Judgement::NotTested => String::new(),
        _ if judged.chance < 0.001 => ", p < 0.001".to_owned(),
        _ => format!(", p = {:.3}", judged.chance),
    };
    let note = if judged.note.is_empty() || judged.note == judged.because {
        String::new()
    } else {
        format!("; {}", judged.note)
    };
    let samples = match judged.samples {
        0 => String::new(),
        count => format!(" ({})", plural(count, "measurement", "measurements")),
    };
    ClaimRow {
        experiment: judged.experiment.clone(),
        anchor: super::anchor(&judged.experiment),
        claim: judged.claim.clone(),
        paper: judged.paper.clone().unwrap_or_default(),
        differs: judged.differs.clone().unwrap_or_default(),
        expected: expected(&judged.expected, show),
        measured: judged.measured.map_or("–".to_owned(), show),
        interval: judged.interval.map_or(String::new(), |[low, high]| {
            format!("{} to {}", self::show(judged.scale, low), self::show(judged.scale, high))
        }),
        confidence: if judged.interval.is_some() && judged.confidence > 0.0 {
            percent(judged.confidence)
        } else {
            String::new()
        },
        judged: word(judged.origin(), judged.judged),
        class: judged.judged.word(),
        sign: match judged.judged {
            Judgement::Reproduced => "✓",
            Judgement::Refuted => "✗",
            Judgement::Undecided => "?",
            Judgement::NotTested => "–",
        },
        reason: judged.because.clone(),
        because: format!("{}{chance}{note}{samples}{left_out}", judged.because),
    }
}

fn expected(expected: &Expectation, show: impl Fn(f64) -> String) -> String {
    if !expected.best.is_empty() {
        return format!("best: {}", expected.best.join(" or "));
    }
    match (expected.at_least, expected.at_most) {
        (Some(low), Some(high)) => format!("{} to {}", show(low), show(high)),
        (Some(low), None) => format!("at least {}", show(low)),
        (None, Some(high)) => format!("at most {}", show(high)),
        (None, None) => String::new(),
    }
}

/// A number as its scale is written.
pub fn show(scale: Scale, value: f64) -> String {
    match scale {
        Scale::Ratio => multiple(value),
        Scale::Slope => format!("{value:.2}"),
        Scale::Number => count(value),
        Scale::PerSecond => rate(value),
        Scale::Milliseconds => time(value * 1e6),
        Scale::Microseconds => time(value * 1e3),
        Scale::Share => format!("{} %", number(value * 100.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_their_scale() {
        let shown = [
            (Scale::Ratio, 1.394),
            (Scale::Slope, -0.004),
            (Scale::Number, 3012.0),
            (Scale::PerSecond, 11_849.0),
            (Scale::Milliseconds, 140.0),
            (Scale::Microseconds, 140.0),
            (Scale::Share, 0.8),
        ]
        .map(|(scale, value)| show(scale, value));
        assert_eq!(shown, ["1.39×", "-0.00", "3.01k", "11.8k/s", "140 ms", "140 µs", "80 %"]);
    }

    #[test]
    fn paper_claims_are_reproduced_own_claims_hold() {
        let score = Score { claims: 7, reproduced: 5, refuted: 1, undecided: 1, not_tested: 0 };
        assert_eq!(score.sentence(Origin::Paper), "5 of 7 claims reproduced, 1 refuted, 1 undecided.");
        assert_eq!(score.sentence(Origin::Own), "5 of 7 claims hold, 1 does not, 1 is undecided.");
        let untested = Score { claims: 8, not_tested: 1, ..score };
        let sentence = "5 of 8 claims reproduced, 1 refuted, 1 undecided, 1 not tested.";
        assert_eq!(untested.sentence(Origin::Paper), sentence);
        let one = Score { claims: 1, undecided: 1, ..Score::default() };
        assert_eq!(one.sentence(Origin::Own), "0 of 1 claim holds, 0 do not, 1 is undecided.");
    }

    #[test]
    fn expectations_in_words() {
        let words = |at_least, at_most| expected(&Expectation { at_least, at_most, best: vec![] }, multiple);
        assert_eq!(words(Some(1.2), None), "at least 1.2×");
        assert_eq!(words(None, Some(2.0)), "at most 2×");
        assert_eq!(words(Some(1.2), Some(2.0)), "1.2× to 2×");
        let best = Expectation { best: vec!["10".to_owned(), "50".to_owned()], ..Expectation::default() };
        assert_eq!(expected(&best, multiple), "best: 10 or 50");
    }
}
