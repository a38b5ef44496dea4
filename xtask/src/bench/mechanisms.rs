//! The choice of event mechanisms for a benchmark.

use std::str::FromStr;

macro_rules! name_of_each {
    ($($name:literal => $mechanism:ty,)*) => { [$($name),*] };
}

/// Names of mechanisms, in the order of the command line's list: `all`, or some of them, comma-separated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mechanisms(Vec<&'static str>);

impl Mechanisms {
    /// Selects the existing mechanisms among these names.
    pub fn of(names: &[&str]) -> Mechanisms {
        let all = dispatch::for_each_mechanism!(name_of_each);
        Mechanisms(all.into_iter().filter(|name| names.contains(name)).collect())
    }

    /// Returns the mechanisms of this machine; prints the missing ones with the reason.
    pub fn available(&self) -> Vec<&'static str> {
        let table = dispatch::capabilities::table();
        let available = |name: &&str| {
            let row = table.rows.iter().find(|row| row.capabilities.name == *name);
            let why_not = row.and_then(|row| row.why_not.as_ref());
            why_not.inspect(|why| println!("skipped: {name}: {why}")).is_none()
        };
        self.0.iter().copied().filter(available).collect()
    }
}

impl FromStr for Mechanisms {
    type Err = String;

    fn from_str(text: &str) -> Result<Mechanisms, String> {
        let all = dispatch::for_each_mechanism!(name_of_each);
        if text == "all" {
            return Ok(Mechanisms(all.to_vec()));
        }
        let names: Vec<&str> = text.split(',').collect();
        match names.iter().find(|name| !all.contains(name)) {
            Some(unknown) => Err(format!("no mechanism {unknown:?}: all, or some of {}", all.join(","))),
            None => Ok(Mechanisms::of(&names)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_ones() {
        assert_eq!("poll,epoll".parse(), Ok(Mechanisms(vec!["epoll", "poll"])));
        let all: Mechanisms = "all".parse().unwrap();
        assert!(all.0.contains(&"rt-per-fd"));
        assert!("poll,kqueue".parse::<Mechanisms>().unwrap_err().contains("\"kqueue\""));
    }
}
