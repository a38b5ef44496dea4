//! `--kernel-cache on`: answers from inside the kernel, and connections that return to the server.
//!
//! Each test has a network namespace of its own, so that the programs of other tests are not on its loopback
//! device.

use std::fs;

use base::Nanos;
use rustix::process::Signal;
use sys::network::netlink::Route;
use sys::network::netns::NetworkNamespace;
use sys::process::Program;

use crate::common::{Files, Response, Server, pattern, pause};

pub const ON: &str = "--kernel-cache=on";
pub const HOT: &str = Files::SMALL.0;

/// Runs a test in an empty namespace, or prints the reason why it cannot.
pub fn isolated(test: impl FnOnce() + Send) {
    let namespace = match NetworkNamespace::create() {
        Ok(namespace) => namespace,
        Err(error) => return println!("skipped: no network namespaces here: {error}"),
    };
    let loopback = namespace.enter(|| Route::open().and_then(|mut route| route.set_up(1)));
    loopback.unwrap().unwrap();
    namespace.enter(test).unwrap();
}

/// A server with the kernel cache. Prints the reason if there is none.
pub fn start(files: &Files, flags: &[&str]) -> Option<Server> {
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
pub fn warm(server: &mut Server, path: &str) -> usize {
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
pub fn undated(response: &Response) -> (String, Vec<u8>) {
    let lines = response.head.split_inclusive("\r\n").filter(|line| !line.starts_with("Date: "));
    (lines.collect(), response.body.clone())
}

#[test]
fn kernel_answers_hot_files_on_each_architecture() {
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
fn kernel_served_connection_is_not_longest_idle() {
    isolated(|| {
        let files = Files::new();
        let Some(mut server) = start(&files, &["--arch=sped", "--max-connections=2"]) else { return };
        // The cache's objects expire if their keeper gets no CPU for a second.
        server.eventually_of("a busy connection of the kernel's alone", |server| {
            warm(server, HOT);
            server.eventually("all gone", |status| status.connections() == 0);
            let (closed, answered) = (server.status().count("reclaimed"), answers(server));
            let mut busy = server.client();
            assert_eq!(busy.get(HOT).status, 200);
            // For the loop it is a new connection, which counts as idle after a second.
            pause(Nanos::from_millis(1100));
            let mut idle = server.client();
            assert_eq!(idle.get("/folder/large.bin").status, 200);
            assert_eq!(busy.get(HOT).status, 200);
            assert_eq!(server.client().get("/folder/large.bin").status, 200);
            assert_eq!(busy.get(HOT).status, 200);
            server.eventually("one closed", |status| status.count("reclaimed") == closed + 1);
            answers(server) == answered + 3
        });
    });
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
fn changed_and_removed_files_leave_the_kernel_cache() {
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
fn kernel_answers_with_header_fields_of_the_rules() {
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
        if exists("0").is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
            return println!("skipped: bpftool is not installed");
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
        let gone = |_: &mut Server| !links.iter().any(|link| exists(link).unwrap());
        server.eventually_of("without links", gone);
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
