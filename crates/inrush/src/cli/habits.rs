//! Flags of wrk, hey and oha, with their equivalents here.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Flags that `inrush load` does not have, with the flags to use instead.
const HABITS: [(&str, &str); 7] = [
    ("-c", "a fixed number of connections is --client closed --sockets N; an open loop has --rate"),
    ("-n", "a run has a length and no number of requests: --duration TIME, with --rate"),
    ("-H", "a header field is --header 'Name: value'"),
    ("-z", "the length of a run is --duration TIME"),
    ("-q", "the rate is --rate"),
    ("-t", "threads are --threads, a timeout is --request-timeout"),
    ("-m", "the method is --method"),
];

/// The message for the use of such a flag; `None` for any other error.
pub fn habit(error: &clap::Error) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let argument = text(ContextKind::InvalidArg)?;
    match error.kind() {
        ErrorKind::UnknownArgument if is_of_load(error) => {
            let (_, instead) = HABITS.iter().find(|(flag, _)| *flag == argument)?;
            Some(format!("unexpected argument '{argument}': {instead}"))
        }
        // With hey and oha, -d is the body.
        ErrorKind::ValueValidation if argument.starts_with("--duration ") => {
            let value = text(ContextKind::InvalidValue)?;
            let is_no_time = !value.starts_with(|first: char| first.is_ascii_digit());
            is_no_time.then(|| format!("'{value}' is not a time: -d is --duration TIME; a body is --body"))
        }
        _ => None,
    }
}

fn is_of_load(error: &clap::Error) -> bool {
    error.get(ContextKind::Usage).is_some_and(|usage| usage.to_string().contains("inrush load"))
}

#[cfg(test)]
mod tests {
    use crate::cli::Cli;
    use crate::exit::Exit;
    use clap::Parser;

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
        check("-H A:b", &["'-H'", "--header 'Name: value'"]);
        check("-z 10s", &["'-z'", "--duration TIME"]);
        check("-t4", &["'-t'", "--threads", "--request-timeout"]);
        check("-d 10", &["--duration", "did you mean 10s?"]);
        check("-d {}", &["'{}' is not a time", "--body"]);
        check("--duration=10", &["'10' is not a time", "did you mean 10s?"]);
    }

    #[test]
    fn other_commands_have_no_habits() {
        let error = Cli::try_parse_from(["inrush", "doctor", "-c"]).map(drop).map_err(Exit::from);
        let Err(Exit::Usage(said)) = error else { panic!("-c is accepted") };
        assert!(!said.contains("--sockets"), "{said}");
    }
}
