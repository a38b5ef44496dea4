//! A chart as an SVG file that needs no page around it.
//!
//! Owns the step from the page's style sheet to one that stands alone: values replace the variables, for renderers
//! that know none. The file follows the reader's light or dark theme.

use std::fmt::Write;
use std::sync::LazyLock;

const CHART_STYLE: &str = include_str!("../assets/chart.css");
const PAGE_STYLE: &str = include_str!("../assets/style.css");
/// Paper around the drawing, in pixels.
const MARGIN: f64 = 16.0;
/// Narrow enough for the room that charts leave for letters.
pub(super) const FONT: &str = "font-family: system-ui, 'DejaVu Sans', sans-serif; font-stretch: condensed;";
/// The classes that give a series its colour, and the colour's name in the page's style sheet.
const COLOURS: [(&str, &str); 9] = [
    ("c0", "c0"),
    ("c1", "c1"),
    ("c2", "c2"),
    ("c3", "c3"),
    ("c4", "c4"),
    ("c5", "c5"),
    ("c6", "c6"),
    ("c7", "c7"),
    ("alien", "soft"),
];

/// The colours of a page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Theme {
    Light,
    Dark,
}

/// Makes an SVG file of a chart's `svg` element, whose size is in pixels.
pub fn standalone(chart: &str, (width, height): (f64, f64)) -> String {
    static STYLE: LazyLock<String> = LazyLock::new(|| {
        let family = format!("text {{ {FONT} }}\n");
        let (light, dark) = (style(Theme::Light), style(Theme::Dark));
        format!("{family}{light}@media (prefers-color-scheme: dark) {{\n{dark}}}\n")
    });
    let (full_width, full_height) = (width + 2.0 * MARGIN, height + 2.0 * MARGIN);
    let frame = format!("-{MARGIN} -{MARGIN} {full_width} {full_height}");
    let own = format!("viewBox=\"0 0 {width} {height}\"");
    let (tag, rest) = chart.split_once('>').expect("a chart is an element");
    let tag = tag.replacen("<svg", "<svg xmlns=\"http://www.w3.org/2000/svg\"", 1);
    let tag = tag.replacen(
        &own,
        &format!("viewBox=\"{frame}\" width=\"{full_width}\" height=\"{full_height}\""),
        1,
    );
    let paper = format!(
        "<rect class=\"sheet\" x=\"-{MARGIN}\" y=\"-{MARGIN}\" width=\"{full_width}\" height=\"{full_height}\"/>"
    );
    format!("{tag}><style>\n{}</style>{paper}{rest}\n", *STYLE)
}

/// The charts' rules with this theme's colours in place of variables. A rule that takes the colour of
/// its series becomes one for each colour.
fn style(theme: Theme) -> String {
    let mut out = format!(".sheet {{ fill: {}; }}\n", palette("paper", theme));
    for (selectors, body) in rules(CHART_STYLE) {
        if body.starts_with("--c:") {
            continue;
        }
        if body.contains("var(--c)") {
            for (class, colour) in COLOURS {
                let scoped: Vec<String> =
                    selectors.split(", ").map(|selector| scoped(selector, class)).collect();
                let body = body.replace("var(--c)", &palette(colour, theme));
                let _ = writeln!(out, "{} {{ {} }}", scoped.join(", "), resolved(&body, theme));
            }
        } else {
            let _ = writeln!(out, "{selectors} {{ {} }}", resolved(body, theme));
        }
    }
    out
}

/// A selector of something inside a series, for series of one class. `.chart` is around the series.
fn scoped(selector: &str, class: &str) -> String {
    match selector.strip_prefix(".chart ") {
        Some(inner) => format!(".chart .{class} {inner}"),
        None => format!(".{class} {selector}"),
    }
}

/// Selectors and bodies of a style sheet without nesting.
fn rules(sheet: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    sheet.split('}').filter_map(|rule| rule.split_once('{')).map(|(names, body)| (names.trim(), body.trim()))
}

fn resolved(body: &str, theme: Theme) -> String {
    let mut out = String::new();
    let mut rest = body;
    while let Some((before, after)) = rest.split_once("var(--") {
        let (name, tail) = after.split_once(')').expect("var() is closed");
        out.push_str(before);
        out.push_str(&palette(name, theme));
        rest = tail;
    }
    out.push_str(rest);
    out
}

/// A colour of the page's style sheet, from `--name: light-dark(light, dark);`.
fn palette(name: &str, theme: Theme) -> String {
    let line = format!("--{name}: light-dark(");
    let (_, rest) = PAGE_STYLE.split_once(&line).expect("the page's style sheet has the colour");
    let (pair, _) = rest.split_once(')').expect("light-dark() is closed");
    let (light, dark) = pair.split_once(", ").expect("light-dark() has two colours");
    if theme == Theme::Light { light.to_owned() } else { dark.to_owned() }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) const CHART: &str = "<svg class=\"chart wide\" viewBox=\"0 0 100 60\"><g class=\"series s0 c1 d0\">\
                         <path class=\"dot\" d=\"M20 10h60v40h-60Z\"/></g><text class=\"title\" x=\"0\" y=\"58\">letters</text></svg>";

    #[test]
    fn a_picture_has_no_variables_left_and_both_themes() {
        let svg = standalone(CHART, (100.0, 60.0));
        assert!(svg.contains("viewBox=\"-16 -16 132 92\" width=\"132\" height=\"92\""), "{svg}");
        assert!(!svg.contains("var(") && !svg.contains("light-dark("), "{svg}");
        assert!(svg.contains(".c1 .dot { fill: #c94800; stroke: #ffffff;"), "{svg}");
        assert!(svg.contains(".c1 .dot { fill: #dd5701; stroke: #14171a;"), "{svg}");
    }

    /// A simulation of a kind of colour vision at its full severity, in linear RGB. The source is Machado, Oliveira
    /// and Fernandes, "A Physiologically-based Model for Simulation of Color Vision Deficiency", 2009, table 1.
    type Vision = [[f64; 3]; 3];
    const VISIONS: [(&str, Vision); 4] = [
        ("full", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
        (
            "no red",
            [
                [0.152286, 1.052583, -0.204868],
                [0.114503, 0.786281, 0.099216],
                [-0.003882, -0.048116, 1.051998],
            ],
        ),
        (
            "no green",
            [
                [0.367322, 0.860646, -0.227968],
                [0.280085, 0.672501, 0.047413],
                [-0.011820, 0.042940, 0.968881],
            ],
        ),
        (
            "no blue",
            [
                [1.255528, -0.076749, -0.178779],
                [-0.078411, 0.930809, 0.147602],
                [0.004733, 0.691367, 0.303900],
            ],
        ),
    ];

    /// Linear RGB of `#rrggbb`.
    fn linear(colour: &str) -> [f64; 3] {
        [1, 3, 5].map(|at| {
            let byte = u8::from_str_radix(&colour[at..at + 2], 16).unwrap();
            let value = f64::from(byte) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        })
    }

    fn dot(one: [f64; 3], other: [f64; 3]) -> f64 {
        one.iter().zip(other).map(|(one, other)| one * other).sum()
    }

    /// CIE L*a*b* of a colour as it is seen.
    fn lab(colour: &str, vision: &Vision) -> [f64; 3] {
        let seen = vision.map(|row| dot(row, linear(colour)).clamp(0.0, 1.0));
        let response = |row: [f64; 3], white: f64| {
            let share = dot(row, seen) / white;
            if share > 0.008856 { share.cbrt() } else { 7.787 * share + 16.0 / 116.0 }
        };
        let x = response([0.4124, 0.3576, 0.1805], 0.9505);
        let y = response([0.2126, 0.7152, 0.0722], 1.0);
        let z = response([0.0193, 0.1192, 0.9505], 1.089);
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    #[test]
    fn line_colours_stay_apart_for_colour_blind_readers() {
        for theme in [Theme::Light, Theme::Dark] {
            let colours: Vec<String> = (0..8).map(|index| palette(&format!("c{index}"), theme)).collect();
            for (name, vision) in VISIONS {
                for (index, one) in colours.iter().enumerate() {
                    for other in &colours[..index] {
                        let (a, b) = (lab(one, &vision), lab(other, &vision));
                        let apart = a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
                        // Some 2 can just be told apart side by side; thin lines far from each other need far more.
                        assert!(apart >= 25.0, "{one} and {other} are {apart:.1} apart in {name} vision");
                    }
                }
            }
            let luminance = |colour: &str| dot([0.2126, 0.7152, 0.0722], linear(colour)) + 0.05;
            let paper = luminance(&palette("paper", theme));
            for colour in &colours {
                // WCAG 2.1, 1.4.3: the names at the ends of the lines are text.
                let contrast = paper.max(luminance(colour)) / paper.min(luminance(colour));
                assert!(contrast >= 4.5, "{colour} has a contrast of {contrast:.1} to the paper");
            }
        }
    }
}
