//! Requests per second of one client CPU: inrush load, wrk and h2load, each at its full speed. The server is the
//! readiness limit, which answers faster than any server. Over HTTP/2 the clients are inrush load and h2load, with 32
//! streams on each connection, and the server is our own.
//!
//! With one CPU each, the side that needs more time for a request limits both. So the promise also covers the cost of
//! a request: the busy time of the client's CPU, packet work included, over the requests answered. The cost means
//! nothing if another program runs on that CPU.

use anyhow::Context;
use lab::stage::kernel::Observer;

use super::Promise;
use super::race::{Measured, Mode, RaceOptions, race, sample, table};
use crate::responder::AfterReply;
use crate::rivals::readers::{self, INRUSH, Reader, Task};
use crate::rivals::servers::{self, LIMIT};
use crate::test_bed::{FILE_LENGTH, TestBed, folder_to_serve};

/// "Level with the reference": within the difference of two runs of wrk itself.
const LEVEL: f64 = 0.97;

/// Measures, prints and writes.
pub fn run(options: &RaceOptions, bed: &TestBed) -> anyhow::Result<()> {
    let (mut measured, reference) = (Vec::new(), options.reader().name);
    for (connections, after_reply) in options.modes().iter().copied() {
        let clients = measure(options, bed, connections, after_reply)?;
        println!("\n{connections}, {FILE_LENGTH} bytes, {} connections:", options.connections);
        print!("{}", table("client", reference, &clients));
        measured.push(Mode { connections, contestants: clients });
    }
    println!();
    let name = if options.http2 { "requests-http2" } else { "requests" };
    bed.conclude(&options.common, name, &measured, &promises(&measured, reference))
}

/// Measures every installed client that supports the mode, in rounds.
fn measure(
    options: &RaceOptions,
    bed: &TestBed,
    title: &str,
    after_reply: AfterReply,
) -> anyhow::Result<Vec<Measured>> {
    let folder = folder_to_serve(&[("index.html", FILE_LENGTH)])?;
    // The readiness limit does not speak HTTP/2.
    let server = if options.http2 { &servers::OVER_HTTP2[0] } else { &LIMIT };
    let server = server.start(bed, folder.path(), None, after_reply)?.context("the server has gone")?;
    let url: &str = &format!("http://{}/", server.address);
    let (connections, inrush) = (options.connections, &bed.inrush);
    let streams = options.streams();
    let task = |seconds| Task { url, connections, streams, seconds, after_reply, script: None, inrush };
    let mut clients: Vec<&Reader> = Vec::new();
    for client in &readers::ALL {
        match client.is_installed(&task(1)) {
            false => println!("skipped: {} is not installed, or does not speak this protocol", client.name),
            true if after_reply == AfterReply::Keep || client.reconnects => clients.push(client),
            true => println!("skipped: {} does not connect again", client.name),
        }
    }
    let mut observer = Observer::of(&bed.topology).context("cannot look at the client's side")?;
    let run = |index: usize, seconds| {
        sample(bed, &mut observer, clients[index], &task(seconds), |elapsed| elapsed.client_cpu)
    };
    let names: Vec<&'static str> = clients.iter().map(|client| client.name).collect();
    let measured = race(options, title, &names, options.reader().name, run)?;
    server.stop()?;
    Ok(measured)
}

/// The project's promises of reading; without the reference none is judged.
fn promises(modes: &[Mode], reference: &str) -> Vec<Promise> {
    let Some(kept) = modes.first() else { return Vec::new() };
    let of = |name| kept.contestants.iter().find(|client| client.name == name);
    let (own, other) = (of(INRUSH), of(reference));
    let ratio = own.and_then(|own| own.ratio).filter(|_| other.is_some());
    let cost = |client: Option<&Measured>| Some(client?.cpu_us_per_request?.median);
    let promises = [
        ratio.map(|ratio| {
            Promise::at_least(&format!("keep-alive, requests/s, x {reference}"), LEVEL, ratio.median)
        }),
        cost(own).zip(cost(other)).map(|(own, other)| {
            let text = format!("keep-alive, CPU time a request, x {reference}");
            Promise::at_most(&text, 1.0 / LEVEL, own / other)
        }),
    ];
    promises.into_iter().flatten().collect()
}
