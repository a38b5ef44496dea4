//! Every setting that is a number has bounds: a property over all flags of all commands.

use clap::error::ErrorKind;
use clap::{Arg, Command, CommandFactory};
use proptest::prelude::*;

use super::Cli;

/// The words for numbers in the placeholders of values.
const NUMBERS: [&str; 7] = ["N", "TIME", "SIZE", "BYTES", "RATE", "PERCENT", "MULTIPLE"];
/// The units of all numbers.
const UNITS: [&str; 9] = ["", "ns", "s", "h", "k", "M/s", "KiB", "GiB", "%"];

/// Calls `test` with the words of each command and each of its flags that take a number.
fn each_number(command: &Command, words: &[String], test: &mut impl FnMut(&[String], &Arg)) {
    for argument in command.get_arguments().filter(|argument| argument.get_long().is_some()) {
        let names = argument.get_value_names().into_iter().flatten();
        if names.flat_map(|name| name.split('|')).any(|name| NUMBERS.contains(&name)) {
            test(words, argument);
        }
    }
    for command in command.get_subcommands() {
        each_number(command, &[words, &[command.get_name().to_owned()]].concat(), test);
    }
}

/// Tells whether a flag refuses a value.
fn refuses(words: &[String], flag: &Arg, value: &str) -> bool {
    let given = format!("--{}={value}", flag.get_long().expect("it is long"));
    let error = Cli::command().try_get_matches_from(words.iter().chain([&given])).err();
    error.is_some_and(|error| matches!(error.kind(), ErrorKind::ValueValidation | ErrorKind::InvalidValue))
}

#[track_caller]
fn all_refuse(value: &str) {
    let mut flags = 0;
    each_number(&Cli::command(), &["inrush".to_owned()], &mut |words, flag| {
        flags += 1;
        assert!(refuses(words, flag, value), "{} accepts {flag} {value}", words.join(" "));
    });
    assert!(flags > 20, "only {flags} flags were found");
}

#[test]
fn no_setting_takes_what_is_no_number() {
    for value in ["-1", "-1s", "-0.5", "nan", "NaN", "infinity", "1e9", "0x10", "1 2", "++1", "s", "."] {
        all_refuse(value);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn no_setting_takes_a_number_beyond_all_bounds(digits in "[1-9][0-9]{21,320}", unit in 0..UNITS.len()) {
        all_refuse(&format!("{digits}{}", UNITS[unit]));
    }
}
