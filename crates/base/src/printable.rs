//! Text of others, made safe for a terminal and for a log of one entry a line.

use std::borrow::Cow;

/// The text with every control character escaped, such as `\u{1b}`: a name from a record or a message from another
/// machine must not steer the terminal, or begin a line of its own.
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, char::is_control)
}

/// The text with every control character escaped but tabs and line ends.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |letter| letter.is_control() && !matches!(letter, '\n' | '\t'))
}

fn escaped(text: &str, is_unsafe: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        if is_unsafe(letter) { safe.extend(letter.escape_default()) } else { safe.push(letter) }
    }
    Cow::Owned(safe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(printable("agent \u{1b}[2J\r\n\u{9b}1m"), r"agent \u{1b}[2J\r\n\u{9b}1m");
        assert_eq!(printable_lines("a\tb\r\n\u{1b}c\n"), "a\tb\\r\n\\u{1b}c\n");
        assert!(matches!(printable("10 µs · ünïcode"), Cow::Borrowed(_)));
    }
}
