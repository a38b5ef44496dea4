//! Requests per second of one client CPU: inrush load over kernel sockets, TUN and AF_XDP, wrk, h2load and oha, each at
//! its full speed. The server is the readiness limit, which answers faster than any server. Over HTTP/2 the clients are
//! inrush load, h2load and oha, with 32 streams on each connection, and the server is our own.
//!
//! With one CPU each, the side that needs more time for a request limits both. So the promises also cover the cost of
//! a request or a connection: the busy time of the client's CPU, packet work included, over the requests answered. The cost means
//! nothing if another program runs on that CPU.

use anyhow::Context;
use stage::kernel::Observer;

use super::race::{Measured, Mode, RaceOptions, change, race, sample, table};
use super::{Promise, usertcp};
use crate::responder::AfterReply;
use crate::rivals::readers::{self, BEFORE, INRUSH, OVER_AF_XDP, OVER_TUN, Reader, Task};
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
        print!("{}", change(INRUSH, BEFORE.name, &clients).unwrap_or_default());
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
    let (connections, streams, script) = (options.connections, options.streams(), None);
    let task = |client: &Reader, seconds| {
        let inrush = bed.before.as_ref().filter(|_| client.name == BEFORE.name).unwrap_or(&bed.inrush);
        Task { url, connections, streams, seconds, after_reply, script, inrush }
    };
    let mut clients: Vec<&Reader> = Vec::new();
    let links = usertcp::links(bed)?;
    let can_run = |client: &&Reader| !client.stack.is_in_user_space() || links.contains(&client.stack);
    for client in readers::ALL.iter().chain(bed.of_before(&BEFORE)).filter(can_run) {
        match client.is_installed(&task(client, 1)) {
            false => println!("skipped: {} is not installed, or does not speak this protocol", client.name),
            true if after_reply == AfterReply::Keep || client.reconnects => clients.push(client),
            true => println!("skipped: {} does not connect again", client.name),
        }
    }
    let mut observer = Observer::of(&bed.topology).context("cannot look at the client's side")?;
    let run = |index: usize, seconds| {
        let client = clients[index];
        sample(bed, &mut observer, client, &task(client, seconds), |elapsed| elapsed.client_cpu)
    };
    let names: Vec<&'static str> = clients.iter().map(|client| client.name).collect();
    let measured = race(options, title, &names, options.reader().name, run)?;
    server.stop()?;
    Ok(measured)
}

/// The project's promises of reading; without the reference none is judged.
fn promises(modes: &[Mode], reference: &str) -> Vec<Promise> {
    let of = |mode: usize, name| modes.get(mode)?.contestants.iter().find(|client| client.name == name);
    let cost = |mode, name| Some(of(mode, name)?.cpu_us_per_request?.median);
    let ratio = of(0, INRUSH).and_then(|own| own.ratio).filter(|_| of(0, reference).is_some());
    let reads = |own, most: f64| {
        let text = format!("keep-alive, CPU time a request of {own}, x {reference}");
        Some(Promise::at_most(&text, most, cost(0, own)? / cost(0, reference)?))
    };
    let connects = |own, most: f64| {
        let text = format!("a connection per request, CPU us of {own}");
        Some(Promise::at_most(&text, most, cost(1, own)?))
    };
    let promises = [
        ratio.map(|ratio| {
            Promise::at_least(&format!("keep-alive, requests/s, x {reference}"), LEVEL, ratio.median)
        }),
        reads(INRUSH, 1.0 / LEVEL),
        reads(OVER_TUN, 1.0 / 1.5),
        reads(OVER_AF_XDP, 1.0 / 1.5),
        connects(OVER_TUN, 18.0),
        connects(OVER_AF_XDP, 12.0),
    ];
    promises.into_iter().flatten().collect()
}
