//! HTTP/1.1 over a real socket: methods, versions, dropped content, and hostile input.

use crate::common::{Files, Server, Status, on_every_mechanism, pattern};

#[test]
fn a_head_has_the_fields_of_a_get_and_no_content() {
    let files = Files::new();
    on_every_mechanism(|mechanism| {
        let server = Server::sped(&files.root(), mechanism, &[]);
        let mut client = server.client();
        for (name, length) in [Files::SMALL, Files::MEDIUM, Files::LARGE] {
            client.send(format!("HEAD {name} HTTP/1.1\r\nHost: x\r\n\r\n"));
            let head = client.response_to_head();
            assert_eq!(head.status, 200);
            assert_eq!(head.field("content-length"), Some(&*length.to_string()));
            // The GET uses the same connection, which shows that no content followed the head.
            let get = client.get(name);
            assert_eq!(get.field("etag"), head.field("etag"));
            assert_eq!(get.body.len(), length);
        }
        server.stop_well();
    });
}

#[test]
fn http_1_0_ends_after_the_answer_unless_asked_not_to() {
    let files = Files::new();
    on_every_mechanism(|mechanism| {
        let server = Server::sped(&files.root(), mechanism, &[]);
        for (name, length) in [Files::SMALL, Files::LARGE] {
            let mut client = server.client();
            client.send(format!("GET {name} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
            let response = client.response();
            assert_eq!(response.field("connection"), Some("keep-alive"));
            assert!(response.body == pattern(length));
            client.send(format!("GET {name} HTTP/1.0\r\n\r\n"));
            assert!(client.response().body == pattern(length));
            assert!(client.ends());
        }
        server.stop_well();
    });
}

#[test]
fn content_is_read_and_thrown_away() {
    let files = Files::new();
    on_every_mechanism(|mechanism| {
        let mut server = Server::sped(&files.root(), mechanism, &["--max-body=300KiB"]);
        let mut client = server.client();
        // The content is larger than one read, and the next request follows it.
        client.send("PUT /new.bin HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n");
        client.send(vec![b'\n'; 200_000]);
        client.send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.send("5\r\nhello\r\n0\r\n\r\n");
        client.send_get(Files::SMALL.0, "");
        for _ in 0..2 {
            let refused = client.response();
            assert_eq!((refused.status, refused.field("allow")), (405, Some("GET, HEAD, OPTIONS")));
        }
        assert!(client.response().body == pattern(Files::SMALL.1));
        assert!(!files.path("/new.bin").exists());
        client.send("PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 400000\r\n\r\n");
        let refused = client.response();
        assert_eq!((refused.status, refused.says_close()), (413, true));
        assert!(client.ends());
        drop(client);
        server.eventually("counted", |status| status.count("refused_content_too_large") == 1);
        server.stop_well();
    });
}

#[test]
fn a_method_is_refused_before_its_content_arrives() {
    let files = Files::new();
    on_every_mechanism(|mechanism| {
        let server = Server::sped(&files.root(), mechanism, &[]);
        let mut client = server.client();
        client.send("POST /small.bin HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n");
        let refused = client.response();
        assert_eq!((refused.status, refused.says_close()), (405, false));
        client.send("data");
        assert_eq!(client.get(Files::SMALL.0).status, 200);
        // The server sends no 100 (Continue) and ends the connection, because the content may come or not.
        client.send("PUT / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
        let refused = client.response();
        assert_eq!((refused.status, refused.says_close()), (405, true));
        assert!(client.ends());
        // The server waits for the end of a client that it has refused.
        drop(client);
        server.stop_well();
    });
}

#[test]
fn a_request_that_is_served_gets_100_continue() {
    let files = Files::new();
    on_every_mechanism(|mechanism| {
        let server = Server::sped(&files.root(), mechanism, &[]);
        let mut client = server.client();
        client.send_get(Files::SMALL.0, "Expect: 100-continue\r\nContent-Length: 4\r\n");
        assert_eq!(client.response().status, 100);
        client.send("data");
        assert!(client.response().body == pattern(Files::SMALL.1));
        server.stop_well();
    });
}

#[test]
fn other_protocols_are_refused_at_once() {
    let files = Files::new();
    on_every_mechanism(|mechanism| {
        let mut server = Server::sped(&files.root(), mechanism, &[]);
        // None of these ends a line: the server refuses them before a line ends.
        for (hello, status) in [
            (&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..], 400),
            (b"SSH-2.0-OpenSSH_9.2p1 Debian-2", 400),
            (b"GET / HTTP/5.6", 505),
            (b"\0\0\0", 400),
        ] {
            let mut client = server.client();
            client.send(hello);
            let response = client.response();
            assert_eq!((response.status, response.says_close()), (status, true), "{}", hello.escape_ascii());
            assert!(client.ends());
        }
        assert_eq!(
            server.eventually("closed", |status| status.count("closed") == 4).count("timeouts_header"),
            0
        );
        server.stop_well();
    });
}

#[test]
fn targets_in_every_form() {
    let files = Files::new();
    let server = Server::start(&files.root(), &[]);
    let mut client = server.client();
    for (target, status) in [
        ("http://inrush.test/small.bin", 200),
        ("http://elsewhere.test:81/small.bin?query", 200),
        ("http://inrush.test", 200),
        ("/%73mall.bin", 200),
        ("/folder/../small.bin", 200),
        ("/folder", 301),
        ("/folder/", 404),
        ("/nothing", 404),
        ("/.hidden", 404),
        ("/..%2f..%2fetc/passwd", 400),
        ("/../../etc/passwd", 400),
    ] {
        assert_eq!(client.get(target).status, status, "{target}");
    }
    client.send("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n");
    let response = client.response();
    assert_eq!((response.status, response.field("allow")), (204, Some("GET, HEAD, OPTIONS")));
    server.stop_well();
}

/// Input that the server refuses, with the status of the refusal.
fn hostile() -> Vec<(Vec<u8>, u16)> {
    let get = |lines: &str| format!("GET / HTTP/1.1\r\n{lines}\r\n").into_bytes();
    let post = |lines: &str| format!("POST / HTTP/1.1\r\nHost: x\r\n{lines}").into_bytes();
    vec![
        (get(""), 400),
        (get("Host: x\r\nHost: y\r\n"), 400),
        (get("Host : x\r\n"), 400),
        (get("Host: x\r\n folded\r\n"), 400),
        (get("Host: x\r\nBad\u{0}: y\r\n"), 400),
        (get("Host: x\r\nA: b\rc\r\n"), 400),
        (b"GET / HTTP/1.1\nHost: x\n\n".to_vec(), 400),
        (b"GET  / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(), 400),
        (b"GET / HTTP/1.1 \r\nHost: x\r\n\r\n".to_vec(), 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n".to_vec(), 400),
        (b"\r\n".repeat(100), 400),
        (b"GET / HTTP/2.0\r\nHost: x\r\n\r\n".to_vec(), 505),
        (b"CONNECT x:80 HTTP/1.1\r\nHost: x:80\r\n\r\n".to_vec(), 501),
        (get("Host: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n"), 400),
        (get("Host: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n"), 400),
        (get("Host: x\r\nContent-Length: -1\r\n"), 400),
        (get("Host: x\r\nContent-Length: 99999999999999999999\r\n"), 413),
        (get("Host: x\r\nTransfer-Encoding: gzip, chunked\r\n"), 501),
        (get("Host: x\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"), 400),
        (get("Host: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n"), 400),
        (get("Host: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n"), 400),
        (get("Host: x\r\nTransfer-Encoding: chunked\r\n\r\n3;\r\nabc\r\n0\r\n"), 400),
        (get("Host: [:::]\r\n"), 400),
        (post("Content-Length: 1073741824\r\n\r\n"), 413),
        (format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(9000)).into_bytes(), 414),
        (vec![b'a'; 100_000], 414),
        (get(&format!("Host: x\r\nA: {}\r\n", "b".repeat(20_000))), 431),
        (get(&format!("Host: x\r\n{}", "A: b\r\n".repeat(101))), 431),
        (get("Host: x\r\nExpect: miracles\r\n"), 417),
    ]
}

#[test]
fn hostile_input_is_refused_and_hurts_nobody_else() {
    let files = Files::new();
    on_every_mechanism(|mechanism| {
        let mut server = Server::sped(&files.root(), mechanism, &[]);
        let mut bystander = server.client();
        for (input, status) in hostile() {
            let shown = String::from_utf8_lossy(&input[..input.len().min(80)]).into_owned();
            let mut client = server.client();
            client.send(&input);
            let response = client.response();
            assert_eq!(response.status, status, "{shown:?}");
            assert!(response.says_close(), "{shown:?}");
            assert!(client.ends(), "{shown:?}");
            drop(client);
            assert!(bystander.get(Files::SMALL.0).body == pattern(Files::SMALL.1), "{shown:?}");
        }
        let refused = hostile().len() as u64;
        // A loop publishes a reply's counts after the client has the reply.
        let published =
            |status: &Status| ["closed", "responses_2xx"].iter().all(|name| status.count(name) >= refused);
        let status = server.eventually("all closed and counted", published);
        assert_eq!(status.count("responses_4xx") + status.count("responses_5xx"), refused);
        assert_eq!((status.count("closed"), status.count("responses_2xx")), (refused, refused));
        server.stop_well();
    });
}
