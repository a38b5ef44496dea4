//! Requests a second from one server CPU: inrush, other servers, and the readiness limit, read by wrk. Over HTTP/2 h2load
//! reads, with 32 streams on each connection.
//!
//! A large file and pipelined requests are for both drivers of inrush and nginx alone.
//!
//! All servers are up at the same time and take turns. The kernel cache's program sees the packets of all of them, and
//! ends after a look at the port. The cost of a request is the busy time of the server's CPU over the requests answered,
//! packet work included. It means nothing if another program runs on that CPU.
//!
//! `handshakes` compares the key exchanges of TLS with servers of its own.

mod handshakes;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use experiment::TlsKey;
use stage::identity::Identity;
use stage::kernel::Observer;

use super::Promise;
use super::race::{Measured, Mode, RaceOptions, change, race, sample, table};
use crate::responder::AfterReply;
use crate::rivals::readers::{self, Reader, Task};
use crate::rivals::servers::{self, BEFORE, H2O, INRUSH, LIMIT, READINESS, REFERENCE};
use crate::test_bed::{FILE, FILE_LENGTH, TestBed, folder_to_serve};

/// Requests that a connection sends at once.
const PIPELINED: usize = 16;
/// The size of a large file.
const LARGE: usize = 100 * 1024;

/// A load.
struct Shape {
    title: &'static str,
    file_name: &'static str,
    file_length: usize,
    after_reply: AfterReply,
    is_pipelined: bool,
    /// Our client reads, and resumes its TLS sessions.
    is_resumed: bool,
    /// False for a load of the drivers and nginx alone.
    is_for_all: bool,
}

impl Shape {
    const KEEP_ALIVE: Shape = Shape {
        title: "keep-alive",
        file_name: FILE,
        file_length: FILE_LENGTH,
        after_reply: AfterReply::Keep,
        is_pipelined: false,
        is_resumed: false,
        is_for_all: true,
    };
    const CONNECTIONS: Shape =
        Shape { title: "a connection per request", after_reply: AfterReply::Close, ..Shape::KEEP_ALIVE };
    const RESUMED: Shape = Shape { title: "the same, resumed", is_resumed: true, ..Shape::CONNECTIONS };
}

/// Every load in cleartext. HTTP/2 has the first: h2load does not connect again after each reply.
const SHAPES: [Shape; 4] = [
    Shape::KEEP_ALIVE,
    Shape::CONNECTIONS,
    Shape {
        title: "keep-alive, 100 KiB",
        file_name: "100k.html",
        file_length: LARGE,
        is_for_all: false,
        ..Shape::KEEP_ALIVE
    },
    Shape { title: "16 requests pipelined", is_pipelined: true, is_for_all: false, ..Shape::KEEP_ALIVE },
];
/// The loads under TLS.
const UNDER_TLS: [Shape; 3] = [Shape::KEEP_ALIVE, Shape::CONNECTIONS, Shape::RESUMED];
const DRIVERS: [&str; 4] = [INRUSH, READINESS, REFERENCE, BEFORE.name];

/// The options of the measurement.
#[derive(clap::Args)]
pub struct ServeOptions {
    #[command(flatten)]
    race: RaceOptions,
    /// Measure under TLS 1.3, with a key of ECDSA P-256: a connection per request is a handshake each, full or resumed
    #[arg(long, conflicts_with = "http2")]
    tls: bool,
    /// Measure full handshakes of TLS 1.3 with X25519 and X25519MLKEM768, beside nginx, HAProxy and Caddy
    #[arg(long, conflicts_with_all = ["http2", "tls", "before"])]
    handshakes: bool,
}

impl ServeOptions {
    /// Another build of inrush, to be measured too.
    pub fn before(&self) -> Option<&PathBuf> {
        self.race.before.as_ref()
    }
}

/// Measures, prints and writes.
pub fn run(options: &ServeOptions, bed: &TestBed) -> anyhow::Result<()> {
    let ServeOptions { race: options, tls, handshakes } = options;
    if *handshakes {
        return handshakes::run(options, bed);
    }
    let folder = folder_to_serve(&SHAPES.each_ref().map(|shape| (shape.file_name, shape.file_length)))?;
    let all = Contest { name: "serve", tls: None, servers: &servers::ALL, shapes: &SHAPES, keep_alive: 1.0 };
    let contest = match (tls, options.http2) {
        (true, _) => {
            let tls = Some(Identity::make(folder.path(), TlsKey::P256).context("cannot make a certificate")?);
            Contest { name: "serve-tls", tls, servers: &servers::UNDER_TLS, shapes: &UNDER_TLS, ..all }
        }
        (_, true) => {
            Contest { name: "serve-http2", servers: &servers::OVER_HTTP2, shapes: &SHAPES[..1], ..all }
        }
        (false, false) => Contest { keep_alive: 1.5, ..all },
    };
    let mut measured = Vec::new();
    for shape in contest.shapes {
        let reader = if shape.is_resumed { &readers::OWN } else { options.reader() };
        let servers = measure(options, reader, bed, &contest, folder.path(), shape)?;
        let (Shape { title, file_length, .. }, reader) = (shape, reader.name);
        println!("\n{title}, {file_length} bytes, {reader} -t1 -c{}:", options.connections);
        print!("{}", table("server", REFERENCE, &servers));
        print!("{}", change(INRUSH, BEFORE.name, &servers).unwrap_or_default());
        measured.push(Mode { connections: title, contestants: servers });
    }
    println!();
    bed.conclude(
        &options.common,
        contest.name,
        &measured,
        &promises(&measured, contest.keep_alive, options.http2),
    )
}

/// The contestants, and the protocol for them.
struct Contest {
    name: &'static str,
    /// The servers speak TLS.
    tls: Option<Identity>,
    servers: &'static [servers::Server],
    shapes: &'static [Shape],
    /// The promised requests per second over nginx's, with connections kept.
    keep_alive: f64,
}

/// Measures every server that is installed, in rounds.
fn measure(
    options: &RaceOptions,
    reader: &Reader,
    bed: &TestBed,
    contest: &Contest,
    root: &Path,
    shape: &Shape,
) -> anyhow::Result<Vec<Measured>> {
    let mut running = Vec::new();
    let servers = contest.servers.iter().chain(bed.of_before(&BEFORE));
    for server in servers.filter(|server| shape.is_for_all || DRIVERS.contains(&server.name)) {
        match server.start(bed, root, contest.tls.as_ref(), shape.after_reply)? {
            Some(ready) => running.push((server.name, ready)),
            None => println!("skipped: {} is not installed", server.name),
        }
    }
    let script = shape.is_pipelined.then(|| pipelining(root)).transpose()?;
    let mut observer = Observer::of(&bed.topology).context("cannot look at the server's side")?;
    let run = |index: usize, seconds| {
        let scheme = if contest.tls.is_some() { "https" } else { "http" };
        let url: &str = &format!("{scheme}://{}/{}", running[index].1.address, shape.file_name);
        let (connections, inrush, after_reply) = (options.connections, &bed.inrush, shape.after_reply);
        let (streams, script) = (options.streams(), script.as_deref());
        let task = Task { url, connections, streams, seconds, after_reply, script, inrush };
        sample(bed, &mut observer, reader, &task, |elapsed| elapsed.server_cpu)
    };
    let names: Vec<&'static str> = running.iter().map(|(name, _)| *name).collect();
    let measured = race(options, shape.title, &names, REFERENCE, run)?;
    for (_, server) in running {
        server.stop()?;
    }
    Ok(measured)
}

/// Writes the script by which wrk sends requests together.
fn pipelining(root: &Path) -> anyhow::Result<PathBuf> {
    let path = root.join(".pipelining.lua");
    let script = format!(
        "init = function(args)\n  together = string.rep(wrk.format(), {PIPELINED})\nend\n\
         request = function() return together end\n"
    );
    fs::write(&path, script)?;
    Ok(path)
}

/// The project's promises of serving; a promise without its rival is not judged.
fn promises(modes: &[Mode], keep_alive: f64, is_http2: bool) -> Vec<Promise> {
    let of = |mode: &Mode, name| mode.contestants.iter().position(|server| server.name == name);
    let rate = |mode: &Mode, name| Some(mode.contestants[of(mode, name)?].requests_per_s?.median);
    let ratio = |mode: &Mode| Some(mode.contestants[of(mode, INRUSH)?].ratio?.median);
    let Some(kept) = modes.first() else { return Vec::new() };
    let over = |other| rate(kept, INRUSH).zip(rate(kept, other)).map(|(own, other)| own / other);
    let connections = modes.get(1).and_then(ratio);
    let promises = [
        ratio(kept).map(|ratio| Promise::at_least("keep-alive, x nginx", keep_alive, ratio)),
        // Level with the limit: within the difference of two runs of the limit itself.
        over(LIMIT.name).map(|ratio| Promise::at_least("keep-alive, x the readiness limit", 0.97, ratio)),
        over(H2O).filter(|_| is_http2).map(|ratio| Promise::at_least("keep-alive, x h2o", 1.0, ratio)),
        connections.map(|ratio| Promise::at_least("a connection per request, x nginx", 1.03, ratio)),
    ];
    promises.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use statistics::Spread;

    #[test]
    fn a_promise_without_its_rival_is_not_judged() {
        let alone = || {
            let (samples, requests_per_s) = (Vec::new(), Spread::of([20.0]));
            let own =
                Measured { name: INRUSH, samples, requests_per_s, cpu_us_per_request: None, ratio: None };
            Mode { connections: "", contestants: vec![own] }
        };
        assert!(promises(&[alone()], 1.0, true).is_empty());
        assert!(promises(&[alone(), alone()], 1.0, false).is_empty());
    }
}
