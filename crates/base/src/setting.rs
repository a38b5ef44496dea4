//! Settings that only some designs use: architectures, event mechanisms. Each is declared once, in a static beside its
//! meaning.
//!
//! ```text
//!   static WAKE: Setting<Wake>  ──>  the list of a design  ──>  the flag, its help, its key in a config file
//!                  |
//!                  └── Chosen::get(&WAKE)  <──  Chosen, checked text  <──  what was given
//! ```
//!
//! Owns declaration, check and lookup. Does not know which designs use a setting.
//!
//! Invariant: the parser of a setting accepts its text in [`Chosen`].

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// The name and the help of a setting.
#[derive(Clone, Copy, Debug)]
pub struct Declaration {
    /// The flag, with its dashes.
    pub flag: &'static str,
    /// The placeholder of the value in help.
    pub value: &'static str,
    /// A line of help.
    pub help: &'static str,
    /// Further help, for the long form.
    pub more: Option<&'static str>,
    /// The reason why other designs do not use it, as the end of a sentence that begins with the design's name.
    pub without: &'static str,
    /// The value that asks for a program in the kernel.
    pub in_kernel: Option<&'static str>,
}

/// A setting with values of type `T`.
pub struct Setting<T> {
    declaration: Declaration,
    parse: fn(&str) -> Result<T, String>,
}

impl<T: FromStr<Err = String>> Setting<T> {
    /// Makes a setting with the parser of its type.
    pub const fn new(declaration: Declaration) -> Setting<T> {
        Setting { declaration, parse: str::parse }
    }
}

impl<T> Setting<T> {
    /// Makes a setting with a parser of its own. The parser's error says what is accepted.
    pub const fn parsed_by(declaration: Declaration, parse: fn(&str) -> Result<T, String>) -> Setting<T> {
        Setting { declaration, parse }
    }
}

/// Adds the settings of `more` to a list that names each flag once.
pub fn add_all(all: &mut Vec<&'static dyn AnySetting>, more: &[&'static dyn AnySetting]) {
    for setting in more {
        if !is_among(all, setting.declaration().flag) {
            all.push(*setting);
        }
    }
}

/// Tells whether a list has the setting of this flag.
pub fn is_among(settings: &[&'static dyn AnySetting], flag: &str) -> bool {
    settings.iter().any(|setting| setting.declaration().flag == flag)
}

/// A setting with values of any type.
pub trait AnySetting: Sync {
    /// Its name and help.
    fn declaration(&self) -> &Declaration;

    /// Checks a value.
    ///
    /// # Errors
    /// The accepted values.
    fn check(&self, text: &str) -> Result<(), String>;
}

impl fmt::Debug for dyn AnySetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.declaration().flag)
    }
}

/// Written by its name on the command line, without dashes.
impl Serialize for dyn AnySetting {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.declaration().flag.trim_start_matches('-'))
    }
}

impl<T> AnySetting for Setting<T> {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    fn check(&self, text: &str) -> Result<(), String> {
        (self.parse)(text).map(drop)
    }
}

/// The settings that were given. The others have the defaults of their design.
#[derive(Clone, Debug, Default)]
pub struct Chosen(Vec<(&'static dyn AnySetting, String)>);

impl Chosen {
    /// Adds a setting.
    ///
    /// # Errors
    /// The accepted values.
    pub fn add(&mut self, setting: &'static dyn AnySetting, text: &str) -> Result<(), String> {
        setting.check(text)?;
        self.0.push((setting, text.to_owned()));
        Ok(())
    }

    /// Returns the value of a setting, if it was given.
    pub fn get<T>(&self, setting: &Setting<T>) -> Option<T> {
        let flag = setting.declaration.flag;
        let (_, text) = self.0.iter().find(|(known, _)| known.declaration().flag == flag)?;
        Some((setting.parse)(text).expect("it was checked when it was added"))
    }

    /// Iterates over the settings that were given, with their text.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Declaration, &str)> {
        self.0.iter().map(|(setting, text)| (setting.declaration(), text.as_str()))
    }

    /// Returns true if a value asks for a program in the kernel.
    pub fn loads_programs(&self) -> bool {
        self.iter().any(|(declaration, text)| declaration.in_kernel == Some(text))
    }
}

/// Parses a number in a range.
///
/// # Errors
/// The accepted values.
pub fn number_in(range: RangeInclusive<usize>, text: &str) -> Result<usize, String> {
    let accepted = || format!("expected a number from {} to {}", range.start(), range.end());
    text.parse().ok().filter(|number| range.contains(number)).ok_or_else(accepted)
}

#[cfg(test)]
mod tests {
    use super::*;

    static SIZE: Setting<usize> = Setting::parsed_by(
        Declaration {
            flag: "--size",
            value: "N",
            help: "test: a size",
            more: None,
            without: "has no size",
            in_kernel: Some("3"),
        },
        |text| number_in(1..=3, text),
    );

    #[test]
    fn what_is_chosen_was_checked() {
        let mut chosen = Chosen::default();
        assert_eq!(chosen.get(&SIZE), None);
        assert_eq!(chosen.add(&SIZE, "4"), Err("expected a number from 1 to 3".to_owned()));
        assert_eq!(chosen.add(&SIZE, "2"), Ok(()));
        assert_eq!((chosen.get(&SIZE), chosen.loads_programs()), (Some(2), false));
        assert_eq!(format!("{chosen:?}"), r#"Chosen([(--size, "2")])"#);
    }
}
