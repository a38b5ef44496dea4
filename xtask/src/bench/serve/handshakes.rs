//! Full handshakes of TLS 1.3 with X25519 and with X25519MLKEM768: inrush beside nginx, HAProxy and Caddy.
//!
//! `inrush load` is the client of all. Each connection makes a full handshake and one request for a file of 1 KiB. HAProxy
//! serves no files, so it answers from its memory. A contestant is a server with a key exchange, so every ratio is of runs in
//! the same round. A server without the hybrid runs with X25519 alone.
//!
//! The client's results name the group of each handshake. A run with another group than its contestant's is an error.
//!
//! One client CPU makes fewer handshakes a second than some servers take, and the hybrid costs it more than X25519. So the
//! costs are to be compared, rather than the rates: the busy time of the server's CPU over the requests answered, packet
//! work included. The cost means nothing if another program runs on that CPU.

use anyhow::{Context, ensure};
use experiment::TlsKey;
use record::{LoadResult, Outcome};
use report::columns::aligned;
use stage::identity::Identity;
use stage::kernel::Observer;
use statistics::Spread;

use crate::bench::Promise;
use crate::bench::race::{Measured, Mode, RaceOptions, observed, race, table};
use crate::responder::AfterReply;
use crate::rivals::generators::inrush_result;
use crate::rivals::readers::Read;
use crate::rivals::servers::{FULL_HANDSHAKES, Server};
use crate::test_bed::{FILE, FILE_LENGTH, TICK, TestBed, folder_to_serve};

/// The values of our client's `--key-exchange`, each with the group to agree on.
const KEY_EXCHANGES: [(&str, &str); 2] = [("classical", "X25519"), ("hybrid", "X25519MLKEM768")];

/// Each server with its names as a contestant, in the order of [`KEY_EXCHANGES`].
const SERVERS: [(&Server, [&str; 2]); 4] = [
    (&FULL_HANDSHAKES[0], [OWN, "inrush, X25519MLKEM768"]),
    (&FULL_HANDSHAKES[1], [REFERENCE, "nginx, X25519MLKEM768"]),
    (&FULL_HANDSHAKES[2], ["haproxy, X25519", "haproxy, X25519MLKEM768"]),
    (&FULL_HANDSHAKES[3], ["caddy, X25519", "caddy, X25519MLKEM768"]),
];
const OWN: &str = "inrush, X25519";
/// The base of ratios.
const REFERENCE: &str = "nginx, X25519";

/// A server with a key exchange.
struct Contestant {
    name: &'static str,
    url: String,
    offered: &'static str,
    group: &'static str,
}

/// Measures, prints and writes.
pub fn run(options: &RaceOptions, bed: &TestBed) -> anyhow::Result<()> {
    let folder = folder_to_serve(&[(FILE, FILE_LENGTH)])?;
    let identity = Identity::make(folder.path(), TlsKey::P256).context("cannot make a certificate")?;
    let (mut running, mut contestants) = (Vec::new(), Vec::new());
    for (server, names) in SERVERS {
        let Some(ready) = server.start(bed, folder.path(), Some(&identity), AfterReply::Keep)? else {
            println!("skipped: {} is not installed", server.name);
            continue;
        };
        let url = format!("https://{}/{FILE}", ready.address);
        running.push(ready);
        for (name, (offered, group)) in names.into_iter().zip(KEY_EXCHANGES) {
            contestants.push(Contestant { name, url: url.clone(), offered, group });
        }
    }
    let contestants = able(options, bed, contestants)?;
    let names: Vec<&'static str> = contestants.iter().map(|contestant| contestant.name).collect();
    let mut observer = Observer::of(&bed.topology).context("cannot look at the server's side")?;
    let title = "a full handshake per request";
    let servers = race(options, title, &names, REFERENCE, |index, seconds| {
        let work = || read(&contestants[index], &load(options, bed, &contestants[index], seconds)?);
        observed(bed, &mut observer, |elapsed| elapsed.server_cpu, work)
    })?;
    println!("\n{title}, {FILE_LENGTH} bytes, inrush load, {} connections:", options.connections);
    print!("{}\n{}", table("server", REFERENCE, &servers), costs(&servers));
    for server in running {
        server.stop()?;
    }
    println!();
    let promises = promises(&servers);
    let measured = [Mode { connections: title, contestants: servers }];
    bed.conclude(&options.common, "serve-handshakes", &measured, &promises)
}

/// Leaves out contestants whose server does not have their key exchange.
fn able(
    options: &RaceOptions,
    bed: &TestBed,
    contestants: Vec<Contestant>,
) -> anyhow::Result<Vec<Contestant>> {
    let mut able = Vec::new();
    for contestant in contestants {
        match load(options, bed, &contestant, 1)?.handshakes.unwrap_or_default().groups {
            groups if groups.contains_key(contestant.group) => able.push(contestant),
            groups => println!("skipped: {}: the server chose {groups:?}", contestant.name),
        }
    }
    Ok(able)
}

/// Makes handshakes for a time. Blocks.
fn load(
    options: &RaceOptions,
    bed: &TestBed,
    contestant: &Contestant,
    seconds: u32,
) -> anyhow::Result<LoadResult> {
    let (sockets, duration) = (options.connections.to_string(), format!("{seconds}s"));
    let closed = ["load", &contestant.url, "--client", "closed", "--sockets", &sockets];
    let work = ["--requests-per-connection", "1", "--duration", &duration, "--warmup", "0"];
    // Nobody has signed the certificate.
    let tls = ["--insecure", "--tls-version", "1.3", "--handshakes", "full"];
    let rest = ["--key-exchange", contestant.offered, "--output", "json"];
    let program = bed.topology.client.program(&bed.inrush);
    let program = program.arguments(closed).arguments(work).arguments(tls).arguments(rest);
    let output = program.start()?.output(TICK, || true)?;
    inrush_result(&output).with_context(|| contestant.name)
}

/// The figures of a run, if all its handshakes are the contestant's.
fn read(contestant: &Contestant, result: &LoadResult) -> anyhow::Result<Read> {
    let handshakes = result.handshakes.clone().unwrap_or_default();
    let others = handshakes.groups.keys().find(|group| *group != contestant.group);
    ensure!(
        handshakes.full > 0 && handshakes.resumed == 0 && others.is_none(),
        "{}: other handshakes than those asked for: {handshakes:?}",
        contestant.name
    );
    let requests = result.outcomes.get(Outcome::Ok);
    Ok(Read { requests, requests_per_s: result.goodput_per_s, errors: result.outcomes.total() - requests })
}

/// The cost of a contestant over the reference's in the same round.
fn cost(name: &str, measured: &[Measured]) -> Option<Spread> {
    let of = |name| measured.iter().find(|one| one.name == name);
    let (own, reference) = (of(name)?, of(REFERENCE)?);
    let ratio = own.samples.iter().zip(&reference.samples);
    let ratios: Option<Vec<f64>> =
        ratio.map(|(own, other)| Some(own.cpu_us_per_request? / other.cpu_us_per_request?)).collect();
    Spread::of(&ratios?)
}

fn costs(measured: &[Measured]) -> String {
    let head = ["server".to_owned(), format!("CPU x {REFERENCE}"), "min..max".to_owned()];
    let rows = measured.iter().filter_map(|one| {
        let Spread { median, min, max, .. } = cost(one.name, measured)?;
        Some([one.name.to_owned(), format!("{median:.2}"), format!("{min:.2}..{max:.2}")])
    });
    aligned(&[head].into_iter().chain(rows).collect::<Vec<_>>(), &[])
}

/// The project's promise; without nginx, or CPUs of its own for the server, it is not judged.
fn promises(measured: &[Measured]) -> Vec<Promise> {
    let text = format!("CPU time of a full handshake and a request, x {REFERENCE}");
    let cost = cost(OWN, measured);
    cost.map(|cost| Promise::at_most(&text, 0.73, cost.median)).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::race::Sample;

    fn contestant(name: &'static str, costs: [Option<f64>; 3]) -> Measured {
        let sample = |cpu_us_per_request| Sample { requests_per_s: 1.0, cpu_us_per_request, errors: 0 };
        let samples = costs.map(sample).to_vec();
        Measured { name, samples, requests_per_s: None, cpu_us_per_request: None, ratio: None }
    }

    #[test]
    fn costs_are_compared_within_a_round() {
        let own = contestant(OWN, [Some(60.0), Some(150.0), Some(80.0)]);
        let nginx = contestant(REFERENCE, [Some(100.0), Some(200.0), Some(100.0)]);
        let measured = [own, nginx];
        assert_eq!(cost(OWN, &measured), Some(Spread { median: 0.75, min: 0.6, max: 0.8 }));
        assert!(!promises(&measured)[0].kept);
        assert!(costs(&measured).contains("0.60..0.80"), "{}", costs(&measured));
    }

    #[test]
    fn costs_without_a_rival_or_a_cpu_are_unknown() {
        let own = || contestant(OWN, [Some(60.0); 3]);
        assert!(promises(&[own()]).is_empty());
        assert!(promises(&[own(), contestant(REFERENCE, [None; 3])]).is_empty());
    }
}
