//! The known name nearest to a wrong one.

/// Returns the known name that is most like a wrong one, or `None` if none is like it.
pub fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    /// Below this likeness (Jaro and Winkler) a proposal is a guess.
    const ALIKE: f64 = 0.7;
    let rated = known.into_iter().map(|name| (strsim::jaro_winkler(wrong, name), name));
    rated.filter(|(likeness, _)| *likeness >= ALIKE).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
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
    }
}
