//! What the contenders cost, as a text table.

use report::columns::aligned;
use statistics::Spread;

use super::{Counter, Point, Results, cost, in_the_setting_of};

const HEADINGS: [&str; 9] = [
    "setting",
    "N",
    "replies/s",
    "median ms",
    "mean ms",
    "CPU us/request",
    "cost us",
    "adaptive x this",
    "min..max",
];

/// How N is chosen, in a table's cell.
pub fn name(counter: Counter) -> String {
    match counter {
        Counter::Fixed(n) => n.to_string(),
        Counter::Adaptive => "adaptive".to_owned(),
    }
}

/// The table, who comes closest in each setting, and what could not be measured.
pub fn text(results: &Results) -> String {
    let mut rows = vec![HEADINGS.map(str::to_owned)];
    for adaptive in results.points.iter().filter(|point| point.counter == Counter::Adaptive) {
        rows.extend(in_the_setting_of(adaptive, &results.points).map(|point| row(point, adaptive)));
    }
    let mut text = aligned(&rows, &[]);
    text.push_str(
        "\ncost: CPU time of a request and the price of its delay, as the controller weighs them\n\n",
    );
    for one in &results.comparisons {
        let Spread { median, min, max } = one.cost;
        text.push_str(&format!(
            "figure {}, {}: adaptive costs {median:.2} ({min:.2}..{max:.2}) of the best fixed, N = {}\n",
            one.figure, one.setting, one.best_fixed
        ));
    }
    text.extend(results.failed.iter().map(|failure| format!("not measured: {failure}\n")));
    text
}

fn row(point: &Point, adaptive: &Point) -> [String; 9] {
    let cell = |value: Option<Spread>, digits: usize| {
        value.map_or("-".to_owned(), |spread| format!("{:.digits$}", spread.median))
    };
    let ratio = adaptive.ratio(point, cost);
    [
        format!("figure {}: {}", point.figure, point.traffic),
        name(point.counter),
        cell(point.spread(|sample| Some(sample.replies_per_s)), 0),
        cell(point.spread(|sample| Some(sample.response_ms_p50)), 2),
        cell(point.spread(|sample| Some(sample.response_ms_mean)), 2),
        cell(point.spread(|sample| sample.cpu_us_per_request), 1),
        cell(point.cost(), 1),
        cell(ratio, 2),
        ratio.map_or("-".to_owned(), |ratio| format!("{:.2}..{:.2}", ratio.min, ratio.max)),
    ]
}
