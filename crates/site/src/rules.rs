//! The rules of a site: redirects, fixed responses, access, passwords, header lines, paces, error pages, a fallback,
//! clean addresses and listings.
//!
//! Owns the text form of the rules and their decisions. Opens no file and keeps no state.
//!
//! A rule sees only canonical paths ([`crate::path`]), so no spelling of a path evades it. The rules are asked in this
//! order: redirects ([`Redirect`]), fixed responses ([`Fixed`]), networks ([`Access`]), passwords ([`Auth`]). The first
//! that matches decides, but of the rules about passwords, of the header rules ([`HeaderRule`]) with one name, and of the
//! paces ([`PaceRule`]), the last does. Then comes the file, or an error with its page ([`ErrorPage`]).
//!
//! Where addresses leave out a slash ([`Slashes::Remove`]) or an ending, a path may lead to a file of another name. Rules about
//! networks and passwords decide on each of these names, and the strictest decision holds.
//!
//! Invariants: a `Location` has only printable ASCII. Its host is the host that the rule names, or none. A
//! header line has no control character, and its name is none of those that the server decides about.
//!
//! ```
//! use site::{Rules, rules::Asked};
//!
//! let redirects = vec!["/old/* /new/* 301".parse().unwrap()];
//! let rules = Rules { redirects, ..Rules::default() };
//! let asked = |target| Asked { target, ..Asked::default() };
//! assert_eq!(rules.redirect("/old/a/b", asked("/old/a/b?c")).unwrap().1, "/new/a/b?c");
//! assert!(rules.redirect("/older", asked("/older")).is_none());
//! ```

mod access;
mod auth;
mod fixed;
mod header;
mod pace;
mod page;
mod pattern;
mod redirect;

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::{Arc, Mutex};

use base::lock;
use http_semantics::{Pace, Status};

use crate::path;

pub use access::Access;
pub use auth::Auth;
pub use fixed::Fixed;
pub use header::HeaderRule;
pub(crate) use header::Lines;
pub use pace::PaceRule;
pub use page::{ErrorPage, PageFile, ending, index_name};
pub use pattern::Pattern;
pub(crate) use redirect::push_query;
pub use redirect::{Asked, Redirect};

/// Most rules of a kind. Every path that the cache does not know is compared with each.
const MOST_RULES: usize = 1000;

/// Most redirects from one path to the last, of which browsers follow about 20.
const MOST_IN_A_ROW: usize = 10;

/// The slash at the end of addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Slashes {
    /// The address of a folder ends with a slash; one without is redirected.
    #[default]
    Add,
    /// No address ends with a slash; one with a slash is redirected. A folder that is listed keeps its own.
    Remove,
}

impl FromStr for Slashes {
    type Err = String;

    fn from_str(text: &str) -> Result<Slashes, String> {
        match text {
            "add" => Ok(Slashes::Add),
            "remove" => Ok(Slashes::Remove),
            _ => Err("expected add or remove".to_owned()),
        }
    }
}

impl fmt::Display for Slashes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Slashes::Add => "add",
            Slashes::Remove => "remove",
        })
    }
}

/// The rules of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Redirects, in the order in which they are tried.
    pub redirects: Vec<Redirect>,
    /// Responses without a file.
    pub fixed: Vec<Fixed>,
    /// Networks that may ask for some paths, in the order in which they are tried.
    pub access: Vec<Access>,
    /// Paths with passwords.
    pub auths: Vec<Auth>,
    /// Header lines.
    pub headers: Vec<HeaderRule>,
    /// Rates at which content leaves.
    pub paces: Vec<PaceRule>,
    /// Pages of errors.
    pub error_pages: Vec<ErrorPage>,
    /// The file for every path without a file.
    pub fallback: Option<PageFile>,
    /// Paths without the fallback.
    pub without_fallback: Vec<Pattern>,
    /// The names of the file that is served for its folder, in the order in which they are tried.
    pub index: Vec<String>,
    /// Endings of files that paths leave out, in the order in which they are tried.
    pub endings: Vec<String>,
    /// The addresses of folders.
    pub slashes: Slashes,
    /// Lists every folder without an index.
    pub listing: bool,
    /// Folders that are listed if they have no index.
    pub listed: Vec<Pattern>,
    /// Compresses text that has no precompressed sibling.
    pub compress: bool,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            redirects: Vec::new(),
            fixed: Vec::new(),
            access: Vec::new(),
            auths: Vec::new(),
            headers: Vec::new(),
            paces: Vec::new(),
            error_pages: Vec::new(),
            fallback: None,
            without_fallback: Vec::new(),
            index: vec!["index.html".to_owned()],
            endings: Vec::new(),
            slashes: Slashes::default(),
            listing: false,
            listed: Vec::new(),
            compress: false,
        }
    }
}

impl Rules {
    /// Checks the number of rules, and that redirects come to an end.
    ///
    /// # Errors
    /// A description of what is accepted.
    pub fn check(&self) -> Result<(), String> {
        let counts = [
            ("--redirect", self.redirects.len()),
            ("--respond", self.fixed.len()),
            ("--access", self.access.len()),
            ("--auth", self.auths.len()),
            ("--header", self.headers.len()),
            ("--limit-rate", self.paces.len()),
            ("--list", self.listed.len()),
            ("--no-fallback", self.without_fallback.len()),
        ];
        for (flag, count) in counts {
            if count > MOST_RULES {
                return Err(format!("{flag} is given {count} times; expected at most {MOST_RULES}"));
            }
        }
        let mut examples = self.redirects.iter().map(Redirect::example);
        match examples.find(|path| !self.comes_to_an_end(path)) {
            Some(path) => Err(format!(
                "--redirect: {path} would be redirected without end; expected a redirect to a path without one"
            )),
            None => Ok(()),
        }
    }

    fn comes_to_an_end(&self, path: &str) -> bool {
        let mut path = path.to_owned();
        for _ in 0..MOST_IN_A_ROW {
            let asked = Asked { target: &path, ..Asked::default() };
            let Some((_, location)) = self.redirect(&path, asked) else { return true };
            let next = redirect::own_path(&location).map(|path| path::normalise(path, false));
            let Some(Ok(next)) = next else { return true };
            path = next.canonical;
        }
        false
    }

    /// The status and the `Location` for a canonical path, if a redirect matches. The query of the target is
    /// kept, unless the redirect has one of its own.
    pub fn redirect(&self, path: &str, asked: Asked<'_>) -> Option<(Status, String)> {
        self.redirects.iter().find_map(|rule| rule.decide(path, asked)).flatten()
    }

    /// The response without a file for a canonical path.
    pub(crate) fn fixed(&self, path: &str) -> Option<&Fixed> {
        self.fixed.iter().find(|rule| rule.is_about(path))
    }

    /// Tells whether a folder without an index is listed.
    pub(crate) fn lists(&self, folder: &str) -> bool {
        self.listing || self.listed.iter().any(|paths| paths.matches(folder))
    }

    /// The file for a path without one.
    pub(crate) fn fallback(&self, path: &str) -> Option<&PageFile> {
        let is_without = || self.without_fallback.iter().any(|paths| paths.matches(path));
        self.fallback.as_ref().filter(|_| !is_without())
    }

    /// The names of the files that a canonical path may lead to, where addresses leave out their ends.
    fn names<'a>(&'a self, path: &'a str) -> impl Iterator<Item = Cow<'a, str>> {
        let slash = (self.slashes == Slashes::Remove).then_some("/");
        let ends = slash.into_iter().chain(self.endings.iter().map(String::as_str));
        let longer = ends.filter(|_| !path.ends_with('/')).map(move |end| Cow::Owned(format!("{path}{end}")));
        std::iter::once(Cow::Borrowed(path)).chain(longer)
    }

    /// Tells whether a client may ask for a canonical path.
    pub(crate) fn allow(&self, path: &str, client: Option<IpAddr>) -> bool {
        self.access.is_empty() || self.names(path).all(|name| Access::allow(&self.access, &name, client))
    }

    /// The passwords of a canonical path; `None` if it is open.
    pub(crate) fn auth(&self, path: &str) -> Option<&Auth> {
        let last = |name: Cow<'_, str>| self.auths.iter().rev().find(|rule| rule.is_about(&name));
        let closes = |rule: &&Auth| rule.file().is_some();
        if self.auths.is_empty() { None } else { self.names(path).find_map(|name| last(name).filter(closes)) }
    }

    /// Tells whether the answer to a canonical path may depend on more of the request than its path. `is_secure` tells
    /// whether it came over TLS.
    pub(crate) fn are_about_requests(&self, path: &str, is_secure: bool) -> bool {
        let is_about_clients = |name: &str| {
            self.access.iter().any(|rule| rule.is_about(name))
                || self.auths.iter().any(|rule| rule.is_about(name))
        };
        let has_clients = !(self.access.is_empty() && self.auths.is_empty());
        has_clients && self.names(path).any(|name| is_about_clients(&name))
            || self.redirects.iter().any(|rule| rule.is_about_requests(path, is_secure))
    }

    /// The canonical paths of error pages and the fallback that a redirect or a fixed response matches.
    pub(crate) fn ruled_pages(&self) -> Vec<String> {
        let files = self.error_pages.iter().map(|page| &page.file).chain(&self.fallback);
        let paths = files.map(|file| &file.path().canonical);
        let is_ruled = |path: &&String| {
            let asked = Asked { target: path, ..Asked::default() };
            self.redirect(path, asked).is_some() || self.fixed(path).is_some()
        };
        paths.filter(is_ruled).cloned().collect()
    }

    /// Tells whether the rules answer requests without any file.
    pub fn answer_alone(&self) -> bool {
        !self.redirects.is_empty() || !self.fixed.is_empty()
    }

    /// The header lines of a canonical path.
    pub(crate) fn lines(&self, path: &str) -> Lines {
        Lines::of(&self.headers, path)
    }

    /// The pace of a canonical path.
    pub(crate) fn pace(&self, path: &str) -> Option<Pace> {
        PaceRule::of(&self.paces, path)
    }

    /// The page of an error.
    pub(crate) fn error_page(&self, status: Status) -> Option<&PageFile> {
        self.error_pages.iter().rev().find(|page| page.status == status).map(|page| &page.file)
    }
}

/// The rules in force. Clones share them, and each site takes new ones within a second.
#[derive(Clone, Debug, Default)]
pub struct LiveRules(Arc<Mutex<Arc<Rules>>>);

impl LiveRules {
    /// The rules of a server that starts.
    pub fn new(rules: Rules) -> LiveRules {
        LiveRules(Arc::new(Mutex::new(Arc::new(rules))))
    }

    /// The rules in force now. The `Arc` stays the same while they do.
    pub fn current(&self) -> Arc<Rules> {
        Arc::clone(&lock(&self.0))
    }

    /// Puts the rules of `newer` in force, unless they are the same.
    pub fn take_from(&self, newer: &LiveRules) {
        let newer = newer.current();
        let mut current = lock(&self.0);
        if **current != *newer {
            *current = newer;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_redirect_decides_and_the_last_page() {
        let redirect = |text: &str| text.parse::<Redirect>().unwrap();
        let page = |text: &str| text.parse::<ErrorPage>().unwrap();
        let rules = Rules {
            redirects: vec![redirect("/a/b /first"), redirect("/a/x/* -"), redirect("/a/* /second 308")],
            error_pages: vec![page("404 /old.html"), page("404 /new.html")],
            ..Rules::default()
        };
        let decided = |path| rules.redirect(path, Asked { target: path, ..Asked::default() });
        assert_eq!(decided("/a/b"), Some((Status::FOUND, "/first".to_owned())));
        assert_eq!(decided("/a/c"), Some((Status::PERMANENT_REDIRECT, "/second".to_owned())));
        assert_eq!(decided("/a/x/y"), None);
        assert_eq!(decided("/b"), None);
        assert_eq!(rules.error_page(Status::NOT_FOUND).unwrap().path().canonical, "/new.html");
        assert!(rules.error_page(Status::FORBIDDEN).is_none());
    }

    #[test]
    fn there_are_not_too_many_rules() {
        let redirect: Redirect = "/a /b".parse().unwrap();
        // All of them have one path, so the first decides.
        let mut rules = Rules { redirects: vec![redirect; MOST_RULES], ..Rules::default() };
        assert_eq!(rules.check(), Ok(()));
        rules.redirects.extend_from_within(..1);
        let expected = "--redirect is given 1001 times; expected at most 1000";
        assert_eq!(rules.check(), Err(expected.to_owned()));
    }

    #[test]
    fn redirects_come_to_an_end() {
        let check = |rules: &[&str]| {
            let redirects = rules.iter().map(|rule| rule.parse().unwrap()).collect();
            Rules { redirects, ..Rules::default() }.check()
        };
        for endless in
            [&["/* /new/*"][..], &["/a* /a/*"], &["/a/* /b/*", "/b/* /a/*"], &["/a /b", "/b /c", "/c /./a?x"]]
        {
            let error = check(endless).unwrap_err();
            assert!(error.contains("redirected without end"), "{endless:?}: {error}");
        }
        for rules in [
            &["/new/* -", "/* /new/*"][..],
            &["/* /index.html"],
            &["/a /b", "/b /c"],
            &["/* https://example.org/*"],
            &["/a/* /../*"],
        ] {
            assert_eq!(check(rules), Ok(()), "{rules:?}");
        }
    }

    #[test]
    fn the_same_rules_again_are_no_change() {
        let live = LiveRules::default();
        let before = live.current();
        live.take_from(&LiveRules::default());
        assert!(Arc::ptr_eq(&before, &live.current()));
        live.clone().take_from(&LiveRules::new(Rules { listing: true, ..Rules::default() }));
        assert!(live.current().listing);
    }
}
