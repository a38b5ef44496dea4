//! The modules of a crate, and which of them uses which.
//!
//! A module with the modules below it is one room. Two modules are neighbours when they have the same parent. A *circle* is
//! a set of neighbours of which each uses, directly or through others, every other one. A module may use its parent's
//! items and the parent its children's: they share a room. A name that a parent only re-exports belongs to the child
//! that defines it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::source::{code, first_file, read};

/// The names of modules from the crate's root down; empty for the root.
type Place = Vec<String>;

#[derive(Default)]
struct Module {
    /// Every path that the module mentions, as it is written.
    paths: Vec<Place>,
    /// The names that `use` brings into the module, with their paths as they are written.
    names: BTreeMap<String, Place>,
}

/// The modules of a crate, without those that only tests have.
pub struct Modules(BTreeMap<Place, Module>);

impl Modules {
    pub fn of(krate: &str) -> Modules {
        let mut modules = Modules(BTreeMap::new());
        let file = first_file(krate);
        let folder = file.parent().expect("a file has a folder").to_owned();
        modules.add(Place::new(), &file, &folder);
        modules
    }

    fn add(&mut self, place: Place, file: &Path, folder: &Path) {
        let tokens = tokens(&code(&read(file)));
        for child in
            tokens.windows(3).filter(|three| three[0] == "mod" && three[2] == ";").map(|three| &three[1])
        {
            let below: PathBuf = folder.join(child);
            let files = [below.with_extension("rs"), below.join("mod.rs")];
            let file = files
                .iter()
                .find(|file| file.exists())
                .unwrap_or_else(|| panic!("no file for {}", below.display()));
            self.add(place.iter().chain([child]).cloned().collect(), file, &below);
        }
        self.0.insert(place, Module::of(&tokens));
    }

    /// The names of the modules at the top.
    pub fn at_the_top(&self) -> impl Iterator<Item = &str> {
        self.0.keys().filter(|place| place.len() == 1).map(|place| place[0].as_str())
    }

    /// The number of modules in each room that has any, by the room's path; the path of the root is empty.
    pub fn side_by_side(&self) -> BTreeMap<String, usize> {
        let mut rooms = BTreeMap::new();
        for (_, room) in self.0.keys().filter_map(|place| place.split_last()) {
            *rooms.entry(room.join("::")).or_default() += 1;
        }
        rooms
    }

    /// For each room, its modules that use an item of the room's own file, which in turn names them.
    pub fn use_their_list(&self) -> BTreeMap<String, BTreeSet<&str>> {
        let targets = self.targets();
        let mut rooms: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        for (place, target) in &targets {
            let Some((child, room)) = place.split_last() else { continue };
            let is_list = || targets.iter().any(|(from, to)| *from == room && to.starts_with(place));
            if !room.is_empty() && target == room && is_list() {
                rooms.entry(room.join("::")).or_default().insert(child);
            }
        }
        rooms
    }

    /// Every use of a module by another one.
    fn targets(&self) -> Vec<(&Place, Place)> {
        self.0
            .iter()
            .flat_map(|(place, module)| {
                module.paths.iter().map(move |path| (place, self.target(place, path, 0)))
            })
            .filter_map(|(place, target)| Some((place, target?)))
            .collect()
    }

    /// Every circle, as `parent::{one, other}`.
    pub fn circles(&self) -> Vec<String> {
        let mut uses: BTreeMap<&[String], BTreeSet<(&str, &str)>> = BTreeMap::new();
        let targets = self.targets();
        for (place, target) in &targets {
            let shared = place.iter().zip(target).take_while(|(one, other)| one == other).count();
            if shared < place.len() && shared < target.len() {
                uses.entry(&place[..shared]).or_default().insert((&place[shared], &target[shared]));
            }
        }
        uses.into_iter().flat_map(|(parent, uses)| circles(parent, uses)).collect()
    }

    /// The module that a path in `place` leads to; `None` if it leads out of the crate.
    fn target(&self, place: &Place, path: &[String], depth: usize) -> Option<Place> {
        let mut at = match path.first()?.as_str() {
            "crate" => Place::new(),
            "super" => place[..place.len().checked_sub(1)?].to_vec(),
            "self" => place.clone(),
            child => {
                let below: Place = place.iter().cloned().chain([child.to_owned()]).collect();
                self.0.get(&below).map(|_| below)?
            }
        };
        for (number, name) in path.iter().enumerate().skip(1) {
            let below: Place = at.iter().chain([name]).cloned().collect();
            if name == "super" {
                at.pop()?;
            } else if self.0.contains_key(&below) {
                at = below;
            } else {
                let brought_in = self.0.get(&at)?.names.get(name).filter(|_| depth < 8);
                let Some(brought_in) = brought_in else { return Some(at) };
                let further: Place = brought_in.iter().chain(&path[number + 1..]).cloned().collect();
                return self.target(&at, &further, depth + 1).or(Some(at));
            }
        }
        Some(at)
    }
}

impl Module {
    fn of(tokens: &[String]) -> Module {
        let mut module = Module::default();
        let mut at = 0;
        while at < tokens.len() {
            let is_use = tokens[at] == "use";
            let begins_path = is_word(&tokens[at])
                && tokens.get(at + 1).is_some_and(|next| next == "::")
                && (at == 0 || tokens[at - 1] != "::");
            if !is_use && !begins_path {
                at += 1;
                continue;
            }
            at += usize::from(is_use);
            let mut found = Vec::new();
            at = tree(tokens, at, &Place::new(), &mut found);
            for (path, name) in found {
                if is_use {
                    module.names.insert(name, path.clone());
                }
                module.paths.push(path);
            }
        }
        module
    }
}

/// Reads the paths that begin at a token, each with the name that it goes by. Returns the place behind them.
fn tree(tokens: &[String], mut at: usize, before: &Place, found: &mut Vec<(Place, String)>) -> usize {
    let mut path = before.clone();
    loop {
        match tokens.get(at).map(String::as_str) {
            Some("{") => {
                at += 1;
                while tokens.get(at).is_some_and(|token| token != "}") {
                    at = tree(tokens, at, &path, found);
                    at += usize::from(tokens.get(at).is_some_and(|token| token == ","));
                }
                return at + 1;
            }
            Some("*") => {
                found.push((path, "*".to_owned()));
                return at + 1;
            }
            Some("self") if !path.is_empty() => at += 1,
            Some(word) if is_word(word) => {
                path.push(word.to_owned());
                at += 1;
            }
            _ => return at + 1,
        }
        if tokens.get(at).is_some_and(|token| token == "::") {
            at += 1;
            continue;
        }
        let renamed = tokens.get(at).is_some_and(|token| token == "as");
        let name = if renamed { tokens.get(at + 1) } else { path.last() }.cloned().unwrap_or_default();
        found.push((path, name));
        return at + if renamed { 2 } else { 0 };
    }
}

fn is_word(token: &str) -> bool {
    token.starts_with(|letter: char| letter.is_alphabetic() || letter == '_')
}

/// Words, `::`, and every other sign by itself.
fn tokens(code: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(letter) = rest.chars().next() {
        let word: usize = rest
            .chars()
            .take_while(|letter| letter.is_alphanumeric() || *letter == '_')
            .map(char::len_utf8)
            .sum();
        let length = match word {
            0 if rest.starts_with("::") => 2,
            0 => letter.len_utf8(),
            word => word,
        };
        tokens.push(rest[..length].to_owned());
        rest = rest[length..].trim_start();
    }
    tokens
}

/// The sets of neighbours that use each other.
fn circles(parent: &[String], uses: BTreeSet<(&str, &str)>) -> Vec<String> {
    let mut reaches = uses;
    loop {
        let further: Vec<(&str, &str)> = reaches
            .iter()
            .flat_map(|(from, over)| {
                reaches.iter().filter(move |(next, _)| next == over).map(move |(_, to)| (*from, *to))
            })
            .filter(|pair| !reaches.contains(pair))
            .collect();
        if further.is_empty() {
            break;
        }
        reaches.extend(further);
    }
    let in_a_circle = reaches.iter().filter(|(from, to)| from == to).map(|(name, _)| *name);
    let circle_of = |name: &str| -> Vec<&str> {
        let both = |other: &&str| reaches.contains(&(name, *other)) && reaches.contains(&(*other, name));
        reaches.iter().filter(|(from, to)| from == to).map(|(other, _)| *other).filter(both).collect()
    };
    let circles: BTreeSet<Vec<&str>> = in_a_circle.map(circle_of).collect();
    let parent: String = parent.iter().map(|name| format!("{name}::")).collect();
    circles.into_iter().map(|circle| format!("{parent}{{{}}}", circle.join(", "))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules(files: &[(&str, &str)]) -> Modules {
        let place =
            |name: &str| name.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
        Modules(files.iter().map(|(name, text)| (place(name), Module::of(&tokens(&code(text))))).collect())
    }

    #[test]
    fn neighbours_that_use_each_other_are_a_circle() {
        let found = modules(&[
            ("", ""),
            ("a", "use crate::b::{self, c::D as E};"),
            ("b", "fn f() { super::x::y() }"),
            ("x", "use crate::{z, a::*};"),
            ("z", "use std::fmt;"),
        ]);
        assert_eq!(found.circles(), ["{a, b, x}"]);
    }

    #[test]
    fn children_that_use_their_list_are_found() {
        let found = modules(&[
            ("", "use list::Item;"),
            ("list", "pub use item::Item; struct Own; const ALL: [Own; 1] = [one::ONE];"),
            ("list::one", "use super::Own;"),
            ("list::two", "use super::Own;"),
            ("list::three", "use super::Item;"),
            ("list::item", ""),
        ]);
        assert_eq!(found.use_their_list(), BTreeMap::from([("list".to_owned(), BTreeSet::from(["one"]))]));
        assert_eq!(found.side_by_side(), BTreeMap::from([(String::new(), 1), ("list".to_owned(), 4)]));
    }

    #[test]
    fn a_name_that_the_parent_re_exports_is_the_childs() {
        let parent = "pub use one::One; use two::Two; struct Own;";
        let circle = modules(&[
            ("", ""),
            ("room", parent),
            ("room::one", "use super::Two;"),
            ("room::two", "use super::One;"),
        ]);
        assert_eq!(circle.circles(), ["room::{one, two}"]);
        let none = modules(&[
            ("", ""),
            ("room", parent),
            ("room::one", "use super::Own;"),
            ("room::two", "use super::One;"),
        ]);
        assert_eq!(none.circles(), [""; 0]);
    }
}
