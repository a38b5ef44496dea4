//! An experiment's figures: as charts on a page, as pictures, and as tables of their points.

use analysis::Analysed;
use analysis::points::{Line, Plot, PlottedPoint, Scale, Source};
use experiment::{Figure, LogAxes};
use record::experiment::Unit as MetricUnit;
use serde::Serialize;

use super::tables::record_file;
use crate::format::{percent, plural, without_unit_of_time};
use crate::svg::{
    AxisKind, AxisSpec, Bar, BarChart, Dot, LineChart, Look, Mark, Part, Segment, Series, Unit, png,
    standalone, swatch,
};

const WIDE: (f64, f64) = (840.0, 430.0);
const NARROW: (f64, f64) = (400.0, 340.0);

/// The classes of a bar's parts, which have the colours of lines.
const PARTS: [&str; 8] = ["part0", "part1", "part2", "part3", "part4", "part5", "part6", "part7"];

/// A figure on a page.
#[derive(Clone, Debug, Serialize)]
pub struct FigureView {
    /// Unique on the page.
    pub id: String,
    /// `Figure 8`, if its id in the experiment file begins with a number; otherwise empty.
    pub number: String,
    /// The figure's title.
    pub title: String,
    /// A hint for the reader.
    pub caption: String,
    /// The charts, as `svg` elements: wide and narrow. Empty if there is nothing to draw.
    pub forms: Vec<String>,
    /// The lines, which the reader can hide; none for bars.
    pub keys: Vec<LineKey>,
    /// The parts of bars; none for lines.
    pub parts: Vec<Part>,
    /// The picture beside the page, without its ending.
    pub picture: String,
    /// The titles of the columns of x and y.
    pub head: [String; 2],
    /// Its points in numbers.
    pub points: Vec<PointRow>,
}

/// A line in a figure's legend.
#[derive(Clone, Debug, Serialize)]
pub struct LineKey {
    /// Its place in the figure.
    pub index: usize,
    /// The line's name.
    pub name: String,
    /// A sample, as an `svg` element.
    pub swatch: String,
}

/// A point in numbers.
#[derive(Clone, Debug, Serialize)]
pub struct PointRow {
    /// The target of the chart's marks; unique on the page.
    pub id: String,
    /// The line's name.
    pub line: String,
    /// Its place along x.
    pub x: String,
    /// Its median.
    pub y: String,
    /// The interval, with its confidence; empty for a published point.
    pub interval: String,
    /// Its trials.
    pub trials: Vec<TrialLink>,
}

/// A trial of a point.
#[derive(Clone, Debug, Serialize)]
pub struct TrialLink {
    /// Its value.
    pub y: String,
    /// Its record, seen from the page.
    pub record: String,
    /// The defects for which it does not count; empty if it counts.
    pub flaws: String,
}

/// A figure as files.
pub struct Picture {
    /// Its id in the experiment file.
    pub id: String,
    /// As an SVG file.
    pub svg: String,
    /// As a PNG file, in builds that draw them. Pages refer to the SVG file alone, because a page depends on the
    /// records and not on the build.
    pub png: Option<Vec<u8>>,
}

/// The figures of a page, whose run lies at `base` seen from it.
pub fn views(analysed: &Analysed, base: &str) -> Vec<FigureView> {
    let both = analysed.experiment.figures.iter().zip(&analysed.plots);
    both.map(|(figure, plot)| view(&analysed.run.run.name, figure, plot, base)).collect()
}

/// Writes the figures as files; a figure without points has none.
pub fn pictures(analysed: &Analysed) -> Vec<Picture> {
    let both = analysed.experiment.figures.iter().zip(&analysed.plots);
    let drawn = both.filter(|(_, plot)| !is_empty(plot));
    let picture = |(figure, plot): (&Figure, &Plot)| {
        let chart = draw(&format!("figure-{}", figure.id), figure, plot, Form::Alone);
        let svg = standalone(&chart, WIDE);
        Picture { id: figure.id.clone(), png: png(&svg), svg }
    };
    drawn.map(picture).collect()
}

fn is_empty(plot: &Plot) -> bool {
    !plot.lines.iter().any(|line| matches!(line.source, Source::Measured | Source::Level))
}

fn view(experiment: &str, figure: &Figure, plot: &Plot, base: &str) -> FigureView {
    let id = format!("{}-{}", super::anchor(experiment), figure.id);
    let forms = if is_empty(plot) {
        Vec::new()
    } else {
        [Form::Wide, Form::Narrow].map(|form| draw(&id, figure, plot, form)).to_vec()
    };
    let key = |(index, line): (usize, &Line)| LineKey {
        index,
        name: line.name.clone(),
        swatch: swatch(index, look(line)),
    };
    let lines = plot.lines.iter().enumerate();
    let rows = lines.clone().flat_map(|(index, line)| {
        let id = &id;
        // A level line has the same point at both ends.
        let once = if line.source == Source::Level { 1 } else { line.points.len() };
        let points = line.points.iter().take(once).enumerate();
        points.map(move |(place, point)| row(point_id(id, index, place), line, point, plot, base))
    });
    FigureView {
        number: number(&figure.id),
        title: figure.title.clone(),
        caption: figure.caption.split_whitespace().collect::<Vec<_>>().join(" "),
        forms,
        keys: if is_empty(plot) || figure.stacked { Vec::new() } else { lines.clone().map(key).collect() },
        parts: if is_empty(plot) || !figure.stacked { Vec::new() } else { parts(plot) },
        picture: format!("{base}figures/{}", figure.id),
        head: [&plot.x, &plot.y].map(|scale| Shown::of(scale).title(scale)),
        points: rows.collect(),
        id,
    }
}

fn parts(plot: &Plot) -> Vec<Part> {
    let names = plot.quantities.iter().enumerate();
    names.map(|(place, name)| Part { name: name.clone(), class: part(place) }).collect()
}

/// The class of a quantity.
fn part(quantity: usize) -> &'static str {
    PARTS[quantity % PARTS.len()]
}

/// A figure of a paper goes by its number; any other by its title.
fn number(id: &str) -> String {
    if id.starts_with(|letter: char| letter.is_ascii_digit()) {
        format!("Figure {id}")
    } else {
        String::new()
    }
}

/// Returns the target of a mark.
fn point_id(figure: &str, line: usize, place: usize) -> String {
    format!("{figure}-{line}-{place}")
}

fn row(id: String, line: &Line, point: &PlottedPoint, plot: &Plot, base: &str) -> PointRow {
    let (x, y) = (Shown::of(&plot.x), Shown::of(&plot.y));
    let interval = match line.source {
        Source::Published { .. } => "published".to_owned(),
        _ if point.is_doubtful() => "no valid trial".to_owned(),
        _ => {
            let sure =
                if point.confidence > 0.0 { percent(point.confidence) } else { "one trial".to_owned() };
            format!("{} to {} ({sure})", y.value(point.y.ci95.low), y.value(point.y.ci95.high))
        }
    };
    let trial = |trial: &analysis::points::PointTrial| TrialLink {
        y: y.value(trial.y),
        record: format!("{base}{}", record_file(trial.order, trial.attempt)),
        flaws: trial.flaws.iter().map(|flaw| flaw.name()).collect::<Vec<_>>().join(", "),
    };
    PointRow {
        id,
        line: line.name.clone(),
        x: if line.source == Source::Level { "any".to_owned() } else { x.value(point.x) },
        y: y.value(point.y.value),
        interval,
        trials: point.trials.iter().map(trial).collect(),
    }
}

/// The form of a chart.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// On a page with room.
    Wide,
    /// On a narrow page.
    Narrow,
    /// As a file of its own.
    Alone,
}

impl Form {
    /// Its class, and its width and height.
    fn shape(self) -> (&'static str, (f64, f64)) {
        match self {
            Form::Wide => ("wide", WIDE),
            Form::Narrow => ("narrow", NARROW),
            Form::Alone => ("alone", WIDE),
        }
    }
}

fn draw(id: &str, figure: &Figure, plot: &Plot, form: Form) -> String {
    if figure.stacked { bars(id, figure, plot, form).draw() } else { lines(id, figure, plot, form).draw() }
}

/// At each x a bar for each series, of the figure's quantities.
fn bars(id: &str, figure: &Figure, plot: &Plot, form: Form) -> BarChart {
    let (suffix, size) = form.shape();
    let (x, y) = (Shown::of(&plot.x), Shown::of(&plot.y));
    let mut places: Vec<f64> = plot.lines.iter().flat_map(|line| &line.points).map(|point| point.x).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let mut series: Vec<&str> = Vec::new();
    for line in &plot.lines {
        if !series.contains(&line.series.as_str()) {
            series.push(&line.series);
        }
    }
    let segment = |line: &Line, at: f64| {
        let point = line.points.iter().find(|point| point.x == at)?;
        Some(Segment {
            name: plot.quantities[line.quantity].clone(),
            class: part(line.quantity),
            height: y.place(point.y.value),
            value: y.value(point.y.value),
        })
    };
    let bar = |at: f64, of: &str| Bar {
        label: x.value(at),
        detail: of.to_owned(),
        at: format!("{}, {of}", x.value(at)),
        segments: plot
            .lines
            .iter()
            .filter(|line| line.series == of)
            .filter_map(|line| segment(line, at))
            .collect(),
    };
    let all = places.iter().flat_map(|at| series.iter().map(|of| bar(*at, of)));
    let bars: Vec<Bar> = all.filter(|bar| !bar.segments.is_empty()).collect();
    let height = |bar: &Bar| bar.segments.iter().map(|segment| segment.height).sum();
    BarChart {
        id: format!("{id}-{suffix}"),
        class: suffix.to_owned(),
        title: figure.title.clone(),
        size,
        y_title: y.title(&plot.y),
        unit: y.unit,
        y_max: bars.iter().map(height).fold(0.0, f64::max),
        column: x.title(&plot.x),
        // A page has its legend above the chart.
        legend: if form == Form::Alone { parts(plot) } else { Vec::new() },
        bars,
    }
}

fn lines(id: &str, figure: &Figure, plot: &Plot, form: Form) -> LineChart {
    let (suffix, size) = form.shape();
    let is_log = |axis: LogAxes| figure.log == axis || figure.log == LogAxes::Xy;
    let x_kind = match (plot.x.categories.is_empty(), is_log(LogAxes::X)) {
        (false, _) => AxisKind::Categories,
        (true, true) => AxisKind::Log,
        (true, false) => AxisKind::Tight,
    };
    let y_kind = if is_log(LogAxes::Y) { AxisKind::Log } else { AxisKind::Linear };
    let lines = plot.lines.iter().enumerate();
    let series = lines.map(|(index, line)| Series {
        name: line.name.clone(),
        index,
        look: look(line),
        marks: line
            .points
            .iter()
            .enumerate()
            .map(|(place, point)| {
                let place = if line.source == Source::Level { 0 } else { place };
                let records = (form != Form::Alone).then(|| format!("#{}", point_id(id, index, place)));
                mark(plot, line, point, records)
            })
            .collect(),
    });
    LineChart {
        id: format!("{id}-{suffix}"),
        class: suffix.to_owned(),
        title: figure.title.clone(),
        size,
        x: axis(&plot.x, x_kind),
        y: axis(&plot.y, y_kind),
        series: series.collect(),
        guide: None,
        direct_labels: form != Form::Narrow,
        columns: None,
    }
}

fn look(line: &Line) -> Look {
    match line.source {
        Source::Measured | Source::Level => Look::Measured,
        Source::Published { like } => Look::Published { like },
    }
}

fn axis(scale: &Scale, kind: AxisKind) -> AxisSpec {
    let shown = Shown::of(scale);
    AxisSpec { categories: scale.categories.clone(), ..AxisSpec::new(&shown.title(scale), kind, shown.unit) }
}

fn mark(plot: &Plot, line: &Line, point: &PlottedPoint, records: Option<String>) -> Mark {
    let (x, y) = (Shown::of(&plot.x), Shown::of(&plot.y));
    let (low, high) = (y.place(point.y.ci95.low), y.place(point.y.ci95.high));
    let left_out = match (point.is_doubtful(), point.trials.len() - point.valid()) {
        (true, _) => ", no valid trial".to_owned(),
        (false, 0) => String::new(),
        (false, count) => format!(", {} left out", plural(count, "trial", "trials")),
    };
    let at = if line.source == Source::Level { "any".to_owned() } else { x.value(point.x) };
    Mark {
        x: x.place(point.x),
        y: y.place(point.y.value),
        band: (low, high),
        hollow: point.is_doubtful() || matches!(line.source, Source::Published { .. }),
        at,
        value: format!("{}{left_out}", y.value(point.y.value)),
        range: if low < high {
            format!("{} to {}", y.value(point.y.ci95.low), y.value(point.y.ci95.high))
        } else {
            String::new()
        },
        trials: point
            .trials
            .iter()
            .map(|trial| Dot { y: y.place(trial.y), valid: trial.is_valid() })
            .collect(),
        records,
    }
}

/// A value as the axis of a figure writes it.
pub fn written(scale: &Scale, value: f64) -> String {
    Shown::of(scale).value(value)
}

/// The drawing and the notation of an axis's numbers.
struct Shown<'a> {
    unit: Unit,
    /// The factor from a number to its drawn value.
    factor: f64,
    categories: &'a [String],
}

impl Shown<'_> {
    fn of(scale: &Scale) -> Shown<'_> {
        let (unit, factor) = match scale.unit {
            _ if scale.is_multiple => (Unit::Multiple, 1.0),
            Some(MetricUnit::Milliseconds) => (Unit::Time, 1e6),
            Some(MetricUnit::Microseconds) => (Unit::Time, 1e3),
            Some(MetricUnit::Share) => (Unit::Share, 1.0),
            Some(MetricUnit::PerSecond | MetricUnit::Cores | MetricUnit::Count) | None => (Unit::Count, 1.0),
        };
        Shown { unit, factor, categories: &scale.categories }
    }

    fn place(&self, value: f64) -> f64 {
        value * self.factor
    }

    fn value(&self, value: f64) -> String {
        match self.categories.get(value as usize) {
            Some(category) => category.clone(),
            None => self.unit.show(self.place(value)),
        }
    }

    /// The title without a unit that the numbers themselves have.
    fn title(&self, scale: &Scale) -> String {
        let title = scale.title.as_str();
        match self.unit {
            Unit::Time => without_unit_of_time(title).to_owned(),
            Unit::Count | Unit::Share | Unit::Multiple => title.to_owned(),
        }
    }
}
