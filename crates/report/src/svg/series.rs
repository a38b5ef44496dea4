//! One line: its marks, the band behind it, and the single trials around it.

use super::markup::{Markup, Px};
use super::scale::Axis;
use super::style::{Look, marker, style};

/// One line.
#[derive(Clone, Debug)]
pub struct Series {
    /// The line's name.
    pub name: String,
    /// Its place in the figure, by which it is shown and hidden, and in the palette.
    pub index: usize,
    /// Measured here, or taken from a paper.
    pub look: Look,
    /// Its points, ascending in x.
    pub marks: Vec<Mark>,
}

/// One point of a line.
#[derive(Clone, Debug, Default)]
pub struct Mark {
    /// Its place along the x axis.
    pub x: f64,
    /// The median.
    pub y: f64,
    /// The ends of the band behind the line: an interval, or the least and the largest repetition.
    pub band: (f64, f64),
    /// Drawn hollow: the point bounds the truth only from one side, or no trial of it is valid.
    pub hollow: bool,
    /// Its place in words.
    pub at: String,
    /// Its value in words.
    pub value: String,
    /// The range of the band in words; empty if it has no width.
    pub range: String,
    /// The trials of the point, if they are shown.
    pub trials: Vec<Dot>,
    /// A reference within the page to the records of the point.
    pub records: Option<String>,
}

/// One trial of a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dot {
    /// Its value.
    pub y: f64,
    /// An invalid one is drawn hollow.
    pub valid: bool,
}

/// The scales of the drawing.
pub(super) struct Axes {
    pub x: Axis,
    pub y: Axis,
}

impl Axes {
    /// Returns the place of a mark; `None` if an axis cannot show it.
    pub fn place(&self, mark: &Mark) -> Option<(f64, f64)> {
        Some((self.x.place(mark.x)?, self.y.place(mark.y)?))
    }
}

impl Mark {
    /// Its value and its place in words.
    pub(super) fn words(&self) -> String {
        let range = if self.range.is_empty() { String::new() } else { format!(" ({})", self.range) };
        format!("{}{range} at {}", self.value, self.at)
    }
}

impl Series {
    /// Draws it, named at its end where a name and a height for it are given.
    pub(super) fn draw(&self, markup: &mut Markup, axes: &Axes, label: Option<(String, f64)>) {
        let class = format!("series {}", style(self.index, self.look));
        markup.open("g", &[("class", &class), ("data-name", &self.name)]);
        let shown: Vec<(&Mark, (f64, f64))> =
            self.marks.iter().filter_map(|mark| Some((mark, axes.place(mark)?))).collect();
        if shown.len() > 1 {
            if shown.iter().any(|(mark, _)| mark.band.0 < mark.band.1) {
                markup.leaf("path", &[("class", &"band"), ("d", &band(axes, &shown))]);
            }
            let points: Vec<(f64, f64)> = shown.iter().map(|(_, point)| *point).collect();
            markup.leaf("path", &[("class", &"line"), ("d", &path(&points))]);
        }
        if let (Some((name, y)), Some((_, end))) = (label, shown.last()) {
            let x = axes.x.range_px().1 + 12.0;
            let leader = format!("M{} {}L{} {}", Px(end.0 + 6.0), Px(end.1), Px(x), Px(y));
            markup.leaf("path", &[("class", &"leader"), ("d", &leader)]);
            let place: [(&str, &dyn std::fmt::Display); 3] =
                [("class", &"label"), ("x", &Px(x + 4.0)), ("y", &Px(y + 4.0))];
            markup.text("text", &place, &name);
        }
        for (mark, (x, _)) in &shown {
            draw_trials(markup, axes, mark, *x);
        }
        for (mark, place) in &shown {
            self.draw_mark(markup, mark, *place);
        }
        markup.close();
    }

    fn draw_mark(&self, markup: &mut Markup, mark: &Mark, (x, y): (f64, f64)) {
        if let Some(records) = &mark.records {
            let words = format!("{}: {}", self.name, mark.words());
            // Reached by the arrow keys of the chart and by the table below it: not one more stop each.
            markup.open("a", &[("href", records), ("tabindex", &-1), ("aria-label", &words)]);
            // Room for a finger or a hasty pointer.
            markup.leaf("circle", &[("class", &"hit"), ("cx", &Px(x)), ("cy", &Px(y)), ("r", &"10")]);
        }
        markup.leaf(
            "path",
            &[
                ("class", &if mark.hollow { "dot hollow" } else { "dot" }),
                ("d", &marker(self.look.shape(self.index), x, y)),
                ("data-x", &Px(x)),
                ("data-y", &Px(y)),
                ("data-at", &mark.at),
                ("data-value", &mark.value),
                ("data-range", &mark.range),
            ],
        );
        if mark.records.is_some() {
            markup.close();
        }
    }
}

/// A small circle for each trial that the axis can show.
fn draw_trials(markup: &mut Markup, axes: &Axes, mark: &Mark, x: f64) {
    for trial in &mark.trials {
        let Some(y) = axes.y.place(trial.y) else { continue };
        let class = if trial.valid { "trial" } else { "trial hollow" };
        markup.leaf("circle", &[("class", &class), ("cx", &Px(x)), ("cy", &Px(y)), ("r", &"2")]);
    }
}

/// From the lower ends to the upper ones and back. An end the axis cannot show falls on the line.
fn band(axes: &Axes, shown: &[(&Mark, (f64, f64))]) -> String {
    let edge = |bound: fn(&Mark) -> f64| {
        shown.iter().map(move |(mark, (x, y))| (*x, axes.y.place(bound(mark)).unwrap_or(*y)))
    };
    let mut around: Vec<(f64, f64)> = edge(|mark| mark.band.1).collect();
    around.extend(edge(|mark| mark.band.0).rev());
    format!("{}Z", path(&around))
}

/// A line through points in pixels, as path data.
pub(super) fn path(points: &[(f64, f64)]) -> String {
    let corner = |(index, (x, y)): (usize, &(f64, f64))| {
        format!("{}{} {}", if index == 0 { 'M' } else { 'L' }, Px(*x), Px(*y))
    };
    points.iter().enumerate().map(corner).collect()
}
