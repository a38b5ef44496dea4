//! The shape of the source: lengths, layers, rooms and headers.
//!
//! Every rule is checked on the files as they are, without git. An allowance names a place that breaks a rule today. An
//! allowance that is no longer needed fails the test too: it may only shrink.

mod tidy {
    pub mod modules;
    pub mod source;
}

use std::collections::{BTreeMap, BTreeSet};

use tidy::modules::Modules;
use tidy::source::{code, crates, files, first_file, folder, read, root, shown};

const LINES_MOST: usize = 600;

/// The most characters in the name of a test: `subject_condition_result`.
const TEST_NAME_MOST: usize = 50;

/// The most modules side by side in one room.
const SIDE_BY_SIDE_MOST: usize = 12;

/// The most modules of a room that use an item of the room's own file, which names them.
const USE_THEIR_LIST_MOST: usize = 4;

/// The most lines of code without comments and tests.
const BUDGETS: [(&str, usize); 7] = [
    ("analysis", 1_800),
    ("inrush", 8_350),
    ("lab", 2_700),
    ("load", 11_600),
    ("report", 3_750),
    ("server", 16_500),
    ("xtask", 4_050),
];

/// Compares the places that break a rule with the places that may.
fn check(rule: &str, found: impl IntoIterator<Item = String>, allowed: &[&str]) {
    let found: BTreeSet<String> = found.into_iter().collect();
    let allowed: BTreeSet<String> = allowed.iter().map(|name| (*name).to_owned()).collect();
    let new: Vec<&String> = found.difference(&allowed).collect();
    let old: Vec<&String> = allowed.difference(&found).collect();
    assert!(new.is_empty(), "{rule}:\n{new:#?}");
    assert!(old.is_empty(), "these allowances are no longer needed, remove them:\n{old:#?}");
}

/// The crates of the code map, from the top down.
fn code_map() -> Vec<String> {
    let text = read(&root().join("ARCHITECTURE.md"));
    let (_, map) = text.split_once("## Code map").expect("ARCHITECTURE.md has a code map");
    let rows =
        map.lines().skip_while(|line| !line.starts_with("| `")).take_while(|line| line.starts_with("| `"));
    rows.filter_map(|row| row.split('`').nth(1)).map(str::to_owned).collect()
}

/// The crates of ours that a crate depends on, for tests and builds too.
fn dependencies(krate: &str) -> BTreeSet<String> {
    let manifest = read(&folder(krate).join("Cargo.toml"));
    let mut section = "";
    let mut found = BTreeSet::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        } else if section.ends_with("dependencies]") {
            found.extend(line.split(['.', ' ', '=']).next().map(str::to_owned));
        }
    }
    let ours: BTreeSet<String> = crates().into_iter().collect();
    found.intersection(&ours).cloned().collect()
}

#[test]
fn only_sys_and_fdm_may_have_unsafe_code() {
    let may = |krate: &String| !read(&first_file(krate)).contains("#![forbid(unsafe_code)]");
    check("these crates do not forbid unsafe code", crates().into_iter().filter(may), &["fdm", "sys"]);
}

#[test]
fn no_file_is_longer_than_600_lines() {
    let is_source = |path: &&std::path::PathBuf| {
        path.extension().is_some_and(|ending| ["rs", "c", "h"].iter().any(|known| ending == *known))
    };
    let long = files(&root())
        .iter()
        .filter(is_source)
        .filter_map(|path| {
            let lines = read(path).lines().count();
            (lines > LINES_MOST).then(|| format!("{}: {lines} lines", shown(path)))
        })
        .collect::<Vec<_>>();
    check("a file that passes 600 lines becomes two", long, &[]);
}

#[test]
fn the_code_map_names_the_crates_that_exist() {
    let mut map = code_map();
    map.sort();
    let mut crates = crates();
    crates.sort();
    assert_eq!(map, crates, "the code map of ARCHITECTURE.md and the crates differ");
}

#[test]
fn a_crate_uses_only_crates_below_it() {
    let map = code_map();
    let row = |krate: &String| map.iter().position(|name| name == krate);
    let upwards = crates().into_iter().flat_map(|krate| {
        let own = row(&krate);
        let up = dependencies(&krate).into_iter().filter(move |used| row(used) <= own);
        up.map(move |used| format!("{krate} uses {used}")).collect::<Vec<_>>()
    });
    check("in the code map of ARCHITECTURE.md these arrows point up", upwards, &[]);
}

#[test]
fn a_crates_header_names_all_its_modules() {
    let mut incomplete = BTreeMap::new();
    for krate in crates() {
        let text = read(&first_file(&krate));
        let header: String =
            text.lines().take_while(|line| line.starts_with("//!")).collect::<Vec<_>>().join("\n");
        let modules = Modules::of(&krate);
        let is_named = |name: &&str| ["`", "::"].iter().any(|end| header.contains(&format!("`{name}{end}")));
        let unnamed: Vec<String> =
            modules.at_the_top().filter(|name| !is_named(name)).map(str::to_owned).collect();
        if !unnamed.is_empty() {
            println!("the header of {krate} does not name {}", unnamed.join(", "));
            incomplete.insert(krate, unnamed);
        }
    }
    check("a crate's header names each of its modules in backticks", incomplete.into_keys(), &[]);
}

#[test]
fn no_neighbouring_modules_use_each_other() {
    let circles = crates().into_iter().flat_map(|krate| {
        let circles = Modules::of(&krate).circles();
        circles.into_iter().map(move |circle| format!("{krate}::{circle}"))
    });
    check("these modules form a circle", circles, &[]);
}

#[test]
fn rooms_have_few_modules_side_by_side() {
    let crowded = crates().into_iter().flat_map(|krate| {
        let rooms = Modules::of(&krate).side_by_side();
        let is_crowded = |(_, modules): &(String, usize)| *modules > SIDE_BY_SIDE_MOST;
        rooms
            .into_iter()
            .filter(is_crowded)
            .map(|(room, modules)| format!("{}: {modules}", shown_room(&krate, &room)))
            .collect::<Vec<_>>()
    });
    check("these rooms have too many modules side by side", crowded, &[]);
}

#[test]
fn modules_do_not_use_the_list_of_them() {
    let upwards = crates().into_iter().flat_map(|krate| {
        let modules = Modules::of(&krate);
        let rooms = modules.use_their_list().into_iter();
        rooms
            .filter(|(_, modules)| modules.len() > USE_THEIR_LIST_MOST)
            .map(|(room, modules)| format!("{}: {}", shown_room(&krate, &room), modules.len()))
            .collect::<Vec<_>>()
    });
    let allowed = ["load::plan::choices::arrivals: 7", "xtask::bench: 9"];
    check("the modules of these rooms use what the file that lists them defines", upwards, &allowed);
}

fn shown_room(krate: &str, room: &str) -> String {
    if room.is_empty() { krate.to_owned() } else { format!("{krate}::{room}") }
}

#[test]
fn a_test_name_has_at_most_50_characters() {
    let is_rust = |path: &std::path::PathBuf| path.extension().is_some_and(|ending| ending == "rs");
    let long = files(&root()).into_iter().filter(is_rust).flat_map(|path| {
        let text = read(&path);
        let names = text.split("#[test]").skip(1);
        let names = names.filter_map(|test| test.split_once("fn ")?.1.split('(').next());
        let long = names.filter(|name| name.len() > TEST_NAME_MOST);
        long.map(|name| format!("{}: {name}", shown(&path))).collect::<Vec<_>>()
    });
    check("these names are too long to be read in a failing line", long, &[]);
}

#[test]
fn no_file_names_a_place_on_one_machine() {
    let homes = ["/home", "/Users", "/work"].map(|home| format!("{home}/"));
    let is_text = |path: &&std::path::PathBuf| {
        path.extension().is_none_or(|ending| {
            ["rs", "md", "toml", "c", "h", "html", "yml", "sh", "py"].iter().any(|known| ending == *known)
        })
    };
    let found = files(&root())
        .iter()
        .filter(is_text)
        .filter_map(|path| {
            let text = std::fs::read_to_string(path).ok()?;
            // A path begins here unless a name stands before it.
            let begins = |at: usize| {
                !text[..at].ends_with(|letter: char| letter.is_alphanumeric() || "._-/}".contains(letter))
            };
            let home =
                homes.iter().find(|home| text.match_indices(home.as_str()).any(|(at, _)| begins(at)))?;
            Some(format!("{}: {home}", shown(path)))
        })
        .collect::<Vec<_>>();
    check("these files name a place that only one machine has", found, &[]);
}

#[test]
fn a_row_of_a_table_is_a_line() {
    let is_page = |path: &&std::path::PathBuf| path.extension().is_some_and(|ending| ending == "md");
    let found = files(&root()).into_iter().filter(|path| is_page(&path)).filter_map(|path| {
        let is_wrapped = |line: &&str| line.contains(" |---");
        let wrapped = read(&path).lines().filter(is_wrapped).count();
        (wrapped > 0).then(|| shown(&path))
    });
    check("these pages have tables of several rows in one line", found, &[]);
}

#[test]
fn crates_keep_to_their_budgets() {
    let mut sum = 0;
    let mut over = Vec::new();
    for krate in crates() {
        let sources = files(&folder(&krate).join("src"));
        let is_code = |path: &&std::path::PathBuf| {
            path.extension().is_some_and(|ending| ending == "rs") && !path.ends_with("tests.rs")
        };
        let lines = |path: &std::path::PathBuf| {
            code(&read(path)).lines().filter(|line| !line.trim().is_empty()).count()
        };
        let count: usize = sources.iter().filter(is_code).map(lines).sum();
        let budget = BUDGETS.iter().find(|(name, _)| *name == krate).map(|(_, most)| *most);
        println!("{krate:<12} {count:>6}{}", budget.map_or(String::new(), |most| format!(" of {most}")));
        sum += count;
        over.extend(budget.filter(|most| count > *most).map(|most| format!("{krate}: {count} of {most}")));
    }
    println!("{:<12} {sum:>6}", "all");
    check("these crates have more code than their budget", over, &[]);
}
