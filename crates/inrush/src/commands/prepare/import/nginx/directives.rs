//! The text of an nginx configuration as a tree of directives.
//!
//! Owns the syntax: words, quotes, comments, blocks, and `include`. Knows no directive but that one.

use std::fs;
use std::path::{Path, PathBuf};

/// Deepest nesting of blocks, and of included files.
const DEEPEST: usize = 16;

/// Most files of one `include`.
const MOST_FILES: usize = 1000;

/// A directive: its words, and its block if it has one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Directive {
    /// The name, and its parameters without quotes.
    pub(super) words: Vec<String>,
    pub(super) block: Option<Vec<Directive>>,
    /// The file and the line in which it begins.
    pub(super) place: String,
}

impl Directive {
    pub(super) fn name(&self) -> &str {
        &self.words[0]
    }

    /// The parameters behind the name.
    pub(super) fn parameters(&self) -> Vec<&str> {
        self.words[1..].iter().map(String::as_str).collect()
    }

    /// The block; empty if there is none.
    pub(super) fn inside(&self) -> &[Directive] {
        self.block.as_deref().unwrap_or_default()
    }
}

/// Reads a file and the files that it includes.
///
/// # Errors
/// A description of the mistake, with the file and the line.
pub(super) fn read(path: &Path) -> Result<Vec<Directive>, String> {
    let base = path.parent().unwrap_or(Path::new(".")).to_owned();
    read_below(path, &base, 0)
}

fn read_below(path: &Path, base: &Path, depth: usize) -> Result<Vec<Directive>, String> {
    let text =
        fs::read_to_string(path).map_err(|cause| format!("{}: cannot read it: {cause}", path.display()))?;
    let mut reader = Reader { rest: &text, line: 1, file: path.display().to_string() };
    let directives = reader.block(0)?;
    included(directives, base, depth)
}

/// Puts the directives of included files in the place of `include`.
fn included(directives: Vec<Directive>, base: &Path, depth: usize) -> Result<Vec<Directive>, String> {
    let mut all = Vec::new();
    for mut directive in directives {
        // Types by the ending of a name are built in.
        let is_include =
            directive.name() == "include" && !directive.words.iter().any(|word| word.ends_with("mime.types"));
        if is_include && directive.words.len() == 2 {
            if depth >= DEEPEST {
                return Err(format!("{}: files include each other too deeply", directive.place));
            }
            for file in matching(&base.join(&directive.words[1])) {
                all.extend(
                    read_below(&file, base, depth + 1)
                        .map_err(|said| format!("{}: {said}", directive.place))?,
                );
            }
            continue;
        }
        directive.block = directive.block.map(|block| included(block, base, depth)).transpose()?;
        all.push(directive);
    }
    Ok(all)
}

/// The files that a path with `*` in its last part names, in order; the path itself without one.
fn matching(path: &Path) -> Vec<PathBuf> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let Some((beginning, end)) = name.split_once('*') else { return vec![path.to_owned()] };
    let entries = path.parent().and_then(|folder| fs::read_dir(folder).ok());
    let names = entries.into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path());
    let matches = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let rest = name.strip_prefix(beginning);
        !name.starts_with('.') && rest.is_some_and(|rest| rest.ends_with(end)) && path.is_file()
    };
    let mut files: Vec<PathBuf> = names.filter(matches).take(MOST_FILES).collect();
    files.sort();
    files
}

struct Reader<'a> {
    rest: &'a str,
    line: usize,
    file: String,
}

enum Token {
    Word(String),
    Semicolon,
    Open,
    Close,
    End,
}

impl Reader<'_> {
    fn wrong(&self, said: &str) -> String {
        format!("{}:{}: {said}", self.file, self.line)
    }

    fn bump(&mut self) -> Option<char> {
        let letter = self.rest.chars().next()?;
        self.rest = &self.rest[letter.len_utf8()..];
        self.line += usize::from(letter == '\n');
        Some(letter)
    }

    /// The directives up to the end of a block, or of the file at depth 0.
    fn block(&mut self, depth: usize) -> Result<Vec<Directive>, String> {
        if depth > DEEPEST {
            return Err(self.wrong("blocks are nested too deeply"));
        }
        let (mut all, mut words, mut place) = (Vec::new(), Vec::new(), String::new());
        loop {
            let token = self.token()?;
            if words.is_empty() {
                place = format!("{}:{}", self.file, self.line);
            }
            match token {
                Token::Word(word) => words.push(word),
                Token::Semicolon if !words.is_empty() => {
                    all.push(Directive {
                        words: std::mem::take(&mut words),
                        block: None,
                        place: place.clone(),
                    });
                }
                Token::Open if !words.is_empty() => {
                    let block = Some(self.block(depth + 1)?);
                    all.push(Directive { words: std::mem::take(&mut words), block, place: place.clone() });
                }
                Token::Close if words.is_empty() && depth > 0 => return Ok(all),
                Token::End if words.is_empty() && depth == 0 => return Ok(all),
                Token::Semicolon | Token::Open => return Err(self.wrong("expected the name of a directive")),
                Token::Close => return Err(self.wrong("unexpected }")),
                Token::End => return Err(self.wrong("the file ends within a directive or a block")),
            }
        }
    }

    fn token(&mut self) -> Result<Token, String> {
        loop {
            match self.rest.chars().next() {
                None => return Ok(Token::End),
                Some('#') => {
                    while self.rest.chars().next().is_some_and(|letter| letter != '\n') {
                        self.bump();
                    }
                }
                Some(letter) if letter.is_whitespace() => drop(self.bump()),
                Some(letter @ (';' | '{' | '}')) => {
                    self.bump();
                    return Ok(match letter {
                        ';' => Token::Semicolon,
                        '{' => Token::Open,
                        _ => Token::Close,
                    });
                }
                Some(quote @ ('"' | '\'')) => return self.quoted(quote),
                Some(_) => return Ok(Token::Word(self.word())),
            }
        }
    }

    fn quoted(&mut self, quote: char) -> Result<Token, String> {
        self.bump();
        let mut word = String::new();
        loop {
            match self.bump() {
                None => return Err(self.wrong("a quote has no end")),
                Some('\\') => match self.bump() {
                    Some('n') => word.push('\n'),
                    Some('r') => word.push('\r'),
                    Some('t') => word.push('\t'),
                    Some(letter @ ('"' | '\'' | '\\')) => word.push(letter),
                    Some(other) => word.extend(['\\', other]),
                    None => {}
                },
                Some(letter) if letter == quote => return Ok(Token::Word(word)),
                Some(letter) => word.push(letter),
            }
        }
    }

    fn word(&mut self) -> String {
        let mut word = String::new();
        while let Some(letter) = self.rest.chars().next() {
            // ${name} is a variable, and not a block.
            let is_variable = letter == '{' && word.ends_with('$');
            if letter.is_whitespace() || letter == ';' || (letter == '{' && !is_variable) {
                break;
            }
            word.push(letter);
            self.bump();
            if letter == '\\' {
                word.extend(self.bump());
            } else if is_variable {
                while let Some(inner) = self.bump() {
                    word.push(inner);
                    if inner == '}' {
                        break;
                    }
                }
            }
        }
        word
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<Directive>, String> {
        Reader { rest: text, line: 1, file: "f".to_owned() }.block(0)
    }

    #[test]
    fn directives_have_words_and_blocks() {
        let text = "a 'b c' \"d\\\"e\"; # x ; {\nf g {\n  h ${i}j \\.(k|l)$;\n}\n";
        let all = parse(text).unwrap();
        assert_eq!((all[0].name(), all[0].parameters()), ("a", vec!["b c", "d\"e"]));
        assert_eq!((all[1].name(), &*all[1].place), ("f", "f:2"));
        assert_eq!(
            (&*all[1].inside()[0].place, all[1].inside()[0].parameters()),
            ("f:3", vec!["${i}j", "\\.(k|l)$"])
        );
    }

    #[test]
    fn mistakes_name_their_line() {
        for (text, said) in [
            ("a;\n;", "f:2: expected the name"),
            ("a {\n", "f:2: the file ends"),
            ("a", "f:1: the file ends"),
            ("a; }", "f:1: unexpected }"),
            ("a 'b", "f:1: a quote has no end"),
            ("{}", "f:1: expected the name"),
            (&"a {".repeat(20), "nested too deeply"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn included_files_take_their_place_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        fs::create_dir(folder.path().join("d")).unwrap();
        write("nginx.conf", "a; http { include d/*.conf; include mime.types; } include one;");
        write("one", "b;");
        write("d/2.conf", "d;");
        write("d/1.conf", "c;");
        write("d/3.off", "x;");
        let all = read(&folder.path().join("nginx.conf")).unwrap();
        let names = |all: &[Directive]| all.iter().map(|each| each.name().to_owned()).collect::<Vec<_>>();
        assert_eq!(
            (names(&all), names(all[1].inside())),
            (
                vec!["a".to_owned(), "http".to_owned(), "b".to_owned()],
                vec!["c".to_owned(), "d".to_owned(), "include".to_owned()],
            )
        );
        write("one", "include one;");
        assert!(read(&folder.path().join("nginx.conf")).unwrap_err().contains("too deeply"));
    }
}
