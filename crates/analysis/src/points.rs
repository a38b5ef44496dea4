//! The points of a figure: trials grouped into lines, each group with its median and interval.
//!
//! All values are in the units of the records, divided as the figure asks. Trials with a flaw stay beside their point
//! and do not count. If a point has no others, their median stands and is marked.

use experiment::{Experiment, Figure, Published};
use record::experiment::{Flaw, TrialRecord, Unit, Value};
use statistics::{Estimate, confidence_of_median, median, median_with_interval};

use super::quantity;
use super::select::{by_place, coordinate};

/// The content of a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// The scale of x.
    pub x: Scale,
    /// The scale of y.
    pub y: Scale,
    /// The titles of the quantities; each line has one of them.
    pub quantities: Vec<String>,
    /// The lines, measured ones first.
    pub lines: Vec<Line>,
}

/// The scale of a figure's axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    /// Its title.
    pub title: String,
    /// Its unit, if it has one.
    pub unit: Option<Unit>,
    /// True for a multiple of another quantity.
    pub is_multiple: bool,
    /// The categories at 0, 1, 2.. if the values of the axis are no numbers; otherwise empty.
    pub categories: Vec<String>,
}

/// A line of a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The line's name in the legend.
    pub name: String,
    /// The line's series, without its quantity.
    pub series: String,
    /// The index of its quantity in the figure.
    pub quantity: usize,
    /// The origin of the line.
    pub source: Source,
    /// Ascending in x.
    pub points: Vec<PlottedPoint>,
}

/// The origin of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Measured along x.
    Measured,
    /// Measured once for all x, on which it does not depend: a level line.
    Level,
    /// Taken from the paper, to be compared with a measured line.
    Published {
        /// The index of the measured line, if there is one.
        like: Option<usize>,
    },
}

/// A point of a line.
#[derive(Clone, Debug, PartialEq)]
pub struct PlottedPoint {
    /// Its place along x.
    pub x: f64,
    /// Its value. The interval of a published point is the point.
    pub y: Estimate,
    /// The greatest confidence of the interval, from 0 to 0.95; 0 for a published point.
    pub confidence: f64,
    /// Its trials, by repetition.
    pub trials: Vec<PointTrial>,
}

impl PlottedPoint {
    /// Returns the number of its valid trials.
    pub fn valid(&self) -> usize {
        self.trials.iter().filter(|trial| trial.is_valid()).count()
    }

    /// Tells whether it has only trials with a flaw.
    pub fn is_doubtful(&self) -> bool {
        !self.trials.is_empty() && self.valid() == 0
    }
}

/// A trial of a point.
#[derive(Clone, Debug, PartialEq)]
pub struct PointTrial {
    /// Its place in the plan's order.
    pub order: u32,
    /// The attempt that speaks for it.
    pub attempt: u32,
    /// Its value.
    pub y: f64,
    /// The trial's defects.
    pub flaws: Vec<Flaw>,
}

impl PointTrial {
    /// Tells whether the trial counts.
    pub fn is_valid(&self) -> bool {
        self.flaws.is_empty()
    }
}

/// Makes the content of a figure from some trials.
pub fn plot(experiment: &Experiment, figure: &Figure, trials: &[TrialRecord]) -> Plot {
    let categories = categories(experiment, &figure.x);
    let meant: Vec<&TrialRecord> = trials.iter().filter(|trial| figure.selection.matches(trial)).collect();
    let mut lines = Vec::new();
    for (quantity, metric) in figure.y.iter().enumerate() {
        for (place, group) in groups(experiment, figure, &meant) {
            let series = series_name(experiment, figure, &place);
            let name = line_name(experiment, figure, metric, &series);
            let builder = Builder {
                experiment,
                figure,
                metric,
                quantity,
                categories: &categories,
                name: &name,
                series: &series,
            };
            lines.extend(builder.line(&group));
        }
    }
    stretch_level_lines(&mut lines);
    lines.retain(|line| !line.points.is_empty());
    let published = figure.published.iter().map(|published| published_line(published, &lines, &categories));
    let published: Vec<Line> = published.collect();
    lines.extend(published);
    Plot {
        x: scale(experiment, &figure.x, figure.x_over.as_deref(), figure.x_title.as_deref(), categories),
        y: scale(experiment, &figure.y[0], figure.y_over.as_deref(), figure.y_title.as_deref(), Vec::new()),
        quantities: figure.y.iter().map(|metric| quantity(experiment, metric).title).collect(),
        lines,
    }
}

fn scale(
    experiment: &Experiment,
    name: &str,
    over: Option<&str>,
    title: Option<&str>,
    categories: Vec<String>,
) -> Scale {
    let own = quantity(experiment, name);
    let of_both = || match over {
        Some(over) => format!("{} over {}", own.title, quantity(experiment, over).title),
        None => own.title.clone(),
    };
    Scale {
        title: title.map_or_else(of_both, str::to_owned),
        unit: if over.is_some() { None } else { own.unit },
        is_multiple: over.is_some(),
        categories,
    }
}

/// Returns the categories of an axis: all its values, if at least one is not a number; otherwise none.
fn categories(experiment: &Experiment, x: &str) -> Vec<String> {
    let Some(axis) = experiment.axis(x) else { return Vec::new() };
    if axis.values.iter().all(|value| value.number().is_some()) {
        return Vec::new();
    }
    axis.values.iter().map(Value::to_string).collect()
}

/// The trials of each line, in the order of the experiment file.
fn groups<'a>(
    experiment: &Experiment,
    figure: &Figure,
    trials: &[&'a TrialRecord],
) -> Vec<(Vec<Option<Value>>, Vec<&'a TrialRecord>)> {
    let mut groups: Vec<(Vec<Option<Value>>, Vec<&TrialRecord>)> = Vec::new();
    for trial in trials {
        let place: Vec<Option<Value>> = figure.series.iter().map(|name| coordinate(trial, name)).collect();
        match groups.iter_mut().find(|(known, _)| *known == place) {
            Some((_, group)) => group.push(trial),
            None => groups.push((place, vec![trial])),
        }
    }
    let rank = |place: &[Option<Value>]| -> Vec<usize> {
        figure.series.iter().zip(place).map(|(name, value)| in_the_file(experiment, name, value)).collect()
    };
    groups.sort_by_key(|(place, _)| rank(place));
    groups
}

/// Returns the place of a value in the file's list.
fn in_the_file(experiment: &Experiment, name: &str, value: &Option<Value>) -> usize {
    let Some(value) = value else { return 0 };
    let text = value.to_string();
    let place = match name {
        "server" => experiment.servers.iter().position(|server| server.name == text),
        "load" => experiment.loads.iter().position(|load| load.name == text),
        axis => experiment.axis(axis).and_then(|axis| axis.values.iter().position(|one| one == value)),
    };
    place.map_or(usize::MAX, |place| place + 1)
}

/// `inf`, `inf, idle 1000`.
fn series_name(experiment: &Experiment, figure: &Figure, place: &[Option<Value>]) -> String {
    let part = |(name, value): (&String, &Option<Value>)| {
        let value = value.as_ref()?;
        Some(match experiment.axis(name) {
            Some(axis) => format!("{} {value}", axis.title()),
            None => value.to_string(),
        })
    };
    let parts: Vec<String> = figure.series.iter().zip(place).filter_map(part).collect();
    parts.join(", ")
}

/// Names the line: the series, and the quantity if there are several: `inf: replies/s`.
fn line_name(experiment: &Experiment, figure: &Figure, metric: &str, series: &str) -> String {
    match figure.y.len() > 1 {
        false => series.to_owned(),
        true if series.is_empty() || experiment.servers.len() == 1 => quantity(experiment, metric).title,
        true => format!("{series}: {}", quantity(experiment, metric).title),
    }
}

/// Makes the points of one line.
struct Builder<'a> {
    experiment: &'a Experiment,
    figure: &'a Figure,
    metric: &'a str,
    quantity: usize,
    categories: &'a [String],
    name: &'a str,
    series: &'a str,
}

impl Builder<'_> {
    /// Makes a line along x, and one of trials that do not depend on x.
    fn line(&self, trials: &[&TrialRecord]) -> Vec<Line> {
        let is_axis = self.experiment.axis(&self.figure.x).is_some();
        let (along, level): (Vec<&TrialRecord>, Vec<&TrialRecord>) =
            trials.iter().partition(|trial| !is_axis || trial.axes.contains_key(&self.figure.x));
        let level = self.point(&level, Some(0.0)).into_iter().collect();
        let line = |(source, points)| {
            let (name, series) = (self.name.to_owned(), self.series.to_owned());
            Line { name, series, quantity: self.quantity, source, points }
        };
        [(Source::Measured, self.points(&along)), (Source::Level, level)].map(line).into()
    }

    fn points(&self, trials: &[&TrialRecord]) -> Vec<PlottedPoint> {
        let groups = by_place(trials, &self.figure.x);
        let mut points: Vec<PlottedPoint> =
            groups.iter().filter_map(|group| self.point(group, None)).collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        points
    }

    /// Makes one point, at a given x or at the median of the trials' x.
    fn point(&self, trials: &[&TrialRecord], x: Option<f64>) -> Option<PlottedPoint> {
        let seen = |trial: &&TrialRecord| {
            let at = x.or_else(|| self.x_of(trial))?;
            let y = divided(trial, self.metric, self.figure.y_over.as_deref())?;
            let (order, attempt, flaws) = (trial.order, trial.attempt, trial.flaws.clone());
            Some((at, PointTrial { order, attempt, y, flaws }))
        };
        let mut seen: Vec<(f64, PointTrial)> = trials.iter().filter_map(seen).collect();
        seen.sort_by_key(|(_, trial)| trial.order);
        let counted: Vec<&(f64, PointTrial)> = seen.iter().filter(|(_, trial)| trial.is_valid()).collect();
        let none_counts = counted.is_empty();
        let counted = if none_counts { seen.iter().collect() } else { counted };
        if counted.is_empty() {
            return None;
        }
        let x = median(&counted.iter().map(|(x, _)| *x).collect::<Vec<_>>());
        let ys: Vec<f64> = counted.iter().map(|(_, trial)| trial.y).collect();
        Some(PlottedPoint {
            x,
            y: median_with_interval(&ys),
            confidence: if none_counts { 0.0 } else { confidence_of_median(ys.len()) },
            trials: seen.into_iter().map(|(_, trial)| trial).collect(),
        })
    }

    fn x_of(&self, trial: &TrialRecord) -> Option<f64> {
        if self.categories.is_empty() {
            return divided(trial, &self.figure.x, self.figure.x_over.as_deref());
        }
        place(self.categories, &trial.axes.get(&self.figure.x)?.to_string())
    }
}

/// Returns a quantity of a trial over another; `None` if the result is not finite.
fn divided(trial: &TrialRecord, name: &str, over: Option<&str>) -> Option<f64> {
    let divisor = over.map_or(Some(1.0), |over| trial.quantity(over))?;
    Some(trial.quantity(name)? / divisor).filter(|value| value.is_finite())
}

/// Stretches level lines from the first x of all other lines to the last.
fn stretch_level_lines(lines: &mut [Line]) {
    let along = lines.iter().filter(|line| line.source == Source::Measured);
    let xs: Vec<f64> = along.flat_map(|line| &line.points).map(|point| point.x).collect();
    let ends = [xs.iter().copied().reduce(f64::min), xs.iter().copied().reduce(f64::max)];
    for line in lines.iter_mut().filter(|line| line.source == Source::Level) {
        let Some(point) = line.points.pop() else { continue };
        line.points = ends.iter().flatten().map(|x| PlottedPoint { x: *x, ..point.clone() }).collect();
    }
}

/// Returns the place of a category on its axis.
fn place(categories: &[String], category: &str) -> Option<f64> {
    categories.iter().position(|one| one == category).map(|place| place as f64)
}

fn published_line(published: &Published, measured: &[Line], categories: &[String]) -> Line {
    let point = |[x, y]: &[f64; 2]| {
        let ci95 = statistics::Interval { low: *y, high: *y };
        Some(PlottedPoint {
            x: if categories.is_empty() { *x } else { place(categories, &x.to_string())? },
            y: Estimate { value: *y, ci95 },
            confidence: 0.0,
            trials: Vec::new(),
        })
    };
    // `inf (2004)` goes with `inf`; of several matching names, the longest wins.
    let fits = |line: &(usize, &Line)| published.name.starts_with(line.1.name.as_str());
    let fitting = measured.iter().enumerate().filter(fits);
    let like = fitting.max_by_key(|(_, line)| line.name.len()).map(|(place, _)| place);
    let mut points: Vec<PlottedPoint> = published.points.iter().filter_map(point).collect();
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    let name = published.name.clone();
    Line { series: name.clone(), name, quantity: 0, source: Source::Published { like }, points }
}
