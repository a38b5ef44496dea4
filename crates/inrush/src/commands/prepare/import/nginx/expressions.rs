//! nginx's regular expressions of paths as our patterns.
//!
//! [`endings`] translates the expressions that have an equal. [`covering`] returns patterns for paths that must be
//! refused. They match all paths of the expression, and other paths too: a text within a path has no pattern. Patterns know
//! upper from lower case, so an expression of `~*` needs all [`spellings`].

use std::collections::BTreeSet;
use std::iter::Peekable;
use std::str::Chars;

/// Most alternatives of an expression, and most spellings of its patterns.
const MOST: usize = 128;

/// Most letters of a class that are alternatives.
const MOST_LETTERS: usize = 16;

/// A part of a path in an alternative of an expression.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Letter(char),
    Any,
    Start,
    End,
}

type Alternatives = Vec<Vec<Part>>;

/// The patterns of an expression such as `\.(css|js)$`.
pub(super) fn endings(expression: &str) -> Option<Vec<String>> {
    let inner = expression.strip_prefix("\\.")?.strip_suffix('$')?;
    let inner = inner
        .strip_prefix("(?:")
        .or(inner.strip_prefix('('))
        .map_or(Some(inner), |rest| rest.strip_suffix(')'))?;
    let is_plain =
        |ending: &&str| !ending.is_empty() && ending.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let endings: Vec<&str> = inner.split('|').collect();
    endings.iter().all(is_plain).then(|| endings.iter().map(|ending| format!("/*.{ending}")).collect())
}

/// The patterns in each mixture of upper and lower case; `None` if there are too many.
pub(super) fn spellings(patterns: &[String]) -> Option<Vec<String>> {
    let mut all = BTreeSet::new();
    for pattern in patterns {
        let mut spelt = vec![String::new()];
        for letter in pattern.chars() {
            let cases = BTreeSet::from([letter.to_ascii_uppercase(), letter.to_ascii_lowercase()]);
            let longer =
                |before: &String| cases.iter().map(|case| format!("{before}{case}")).collect::<Vec<_>>();
            spelt = spelt.iter().flat_map(longer).collect();
            if all.len() + spelt.len() > MOST {
                return None;
            }
        }
        all.extend(spelt);
    }
    Some(all.into_iter().collect())
}

/// Returns patterns that together match every path of an expression; none if Inrush hides these paths anyway.
pub(super) fn covering(expression: &str, ignores_case: bool) -> Vec<String> {
    let everything = || vec!["/*".to_owned()];
    let mut reader = Reader(expression.chars().peekable());
    let Some(all) = reader.alternatives().filter(|_| reader.0.peek().is_none()) else { return everything() };
    let mut patterns: Vec<String> = all.iter().filter_map(|parts| pattern(parts)).collect();
    patterns.sort();
    patterns.dedup();
    let is_narrow =
        |pattern: &String| pattern != "/*" && format!("{pattern} deny all").parse::<site::Access>().is_ok();
    match patterns.iter().all(is_narrow) {
        true if ignores_case => spellings(&patterns).unwrap_or_else(everything),
        true => patterns,
        false => everything(),
    }
}

/// The pattern of an alternative; `None` if no path that Inrush serves matches.
fn pattern(parts: &[Part]) -> Option<String> {
    let (before_end, is_ended) = match parts.iter().position(|part| *part == Part::End) {
        Some(end) => (&parts[..end], true),
        None => (parts, false),
    };
    let mut text: String = before_end
        .iter()
        .filter_map(|part| match part {
            Part::Letter(letter) => Some(*letter),
            Part::Any => Some('*'),
            Part::Start | Part::End => None,
        })
        .collect();
    let mut is_from_start = before_end.first() == Some(&Part::Start);
    if let Some((before, name)) = text.split_once("/.") {
        if !is_well_known(before, name) {
            return None;
        }
        (text, is_from_start) = (format!("/.{name}"), true);
    }
    if !is_ended {
        text.push('*');
    }
    if !is_from_start {
        text.insert_str(0, "/*");
    }
    let (Some((beginning, _)), Some((_, end))) = (text.split_once('*'), text.rsplit_once('*')) else {
        return text.starts_with('/').then_some(text);
    };
    match (beginning, end) {
        // The rest of the path is for the program, and no part of the file's name.
        ("" | "/", "") if text.contains(".php/") => Some("/*.php".to_owned()),
        ("", _) => Some(format!("/*{end}")),
        _ => beginning.starts_with('/').then(|| format!("{beginning}*{end}")),
    }
}

/// Tells whether a text names `/.well-known/`: of all paths with `/.`, Inrush hides the others. `before` and `name` are the
/// text around `/.`.
fn is_well_known(before: &str, name: &str) -> bool {
    // A dot without a name means hidden files, and those of /.well-known are for everybody.
    let named = name.split('*').next().unwrap_or_default();
    let agrees = !named.is_empty() && "well-known".starts_with(named) || named.starts_with("well-known/");
    agrees && ["", "*"].contains(&before) && !name.contains("/.")
}

/// Reads the part of the language of expressions that locations use. `None` stands for the other parts.
struct Reader<'a>(Peekable<Chars<'a>>);

impl Reader<'_> {
    fn alternatives(&mut self) -> Option<Alternatives> {
        let mut all = Vec::new();
        loop {
            all.extend(self.sequence()?);
            if all.len() > MOST {
                return None;
            }
            if self.0.next_if_eq(&'|').is_none() {
                return Some(all);
            }
        }
    }

    fn sequence(&mut self) -> Option<Alternatives> {
        let mut all = vec![Vec::new()];
        while let Some(letter) = self.0.next_if(|letter| !"|)".contains(*letter)) {
            let atom = self.atom(letter)?;
            let next = self.repeated(atom);
            if all.len() * next.len() > MOST {
                return None;
            }
            all = all
                .iter()
                .flat_map(|before| next.iter().map(|part| [&before[..], &part[..]].concat()))
                .collect();
        }
        Some(all)
    }

    fn atom(&mut self, letter: char) -> Option<Alternatives> {
        let part = match letter {
            '^' => Part::Start,
            '$' => Part::End,
            '.' => Part::Any,
            '[' => return self.class(),
            '(' => return self.group(),
            '\\' => match self.0.next()? {
                'd' | 'D' | 's' | 'S' | 'w' | 'W' => Part::Any,
                escaped => literal(escaped).filter(|_| !escaped.is_alphanumeric())?,
            },
            letter => literal(letter)?,
        };
        Some(vec![vec![part]])
    }

    /// A group behind its parenthesis. A look ahead has no letters of the path.
    fn group(&mut self) -> Option<Alternatives> {
        let is_plain = self.0.next_if_eq(&'?').is_none();
        let looks_ahead = !is_plain && self.0.next_if(|letter| "=!".contains(*letter)).is_some();
        if !is_plain && !looks_ahead {
            self.0.next_if_eq(&':')?;
        }
        let inner = self.alternatives()?;
        self.0.next_if_eq(&')')?;
        Some(if looks_ahead { vec![Vec::new()] } else { inner })
    }

    /// A class behind its bracket.
    fn class(&mut self) -> Option<Alternatives> {
        let mut inside = Vec::new();
        loop {
            match self.0.next()? {
                ']' if !inside.is_empty() => break,
                letter => inside.push(letter),
            }
        }
        if inside.iter().any(|letter| "[]".contains(*letter)) || inside.ends_with(&['\\']) {
            return None;
        }
        if !inside.iter().all(|letter| letter.is_ascii_alphanumeric() || *letter == '-') {
            return Some(vec![vec![Part::Any]]);
        }
        let range = |at: usize| match inside[at] {
            '-' if at > 0 && at + 1 < inside.len() => (inside[at - 1]..=inside[at + 1]).collect(),
            letter => vec![letter],
        };
        let letters: Vec<char> = (0..inside.len()).flat_map(range).collect();
        Some(match letters.len() {
            0..=MOST_LETTERS => letters.into_iter().map(|letter| vec![Part::Letter(letter)]).collect(),
            _ => vec![vec![Part::Any]],
        })
    }

    /// An atom with the quantifier behind it.
    fn repeated(&mut self, atom: Alternatives) -> Alternatives {
        let repeated = match self.0.peek() {
            Some('?') => [atom, vec![Vec::new()]].concat(),
            Some('*' | '+' | '{') => vec![vec![Part::Any]],
            _ => return atom,
        };
        if self.0.next() == Some('{') {
            self.0.by_ref().find(|letter| *letter == '}');
        }
        self.0.next_if(|letter| "?+".contains(*letter));
        repeated
    }
}

/// A letter that stands for itself in a path and in a pattern.
fn literal(letter: char) -> Option<Part> {
    (letter.is_alphanumeric() || "/._-~".contains(letter)).then_some(Part::Letter(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(expression: &str, expected: &[&str]) {
        assert_eq!(covering(expression, false), expected, "{expression}");
    }

    #[test]
    fn endings_of_programs_are_covered() {
        for expression in [r"\.php$", r"\.php(?:$|/)", r"[^/]\.php(/|$)", r"^(.+\.php)(/.*)?$", r"\.php/"] {
            check(expression, &["/*.php"]);
        }
        check(r"\.php[57]?$", &["/*.php", "/*.php5", "/*.php7"]);
        check(r"\.php[4-5]$", &["/*.php4", "/*.php5"]);
        check(r"\.ph(p3?|tml)$", &["/*.php", "/*.php3", "/*.phtml"]);
        check(r"/(?:uploads|files)/.*\.php$", &["/*.php"]);
        check(r"^/app/.+\.php$", &["/app/*.php"]);
        check(r"^/index\.php(/|$)", &["/index.php", "/index.php/*"]);
    }

    #[test]
    fn beginnings_and_whole_paths_are_covered() {
        check("^/(config|data)/", &["/config/*", "/data/*"]);
        check("^/(?:lib|tests)(?:$|/)", &["/lib", "/lib/*", "/tests", "/tests/*"]);
        check("^/v[12]{1,2}/x", &["/v*"]);
        check("^/(status|ping)$", &["/ping", "/status"]);
    }

    #[test]
    fn endings_longer_than_php_cover_everything() {
        for expression in [r"\.php", r"\.php5", r"\.phps", r"^(.+\.php)(.*)$", r"\.php.*$"] {
            check(expression, &["/*"]);
        }
    }

    #[test]
    fn well_known_paths_are_covered() {
        for expression in
            [r"^/\.well-known/private/", r"/\.well-known/private/", r"^.*/\.well-known/private/"]
        {
            check(expression, &["/.well-known/private/*"]);
        }
        check(r"^/\.well", &["/.well*"]);
        check(r"^/\.well-known$", &["/.well-known"]);
        for hidden in [r"^/\.well-knownx", r"^/a/\.well-known/", r"^/\.well-known/\.x", r"^/\.git"] {
            check(hidden, &[]);
        }
    }

    #[test]
    fn expressions_without_case_cover_all_spellings() {
        let check = |expression: &str, expected: &[&str]| {
            assert_eq!(covering(expression, true), expected, "{expression}");
        };
        check("^/db/", &["/DB/*", "/Db/*", "/dB/*", "/db/*"]);
        check(r"^/(?:1|\.ht)", &["/1*"]);
        check(r"^/content/uploads/", &["/*"]);
        let covered = covering("^/(backup|data)/", true);
        assert_eq!(covered.len(), 64 + 16);
        assert!(covered.contains(&"/Data/*".to_owned()), "{covered:?}");
    }

    #[test]
    fn hidden_paths_need_no_pattern() {
        for expression in [r"/\.ht", r"/\.", r"(^|/)\.", r"/\.(?!well-known).*"] {
            check(expression, &[]);
        }
        check(r"^/(?:\.|console)", &["/console*"]);
    }

    #[test]
    fn other_expressions_cover_everything() {
        for expression in [
            "secret",
            r"/\.ht|secret",
            "^",
            "",
            r"\.(cgi|pl)(/|$)",
            r"^/a\x2f",
            "^/a(",
            "^/a)",
            "^/[[:alpha:]]",
            "^/a[",
            "(?i)^/a",
            "^/(?<name>a)",
            "^/a b",
            "^/a%",
            "^//a",
            r"\.[Pp][Hh][Pp](/|$)",
        ] {
            check(expression, &["/*"]);
        }
    }

    #[test]
    fn many_alternatives_cover_everything() {
        let group = "(a|b|c|d)";
        check(&format!("^/{}$", group.repeat(9)), &["/*"]);
    }
}
