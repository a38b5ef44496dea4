//! The right bytes, to many clients at once and in every form of request.

use crate::common::{
    Client, Files, Server, Status, on_every_mechanism, on_every_readiness_mechanism, pattern,
};

const ALL: [(&str, usize); 3] = [Files::SMALL, Files::MEDIUM, Files::LARGE];
const CLIENTS: usize = 8;
/// Number of requests per client, most of them for the small file.
const REQUESTS: usize = 60;

/// Serves many clients at once. Half of them keep their connection; the others make one for each request.
pub fn many_at_once(server: &mut Server) {
    let expected: Vec<Vec<u8>> = ALL.iter().map(|(_, length)| pattern(*length)).collect();
    let address = server.address;
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let expected = &expected;
            scope.spawn(move || {
                let mut client = Client::connect(address);
                for turn in 0..REQUESTS {
                    if number % 2 == 1 {
                        drop(client);
                        client = Client::connect(address);
                    }
                    let which = [0, 0, 1, 0, 2, 0, 1][(number + turn) % 7];
                    let response = client.get(ALL[which].0);
                    assert_eq!(response.status, 200);
                    assert!(response.body == expected[which], "wrong bytes of {}", ALL[which].0);
                }
            });
        }
    });
    let total = (CLIENTS * REQUESTS) as u64;
    let connections = (CLIENTS / 2 + CLIENTS / 2 * (REQUESTS + 1)) as u64;
    // A dispatcher and its workers publish their figures at different times.
    let published = |status: &Status| {
        ["accepts", "closed"].iter().all(|name| status.count(name) >= connections)
            && status.connections() == 0
    };
    let status = server.eventually("all accepted and closed", published);
    assert_eq!(status.count("closed"), connections);
    assert_eq!(status.count("accepts"), connections);
    assert_eq!((status.count("requests"), status.count("responses_2xx")), (total, total));
    assert_eq!(status.count("broken"), 0);
}

#[test]
fn many_clients_at_once_get_the_right_bytes() {
    let files = Files::new();
    on_every_mechanism(|mechanism| {
        let mut server = Server::sped(&files.root(), mechanism, &[]);
        many_at_once(&mut server);
        server.stop_well();
    });
}

#[test]
fn several_loops_serve_like_one() {
    let files = Files::new();
    on_every_readiness_mechanism(|mechanism| {
        let flags = ["--arch=per-core", "--workers=3", "--dispatch", mechanism, "--read-after-accept"];
        let mut server = Server::start(&files.root(), &flags);
        many_at_once(&mut server);
        let loops = server.status().0["loops"].as_array().unwrap().clone();
        assert_eq!(loops.len(), 3);
        let accepts: u64 = loops.iter().map(|one| one["accepts"].as_u64().unwrap()).sum();
        assert_eq!(accepts, server.status().count("accepts"));
        server.stop_well();
    });
}

#[test]
fn thousand_pipelined_requests_are_answered_in_order() {
    let files = Files::new();
    files.write("/a.txt", "a");
    files.write("/b.txt", "bb");
    let both = "GET /a.txt HTTP/1.1\r\nHost: x\r\n\r\nGET /b.txt HTTP/1.1\r\nHost: x\r\n\r\n";
    on_every_mechanism(|mechanism| {
        let mut server = Server::sped(&files.root(), mechanism, &[]);
        let mut client = server.client();
        client.send(both.repeat(500));
        for _ in 0..500 {
            assert_eq!(client.response().text(), "a");
            assert_eq!(client.response().text(), "bb");
        }
        assert!(server.eventually("served", |status| status.count("requests") == 1000).connections() == 1);
        server.stop_well();
    });
}

#[test]
fn thousand_pipelined_requests_block_no_other_client() {
    let files = Files::new();
    let one = format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", Files::SMALL.0);
    on_every_mechanism(|mechanism| {
        let log = files.beside(mechanism);
        let flag = format!("--access-log={}", log.display());
        let mut server = Server::sped(&files.root(), mechanism, &[&flag]);
        let (mut greedy, mut other) = (server.client(), server.client());
        server.eventually("both accepted", |status| status.connections() == 2);
        server.while_stopped(|| {
            greedy.send(one.repeat(1000));
            other.send_get("/small.bin?other", "");
        });
        assert_eq!(other.response().status, 200);
        for _ in 0..1000 {
            assert_eq!(greedy.response().status, 200);
        }
        server.stop_well();
        let text = std::fs::read_to_string(&log).unwrap();
        let before = text.lines().position(|line| line.contains("?other")).unwrap();
        assert!(before <= 200, "{before} requests of one client were answered first");
    });
}

#[test]
fn pipelined_answers_wait_for_a_late_reader() {
    let files = Files::new();
    let (name, length) = Files::MEDIUM;
    let one = format!("GET {name} HTTP/1.1\r\nHost: x\r\n\r\n");
    on_every_mechanism(|mechanism| {
        let mut server = Server::sped(&files.root(), mechanism, &[]);
        let mut client = server.client();
        // 16 MB of answers exceed the socket buffers, so the server has to stop and continue.
        client.send(one.repeat(400));
        server.eventually("busy sending", |status| status.count("sent_bytes") > 64 * 1024);
        assert_eq!(server.client().get(Files::SMALL.0).status, 200);
        for _ in 0..400 {
            assert!(client.response().body == pattern(length));
        }
        server.stop_well();
    });
}

#[test]
fn half_closed_client_gets_its_answers_and_the_end() {
    let files = Files::new();
    on_every_mechanism(|mechanism| {
        let mut server = Server::sped(&files.root(), mechanism, &[]);
        let mut clients: Vec<Client> = (0..3).map(|_| server.client()).collect();
        server.eventually("all accepted", |status| status.connections() == 3);
        // The request and the end of the stream arrive at once, in one event.
        server.while_stopped(|| {
            clients[0].send_get(Files::SMALL.0, "");
            clients[1].send_get(Files::LARGE.0, "");
            clients[2].send("nonsense\r\n\r\n");
            clients.iter_mut().for_each(Client::end);
        });
        assert!(clients[0].response().body == pattern(Files::SMALL.1));
        assert!(clients[1].response().body == pattern(Files::LARGE.1));
        assert_eq!(clients[2].response().status, 400);
        assert!(clients.iter_mut().all(Client::ends));
        let status = server.eventually("all closed", |status| status.count("closed") == 3);
        assert_eq!(status.count("timeouts_linger") + status.count("timeouts_idle"), 0);
        server.stop_well();
    });
}

#[test]
fn ranges_of_a_large_file() {
    let files = Files::new();
    let (name, length) = Files::LARGE;
    let all = pattern(length);
    on_every_mechanism(|mechanism| {
        let server = Server::sped(&files.root(), mechanism, &[]);
        let mut client = server.client();
        for (asked, first, last) in [
            ("0-0", 0, 0),
            ("1000000-1999999", 1_000_000, 1_999_999),
            ("2999999-", 2_999_999, 2_999_999),
            ("-70000", 2_930_000, 2_999_999),
        ] {
            let response = client.get_with(name, &format!("Range: bytes={asked}\r\n"));
            assert_eq!(response.status, 206);
            let range = format!("bytes {first}-{last}/{length}");
            assert_eq!(response.field("content-range"), Some(&*range));
            assert!(response.body == all[first..=last], "{asked}");
        }
        let response = client.get_with(name, "Range: bytes=3000000-\r\n");
        assert_eq!((response.status, response.field("content-range")), (416, Some("bytes */3000000")));
        several_ranges(&mut client, name, &all);
        server.stop_well();
    });
}

/// Checks parts that sendfile sends with delimiters between them.
fn several_ranges(client: &mut Client, name: &str, all: &[u8]) {
    let response = client.get_with(name, "Range: bytes=5-9,200000-899999,-100000\r\n");
    assert_eq!(response.status, 206);
    let media_type = response.field("content-type").unwrap();
    let boundary = media_type.strip_prefix("multipart/byteranges; boundary=").unwrap();
    let mut expected = Vec::new();
    for (first, last) in [(5, 9), (200_000, 899_999), (2_900_000, 2_999_999)] {
        let lines = format!(
            "\r\n--{boundary}\r\nContent-Type: application/octet-stream\r\nContent-Range: bytes {first}-{last}/{}\r\n\r\n",
            all.len()
        );
        expected.extend_from_slice(lines.as_bytes());
        expected.extend_from_slice(&all[first..=last]);
    }
    expected.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    let without_first_line_end = &expected[2..];
    assert!(response.body == expected || response.body == without_first_line_end, "{}", response.head);
}

#[test]
fn conditional_requests_save_the_content() {
    let files = Files::new();
    let server = Server::start(&files.root(), &[]);
    let mut client = server.client();
    for (name, _) in ALL {
        let whole = client.get(name);
        let tag = whole.field("etag").unwrap().to_owned();
        let date = whole.field("last-modified").unwrap().to_owned();
        for (lines, status) in [
            (format!("If-None-Match: {tag}\r\n"), 304),
            ("If-None-Match: \"other\"\r\n".to_owned(), 200),
            (format!("If-Modified-Since: {date}\r\n"), 304),
            (format!("If-Match: {tag}\r\n"), 200),
            ("If-Match: \"other\"\r\n".to_owned(), 412),
            ("If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n".to_owned(), 412),
            (format!("Range: bytes=0-9\r\nIf-Range: {tag}\r\n"), 206),
            ("Range: bytes=0-9\r\nIf-Range: \"other\"\r\n".to_owned(), 200),
        ] {
            assert_eq!(client.get_with(name, &lines).status, status, "{name} {lines}");
        }
    }
    server.stop_well();
}

#[test]
fn precompressed_siblings_go_to_accepting_clients() {
    let files = Files::new();
    for (name, contents) in [("/a.js", "plain, long enough"), ("/a.js.gz", "gzip..."), ("/a.js.br", "br")] {
        files.write(name, contents);
    }
    let server = Server::start(&files.root(), &[]);
    let mut client = server.client();
    for (accepted, coding, text) in [
        ("gzip", Some("gzip"), "gzip..."),
        ("gzip, br", Some("br"), "br"),
        ("identity", None, "plain, long enough"),
        ("deflate", None, "plain, long enough"),
    ] {
        let response = client.get_with("/a.js", &format!("Accept-Encoding: {accepted}\r\n"));
        assert_eq!((response.field("content-encoding"), response.text()), (coding, text));
        assert_eq!(response.field("vary"), Some("Accept-Encoding"));
        assert_eq!(response.field("content-type"), Some("text/javascript; charset=utf-8"));
    }
    server.stop_well();
}

/// The scheduling policy of the server's thread with this name, as the kernel numbers it.
fn policy_of(server: &Server, name: &str) -> Option<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.process())).unwrap();
    let stats = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok());
    let found = stats.into_iter().find(|stat| stat.contains(&format!("({name})")))?;
    // The 41st of the fields, of which the name is the second.
    found.rsplit(')').next()?.split_whitespace().nth(38)?.parse().ok()
}

#[test]
fn compressing_thread_is_idle_to_the_kernel() {
    const SCHED_IDLE: u32 = 5;
    let files = Files::new();
    files.write("/a.css", "p { color: red }\n".repeat(1000));
    let mut server = Server::start(&files.root(), &["--workers=1", "--compress"]);
    let mut client = server.client();
    server.eventually_of("compressed", |_| {
        let response = client.get_with("/a.css", "Accept-Encoding: gzip\r\n");
        response.field("content-encoding") == Some("gzip")
    });
    assert_eq!(policy_of(&server, "compress"), Some(SCHED_IDLE));
    server.stop_well();
}
