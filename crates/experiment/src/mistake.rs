//! The text of a mistake in a file, with the known name nearest to a wrong one.

use base::nearest;

/// Writes `; did you mean 'x'?` if a known name is like the wrong one, otherwise all known names.
pub(super) fn proposal<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    match nearest(wrong, known.clone()) {
        Some(name) => format!("; did you mean '{name}'?"),
        None => format!("; known are {}", known.into_iter().collect::<Vec<_>>().join(", ")),
    }
}

/// Explains a mistake that the TOML reader found: its line, the mistake, and for an unknown key or word the nearest
/// known one.
pub(super) fn explain(text: &str, error: &toml::de::Error) -> String {
    let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
    let message = error.message().replace('\n', " ");
    // The reader's own words: unknown field `x`, expected one of `a`, `b`.
    let names: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    match (message.split_whitespace().next(), names.as_slice()) {
        (Some("unknown"), [wrong, known @ ..]) if !known.is_empty() => {
            let what = if message.starts_with("unknown field") { "key" } else { "word" };
            format!("line {line}: unknown {what} '{wrong}'{}", proposal(wrong, known.iter().copied()))
        }
        _ => format!("line {line}: {message}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proposal_has_one_likely_name_or_all_names() {
        let known = ["duration", "trials", "warmup"];
        assert_eq!(proposal("trails", known), "; did you mean 'trials'?");
        assert_eq!(proposal("xyz", known), "; known are duration, trials, warmup");
    }
}
