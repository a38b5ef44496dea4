//! The end of the program: one clear line on stderr for an error, and the exit codes of the contract.

use std::process::ExitCode;

use crate::habits::habit;
use crate::parts::left_out;

/// Every end of the program but success.
#[derive(Debug)]
pub enum Exit {
    /// The user asked for help or the version: printed to stdout, code 0.
    Shown(clap::Error),
    /// 1: the command failed.
    Failed(String),
    /// 2: the command line or a config file is wrong.
    Usage(String),
    /// 3: the target cannot be reached.
    Unreachable(String),
    /// 4: a `--fail-if` threshold was crossed.
    Threshold(String),
    /// 5: the generator was the limit, so the result is not valid.
    GeneratorLimited(String),
    /// The exit code of the user's own command, which has reported its error itself.
    OfCommand(u8),
}

impl Exit {
    /// The message for an error that does not end the program.
    pub fn into_message(self) -> String {
        match self {
            Exit::Shown(help) => help.to_string(),
            Exit::Failed(message)
            | Exit::Usage(message)
            | Exit::Unreachable(message)
            | Exit::Threshold(message)
            | Exit::GeneratorLimited(message) => message,
            Exit::OfCommand(code) => format!("exit code {code}"),
        }
    }
}

impl From<clap::Error> for Exit {
    fn from(error: clap::Error) -> Exit {
        use clap::error::ErrorKind::{
            DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion, MissingSubcommand,
        };
        match error.kind() {
            DisplayHelp | DisplayVersion => Exit::Shown(error),
            DisplayHelpOnMissingArgumentOrSubcommand | MissingSubcommand => {
                Exit::Usage("a command is missing; see inrush --help".to_owned())
            }
            _ => {
                let said = habit(&error).or_else(|| left_out(&error));
                Exit::Usage(said.unwrap_or_else(|| one_line(&error.to_string())))
            }
        }
    }
}

/// The reasons that the standard library's parsers give, and what they mean to a user.
const REASONS: [(&str, &str); 4] = [
    ("invalid digit found in string", "expected a whole number"),
    ("cannot parse integer from empty string", "expected a whole number"),
    ("number too large to fit in target type", "the number is too large"),
    ("invalid socket address syntax", "expected ADDR:PORT, such as 127.0.0.1:9100"),
];

/// The part of clap's message before the usage, on one line. No flag is meant as a value, so the advice on that is left
/// out.
fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let is_useless = |line: &str| {
        line.is_empty() || line.starts_with("For more information") || line.starts_with("tip: to pass ")
    };
    let told: Vec<&str> = lines.filter(|line| !is_useless(line)).collect();
    let told = told.join("; ").trim_start_matches("error: ").replace(":; ", ": ");
    REASONS.iter().fold(told, |told, (reason, meaning)| told.replace(reason, meaning))
}

/// Prints the message and returns the exit code.
pub fn report(outcome: Result<(), Exit>) -> ExitCode {
    let (code, message) = match outcome {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Exit::Shown(help)) => {
            // The reader may be gone.
            let _ = help.print();
            return ExitCode::SUCCESS;
        }
        Err(Exit::OfCommand(code)) => return ExitCode::from(code),
        Err(Exit::Failed(message)) => (1, message),
        Err(Exit::Usage(message)) => (2, message),
        Err(Exit::Unreachable(message)) => (3, message),
        Err(Exit::Threshold(message)) => (4, message),
        Err(Exit::GeneratorLimited(message)) => (5, message),
    };
    sys::say!("inrush: {message}");
    ExitCode::from(code)
}

// The tests use the flags of these parts.
#[cfg(all(feature = "fleet", feature = "lab"))]
#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn several_lines_become_one() {
        let text = "error: invalid value 'x' for '--arch <ARCH>'\n  [possible values: a, b]\n\n  tip: a similar value exists: 'a'\n\nUsage: inrush\n\nFor more information, try '--help'.\n";
        assert_eq!(
            one_line(text),
            "invalid value 'x' for '--arch <ARCH>'; [possible values: a, b]; tip: a similar value exists: 'a'"
        );
    }

    #[track_caller]
    fn check(words: &str, expected: &[&str]) {
        let words = format!("inrush load http://a/ {words}");
        let error = Cli::try_parse_from(words.split(' ')).map(drop).map_err(Exit::from);
        let Err(Exit::Usage(said)) = error else { panic!("{words} is accepted") };
        for part in expected {
            assert!(said.contains(part), "{words}: no {part:?} in: {said}");
        }
    }

    #[test]
    fn habits_of_other_programs_get_the_right_flag() {
        check("-c 50", &["'-c'", "--client closed --sockets N", "--rate"]);
        check("-c50", &["'-c'", "--sockets"]);
        check("-n 1000", &["'-n'", "--duration TIME"]);
        check("--qps 5", &["'--qps'", "--rate"]);
        check("-p body.json", &["'-p'", "--body @FILE"]);
        check("-u user:password", &["'-u'", "--header 'Authorization: "]);
        check("--auth user:password", &["'--auth'", "--header 'Authorization: "]);
        check("--json", &["'--json'", "--output json"]);
        check("--rate 200rps", &["'200rps'", "did you mean 200?"]);
        check("--rate 1e3", &["'1e3'", "did you mean 1000?"]);
        check("--expect-length 64M", &["'64M'", "did you mean 64MiB?"]);
        check("--expect-length 15k", &["'15k'", "did you mean 15KiB?"]);
        check("--sockets 15k", &["'15k'", "did you mean 15000?"]);
        check("-z 10s", &["'-z'", "--duration TIME"]);
        check("--vus 10", &["'--vus'", "--client closed --sockets N"]);
        check("-m", &["'-m'", "--method"]);
        check("-t4", &["'-t'", "--threads", "--request-timeout"]);
        check("-d 10", &["--duration", "did you mean 10s?"]);
        check("-d {}", &["'{}' is not a time", "--body"]);
        check("--duration=10", &["'10' is not a time", "did you mean 10s?"]);
    }

    #[test]
    fn flags_of_curl_mean_the_same() {
        let words = "inrush load https://a/ -k -X PUT -H A:b -H C:d";
        Cli::try_parse_from(words.split(' ')).unwrap();
    }

    #[test]
    fn path_delays_without_unit_are_milliseconds() {
        let error = Cli::try_parse_from("inrush wan run --delay 50 -- true".split(' ')).map(drop);
        let Err(Exit::Usage(said)) = error.map_err(Exit::from) else { panic!("50 is accepted") };
        assert_eq!(said, "invalid value '50' for '--delay <TIME>': a time has a unit; did you mean 50ms?");
    }

    #[test]
    fn missing_dashes_are_named() {
        let said = |words: &[&str]| {
            let error = Cli::try_parse_from(words).map(drop).map_err(Exit::from);
            let Err(Exit::Usage(said)) = error else { panic!("{words:?} is accepted") };
            said
        };
        let wan = said(&["inrush", "wan", "run", "--delay", "1ms", "true"]);
        assert_eq!(wan, "unexpected argument 'true': the command stands behind two dashes: -- true");
        let unknown = said(&["inrush", "load", "http://a/", "--zzz"]);
        assert_eq!(unknown, "unexpected argument '--zzz' found");
    }

    #[test]
    fn a_missing_command_is_named_in_one_line() {
        for words in [&["inrush"][..], &["inrush", "lab"], &["inrush", "fleet"], &["inrush", "wan"]] {
            let error = Cli::try_parse_from(words).map(drop).map_err(Exit::from);
            let Err(Exit::Usage(said)) = error else { panic!("{words:?} is accepted") };
            assert_eq!(said, "a command is missing; see inrush --help");
        }
    }

    #[test]
    fn other_commands_have_no_habits() {
        let error = Cli::try_parse_from(["inrush", "doctor", "-c"]).map(drop).map_err(Exit::from);
        let Err(Exit::Usage(said)) = error else { panic!("-c is accepted") };
        assert!(!said.contains("--sockets"), "{said}");
    }
}
