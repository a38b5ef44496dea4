//! Tasks of the table in docs/load.md that no other test carries out: the ways to a server, and a row for each step.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use serde_json::Value;

use super::written;

/// Answers each request with the status and its Host field as content, and closes the connection.
fn echoing_server(status: u16) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || echo(&stream, status));
        }
    });
    address
}

fn echo(mut stream: &TcpStream, status: u16) -> Option<()> {
    let lines = BufReader::new(stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
    let host = lines.filter_map(|line| Some(line.strip_prefix("Host: ")?.to_owned())).last()?;
    let length = host.len();
    let reply = format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{host}");
    stream.write_all(reply.as_bytes()).ok()
}

#[test]
fn ways_to_a_server_keep_the_name_that_was_asked() {
    let address = echoing_server(400);
    let port = address.port();
    let (named, resolve) = (format!("http://a.test:{port}/"), format!("--resolve=a.test:{port}:127.0.0.1"));
    let connect = format!("--connect-to=b.test:80:127.0.0.1:{port}");
    for (url, flag, host) in [
        (named.as_str(), resolve.as_str(), format!("a.test:{port}")),
        ("http://b.test/", &connect, "b.test".to_owned()),
        (&format!("http://{address}/"), "--header=Host: c.test", "c.test".to_owned()),
    ] {
        let fixed = ["--rate=50", "--duration=500ms", "--warmup=0", "--output=json", "--connect-timeout=5s"];
        let result: Value =
            serde_json::from_slice(&written(&[&["load", url, flag], &fixed[..]].concat())).unwrap();
        assert_eq!(result["outcomes"]["status_error"], 25, "{flag}: {result:#}");
        assert_eq!(result["failed_replies"]["400"], host, "{flag}");
    }
}

#[test]
fn steps_ramps_and_bursts_print_their_rows() {
    let url = format!("http://{}/", echoing_server(200));
    for (arrivals, rows) in [("steps:20x1s,60x1s,20x1h", 3), ("on-off:1.8,50%,2s", 4), ("ramp:20..60", 4)] {
        let flags = ["--duration=4s", "--warmup=0", "--connect-timeout=5s"];
        let mut arguments = vec!["load", &url, "--arrivals", arrivals];
        arguments.extend(flags);
        if arrivals.starts_with("on-off") {
            arguments.push("--rate=40");
        }
        let text = String::from_utf8(written(&arguments)).unwrap();
        let table: Vec<&str> = text
            .lines()
            .skip_while(|line| !line.contains("worst p99"))
            .skip(1)
            .take_while(|line| line.contains("/s"))
            .collect();
        let table = table.iter().filter(|line| !line.starts_with("At ")).count();
        assert_eq!(table, rows, "{arrivals}: {text}");
    }
}
