//! The rules that answer a request before any file: redirects, fixed responses, networks and passwords.

use std::sync::Arc;

use base::Clock;
use http_semantics::{Response, Status};

use crate::auth::Verdict;
use crate::hosts::bare;
use crate::path::SitePath;
use crate::respond::{self, File};
use crate::rules::{Asked, Auth};
use crate::{Ask, Site};

/// An answer, which is `None` if memory does not suffice for its page.
type Answer = Option<Response<File>>;

impl<C: Clock> Site<C> {
    /// The answer that rules give; `None` if they leave the request to the files.
    pub(crate) fn ruled(&mut self, path: &SitePath, ask: Ask<'_>) -> Option<Answer> {
        let (rules, request) = (Arc::clone(&self.rules), ask.request);
        let canonical = &path.canonical;
        let asked = Asked {
            target: request.target,
            authority: request.host,
            host: bare(request.host),
            is_secure: request.transport.is_secure(),
        };
        if !self.options.skips_redirects
            && let Some((status, location)) = rules.redirect(canonical, asked)
        {
            self.counts.redirects += 1;
            return Some(self.finish(respond::redirect(status, &location), canonical, ask));
        }
        if let Some(rule) = rules.fixed(canonical) {
            self.counts.fixed_responses += 1;
            let response = respond::fixed(rule, rules.pace(canonical));
            if rule.text.is_some() {
                let lines = self.lines(canonical).without_file(request.transport);
                return Some(Some(respond::with_lines(response, &lines)));
            }
            return Some(self.finish(response, canonical, ask));
        }
        if self.options.fetches_only {
            return None;
        }
        if !rules.allow(canonical, request.client) {
            let refusal = Response::error(Status::FORBIDDEN);
            return Some(self.finish_counted(|counts| &mut counts.denied_networks, refusal, canonical, ask));
        }
        rules.auth(canonical).and_then(|rule| self.unauthorized(rule, path, ask))
    }

    /// The refusal of a request without the right name and password.
    fn unauthorized(&mut self, rule: &Auth, path: &SitePath, ask: Ask<'_>) -> Option<Answer> {
        let (request, clock) = (ask.request, (&self.clock, ask.now));
        let credentials = request.value("authorization");
        let logins = &self.options.logins;
        let verdict = logins.decide(rule.file()?, credentials, request.client, &mut self.budget, clock);
        let (counter, refusal): (crate::Counter, _) = match verdict {
            Verdict::Right => return None,
            Verdict::Wrong => (|counts| &mut counts.unauthorized, respond::unauthorized(rule.realm())),
            Verdict::TooOften(seconds) => {
                (|counts| &mut counts.refused_tries, respond::too_many_tries(seconds))
            }
            Verdict::Busy => (|counts| &mut counts.postponed_checks, respond::unavailable()),
            Verdict::NoFile => {
                (|counts| &mut counts.password_file_errors, Response::error(Status::INTERNAL_SERVER_ERROR))
            }
        };
        Some(self.finish_counted(counter, refusal, &path.canonical, ask))
    }
}
