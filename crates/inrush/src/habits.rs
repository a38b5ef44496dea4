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
    error
        .get(ContextKind::Usage)
        .is_some_and(|usage| usage.to_string().split_whitespace().any(|word| word == "load"))
}
