//! The source of the workspace: its files, and the code in them without comments, texts and tests.

use std::fs;
use std::path::{Path, PathBuf};

/// The root of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_owned()
}

/// The names of the crates: those in `crates`, and `xtask`.
pub fn crates() -> Vec<String> {
    let mut names: Vec<String> = entries(&root().join("crates")).iter().map(|path| name(path)).collect();
    names.push("xtask".to_owned());
    names
}

/// The folder of a crate.
pub fn folder(krate: &str) -> PathBuf {
    if krate == "xtask" { root().join(krate) } else { root().join("crates").join(krate) }
}

/// The file that a crate begins with.
pub fn first_file(krate: &str) -> PathBuf {
    let source = folder(krate).join("src");
    [source.join("lib.rs"), source.join("main.rs")]
        .into_iter()
        .find(|path| path.exists())
        .expect("a crate has one")
}

/// All files below a folder, in the order of their names. Leaves out what git and cargo make.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in entries(folder) {
        match name(&path).as_str() {
            ".git" | "target" => {}
            _ if path.is_dir() => found.extend(files(&path)),
            _ => found.push(path),
        }
    }
    found
}

/// The path as seen from the root of the workspace.
pub fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

pub fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.expect("the folder can be read").path()).collect();
    paths.sort();
    paths
}

fn name(path: &Path) -> String {
    path.file_name().expect("an entry has a name").to_string_lossy().into_owned()
}

/// Rust code in which comments, the insides of texts, and items under `#[cfg(test)]` are blank. Lines stay lines.
pub fn code(text: &str) -> String {
    without_tests(&without_texts(text))
}

fn without_texts(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let (blank, length) = match letter {
            '/' if rest.starts_with("//") => (true, rest.find('\n').unwrap_or(rest.len())),
            '/' if rest.starts_with("/*") => (true, rest.find("*/").map_or(rest.len(), |end| end + 2)),
            '"' => (true, end_of_text(rest)),
            'r' if !ends_in_word(&out) && raw_text(rest).is_some() => (true, raw_text(rest).unwrap_or(1)),
            '\'' => character(rest).map_or((false, 1), |length| (true, length)),
            _ => (false, letter.len_utf8()),
        };
        let part = &rest[..length];
        match blank {
            true => out.extend(part.chars().map(|letter| if letter == '\n' { '\n' } else { ' ' })),
            false => out.push_str(part),
        }
        rest = &rest[length..];
    }
    out
}

fn ends_in_word(text: &str) -> bool {
    text.chars().next_back().is_some_and(|letter| letter.is_alphanumeric() || letter == '_')
}

/// The length of a text in quotes, both included.
fn end_of_text(text: &str) -> usize {
    let mut escaped = false;
    for (at, letter) in text.char_indices().skip(1) {
        match letter {
            '"' if !escaped => return at + 1,
            _ => escaped = letter == '\\' && !escaped,
        }
    }
    text.len()
}

/// The length of `r"..."` or `r#"..."#`.
fn raw_text(text: &str) -> Option<usize> {
    let hashes = text[1..].bytes().take_while(|byte| *byte == b'#').count();
    let inside = text[1 + hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    Some(inside.find(&end).map_or(text.len(), |at| text.len() - inside.len() + at + end.len()))
}

/// The length of a character in quotes; nothing of a lifetime.
fn character(text: &str) -> Option<usize> {
    let inside = &text[1..];
    let content = match inside.strip_prefix('\\') {
        Some(escape) => {
            1 + escape.chars().next()?.len_utf8()
                + escape.chars().skip(1).take_while(|c| *c != '\'').map(char::len_utf8).sum::<usize>()
        }
        None => inside.chars().next()?.len_utf8(),
    };
    inside[content..].starts_with('\'').then_some(content + 2)
}

fn without_tests(code: &str) -> String {
    const MARK: &str = "#[cfg(test)]";
    let mut out = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(at) = rest.find(MARK) {
        out.push_str(&rest[..at]);
        let item = &rest[at + MARK.len()..];
        let length = MARK.len() + end_of_item(item);
        out.extend(rest[at..at + length].chars().map(|letter| if letter == '\n' { '\n' } else { ' ' }));
        rest = &rest[at + length..];
    }
    out.push_str(rest);
    out
}

/// The length of an item: up to its semicolon, or to the brace that closes its first one.
fn end_of_item(item: &str) -> usize {
    let mut depth = 0;
    for (at, letter) in item.char_indices() {
        match letter {
            ';' if depth == 0 => return at + 1,
            '{' => depth += 1,
            '}' if depth == 1 => return at + 1,
            '}' => depth -= 1,
            _ => {}
        }
    }
    item.len()
}

#[test]
fn comments_texts_and_tests_are_blank() {
    let text = "use a; // b\nlet c = \"d\\\"{\"; let e: &'f u8 = r#\"g\"#;\n'{' '\\n'\n#[cfg(test)]\nmod tests {\n h {}\n}\ni";
    let words: Vec<String> = code(text).split_whitespace().map(str::to_owned).collect();
    assert_eq!(words.join(" "), "use a; let c = ; let e: &'f u8 = ; i");
    assert_eq!(code(text).lines().count(), text.lines().count());
}
