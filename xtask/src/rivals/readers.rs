//! Closed clients with one thread: each connection sends its next request as soon as it has its reply.

use std::path::Path;

use anyhow::{Context, ensure};
use experiment::Stack;
use record::Outcome;
use sys::process::{Output, find_program};

use super::CommandLine;
use super::generators::inrush_result;
use crate::responder::AfterReply;
use crate::test_bed::{TICK, TestBed};

/// The task of a client.
pub struct Task<'a> {
    /// The requested URL.
    pub url: &'a str,
    /// The number of connections.
    pub connections: u32,
    /// Requests under way on each connection over HTTP/2; `None` asks over HTTP/1.1.
    pub streams: Option<u32>,
    /// The length of the run, in seconds.
    pub seconds: u32,
    /// The fate of a connection that has its reply.
    pub after_reply: AfterReply,
    /// A script for wrk.
    pub script: Option<&'a Path>,
    /// The inrush program.
    pub inrush: &'a Path,
}

/// The figures of a client.
#[derive(Debug, PartialEq)]
pub struct Read {
    /// Requests answered.
    pub requests: u64,
    /// The same a second.
    pub requests_per_s: f64,
    /// Replies that were no success, and errors of sockets.
    pub errors: u64,
}

/// A client, with its start and the parser of its output.
pub struct Reader {
    /// Short, for a table.
    pub name: &'static str,
    /// True if it connects again when the server closes.
    pub reconnects: bool,
    /// The TCP of our own client.
    pub stack: Stack,
    /// Returns no command line if it is not installed.
    prepare: fn(&Task<'_>) -> Option<CommandLine>,
    parse: fn(&Output) -> anyhow::Result<Read>,
}

/// The base of comparisons between clients, and the reader of servers.
pub const REFERENCE: Reader = Reader {
    name: "wrk",
    reconnects: true,
    stack: Stack::Kernel,
    prepare: wrk,
    parse: |output| read_with(read_wrk, output),
};

/// The base of comparisons over HTTP/2, and the reader of servers.
pub const HTTP2_REFERENCE: Reader = Reader {
    name: "h2load",
    reconnects: false,
    stack: Stack::Kernel,
    prepare: h2load,
    parse: |output| read_with(read_h2load, output),
};

const OHA: Reader = Reader {
    name: "oha",
    reconnects: true,
    stack: Stack::Kernel,
    prepare: oha,
    parse: |output| read_with(read_oha, output),
};

/// Our client, which resumes TLS sessions. wrk does not.
pub const OWN: Reader = ours(INRUSH, Stack::Kernel);

/// All of them, in the order they are shown.
pub const ALL: [Reader; 6] =
    [OWN, ours(OVER_TUN, Stack::User), ours(OVER_AF_XDP, Stack::AfXdp), REFERENCE, HTTP2_REFERENCE, OHA];

/// Our client in another build.
pub const BEFORE: Reader = ours("inrush load before", Stack::Kernel);

/// The name of our client.
pub const INRUSH: &str = "inrush load";
/// The same with TCP in user space over TUN.
pub const OVER_TUN: &str = "inrush load, TUN";
/// The same over AF_XDP.
pub const OVER_AF_XDP: &str = "inrush load, AF_XDP";
/// More requests than any measurement sends on one connection.
const REQUESTS_KEPT: &str = "1000000";

const fn ours(name: &'static str, stack: Stack) -> Reader {
    Reader { name, reconnects: true, stack, prepare: inrush, parse: parse_inrush }
}

impl Reader {
    /// Reads on the client's side, and returns the figures; `None` if the client is not installed. Blocks.
    ///
    /// # Errors
    /// The client fails, or prints something unknown.
    pub fn read(&self, bed: &TestBed, task: &Task<'_>) -> anyhow::Result<Option<Read>> {
        let Some(line) = (self.prepare)(task) else { return Ok(None) };
        let program = if self.stack.is_in_user_space() {
            let place = bed.topology.place_of_connections(self.stack);
            bed.topology.generator(line.program, self.stack).arguments(line.arguments).arguments(place)
        } else {
            bed.topology.client.program(line.program).arguments(line.arguments)
        };
        let output = program.start()?.output(TICK, || true)?;
        (self.parse)(&output).with_context(|| format!("{} at {}", self.name, task.url)).map(Some)
    }

    /// Tells whether it is installed.
    pub fn is_installed(&self, task: &Task<'_>) -> bool {
        (self.prepare)(task).is_some()
    }
}

fn inrush(task: &Task<'_>) -> Option<CommandLine> {
    let (sockets, duration) = (task.connections.to_string(), format!("{}s", task.seconds));
    let requests = match task.after_reply {
        AfterReply::Keep => REQUESTS_KEPT,
        AfterReply::Close => "1",
    };
    let closed = ["load", task.url, "--client", "closed", "--sockets", &sockets, "--duration", &duration];
    let rest = ["--requests-per-connection", requests, "--warmup", "0", "--output", "json"];
    let streams = task.streams.map(|streams| streams.to_string());
    let http2 = streams.iter().flat_map(|streams| ["--http2", "--streams", streams]);
    // Nobody has signed the certificate. wrk and nginx have no hybrid key exchange.
    let tls =
        ["--insecure", "--key-exchange", "classical"].into_iter().filter(|_| task.url.starts_with("https"));
    let http2 = http2.chain(tls);
    Some(CommandLine::new(task.inrush, closed.into_iter().chain(rest).chain(http2).collect::<Vec<_>>()))
}

fn parse_inrush(output: &Output) -> anyhow::Result<Read> {
    let result = inrush_result(output)?;
    let requests = result.outcomes.get(Outcome::Ok);
    Ok(Read { requests, requests_per_s: result.goodput_per_s, errors: result.outcomes.total() - requests })
}

/// It does not speak HTTP/2.
fn wrk(task: &Task<'_>) -> Option<CommandLine> {
    if task.streams.is_some() {
        return None;
    }
    let (clients, duration) = (format!("-c{}", task.connections), format!("-d{}s", task.seconds));
    let arguments = ["-t1", &clients, &duration, task.url];
    let close: &[&str] = match task.after_reply {
        AfterReply::Keep => &[],
        AfterReply::Close => &["-H", "Connection: close"],
    };
    let script = task.script.map(|path| ["-s".to_owned(), path.display().to_string()]);
    let script: Vec<&str> = script.iter().flatten().map(String::as_str).collect();
    find_program("wrk").map(|program| CommandLine::new(program, [&arguments[..], close, &script].concat()))
}

fn read_wrk(text: &str) -> Option<Read> {
    let after = |name: &str| text.lines().find_map(|line| line.trim().strip_prefix(name));
    let requests = text.lines().find(|line| line.contains(" requests in "))?;
    let unsuccessful =
        after("Non-2xx or 3xx responses:").map_or(Some(0), |count| count.trim().parse().ok())?;
    let socket: u64 = after("Socket errors:")
        .map_or(0, |counts| counts.split([' ', ',']).filter_map(|word| word.parse::<u64>().ok()).sum());
    Some(Read {
        requests: requests.split_whitespace().next()?.parse().ok()?,
        requests_per_s: after("Requests/sec:")?.trim().parse().ok()?,
        errors: unsuccessful + socket,
    })
}

fn h2load(task: &Task<'_>) -> Option<CommandLine> {
    let (clients, duration) = (format!("-c{}", task.connections), format!("-D{}", task.seconds));
    let protocol = task.streams.map_or("--h1".to_owned(), |streams| format!("-m{streams}"));
    let arguments = [&protocol, "-t1", &clients, &duration, task.url];
    find_program("h2load").map(|program| CommandLine::new(program, arguments))
}

fn read_h2load(text: &str) -> Option<Read> {
    let after = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let rate = after("finished in ")?.split(", ").nth(1)?.strip_suffix(" req/s")?;
    let counts = after("requests: ")?;
    let count =
        |name: &str| counts.split(", ").find_map(|part| part.strip_suffix(name)?.trim().parse::<u64>().ok());
    Some(Read {
        requests: count("succeeded")?,
        requests_per_s: rate.parse().ok()?,
        errors: count("failed")? + count("errored")? + count("timeout")?,
    })
}

fn oha(task: &Task<'_>) -> Option<CommandLine> {
    let (clients, duration) = (task.connections.to_string(), format!("{}s", task.seconds));
    let arguments = ["-c", &clients, "-z", &duration, "--no-tui", "--output-format", "json", task.url];
    let close = (task.after_reply == AfterReply::Close).then_some("--disable-keepalive");
    let streams = task.streams.map(|streams| streams.to_string());
    let http2 = streams.iter().flat_map(|streams| ["--http2", "-p", streams]);
    let all = arguments.into_iter().chain(close).chain(http2);
    find_program("oha").map(|program| CommandLine::new(program, all.collect::<Vec<_>>()))
}

/// Requests that it breaks off at the end of its run are no errors.
fn read_oha(text: &str) -> Option<Read> {
    let result: serde_json::Value = serde_json::from_str(text).ok()?;
    let counts =
        |of: &str| Some(result[of].as_object()?.iter().map(|(name, count)| (name.clone(), count.as_u64())));
    let (mut requests, mut errors) = (0, 0);
    for (status, count) in counts("statusCodeDistribution")? {
        match status.as_str() {
            "200" => requests += count?,
            _ => errors += count?,
        }
    }
    for (error, count) in counts("errorDistribution")? {
        errors += if error == "aborted due to deadline" { 0 } else { count? };
    }
    let seconds = result["summary"]["total"].as_f64()?;
    Some(Read { requests, requests_per_s: requests as f64 / seconds, errors })
}

/// Reads a client's figures from its output.
fn read_with(read: fn(&str) -> Option<Read>, output: &Output) -> anyhow::Result<Read> {
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.exit.status.success(), "{}: {}", output.exit.status, errors.trim());
    let text = String::from_utf8_lossy(&output.stdout);
    read(&text).with_context(|| format!("unexpected output: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRK: &str = "Running 2s test @ http://10.77.0.1:1/1k.html
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   452.85us  157.06us   6.02ms   96.88%
  281702 requests in 2.00s, 341.20MB read
  Socket errors: connect 0, read 3, write 0, timeout 1
  Non-2xx or 3xx responses: 5
Requests/sec: 140784.25
Transfer/sec:    170.52MB
";

    const H2LOAD: &str = "finished in 2.00s, 61093.00 req/s, 74.99MB/s
requests: 122186 total, 122250 started, 122186 done, 122180 succeeded, 6 failed, 2 errored, 1 timeout
status codes: 122186 2xx, 0 3xx, 0 4xx, 0 5xx
";

    const OHA: &str = r#"{"summary": {"total": 2.0, "requestsPerSec": 62000.0},
        "statusCodeDistribution": {"200": 120000, "404": 5},
        "errorDistribution": {"aborted due to deadline": 64, "connection refused": 4}}"#;

    #[test]
    fn what_clients_print_is_read() {
        let read = Read { requests: 281_702, requests_per_s: 140_784.25, errors: 9 };
        assert_eq!(read_wrk(WRK), Some(read));
        assert_eq!(read_wrk("unable to connect"), None);
        let read = Read { requests: 122_180, requests_per_s: 61_093.0, errors: 9 };
        assert_eq!(read_h2load(H2LOAD), Some(read));
        assert_eq!(read_h2load("finished in 2.00s"), None);
        assert_eq!(read_oha(OHA), Some(Read { requests: 120_000, requests_per_s: 60_000.0, errors: 9 }));
        assert_eq!(read_oha("{}"), None);
    }
}
