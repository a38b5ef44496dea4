//! Every point that is drawn, as CSV (RFC 4180): medians, single trials, and published points.
//!
//! Numbers are in the records' own units and as exact as they were.

use analysis::Analysed;
use analysis::points::{Line, Source};

const HEAD: &str = "figure,line,kind,x,y,low,high,confidence,trials,flaws,record\r\n";

/// The table.
pub fn points(analysed: &Analysed) -> String {
    let mut out = HEAD.to_owned();
    for (figure, plot) in analysed.experiment.figures.iter().zip(&analysed.plots) {
        for line in &plot.lines {
            push_line(&mut out, &figure.id, line, &plot.x.categories);
        }
    }
    out
}

fn push_line(out: &mut String, figure: &str, line: &Line, categories: &[String]) {
    let start = format!("{},{}", quoted(figure), quoted(&line.name));
    for point in &line.points {
        let x =
            categories.get(point.x as usize).map_or_else(|| point.x.to_string(), |category| quoted(category));
        let y = point.y.value;
        if let Source::Published { .. } = line.source {
            out.push_str(&format!("{start},published,{x},{y},,,,,,\r\n"));
            continue;
        }
        let (low, high) = (point.y.ci95.low, point.y.ci95.high);
        out.push_str(&format!(
            "{start},median,{x},{y},{low},{high},{},{},,\r\n",
            point.confidence,
            point.valid()
        ));
        for trial in &point.trials {
            let flaws: Vec<&str> = trial.flaws.iter().map(|flaw| flaw.name()).collect();
            let record = super::tables::record_file(trial.order, trial.attempt);
            out.push_str(&format!("{start},trial,{x},{},,,,,{},{record}\r\n", trial.y, flaws.join(";")));
        }
    }
}

fn quoted(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_where_they_must_be() {
        assert_eq!(["a", "a,b", "a\"b"].map(quoted), ["a", "\"a,b\"", "\"a\"\"b\""]);
    }
}
