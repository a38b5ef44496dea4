//! Points as a text table, followed by the paper's numbers.

use std::fmt::Write;

use report::columns::aligned;
use statistics::Estimate;

use crate::point::Point;
use crate::watch::CountedBy;

/// One curve measured by Molloy (2000), once per point: number of waiters and settle time.
#[derive(Clone, Copy, Debug)]
pub struct PaperLine {
    /// The kernel of the measurement.
    pub name: &'static str,
    /// Pairs of (waiters, milliseconds).
    pub points: &'static [(f64, f64)],
}

/// The table of the paper's micro experiment: the unpatched kernel, and both patches.
pub const PAPER: [PaperLine; 3] = [
    PaperLine {
        name: "Molloy 2000, unpatched",
        points: &[
            (100.0, 4.708),
            (200.0, 11.283),
            (300.0, 21.185),
            (400.0, 41.21),
            (500.0, 52.144),
            (600.0, 75.787),
            (700.0, 96.134),
            (800.0, 118.339),
            (900.0, 149.998),
            (1000.0, 177.274),
        ],
    },
    PaperLine {
        name: "Molloy 2000, task-exclusive",
        points: &[
            (100.0, 0.649),
            (200.0, 0.63),
            (300.0, 0.891),
            (400.0, 0.776),
            (500.0, 0.567),
            (600.0, 1.044),
            (700.0, 1.235),
            (800.0, 1.368),
            (900.0, 1.567),
            (1000.0, 1.775),
        ],
    },
    PaperLine {
        name: "Molloy 2000, wake-one",
        points: &[
            (100.0, 0.945),
            (200.0, 1.138),
            (300.0, 0.813),
            (400.0, 1.126),
            (500.0, 1.257),
            (600.0, 0.599),
            (700.0, 0.707),
            (800.0, 0.784),
            (900.0, 1.181),
            (1000.0, 0.843),
        ],
    },
];

const HEADINGS: [&str; 10] = [
    "wait",
    "waiters",
    "samples",
    "wake-ups",
    "[95 % CI]",
    "p50 us",
    "p95 us",
    "max us",
    "CPU us",
    "fairness",
];

/// The table, slopes, method, and the paper's numbers.
pub fn text(points: &[Point]) -> String {
    let mut rows = vec![HEADINGS.map(str::to_owned)];
    rows.extend(points.iter().map(row));
    let mut out = "Wake-ups, settle time and CPU time for one connection\n\n".to_owned();
    out.push_str(&aligned(&rows, &[]));
    out.push_str(&growth(points));
    out.push_str(&method(points));
    out.push_str(
        "\nMolloy (2000), each point measured once: unpatched, the herd settles in 4.7 ms at 100 waiters and \
         177 ms at 1000,\ntask-exclusive in 0.65 and 1.8 ms, wake-one in 0.95 and 0.84 ms.\n",
    );
    out
}

fn row(point: &Point) -> [String; 10] {
    let interval = point.wakeups_per_connection_ci95;
    [
        point.wait.to_string(),
        point.waiters.to_string(),
        point.samples.to_string(),
        format!("{:.2}", point.wakeups_per_connection),
        format!("[{:.2}, {:.2}]", interval.low, interval.high),
        format!("{:.0}", point.settle_us.p50),
        format!("{:.0}", point.settle_us.p95),
        format!("{:.0}", point.settle_us.max),
        format!("{:.1}", point.cpu_us_per_connection),
        format!("{:.2}", point.fairness),
    ]
}

/// The growth of each way to wait with the number of waiters, and the ratio of the ways at the largest
/// number.
fn growth(points: &[Point]) -> String {
    let most = points.iter().map(|point| point.waiters).max().unwrap_or(0);
    let at_most: Vec<&Point> = points.iter().filter(|point| point.waiters == most).collect();
    let least = at_most.iter().map(|point| point.settle_us.p50).fold(f64::INFINITY, f64::min);
    let mut out = String::new();
    for point in &at_most {
        let Some(settle) = point.settle_log_slope else { continue };
        if out.is_empty() {
            out = format!(
                "\nGrowth with the number of waiters: slope of ln(median settle time) and of ln(wake-ups) over \
                 ln(waiters), [95 % CI]\n(1: in proportion, 0: not at all); median settle time at {most} as a \
                 multiple of the least\n\n"
            );
        }
        let wakeups = point.wakeups_log_slope.map_or("-".to_owned(), slope);
        // Writing to a `String` cannot fail.
        let _ = writeln!(
            out,
            "{:<16} settle {:<22} wake-ups {:<22} x {:.1}",
            point.wait,
            slope(settle),
            wakeups,
            point.settle_us.p50 / least
        );
    }
    out
}

fn slope(estimate: Estimate) -> String {
    format!("{:.2} [{:.2}, {:.2}]", estimate.value, estimate.ci95.low, estimate.ci95.high)
}

fn method(points: &[Point]) -> String {
    let Some(first) = points.first() else { return String::new() };
    let mut out = format!("\nCounted by {}.", first.counted_by.name());
    let late_by = points.iter().map(|point| point.settle_us_late_by).fold(0.0, f64::max);
    if first.counted_by == CountedBy::Switches && late_by > 0.0 {
        let _ = write!(
            out,
            " Settle times of waiters that the kernel puts back to sleep by itself may be\ntoo long, by at most {late_by:.0} us on average; as root the experiment measures them exactly."
        );
    }
    out.push_str(
        " CPU time is the sum over all waiters and connect(), in which\nthe kernel does the listener's work. Fairness 1: the connections of any two waiters differ by one at most.\n",
    );
    out
}
