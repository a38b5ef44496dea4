//! The rules of a site: redirects, header lines, error pages, a fallback and listings.
//!
//! Owns the text form of the rules and their decisions: redirects ([`Redirect`]), header lines
//! ([`HeaderRule`]), pages of errors ([`ErrorPage`]), the fallback file, the index names and the listing of
//! folders. Opens no file and keeps no state.
//!
//! A rule sees only canonical paths ([`crate::path`]), so no spelling of a path evades it. The first
//! redirect that matches decides. Of the header rules with one name, the last that matches decides.
//!
//! Invariants: a `Location` has only printable ASCII. Its host is the host that the rule names, or none. A
//! header line has no control character, and its name is none of those that the server decides about.
//!
//! ```
//! use site::{Redirect, Rules};
//!
//! let redirects = vec!["/old/* /new/* 301".parse::<Redirect>().unwrap()];
//! let rules = Rules { redirects, ..Rules::default() };
//! assert_eq!(rules.redirect("/old/a/b", "/old/a/b?c").unwrap().1, "/new/a/b?c");
//! assert!(rules.redirect("/older", "/older").is_none());
//! ```

mod header;
mod page;
mod pattern;
mod redirect;

use std::sync::{Arc, Mutex};

use base::lock;
use http1::Status;

use crate::path;

pub use header::HeaderRule;
pub(crate) use header::Lines;
pub use page::{ErrorPage, PageFile, index_name};
pub use pattern::Pattern;
pub use redirect::Redirect;
pub(crate) use redirect::push_query;

/// Most redirects, and most header rules. Every path that the cache does not know is compared with each.
const MOST_RULES: usize = 1000;

/// Most redirects from one path to the last, of which browsers follow about 20.
const MOST_IN_A_ROW: usize = 10;

/// The rules of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Redirects, in the order in which they are tried.
    pub redirects: Vec<Redirect>,
    /// Header lines.
    pub headers: Vec<HeaderRule>,
    /// Pages of errors.
    pub error_pages: Vec<ErrorPage>,
    /// The file for every path without a file.
    pub fallback: Option<PageFile>,
    /// The names of the file that is served for its folder, in the order in which they are tried.
    pub index: Vec<String>,
    /// Lists a folder without an index.
    pub listing: bool,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            redirects: Vec::new(),
            headers: Vec::new(),
            error_pages: Vec::new(),
            fallback: None,
            index: vec!["index.html".to_owned()],
            listing: false,
        }
    }
}

impl Rules {
    /// Checks the number of rules, and that redirects come to an end.
    ///
    /// # Errors
    /// A description of what is accepted.
    pub fn check(&self) -> Result<(), String> {
        for (flag, count) in [("--redirect", self.redirects.len()), ("--header", self.headers.len())] {
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
            let Some((_, location)) = self.redirect(&path, &path) else { return true };
            let next = redirect::own_path(&location).map(|path| path::normalise(path, false));
            let Some(Ok(next)) = next else { return true };
            path = next.canonical;
        }
        false
    }

    /// The status and the `Location` for a canonical path, if a redirect matches. The query of `target` is
    /// kept, unless the redirect has one of its own.
    pub fn redirect(&self, path: &str, target: &str) -> Option<(Status, String)> {
        self.redirects.iter().find_map(|rule| rule.decide(path, target)).flatten()
    }

    /// The canonical paths of error pages and the fallback that a redirect matches.
    pub(crate) fn redirected_pages(&self) -> Vec<String> {
        let files = self.error_pages.iter().map(|page| &page.file).chain(&self.fallback);
        let paths = files.map(|file| &file.path().canonical);
        paths.filter(|path| self.redirect(path, path).is_some()).cloned().collect()
    }

    /// The header lines of a canonical path.
    pub(crate) fn lines(&self, path: &str) -> Lines {
        Lines::of(&self.headers, path)
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
        assert_eq!(rules.redirect("/a/b", "/a/b"), Some((Status::FOUND, "/first".to_owned())));
        assert_eq!(rules.redirect("/a/c", "/a/c"), Some((Status::PERMANENT_REDIRECT, "/second".to_owned())));
        assert_eq!(rules.redirect("/a/x/y", "/a/x/y"), None);
        assert_eq!(rules.redirect("/b", "/b"), None);
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
