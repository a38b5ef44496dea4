//! The colour, the marker and the dash of a series, and a sample of them for a legend.

use super::markup::{Markup, Px};

/// Markers differ as well as colours, so that no reader depends on colour.
const SHAPES: usize = 8;
/// The number of colours, all of which readers with any kind of colour blindness can tell apart.
const COLOURS: usize = 8;

/// The origin of a series' points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Measured here: a solid line.
    Measured,
    /// Published by a paper: dashed and thin, in the colour of the measured series it is to be compared with, or
    /// grey.
    Published {
        /// The place of that series in the palette, if there is one.
        like: Option<usize>,
    },
}

impl Look {
    /// The place in the order of markers.
    pub(super) fn shape(self, index: usize) -> usize {
        match self {
            Look::Measured => index,
            Look::Published { like } => like.unwrap_or(index),
        }
    }
}

/// The classes that give a series its colour and its dash.
pub(super) fn style(index: usize, look: Look) -> String {
    match look {
        // Past one round of colours the lines are dashed, so that the first and the ninth still differ.
        Look::Measured => format!("s{index} c{} d{}", index % COLOURS, index / COLOURS % 4),
        Look::Published { like: Some(like) } => format!("s{index} c{} published", like % COLOURS),
        Look::Published { like: None } => format!("s{index} alien published"),
    }
}

/// The outline of a series' marker, as path data.
pub(super) fn marker(index: usize, x: f64, y: f64) -> String {
    let (x, y) = (Px(x), Px(y));
    match index % SHAPES {
        0 => format!("M{x} {y}m-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z"),
        1 => format!("M{x} {y}m-3.6 -3.6h7.2v7.2h-7.2Z"),
        2 => format!("M{x} {y}m0 -4.8l4.6 8h-9.2Z"),
        3 => format!("M{x} {y}m0 -5l5 5l-5 5l-5 -5Z"),
        4 => format!("M{x} {y}m0 4.8l4.6 -8h-9.2Z"),
        5 => format!("M{x} {y}m-4.6 -1.6h3v-3h3.2v3h3v3.2h-3v3h-3.2v-3h-3Z"),
        6 => format!(
            "M{x} {y}m0 -2.3l2.8 -2.8l2.3 2.3l-2.8 2.8l2.8 2.8l-2.3 2.3l-2.8 -2.8l-2.8 2.8l-2.3 -2.3l2.8 -2.8l-2.8 -2.8l2.3 -2.3Z"
        ),
        _ => format!("M{x} {y}m-4.2 -4.2h8.4l-8.4 8.4h8.4Z"),
    }
}

/// A line and its marker as they look in the charts, for a legend.
pub fn swatch(index: usize, look: Look) -> String {
    let mut markup = Markup::default();
    markup.open(
        "svg",
        &[
            ("class", &format!("swatch {}", style(index, look))),
            ("viewBox", &"0 0 36 12"),
            ("aria-hidden", &"true"),
        ],
    );
    markup.leaf("path", &[("class", &"line"), ("d", &"M1 6H35")]);
    let dot = if look == Look::Measured { "dot" } else { "dot hollow" };
    markup.leaf("path", &[("class", &dot), ("d", &marker(look.shape(index), 18.0, 6.0))]);
    markup.close();
    markup.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn styles_repeat_late() {
        let styles: Vec<String> =
            (0..16).map(|index| style(index, Look::Measured).split_once(' ').unwrap().1.to_owned()).collect();
        for (index, one) in styles.iter().enumerate() {
            assert!(!styles[..index].contains(one), "{styles:?}");
        }
    }
}
