//! `--kernel-cache on`: answers from inside the kernel, and connections that return to the server.
//!
//! Each test has a network namespace of its own, so that the programs of other tests are not on its loopback
//! device.

use std::fs;

use base::Nanos;
use rustix::process::Signal;
use sys::netlink::Route;
use sys::netns::NetworkNamespace;
use sys::process::Program;

use crate::common::{Client, Files, Response, Server, pattern};

const ON: &str = "--kernel-cache=on";
const HOT: &str = Files::SMALL.0;

/// Runs a test in an empty namespace, or prints the reason why it cannot.
fn isolated(test: impl FnOnce() + Send) {
    let namespace = match NetworkNamespace::create() {
        Ok(namespace) => namespace,
        Err(error) => return println!("skipped: no network namespaces here: {error}"),
    };
    let loopback = namespace.enter(|| Route::open().and_then(|mut route| route.set_up(1)));
    loopback.unwrap().unwrap();
    namespace.enter(test).unwrap();
}

/// A server with the kernel cache. Prints the reason if there is none.
fn start(files: &Files, flags: &[&str]) -> Option<Server> {
    let server = Server::start(&files.root(), &[&[ON], flags].concat());
    match server.said.lines().find(|line| line.contains("--kernel-cache on:")) {
        Some(reason) => {
            println!("skipped: {reason}");
            None
        }
        None => Some(server),
    }
}

/// Requests a file until the kernel answers. Returns the number of requests that this took.
fn warm(server: &mut Server, path: &str) -> usize {
    let (before, mut asked) = (answers(server), 0);
    server.eventually_of("kept", |server| {
        assert_eq!(server.client().get(path).status, 200);
        asked += 1;
        answers(server) > before
    });
    asked
}

fn answers(server: &mut Server) -> u64 {
    server.status().count("kernel_cache_answers")
}

/// Status line, fields and content of a response, without the date.
fn undated(response: &Response) -> (String, Vec<u8>) {
    let lines = response.head.split_inclusive("\r\n").filter(|line| !line.starts_with("Date: "));
    (lines.collect(), response.body.clone())
}

#[test]
fn hot_files_are_answered_by_the_kernel_on_each_architecture() {
    for flags in [&["--arch=sped"][..], &["--arch=tux"], &["--arch=per-core", "--workers=2"]] {
        isolated(|| {
            let files = Files::new();
            let Some(mut server) = start(&files, flags) else { return };
            let expected = undated(&server.client().get(HOT));
            warm(&mut server, HOT);
            let mut client = server.client();
            // The cache's objects expire if their keeper gets no CPU for a second.
            server.eventually_of("a connection of the kernel's alone", |server| {
                let before = answers(server);
                client = server.client();
                for _ in 0..20 {
                    let response = client.get(HOT);
                    assert_eq!(undated(&response), expected);
                    assert!(response.field("date").is_some());
                }
                answers(server) == before + 20
            });
            let metric = format!("\ninrush_kernel_cache_answers_total {}\n", answers(&mut server));
            assert!(server.admin.get("/metrics").text().contains(&metric));
            // The server continues the same connection.
            assert_eq!(client.get("/folder/large.bin").body.len(), Files::LARGE.1);
            assert_eq!(client.get(HOT).body.len(), Files::SMALL.1);
            drop(client);
            server.stop_well();
        });
    }
}

#[test]
fn each_host_has_its_own_file_and_log_in_the_kernel() {
    isolated(|| {
        let (files, other) = (Files::new(), Files::new());
        other.write(HOT, "the other host's");
        let (config, log, own_log) =
            (files.beside("inrush.toml"), files.beside("access.log"), files.beside("other.log"));
        let host =
            format!("[[host]]\nnames = 'other.test'\nroot = {:?}\naccess-log = {own_log:?}\n", other.root());
        fs::write(&config, format!("access-log = {log:?}\n{host}")).unwrap();
        let config = format!("--config={}", config.display());
        let Some(mut server) = start(&files, &["--arch=sped", &config]) else { return };
        let check = |server: &Server| {
            for (host, expected) in
                [("localhost", pattern(Files::SMALL.1)), ("other.test", b"the other host's".to_vec())]
            {
                let mut client = server.client();
                client.send(format!("GET {HOT} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
                assert!(client.response().body == expected, "{host}");
            }
        };
        let mut checks = 0;
        server.eventually_of("both kept", |server| {
            let before = answers(server);
            check(server);
            checks += 1;
            answers(server) == before + 2
        });
        server.stop_well();
        for (log, size) in [(log, "1000"), (own_log, "16")] {
            let text = fs::read_to_string(log).unwrap();
            let line = format!("\"GET {HOT} HTTP/1.1\" 200 {size} \"-\" \"-\"");
            assert_eq!(text.lines().filter(|have| have.ends_with(&line)).count(), checks, "{text}");
            assert_eq!(text.lines().count(), checks, "{text}");
        }
    });
}

#[test]
fn a_changed_file_and_a_removed_one_leave_the_kernel_cache() {
    isolated(|| {
        let files = Files::new();
        let Some(mut server) = start(&files, &["--arch=sped"]) else { return };
        warm(&mut server, HOT);
        assert_eq!(server.client().get(HOT).body.len(), Files::SMALL.1);
        files.write(HOT, "another content");
        server.eventually_of("changed", |server| server.client().get(HOT).body == b"another content");
        server.eventually("counted", |status| status.count("kernel_cache_objects_changed") > 0);
        warm(&mut server, HOT);
        assert_eq!(server.client().get(HOT).body, b"another content");
        fs::remove_file(files.path(HOT)).unwrap();
        server.eventually_of("removed", |server| server.client().get(HOT).status == 404);
        server.stop_well();
    });
}

#[test]
fn the_kernel_answers_with_the_header_fields_of_the_rules() {
    isolated(|| {
        let files = Files::new();
        let config = files.beside("inrush.toml");
        fs::write(&config, "header = '/* X-Own: first'\nfallback = '/small.bin'\n").unwrap();
        let flag = format!("--config={}", config.display());
        let Some(mut server) = start(&files, &["--arch=sped", &flag]) else { return };
        for path in [HOT, "/absent"] {
            let expected = undated(&server.client().get(path));
            assert!(expected.0.contains("X-Own: first\r\n"), "{}", expected.0);
            warm(&mut server, path);
            assert_eq!(undated(&server.client().get(path)), expected);
        }
        fs::write(&config, "header = '/* X-Own: second'\nfallback = '/small.bin'\n").unwrap();
        server.signal(Signal::HUP);
        for path in [HOT, "/absent"] {
            server.eventually_of("the new field", |server| {
                server.client().get(path).field("X-Own") == Some("second")
            });
        }
        assert_eq!(server.stop(), (Some(0), "inrush: changed: header\n".to_owned()));
    });
}

#[test]
fn answers_of_the_kernel_are_in_the_access_log() {
    isolated(|| {
        let files = Files::new();
        let log = files.beside("access.log");
        let flag = format!("--access-log={}", log.display());
        let Some(mut server) = start(&files, &["--arch=sped", &flag]) else { return };
        let asked = warm(&mut server, HOT);
        let mut client = server.client();
        for _ in 0..20 {
            client.get(HOT);
        }
        drop(client);
        server.stop_well();
        let text = fs::read_to_string(&log).unwrap();
        let line = |line: &&str| line.ends_with("\"GET /small.bin HTTP/1.1\" 200 1000 \"-\" \"-\"");
        assert_eq!(text.lines().filter(line).count(), asked + 20, "{text}");
    });
}

/// The identifiers of a process's BPF links.
fn links_of(process: u32) -> Vec<String> {
    let folder = fs::read_dir(format!("/proc/{process}/fdinfo")).unwrap();
    let texts = folder.filter_map(|entry| fs::read_to_string(entry.unwrap().path()).ok());
    let link =
        |text: String| text.lines().find_map(|line| Some(line.strip_prefix("link_id:")?.trim().to_owned()));
    texts.filter_map(link).collect()
}

#[test]
fn a_killed_server_leaves_no_program_behind() {
    isolated(|| {
        let exists = |link: &str| {
            let program = Program::new("bpftool").arguments(["link", "show", "id", link]);
            Ok::<_, std::io::Error>(
                program.start()?.output(Nanos::MILLISECOND, || true)?.exit.status.success(),
            )
        };
        if let Err(error) = exists("0") {
            return println!("skipped: bpftool: {error}");
        }
        let files = Files::new();
        let Some(mut server) = start(&files, &["--arch=sped"]) else { return };
        warm(&mut server, HOT);
        server.client().get(HOT);
        let links = links_of(server.process());
        assert_eq!(links.len(), 2, "one each way: {links:?}");
        assert!(links.iter().all(|link| exists(link).unwrap()));
        server.signal(Signal::KILL);
        server.wait();
        // The kernel frees a link shortly after its last descriptor is closed.
        while links.iter().any(|link| exists(link).unwrap()) {}
    });
}

#[test]
fn without_privileges_the_server_says_so_and_serves() {
    let files = Files::new();
    let server = Server::start_without_capabilities(&files.root(), &["--arch=sped", ON]);
    let line = server.said.lines().find(|line| line.contains("--kernel-cache on:"));
    let line = line.unwrap_or_else(|| panic!("nothing is said in {}", server.said));
    assert!(line.contains("needs CAP_BPF and CAP_NET_ADMIN"), "{line}");
    assert!(line.ends_with("serving without it"), "{line}");
    assert_eq!(server.client().get(HOT).status, 200);
    server.stop_well();
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

/// Sends requests, each in one or two pieces, and sometimes two at once. Returns the responses without their
/// dates.
fn converse(client: &mut Client, seed: u64) -> Vec<(String, Vec<u8>)> {
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
        let files = Files::new();
        files.write("/page.txt", "a page ".repeat(1500));
        files.write("/page.txt.gz", "not really compressed ".repeat(100));
        let Some(mut with) = start(&files, &["--arch=sped"]) else { return };
        let without = Server::start(&files.root(), &["--arch=sped"]);
        let first = std::env::var("FUZZ_SEED").map_or(1, |seed| seed.parse().unwrap());
        let conversations: u64 =
            std::env::var("FUZZ_CONVERSATIONS").map_or(500, |count| count.parse().unwrap());
        for seed in first..first + conversations {
            let expected = converse(&mut without.client(), seed);
            assert_eq!(converse(&mut with.client(), seed), expected, "seed {seed}");
        }
        let status = with.status();
        assert!(status.count("kernel_cache_answers") > 0, "{status:?}");
        println!(
            "seeds {first} to {}: {:?}",
            first + conversations - 1,
            status.0["counters"]["kernel_cache_answers"]
        );
        with.stop_well();
        without.stop_well();
    });
}
