//! The content of a `server` block: the settings of a host.
//!
//! nginx gives a request to one location, and a level below replaces the lists of the level above. Our rules are lists
//! with patterns. Where the first that matches decides (redirects, responses, networks), the most specific location
//! comes first; where the last does (fields, passwords, rates, fallbacks), it comes last.
//!
//! Invariant: no file is sent that nginx hands to a program in place of a client. The locations of programs are refused, and
//! their files are no index and no fallback, because they may hold source code and passwords. A location without an equal is
//! refused if it hands its files to a program, or keeps them from anybody.

use base::Network;

use super::super::Settings;
use super::directives::Directive;
use super::{IS_SHARED, Level, equals, expressions, rates};

/// The directives that this module and the hosts read.
const READ: &[&str] = &[
    "access_log",
    "add_header",
    "allow",
    "auth_basic",
    "auth_basic_user_file",
    "autoindex",
    "deny",
    "error_page",
    "expires",
    "gzip",
    "index",
    "limit_rate",
    "limit_rate_after",
    "listen",
    "location",
    "return",
    "root",
    "server_name",
    "ssl_certificate",
    "ssl_certificate_key",
    "try_files",
];

/// Tells whether this module and the hosts read a directive, all of it.
pub(super) fn is_handled(directive: &Directive) -> bool {
    READ.contains(&directive.name()) && !rates::is_variable(directive)
}

/// The rank of a location with an expression.
const AS_EXPRESSION: Rank = (2, std::cmp::Reverse(0));

/// The reason why a file is no index and no fallback.
const OF_A_PROGRAM: &str = "nginx hands a file of it to a program, and Inrush would send its source";

/// The content of a block.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) settings: Settings,
    /// The target and the status, if the block redirects every request.
    pub(super) redirects_to: Option<String>,
}

/// A location, or a server without one.
struct Place<'a> {
    /// The patterns of its paths.
    patterns: Vec<String>,
    inside: Level<'a>,
    /// Locations with a lower rank are more specific.
    rank: Rank,
    /// True for a location without an equal, whose paths are refused.
    is_refused: bool,
}

type Rank = (u8, std::cmp::Reverse<usize>);

impl Place<'_> {
    /// Tells whether nginx sends no file of this place to a client by itself.
    fn is_closed(&self) -> bool {
        let closes = |directive: &Directive| match directive.name() {
            "return" => rules_of_return(&self.patterns, directive).is_none(),
            name => name.ends_with("_pass") || name == "internal",
        };
        self.is_refused || self.inside.iter().any(closes)
    }

    fn is_for_everything(&self) -> bool {
        self.patterns == ["/*"]
    }

    fn has(&self, path: &str) -> bool {
        self.patterns.iter().any(|pattern| match pattern.split_once('*') {
            Some((beginning, end)) => path.starts_with(beginning) && path.ends_with(end),
            None => path == pattern,
        })
    }
}

/// Tells whether a file may be an index or a fallback. A place for everything refuses the requests themselves.
fn is_sent(places: &[Place<'_>], path: &str) -> bool {
    let place = places.iter().find(|place| place.has(path));
    place.is_none_or(|place| place.is_for_everything() || !place.is_closed())
}

/// The levels of a place, the innermost first.
type Levels<'a> = [Level<'a>; 3];

/// The directives of this name of the innermost level that has any.
fn of<'a>(levels: &Levels<'a>, names: &[&str]) -> Vec<&'a Directive> {
    let named =
        |level: &Level<'a>| level.iter().filter(|directive| names.contains(&directive.name())).collect();
    levels.iter().map(named).find(|found: &Vec<_>| !found.is_empty()).unwrap_or_default()
}

/// The parameters of a directive that has one value.
fn one<'a>(levels: &Levels<'a>, name: &str) -> Vec<&'a str> {
    of(levels, &[name]).last().map_or_else(Vec::new, |directive| directive.parameters())
}

impl Content {
    /// Turns a block into settings, and notes what has no equal.
    pub(super) fn of(http: Level<'_>, server: Level<'_>, notes: &mut Vec<String>) -> Content {
        let mut places = Vec::new();
        for directive in server.iter().filter(|directive| directive.name() == "location") {
            match place(directive) {
                Some(place) => {
                    let nested = place.inside.iter().filter(|directive| directive.name() == "location");
                    // Of equal ranks, the first is more specific.
                    places
                        .extend(nested.filter_map(|each| refused(each, &place.patterns, place.rank, notes)));
                    places.push(place);
                }
                None => places.extend(refused(directive, &["/*".to_owned()], AS_EXPRESSION, notes)),
            }
        }
        places.sort_by_key(|place| place.rank);
        let everything = Place {
            patterns: vec!["/*".to_owned()],
            inside: &[],
            rank: (u8::MAX, std::cmp::Reverse(0)),
            is_refused: false,
        };
        // A server without a location for everything is one itself.
        let has_start = places.iter().any(|place| place.is_for_everything() && !place.is_refused);
        if !has_start {
            places.push(everything);
        }
        let mut content = Writer { notes, settings: Settings::default(), http, server }.write(&places);
        content.redirects_to = places.last().and_then(|start| redirect_of(&[start.inside, server, http]));
        if server.iter().any(|directive| directive.name() == "return") {
            content.redirects_to = redirect_of(&[server, &[], &[]]);
        } else if places.len() > 1 {
            content.redirects_to = None;
        }
        content
    }
}

/// The target and the status of `return` in a place for everything.
fn redirect_of(levels: &Levels<'_>) -> Option<String> {
    let directive = of(levels, &["return"]).into_iter().next()?;
    let rule = returned("/*", &directive.parameters())?;
    (rule.0 == "redirect")
        .then(|| rule.1.split_once(' ').map_or(String::new(), |(_, target)| target.to_owned()))
}

/// The patterns of a location; `None` for most regular expressions, and for named locations.
fn place(directive: &Directive) -> Option<Place<'_>> {
    use std::cmp::Reverse;
    let (patterns, rank) = match directive.parameters()[..] {
        ["=", path] => (vec![path.to_owned()], (0, Reverse(0))),
        ["^~", path] => (vec![format!("{path}*")], (1, Reverse(path.len()))),
        ["~*", expression] if protects(directive) => {
            (expressions::spellings(&expressions::endings(expression)?)?, AS_EXPRESSION)
        }
        ["~" | "~*", expression] => (expressions::endings(expression)?, AS_EXPRESSION),
        [path] if path.starts_with('/') => (vec![format!("{path}*")], (3, Reverse(path.len()))),
        _ => return None,
    };
    Some(Place { patterns, inside: directive.inside(), rank, is_refused: false })
}

/// Notes a location that has no equal. Returns its paths if they must be refused. `around` are those of the location
/// around it.
fn refused<'a>(
    location: &Directive,
    around: &[String],
    rank: Rank,
    notes: &mut Vec<String>,
) -> Option<Place<'a>> {
    let own = match location.parameters()[..] {
        _ if !protects(location) => Vec::new(),
        // No request has its path.
        [name] if name.starts_with('@') => Vec::new(),
        ["=", path] if path.starts_with('/') => vec![path.to_owned()],
        [operator @ ("~" | "~*"), expression] => expressions::covering(expression, operator == "~*"),
        ["^~", path] | [path] if path.starts_with('/') => vec![format!("{path}*")],
        _ => vec!["/*".to_owned()],
    };
    let within = |around: &String| {
        own.iter()
            .map(|pattern| match (around.strip_suffix('*'), pattern.strip_prefix("/*")) {
                (Some(beginning), Some(end)) => format!("{beginning}*{end}"),
                _ => pattern.clone(),
            })
            .collect::<Vec<_>>()
    };
    let patterns: Vec<String> = around.iter().flat_map(within).collect();
    let is_refused = !patterns.is_empty();
    notes.push(match is_refused {
        true => equals::note_because(location, "it has no equal, and Inrush refuses these paths"),
        false => equals::note(location),
    });
    is_refused.then_some(Place { patterns, inside: &[], rank, is_refused })
}

/// Tells whether nginx hands files of a location to a program, or keeps them from a client.
fn protects(location: &Directive) -> bool {
    location.inside().iter().any(|directive| match directive.name() {
        "auth_request" | "deny" | "internal" => true,
        "auth_basic" => directive.parameters() != ["off"],
        "return" => directive.parameters().first().is_some_and(|status| status.starts_with(['4', '5'])),
        "location" => protects(directive),
        name => name.ends_with("_pass"),
    })
}

/// The settings and the rules of `return` for patterns; `None` without an equal.
fn rules_of_return(patterns: &[String], directive: &Directive) -> Option<Vec<(&'static str, String)>> {
    let rules = patterns.iter().map(|pattern| returned(pattern, &directive.parameters()));
    rules.map(|rule| rule.filter(is_taken)).collect()
}

/// Tells whether Inrush takes a rule of `return` or `rewrite`.
fn is_taken((setting, rule): &(&'static str, String)) -> bool {
    match *setting {
        "redirect" => rule.parse::<site::Redirect>().is_ok(),
        _ => rule.parse::<site::Fixed>().is_ok(),
    }
}

/// The setting and the rule of `return` for a pattern.
fn returned(pattern: &str, parameters: &[&str]) -> Option<(&'static str, String)> {
    let (status, text) = match parameters {
        [url] if url.starts_with("http") => ("302", Some(*url)),
        [status] => (*status, None),
        [status, text] => (*status, Some(*text)),
        _ => return None,
    };
    if ["301", "302", "303", "307", "308"].contains(&status) {
        return Some(("redirect", format!("{pattern} {} {status}", target(pattern, text?)?)));
    }
    if text.is_some_and(|text| text.contains('$')) {
        return None;
    }
    let text = text.map_or(String::new(), |text| format!(" {text}"));
    Some(("respond", format!("{pattern} {status}{text}")))
}

/// The target of a redirect in our terms: the variables that stand for the rest of the path, and for the host.
fn target(pattern: &str, target: &str) -> Option<String> {
    let whole =
        ["$request_uri", "$uri$is_args$args", "$uri"].into_iter().find_map(|end| target.strip_suffix(end));
    let target = match whole {
        // The whole path: the pattern's own beginning, and its rest.
        Some(beginning) => format!("{beginning}{pattern}"),
        None => match target.strip_suffix("$is_args$args") {
            Some(beginning) => beginning.to_owned(),
            None if target.contains('?') => target.to_owned(),
            // nginx drops the query.
            None => format!("{target}?"),
        },
    };
    let target = target.replace("${host}", "$host").replace("$http_host", "$host");
    (!target.replacen("$host", "", 1).contains('$')).then_some(target)
}

struct Writer<'a, 'n> {
    notes: &'n mut Vec<String>,
    settings: Settings,
    http: Level<'a>,
    server: Level<'a>,
}

impl<'a> Writer<'a, '_> {
    fn write(mut self, places: &[Place<'a>]) -> Content {
        self.note_the_rest(places);
        self.base(places);
        // The first rule that matches decides.
        for directive in
            self.server.iter().filter(|directive| ["return", "rewrite"].contains(&directive.name()))
        {
            self.returned(None, directive);
        }
        for place in places {
            for directive in
                place.inside.iter().filter(|directive| ["return", "rewrite"].contains(&directive.name()))
            {
                self.returned(Some(place), directive);
            }
        }
        self.networks(places);
        // The last rule that matches decides.
        self.rates(places);
        let own = || places.iter().rev().filter(|place| !place.is_refused);
        let has_fallback = own().any(|place| self.fallback(places, place).is_some());
        for place in own() {
            self.fields(place);
            self.passwords(place);
            if one(&self.levels(place), "autoindex") == ["on"] {
                let patterns =
                    place.patterns.iter().map(|pattern| pattern.trim_end_matches('*').to_owned() + "*");
                patterns.for_each(|pattern| self.settings.add("list", pattern));
            }
            let is_answered =
                place.is_closed() || place.inside.iter().any(|directive| directive.name() == "return");
            if has_fallback && !is_answered {
                self.fallback_rule(places, place);
            }
        }
        Content { settings: self.settings, redirects_to: None }
    }

    fn levels(&self, place: &Place<'a>) -> Levels<'a> {
        [place.inside, self.server, self.http]
    }

    /// Notes each directive that has no equal.
    fn note_the_rest(&mut self, places: &[Place<'a>]) {
        for directive in self.server {
            let name = directive.name();
            let is_handled = is_handled(directive) || IS_SHARED.contains(&name) || name == "rewrite";
            if !is_handled && !equals::needs_nothing(directive) {
                self.notes.push(equals::note(directive));
            }
        }
        let start = places.last().map(|place| place.inside).unwrap_or_default();
        for place in places {
            for directive in place.inside {
                // The folder of everything is that of the host.
                let is_root = directive.name() == "root" && !std::ptr::eq(place.inside, start);
                let is_handled = is_handled(directive) || directive.name() == "rewrite";
                if is_root || !is_handled && !equals::needs_nothing(directive) {
                    self.notes.push(equals::note(directive));
                }
            }
        }
    }

    /// The settings that a host has once. Its location for everything has them.
    fn base(&mut self, places: &[Place<'a>]) {
        let levels = places.last().map_or([&[][..], self.server, self.http], |place| self.levels(place));
        let settings = &mut self.settings;
        let fixed = "the folder of a host is fixed text here, without variables";
        for directive in of(&levels, &["root"]) {
            match directive.parameters()[..] {
                [root] if !root.contains('$') => settings.add("root", root),
                _ => self.notes.push(equals::note_because(directive, fixed)),
            }
        }
        for (name, ours) in [("ssl_certificate", "tls-cert"), ("ssl_certificate_key", "tls-key")] {
            for directive in of(&levels, &[name]) {
                directive.parameters().into_iter().for_each(|file| settings.add(ours, file));
            }
        }
        for directive in of(&levels, &["index"]) {
            let (sent, program): (Vec<&str>, Vec<&str>) = directive
                .parameters()
                .into_iter()
                .partition(|name| is_sent(places, &format!("/{}", name.trim_start_matches('/'))));
            sent.into_iter().for_each(|name| settings.add("index", name));
            self.notes.extend((!program.is_empty()).then(|| equals::note_because(directive, OF_A_PROGRAM)));
        }
        for directive in of(&levels, &["try_files"]) {
            let mut files = directive.parameters().into_iter().map(|file| file.replacen("$uri", "/x", 1));
            if !files.all(|file| is_sent(places, path_of(&file))) {
                self.notes.push(equals::note_because(directive, OF_A_PROGRAM));
            }
        }
        if let Some(file) = one(&[self.server, &[], &[]], "access_log").first().filter(|file| **file != "off")
        {
            settings.add("access-log", *file);
        }
        if one(&levels, "gzip") == ["on"] {
            settings.add("compress", true);
        }
        for ending in one(&levels, "try_files").iter().filter_map(|file| file.strip_prefix("$uri.")) {
            if is_sent(places, &format!("/x.{ending}")) {
                settings.add("try-ending", format!(".{ending}"));
            }
        }
        for directive in of(&levels, &["error_page"]) {
            match directive.parameters()[..] {
                [ref codes @ .., page]
                    if page.starts_with('/') && !codes.iter().any(|code| code.starts_with('=')) =>
                {
                    let (have, lack): (Vec<&&str>, Vec<&&str>) =
                        codes.iter().partition(|code| ["400", "403", "404", "500"].contains(code));
                    have.iter().for_each(|code| settings.add("error-page", format!("{code} {page}")));
                    if !lack.is_empty() {
                        self.notes.push(equals::note(directive));
                    }
                }
                _ => self.notes.push(equals::note(directive)),
            }
        }
    }

    /// The rules of `return`, and of a `rewrite` that redirects, in a place or in the whole server.
    fn returned(&mut self, place: Option<&Place<'a>>, directive: &Directive) {
        let everything = ["/*".to_owned()];
        let patterns = place.map_or(&everything[..], |place| &place.patterns);
        let rules = match directive.name() {
            "return" => rules_of_return(patterns, directive),
            _ => rewritten(&directive.parameters()).filter(is_taken).map(|rule| vec![rule]),
        };
        match rules {
            Some(rules) => rules.into_iter().for_each(|(setting, rule)| self.settings.add(setting, rule)),
            None => {
                self.notes.push(equals::note(directive));
                // nginx sends no file here. The rules for networks refuse a closed place, if the host has a folder.
                let is_refused = place.is_some() && self.settings.has("root");
                let patterns = patterns.iter().filter(|_| directive.name() == "return" && !is_refused);
                patterns.for_each(|pattern| self.settings.add("respond", format!("{pattern} 403")));
            }
        }
    }

    fn networks(&mut self, places: &[Place<'a>]) {
        let is_closed = places.last().is_some_and(Place::is_closed);
        let is_general = is_closed || !of(&[self.server, self.http, &[]], &["allow", "deny"]).is_empty();
        for place in places {
            // A location has the list of the server unless it has its own. If no rule for everything repeats that list,
            // each location has it.
            let levels = if is_closed || place.is_for_everything() {
                self.levels(place)
            } else {
                [place.inside, &[], &[]]
            };
            let mut rules = Vec::new();
            for rule in of(&levels, &["allow", "deny"]) {
                match rule.parameters()[..] {
                    ["all"] => rules.push(format!("{} all", rule.name())),
                    [text] if let Ok(network) = Network::parse_truncated(text) => {
                        rules.push(format!("{} {network}", rule.name()));
                    }
                    _ => self.notes.push(equals::note(rule)),
                }
            }
            let has_own = is_closed || !rules.is_empty();
            if place.is_closed() {
                rules = vec!["deny all".to_owned()];
            } else if is_general && !place.is_for_everything() && has_own {
                rules.push("allow all".to_owned());
            }
            for pattern in &place.patterns {
                rules.iter().for_each(|rule| self.settings.add("access", format!("{pattern} {rule}")));
            }
        }
    }

    fn passwords(&mut self, place: &Place<'a>) {
        let is_own = place.inside.iter().any(|directive| directive.name().starts_with("auth_basic"));
        if !is_own && place.patterns != ["/*"] {
            return;
        }
        let levels = self.levels(place);
        let rule = match (&one(&levels, "auth_basic")[..], &one(&levels, "auth_basic_user_file")[..]) {
            (["off"], _) => "-".to_owned(),
            ([realm], [file]) => format!("{file} {realm}"),
            _ => return,
        };
        place.patterns.iter().for_each(|pattern| self.settings.add("auth", format!("{pattern} {rule}")));
    }

    fn rates(&mut self, places: &[Place<'a>]) {
        let rule = |place: &Place<'a>| {
            let levels = self.levels(place);
            rates::rule(&one(&levels, "limit_rate"), &one(&levels, "limit_rate_after"))
        };
        let own = places.iter().rev().filter(|place| !place.is_refused);
        let rules = rates::rules(own.map(|place| (&place.patterns[..], rule(place))));
        rules.into_iter().for_each(|rule| self.settings.add("limit-rate", rule));
    }

    /// The header fields of a place: the server's fields for everything, and the place's own.
    fn fields(&mut self, place: &Place<'a>) {
        let is_own = |directive: &&Directive| ["add_header", "expires"].contains(&directive.name());
        if place.patterns != ["/*"] && !place.inside.iter().any(|directive| is_own(&directive)) {
            return;
        }
        let levels = self.levels(place);
        let mut caching: Vec<String> =
            one(&levels, "expires").last().and_then(|time| cached_for(time)).into_iter().collect();
        for directive in of(&levels, &["add_header"]) {
            let (Some(name), Some(value)) = (directive.words.get(1), directive.words.get(2)) else {
                continue;
            };
            if value.contains('$') {
                self.notes.push(equals::note(directive));
            } else if name.eq_ignore_ascii_case("cache-control") {
                caching.push(value.clone());
            } else {
                self.field(place, &format!("{name}: {value}"));
            }
        }
        if !caching.is_empty() {
            self.field(place, &format!("Cache-Control: {}", caching.join(", ")));
        }
    }

    fn field(&mut self, place: &Place<'_>, line: &str) {
        place.patterns.iter().for_each(|pattern| self.settings.add("header", format!("{pattern} {line}")));
    }

    /// The fallback of a place: the last parameter of `try_files`, if it is a path.
    fn fallback(&self, places: &[Place<'a>], place: &Place<'a>) -> Option<&'a str> {
        let path = path_of(one(&self.levels(place), "try_files").last()?);
        (path.starts_with('/') && !path.contains('$') && is_sent(places, path)).then_some(path)
    }

    /// The fallback of everything, and the paths without it.
    fn fallback_rule(&mut self, places: &[Place<'a>], place: &Place<'a>) {
        match (self.fallback(places, place), &place.patterns[..]) {
            (Some(file), [pattern]) if pattern == "/*" => self.settings.add("fallback", file),
            (None, patterns) if patterns != ["/*"] => {
                patterns.iter().for_each(|pattern| self.settings.add("no-fallback", pattern.clone()));
            }
            (Some(_), _) if !place.inside.iter().any(|directive| directive.name() == "try_files") => {}
            (Some(_), _) => {
                let own = place.inside.iter().filter(|directive| directive.name() == "try_files");
                self.notes.extend(own.map(equals::note));
            }
            (None, _) => {}
        }
    }
}

/// A file of `try_files` without its query.
fn path_of(file: &str) -> &str {
    file.split('?').next().unwrap_or(file)
}

/// The rule of `rewrite ^/old/(.*)$ /new/$1 permanent`.
fn rewritten(parameters: &[&str]) -> Option<(&'static str, String)> {
    let [expression, target, flag] = parameters else { return None };
    let status = match *flag {
        "permanent" => "301",
        "redirect" => "302",
        _ => return None,
    };
    let path = expression.strip_prefix('^')?;
    let is_plain = |text: &str| {
        text.starts_with('/') && !text.contains(|letter: char| "()[]{}|*+?^$\\".contains(letter))
    };
    let (from, to) = match path.strip_suffix("(.*)$") {
        Some(beginning) if is_plain(beginning) => (format!("{beginning}*"), target.replace("$1", "*")),
        Some(_) => return None,
        None => (path.strip_suffix('$').filter(|path| is_plain(path))?.to_owned(), (*target).to_owned()),
    };
    (!to.contains('$')).then(|| ("redirect", format!("{from} {to} {status}")))
}

/// The directive of `Cache-Control` for a time of `expires`.
fn cached_for(time: &str) -> Option<String> {
    match time {
        "off" => None,
        "max" => Some("max-age=315360000".to_owned()),
        "epoch" => Some("no-cache".to_owned()),
        negative if negative.starts_with('-') => Some("no-cache".to_owned()),
        time => equals::seconds(time).map(|seconds| format!("max-age={seconds}")),
    }
}
