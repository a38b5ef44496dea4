//! The user memory of a server for an idle keep-alive connection.
//!
//! Connections are opened one after another. Each asks for the file once, reads the reply and stays. The cost is the
//! growth of the server's anonymous memory (RssAnon) over the number of connections, with its worker processes
//! included. A few connections before the first look make the server allocate its fixed memory. Kernel memory is left
//! out, because it is the same for all.
//!
//! Beside other servers, inrush is one event loop. Its architectures that hold 10,000 connections follow, with room
//! for them. Architectures with a process for each connection are not made for 10,000, and are left out.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;

use anyhow::Context;
use report::columns::aligned;
use serde::Serialize;
use stage::memory;
use stage::server_under_test::RunningServer;

use super::{Common, Promise};
use crate::responder::AfterReply;
use crate::rivals::servers::{self, CONNECTIONS, INRUSH, LIMIT};
use crate::test_bed::{FILE_LENGTH, TestBed, allow_descriptors, folder_to_serve};

/// Connections before the first look. Each touches another receive buffer of the completion driver, which has 256 in all.
const FIRST: u32 = 300;
/// Descriptors that this process has open besides connections.
const OTHER_DESCRIPTORS: u32 = 64;
const FILE_NAME: &str = "1k.html";

/// The architectures by their name in the table, with the settings that make room for the connections.
const ARCHITECTURES: [(&str, &[(&str, &str)]); 8] = [
    ("inrush, per-core", &[("--arch", "per-core")]),
    ("inrush, tux", &[("--arch", "tux")]),
    ("inrush, amped", &[("--arch", "amped")]),
    ("inrush, smped", &[("--arch", "smped"), ("--smped", "c-max=1000")]),
    ("inrush, seda", &[("--arch", "seda")]),
    ("inrush, knot-c", &[("--arch", "knot-c"), ("--workers", "14200")]),
    ("inrush, knot-a", &[("--arch", "knot-a")]),
    ("inrush, mt", &[("--arch", "mt"), ("--threads", "per-connection")]),
];

/// The options of the measurement.
#[derive(clap::Args)]
pub struct MemoryOptions {
    #[command(flatten)]
    common: Common,
    /// Idle connections
    #[arg(long, default_value = "10000", value_parser = clap::value_parser!(u32).range(1..=14_000))]
    connections: u32,
    /// Measure another build of inrush beside this one
    #[arg(long, value_name = "PROGRAM")]
    pub before: Option<PathBuf>,
}

/// The cost at one server.
#[derive(Serialize)]
struct Measured {
    server: &'static str,
    connections: u32,
    before_bytes: u64,
    after_bytes: u64,
    bytes_per_connection: f64,
}

/// Measures, prints and writes.
pub fn run(options: &MemoryOptions, bed: &TestBed) -> anyhow::Result<()> {
    allow_descriptors("--connections", (options.connections + FIRST + OTHER_DESCRIPTORS) as usize)?;
    let folder = folder_to_serve(&[(FILE_NAME, FILE_LENGTH)])?;
    let mut measured = Vec::new();
    // The readiness limit keeps only a connection's place, so a comparison would mean nothing.
    let servers = servers::ALL.iter().chain(bed.of_before(&servers::BEFORE));
    for server in servers.filter(|server| server.name != LIMIT.name) {
        let started = server.start(bed, folder.path(), None, AfterReply::Keep);
        let cost = |running| measure(options, bed, server.name, running);
        match started.and_then(|running| running.map(cost).transpose()) {
            Ok(Some(cost)) => measured.push(cost),
            Ok(None) => println!("skipped: {} is not installed", server.name),
            Err(error) if server.name == INRUSH => return Err(error),
            Err(error) => println!("skipped: {error:#}"),
        }
    }
    for (name, settings) in ARCHITECTURES {
        let running = servers::start_architecture(bed, folder.path(), CONNECTIONS, settings)?;
        measured.push(measure(options, bed, name, running)?);
    }
    let mut rows = vec![["server", "bytes a connection"].map(str::to_owned)];
    rows.extend(
        measured.iter().map(|cost| [cost.server.to_owned(), format!("{:.0}", cost.bytes_per_connection)]),
    );
    println!("\n{} idle keep-alive connections, user memory:\n{}", options.connections, aligned(&rows, &[]));
    let own = measured.iter().find(|cost| cost.server == INRUSH);
    let promise =
        own.map(|cost| Promise::at_most("bytes an idle connection", 2048.0, cost.bytes_per_connection));
    bed.conclude(&options.common, "memory", &measured, promise.as_slice())
}

/// Measures one server. Blocks.
fn measure(
    options: &MemoryOptions,
    bed: &TestBed,
    server: &'static str,
    running: RunningServer,
) -> anyhow::Result<Measured> {
    let open =
        |count| bed.topology.client.enter(|| (0..count).map(|_| idle_connection(running.address)).collect());
    let failed = || format!("cannot open the idle connections to {server}");
    let first: Vec<TcpStream> = open(FIRST).with_context(failed)?;
    let before = memory::anonymous_memory_of_all(running.pid())?;
    let rest: Vec<TcpStream> = open(options.connections).with_context(failed)?;
    let after = memory::anonymous_memory_of_all(running.pid())?;
    drop((first, rest));
    running.stop()?;
    Ok(Measured {
        server,
        connections: options.connections,
        before_bytes: before.0,
        after_bytes: after.0,
        bytes_per_connection: (after.0 as f64 - before.0 as f64) / f64::from(options.connections),
    })
}

/// A connection that has asked once, has its whole reply, and stays open.
fn idle_connection(address: SocketAddr) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET /{FILE_NAME} HTTP/1.1\r\nHost: {address}\r\n\r\n")?;
    let (mut reply, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            length => reply.extend_from_slice(&buffer[..length]),
        }
        let head = reply.windows(4).position(|window| window == b"\r\n\r\n");
        if head.is_some_and(|end| reply.len() >= end + 4 + FILE_LENGTH) {
            return Ok(stream);
        }
    }
}
