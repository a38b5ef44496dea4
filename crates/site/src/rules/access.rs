//! Networks that may ask for some paths, and networks that may not.

use std::net::IpAddr;
use std::str::FromStr;

use super::pattern::Pattern;
use base::Network;

/// A rule about clients, as text `PATTERN allow|deny NETWORK|all`. The first rule that matches path and client
/// decides. A client that no rule matches is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    paths: Pattern,
    allows: bool,
    /// `None` for all clients.
    network: Option<Network>,
}

impl Access {
    /// Tells whether the rule is about a canonical path.
    pub(super) fn is_about(&self, path: &str) -> bool {
        self.paths.matches(path)
    }

    /// Returns the decision about a client; `None` if the rule is not about it. An unknown address is in no network.
    fn decide(&self, client: Option<IpAddr>) -> Option<bool> {
        let is_meant = match (self.network, client) {
            (None, _) => true,
            (Some(network), Some(client)) => network.contains(client.to_canonical()),
            // Its address may be a denied one.
            (Some(_), None) => return (!self.allows).then_some(false),
        };
        is_meant.then_some(self.allows)
    }

    /// Tells whether rules let a client ask for a canonical path.
    pub(super) fn allow(rules: &[Access], path: &str, client: Option<IpAddr>) -> bool {
        let mut about = rules.iter().filter(|rule| rule.is_about(path));
        about.find_map(|rule| rule.decide(client)).unwrap_or(true)
    }
}

impl FromStr for Access {
    type Err = String;

    fn from_str(text: &str) -> Result<Access, String> {
        let accepted = "expected PATH allow|deny NETWORK|all, such as '/intranet/* allow 10.0.0.0/8'";
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let [paths, verb, network] = words[..] else {
            return Err(format!("'{text}' is not a rule about clients; {accepted}"));
        };
        let allows = match verb {
            "allow" => true,
            "deny" => false,
            other => return Err(format!("'{other}' is neither allow nor deny; {accepted}")),
        };
        let network = match network {
            "all" => None,
            network => {
                Some(network.parse::<Network>().map_err(|wrong| format!("'{network}': {wrong}, or all"))?)
            }
        };
        Ok(Access { paths: paths.parse()?, allows, network })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(rules: &[&str], path: &str, client: Option<&str>, expected: bool) {
        let rules: Vec<Access> = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        let client = client.map(|client| client.parse().unwrap());
        assert_eq!(Access::allow(&rules, path, client), expected, "{path} {client:?}");
    }

    #[test]
    fn first_matching_access_rule_decides() {
        let rules = ["/in/* deny 10.9.0.0/16", "/in/* allow 10.0.0.0/8", "/in/* allow ::1", "/in/* deny all"];
        check(&rules, "/in/a", Some("10.1.2.3"), true);
        check(&rules, "/in/a", Some("10.9.2.3"), false);
        check(&rules, "/in/a", Some("::1"), true);
        check(&rules, "/in/a", Some("::ffff:10.1.2.3"), true);
        check(&rules, "/in/a", Some("192.0.2.1"), false);
        check(&rules, "/in", Some("192.0.2.1"), true);
        check(&["/* deny 192.0.2.1"], "/", Some("192.0.2.2"), true);
    }

    #[test]
    fn unknown_client_is_denied_where_any_is_denied() {
        check(&["/* allow 10.0.0.0/8", "/* deny all"], "/", None, false);
        check(&["/* deny 192.0.2.1"], "/", None, false);
        check(&["/* allow 10.0.0.0/8"], "/", None, true);
    }

    #[test]
    fn access_mistakes_name_what_is_accepted() {
        for (text, said) in [
            ("/a", "expected PATH allow|deny NETWORK|all"),
            ("/a permit all", "neither allow nor deny"),
            ("/a allow everybody", "expected an address or a network"),
            ("/a allow 10.0.0.1/8", "expected 10.0.0.0/8"),
            ("a deny all", "expected a path such as"),
        ] {
            let error = text.parse::<Access>().unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
