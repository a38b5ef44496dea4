//! A writer of escaped, balanced markup.

use std::fmt::{Display, Write};

/// Markup under construction.
#[derive(Debug, Default)]
pub struct Markup {
    text: String,
    open: Vec<&'static str>,
}

/// A coordinate, to a tenth of a pixel.
#[derive(Clone, Copy, Debug)]
pub struct Px(pub f64);

impl Display for Px {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        debug_assert!(self.0.is_finite(), "a coordinate that is not finite");
        let tenths = (self.0 * 10.0).round() as i64;
        let sign = if tenths < 0 { "-" } else { "" };
        match (tenths.abs() / 10, tenths.abs() % 10) {
            (whole, 0) => write!(f, "{sign}{whole}"),
            (whole, tenth) => write!(f, "{sign}{whole}.{tenth}"),
        }
    }
}

/// An element's attributes, in the order they are written.
pub type Attributes<'a> = &'a [(&'a str, &'a dyn Display)];

impl Markup {
    /// Begins an element that has children.
    pub fn open(&mut self, name: &'static str, attributes: Attributes<'_>) {
        self.start(name, attributes);
        self.text.push('>');
        self.open.push(name);
    }

    /// Ends the innermost open element.
    pub fn close(&mut self) {
        let name = self.open.pop().expect("an element is open");
        self.text.push_str("</");
        self.text.push_str(name);
        self.text.push('>');
    }

    /// An element without children.
    pub fn leaf(&mut self, name: &'static str, attributes: Attributes<'_>) {
        self.start(name, attributes);
        self.text.push_str("/>");
    }

    /// An element that holds nothing but text.
    pub fn text(&mut self, name: &'static str, attributes: Attributes<'_>, content: &str) {
        self.start(name, attributes);
        self.text.push('>');
        push_escaped(&mut self.text, content);
        self.text.push_str("</");
        self.text.push_str(name);
        self.text.push('>');
    }

    /// The whole text; every element must have been closed.
    pub fn finish(self) -> String {
        assert!(self.open.is_empty(), "elements left open: {:?}", self.open);
        self.text
    }

    fn start(&mut self, name: &str, attributes: Attributes<'_>) {
        self.text.push('<');
        self.text.push_str(name);
        for (key, value) in attributes {
            let _ = write!(self.text, " {key}=\"");
            push_escaped(&mut self.text, &value.to_string());
            self.text.push('"');
        }
    }
}

fn push_escaped(into: &mut String, text: &str) {
    for letter in text.chars() {
        match letter {
            '&' => into.push_str("&amp;"),
            '<' => into.push_str("&lt;"),
            '>' => into.push_str("&gt;"),
            '"' => into.push_str("&quot;"),
            '\'' => into.push_str("&#39;"),
            '\t' | '\n' | '\r' => into.push(letter),
            // XML has no place for these, not even escaped.
            '\u{fffe}' | '\u{ffff}' => into.push(char::REPLACEMENT_CHARACTER),
            control if control.is_control() => into.push(char::REPLACEMENT_CHARACTER),
            other => into.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_escapes_text_and_balances_elements() {
        let mut markup = Markup::default();
        markup.open("g", &[("class", &"a\"b")]);
        markup.text("text", &[("x", &Px(1.25))], "<&'>");
        markup.leaf("path", &[]);
        markup.close();
        assert_eq!(
            markup.finish(),
            "<g class=\"a&quot;b\"><text x=\"1.3\">&lt;&amp;&#39;&gt;</text><path/></g>"
        );
    }

    #[test]
    fn characters_that_xml_lacks_are_replaced() {
        let mut markup = Markup::default();
        markup.text("text", &[], "a\u{1b}b\u{0}c\u{ffff}d\te");
        assert_eq!(markup.finish(), "<text>a\u{fffd}b\u{fffd}c\u{fffd}d\te</text>");
    }

    #[test]
    fn coordinates_are_short() {
        let shown = [0.0, -0.04, 12.0, 0.55, -3.26].map(|value| Px(value).to_string());
        assert_eq!(shown, ["0", "0", "12", "0.6", "-3.3"]);
    }
}
