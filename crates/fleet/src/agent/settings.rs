//! The settings of an agent, and its name.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use base::PerSecond;

use crate::access::Access;

/// The longest name.
const NAME_MAX: usize = 64;

/// The name of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name(String);

/// The text is not a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not an agent's name: expected 1 to {NAME_MAX} letters, digits, '-' and '_'")]
pub struct NotAName(String);

impl FromStr for Name {
    type Err = NotAName;
    fn from_str(text: &str) -> Result<Name, NotAName> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if (1..=NAME_MAX).contains(&text.len()) && text.bytes().all(allowed) {
            return Ok(Name(text.to_owned()));
        }
        Err(NotAName(text.to_owned()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The settings of an agent.
#[derive(Clone, Debug)]
pub struct AgentSettings {
    /// Access to NATS.
    pub access: Access,
    /// The agent's name, which no other agent has.
    pub name: Name,
    /// True for an agent that ends after one run.
    pub once: bool,
    /// The folder for parts that could not be delivered.
    pub kept: PathBuf,
    /// The clean rate of this machine with this number of threads, if it has been measured.
    pub clean_rate: fn(u32) -> Option<PerSecond>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_tokens_of_a_key() {
        for text in ["a1", "agent-0", "Rack_7"] {
            assert_eq!(text.parse::<Name>().unwrap().to_string(), text);
        }
        for text in ["", "a.b", "a b", "*", ">", &"x".repeat(65)] {
            assert!(text.parse::<Name>().is_err(), "{text:?}");
        }
    }
}
