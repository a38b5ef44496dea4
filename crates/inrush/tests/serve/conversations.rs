//! `--kernel-cache on` beside the same server without it: whole conversations, whose bytes have to be equal.
//!
//! The ordinary run is short. The environment makes it a campaign:
//!
//! ```text
//! FUZZ_SEED=1 FUZZ_CONVERSATIONS=300000 WAN_CONVERSATIONS=2000 SOAK_SECONDS=600 \
//!     cargo test -p inrush --test serve conversations:: -- --nocapture
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use base::Nanos;
use rustix::process::Signal;
use sys::network::netns::NetworkNamespace;
use sys::process::Program;

use super::kernel_cache::{HOT, ON, isolated, start, undated};
use crate::common::{Client, Files, PATIENCE, PROGRAM, Server, pause};

/// A number from the environment, for campaigns.
fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |value| value.parse().unwrap())
}

/// Answers of the kernel so far. The admin connection of the start may have been closed as idle.
fn answers(server: &mut Server) -> u64 {
    server.admin = Client::connect(server.admin_address);
    server.status().count("kernel_cache_answers")
}

/// The files of conversations: answers of one segment and of several, compressed and not.
fn files() -> Files {
    let files = Files::new();
    files.write("/page.txt", "a page ".repeat(1500));
    files.write("/page.txt.gz", "not really compressed ".repeat(100));
    files
}

/// Random numbers by SplitMix64 (Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) as usize % bound
    }

    fn of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }
}

/// A request, and true for a HEAD.
fn request(random: &mut Random) -> (String, bool) {
    // The kernel can answer most of the requests, so that others come in the middle of a connection.
    if random.below(3) > 0 {
        let path = random.of(&[HOT, "/", "/page.txt"]);
        let lines = random.of(&["", "Accept-Encoding: gzip\r\n", "Connection: keep-alive\r\n"]);
        return (format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n"), false);
    }
    let method = random.of(&["GET", "GET", "HEAD", "OPTIONS", "DELETE"]);
    let path = random.of(&[
        HOT,
        "/",
        "/page.txt",
        "/empty.txt",
        "/missing",
        "/folder",
        "/small.bin?q",
        "/medium.bin",
    ]);
    let mut lines = String::new();
    for _ in 0..random.below(3) {
        lines += random.of(&[
            "User-Agent: x\r\n",
            "accept-encoding:  gzip, br\r\n",
            "Range: bytes=1-9\r\n",
            "If-None-Match: *\r\n",
            "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
            "Connection: keep-alive\r\n",
            "Cookie: a=b\r\n",
        ]);
    }
    (format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n"), method == "HEAD")
}

/// Responses without their dates.
type Conversation = Vec<(String, Vec<u8>)>;

/// Sends requests, each in one or two pieces, and sometimes two at once. Returns the
/// responses.
fn converse(client: &mut Client, seed: u64) -> Conversation {
    let mut random = Random(seed);
    let mut responses = Vec::new();
    for _ in 0..1 + random.below(6) {
        let (first, head) = request(&mut random);
        let mut heads = vec![head];
        match random.below(12) {
            0 => {
                let (start, end) = first.split_at(1 + random.below(first.len() - 1));
                client.send(start);
                client.send(end);
            }
            1 => {
                let (second, head) = request(&mut random);
                heads.push(head);
                client.send(first + &second);
            }
            _ => client.send(first),
        }
        for head in heads {
            let response = if head { client.response_to_head() } else { client.response() };
            responses.push(undated(&response));
        }
    }
    responses
}

#[test]
fn the_kernel_sends_the_bytes_that_the_server_sends() {
    isolated(|| {
        let files = files();
        let Some(mut with) = start(&files, &["--arch=sped"]) else { return };
        let without = Server::start(&files.root(), &["--arch=sped"]);
        let (first, conversations) = (number("FUZZ_SEED", 1), number("FUZZ_CONVERSATIONS", 500));
        for seed in first..first + conversations {
            let expected = converse(&mut without.client(), seed);
            assert_eq!(converse(&mut with.client(), seed), expected, "seed {seed}");
        }
        let answers = answers(&mut with);
        assert!(answers > 0);
        println!("{conversations} conversations from seed {first}: {answers} answers of the kernel");
        with.stop_well();
        without.stop_well();
    });
}

/// A server with the kernel cache behind a path that loses and reorders packets. Dropping it ends all.
struct Distant {
    command: sys::process::Child,
    clients: NetworkNamespace,
}

impl Distant {
    const ADDRESS: &str = "10.79.0.1:8080";
    const ADMIN: &str = "10.79.0.1:8081";

    fn start(root: &Path, loss: &str, seed: u64) -> Option<Distant> {
        let server = format!(
            "'{PROGRAM}' serve '{}' --arch=sped {ON} --listen={} --admin={}",
            root.display(),
            Distant::ADDRESS,
            Distant::ADMIN
        );
        let path = ["--delay=1ms", "--reorder=5%", &format!("--loss={loss}"), &format!("--seed={seed}")];
        let mut command = Program::new(PROGRAM)
            .arguments(["wan", "run"])
            .arguments(path)
            .arguments([&format!("--server={server}"), "--", "sh", "-c", "echo $$; exec sleep 100000"])
            .start()
            .unwrap();
        let mut process = String::new();
        BufReader::new(command.stdout.take().unwrap()).read_line(&mut process).unwrap();
        if process.is_empty() {
            let mut said = String::new();
            command.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            assert!(said.contains("cannot make two networks"), "{said}");
            println!("skipped: {}", said.trim());
            return None;
        }
        let place = format!("/proc/{}/ns/net", process.trim());
        let clients = NetworkNamespace::of_another(Path::new(&place)).unwrap();
        Some(Distant { command, clients })
    }

    fn answers(&self) -> u64 {
        let admin: SocketAddr = Distant::ADMIN.parse().unwrap();
        let status = self.clients.enter(|| Client::connect(admin).get("/status")).unwrap();
        let status: serde_json::Value = serde_json::from_slice(&status.body).unwrap();
        status["counters"]["kernel_cache_answers"].as_u64().unwrap()
    }

    /// Holds conversations, many at once because most of the time is spent on timers of TCP.
    fn converse(&self, seeds: std::ops::Range<u64>) -> Vec<Conversation> {
        const AT_ONCE: u64 = 16;
        let address: SocketAddr = Distant::ADDRESS.parse().unwrap();
        let one = |seed| converse(&mut Client::connect(address), seed);
        let held = self.clients.enter(|| {
            thread::scope(|scope| {
                let started: Vec<_> = (0..AT_ONCE)
                    .map(|first| seeds.clone().skip(first as usize).step_by(AT_ONCE as usize))
                    .map(|own| scope.spawn(move || own.map(|seed| (seed, one(seed))).collect::<Vec<_>>()))
                    .collect();
                started.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
            })
        });
        let mut held = held.unwrap();
        held.sort_by_key(|(seed, _)| *seed);
        held.into_iter().map(|(_, conversation)| conversation).collect()
    }
}

impl Drop for Distant {
    fn drop(&mut self) {
        // It kills the processes of both sides before it ends.
        let _ = self.command.signal(Signal::TERM);
        let _ = self.command.wait(Nanos(PATIENCE.as_nanos() as u64));
    }
}

#[test]
fn bytes_are_right_over_a_lossy_reordering_path() {
    let files = files();
    let mut possible = false;
    isolated(|| possible = start(&files, &["--arch=sped"]).is_some());
    if !possible {
        return;
    }
    let without = Server::start(&files.root(), &["--arch=sped"]);
    let (first, conversations) = (number("FUZZ_SEED", 1), number("WAN_CONVERSATIONS", 100));
    let seeds = first..first + conversations;
    let expected: Vec<_> = seeds.clone().map(|seed| converse(&mut without.client(), seed)).collect();
    for loss in ["1%", "5%"] {
        let Some(distant) = Distant::start(&files.root(), loss, first) else { return };
        for ((seed, got), expected) in seeds.clone().zip(distant.converse(seeds.clone())).zip(&expected) {
            assert_eq!(got, *expected, "loss {loss}, seed {seed}");
        }
        let answers = distant.answers();
        assert!(answers > 0, "the kernel answered nothing");
        println!("loss {loss}: {conversations} conversations, {answers} answers of the kernel");
    }
    without.stop_well();
}

/// The kernel's complaints in its log; `None` if this user may not read it.
fn complaints() -> Option<BTreeSet<String>> {
    let output = Program::new("dmesg").start().ok()?.output(Nanos::MILLISECOND, || true).ok()?;
    let is_complaint =
        |line: &&str| ["WARNING:", "BUG:", "Oops", "stall"].iter().any(|word| line.contains(word));
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().filter(is_complaint).map(str::to_owned).collect();
    output.exit.status.success().then_some(lines)
}

/// Number of connections in the program's table, by bpftool.
fn flows(server: &Server) -> usize {
    let folder = fs::read_dir(format!("/proc/{}/fdinfo", server.process())).unwrap();
    let texts = folder.filter_map(|entry| fs::read_to_string(entry.unwrap().path()).ok());
    let maps =
        texts.filter_map(|text| Some(text.split_once("map_id:")?.1.split_whitespace().next()?.to_owned()));
    let bpftool = |arguments: &[&str]| {
        let program = Program::new("bpftool").arguments(["-j", "map"]).arguments(arguments.iter().copied());
        let output = program.start().unwrap().output(Nanos::MILLISECOND, || true).unwrap();
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let table = maps.into_iter().find(|id| bpftool(&["show", "id", id])["name"] == "flows");
    bpftool(&["dump", "id", &table.expect("a map of connections")]).as_array().unwrap().len()
}

/// Asks for a file of several segments, and leaves without its end.
fn leave_in_the_middle(server: SocketAddr, random: &mut Random) {
    let mut client = Client::connect(server);
    client.send_get("/page.txt", "");
    let mut part = vec![0; 1 + random.below(9000)];
    client.stream.read_exact(&mut part).unwrap();
    if random.below(2) == 0 {
        client.send_get(HOT, "");
    }
    // Unread bytes make this a reset.
}

/// Reads a file that changes all the time, and asserts that its bytes are never of two versions.
fn reads_whole_versions(server: SocketAddr, goes_on: impl Fn() -> bool) {
    let mut client = Client::connect(server);
    while goes_on() {
        let body = client.get("/changing.txt").body;
        assert!(body.iter().all(|byte| *byte == body[0]));
    }
}

/// Asserts that the kernel has no complaint that it did not have before.
fn no_complaint_since(before: Option<BTreeSet<String>>) {
    match (before, complaints()) {
        (Some(before), Some(after)) => {
            assert_eq!(after.difference(&before).collect::<Vec<_>>(), Vec::<&String>::new());
        }
        _ => println!("skipped: the kernel's log cannot be read here"),
    }
}

#[test]
fn mixed_traffic_leaves_no_warning_and_no_connection() {
    isolated(|| {
        let files = files();
        let change = |version: u64| {
            // Replaced whole, as careful editors do.
            let fresh = files.path("/fresh.txt");
            fs::write(&fresh, vec![b'a' + (version % 26) as u8; 5000]).unwrap();
            fs::rename(fresh, files.path("/changing.txt")).unwrap();
        };
        change(0);
        let flags = ["--arch=sped"];
        let Some(mut with) = start(&files, &flags) else { return };
        let without = Server::start(&files.root(), &flags);
        let (before, seconds) = (complaints(), number("SOAK_SECONDS", 1));
        let (ends, conversations, left) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        let goes_on = || !ends.load(Ordering::Relaxed);
        let (server, plain) = (with.address, without.address);
        thread::scope(|scope| {
            for thread in 0..4 {
                let (conversations, goes_on) = (&conversations, &goes_on);
                scope.spawn(move || {
                    for seed in (thread << 32..).take_while(|_| goes_on()) {
                        let expected = converse(&mut Client::connect(plain), seed);
                        assert_eq!(converse(&mut Client::connect(server), seed), expected, "seed {seed}");
                        conversations.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            scope.spawn(|| {
                let mut random = Random(1);
                while goes_on() {
                    leave_in_the_middle(server, &mut random);
                    left.fetch_add(1, Ordering::Relaxed);
                }
            });
            scope.spawn(|| reads_whole_versions(server, goes_on));
            for version in 0..seconds * 10 {
                pause(Nanos::from_millis(100));
                change(version);
            }
            ends.store(true, Ordering::Relaxed);
        });
        let answers = answers(&mut with);
        println!(
            "{conversations:?} conversations, {left:?} left in the middle, {answers} answers of the kernel"
        );
        assert!(answers > 0);
        no_complaint_since(before);
        if seconds >= 60 {
            forgets_all(&with);
        }
        with.stop_well();
        without.stop_well();
    });
}

/// Asserts that the table is empty after the minute of silence that the keeper waits for.
fn forgets_all(server: &Server) {
    let mut held = flows(server);
    println!("{held} connections in the table at the end");
    for _ in 0..120 {
        if held == 0 {
            return;
        }
        pause(Nanos::SECOND);
        held = flows(server);
    }
    panic!("{held} connections stay in the table");
}
