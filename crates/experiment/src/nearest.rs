//! The known name nearest to a wrong one.

/// Returns the known name that is most like a wrong one, or `None` if none is like it.
pub fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    /// Below this likeness (Jaro and Winkler) a proposal is a guess.
    const ALIKE: f64 = 0.7;
    let rated = known.into_iter().map(|name| (strsim::jaro_winkler(wrong, name), name));
    rated.filter(|(likeness, _)| *likeness >= ALIKE).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
}

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
    fn only_a_likely_name_is_proposed() {
        let known = ["duration", "trials", "warmup"];
        assert_eq!(nearest("durations", known), Some("duration"));
        assert_eq!(nearest("trails", known), Some("trials"));
        assert_eq!(nearest("xyz", known), None);
        assert_eq!(proposal("xyz", known), "; known are duration, trials, warmup");
    }
}
