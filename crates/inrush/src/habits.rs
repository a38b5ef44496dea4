//! Flags of wrk, hey, oha, k6 and curl, with their equivalents here, and words without the dashes before them.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Flags that a command does not have, with the flags to use instead.
const HABITS: [(&str, &str, &str); 20] = [
    ("load", "-c", CONNECTIONS),
    ("load", "--vus", CONNECTIONS),
    ("load", "-n", "a run has a length and no number of requests: --duration TIME, with --rate"),
    ("load", "-z", "the length of a run is --duration TIME"),
    ("load", "-q", "the rate is --rate"),
    ("load", "-R", "the rate is --rate"),
    ("load", "--rps", "the rate is --rate"),
    ("load", "--qps", "the rate is --rate"),
    ("load", "-p", "a body from a file is --body @FILE; the port is part of the URL"),
    ("load", "-u", AUTHORIZATION),
    ("load", "--auth", AUTHORIZATION),
    ("load", "--json", "the result as JSON is --output json; a body in JSON is --body with --header"),
    ("load", "-t", "threads are --threads, a timeout is --request-timeout"),
    ("load", "--timeout", "timeouts are --connect-timeout and --request-timeout"),
    ("load", "-m", "the method is --method"),
    ("load", "--latency", "every run prints its latencies"),
    ("load", "--max-redirects", "redirects are followed with --follow, at most 10 for a request"),
    ("capacity", "-c", "clients are --connections N, which requests share; the search chooses the rates"),
    ("capacity", "--rate", "the search chooses the rates; a run at one rate is inrush load"),
    ("serve", "--port", "the address and the port are --listen ADDR:PORT"),
];

const AUTHORIZATION: &str =
    "credentials are --header 'Authorization: Basic BASE64' or 'Authorization: Bearer TOKEN'";

const CONNECTIONS: &str = "clients of a closed loop are --client closed --sockets N; --rate with --connections N shares kept connections";

/// The message for the use of such a flag; `None` for any other error.
pub fn habit(error: &clap::Error) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let argument = text(ContextKind::InvalidArg)?;
    match error.kind() {
        // `--duration -5s` is read as a flag -5.
        ErrorKind::UnknownArgument if is_number(argument.trim_start_matches('-')) => {
            Some(format!("unexpected argument '{argument}': no setting takes a negative number"))
        }
        ErrorKind::UnknownArgument if argument.starts_with('-') => {
            let is_it = |(command, flag, _): &&(&str, &str, &str)| *flag == argument && is_of(error, command);
            let (.., instead) = HABITS.iter().find(is_it)?;
            Some(format!("unexpected argument '{argument}': {instead}"))
        }
        ErrorKind::UnknownArgument if is_of(error, "--") => Some(format!(
            "unexpected argument '{argument}': the command stands behind two dashes: -- {argument}"
        )),
        // With hey and oha, -d is the body.
        ErrorKind::ValueValidation if argument.starts_with("--duration ") => {
            let value = text(ContextKind::InvalidValue)?;
            let is_no_time = !value.starts_with(|first: char| first.is_ascii_digit());
            is_no_time.then(|| format!("'{value}' is not a time: -d is --duration TIME; a body is --body"))
        }
        // The path's delay is given in milliseconds elsewhere, too.
        ErrorKind::ValueValidation if is_path_time(argument) => {
            let value = text(ContextKind::InvalidValue)?;
            value.parse::<f64>().ok()?;
            Some(format!(
                "invalid value '{value}' for '{argument}': a time has a unit; did you mean {value}ms?"
            ))
        }
        _ => None,
    }
}

fn is_number(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_digit())
}

/// Tells whether an argument is a time of a network path.
fn is_path_time(argument: &str) -> bool {
    argument.starts_with("--delay ") || argument.starts_with("--jitter ")
}

/// Tells whether the usage of the command with the error has this word.
fn is_of(error: &clap::Error, word: &str) -> bool {
    error
        .get(ContextKind::Usage)
        .is_some_and(|usage| usage.to_string().split_whitespace().any(|known| known == word))
}
