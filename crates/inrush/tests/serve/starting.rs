//! The server's messages at the start, and the spellings of addresses that it takes.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;

use rustix::process::{Pid, Signal, kill_process};
use sys::process::Program;

use crate::common::{Client, Files, Server};

#[test]
fn the_start_lines_have_the_address_and_the_url() {
    let files = Files::new();
    let server = Server::start_with_control(&files.root(), &["--listen=[::1]:0", "--overload-hook=sink"]);
    let lines: Vec<&str> = server.said.lines().collect();
    let second = lines[1].strip_prefix("listening on ").unwrap().parse::<SocketAddr>().unwrap();
    assert!(second.ip().is_ipv6());
    let driver = lines.iter().find(|line| line.starts_with("driver: ")).unwrap();
    let confined = lines.iter().find(|line| line.starts_with("confined: ")).unwrap();
    assert_eq!(
        lines,
        [
            format!("listening on {}", server.address),
            format!("listening on {second}"),
            format!("serving {} at http://{}/ http://{second}/", files.root().display(), server.address),
            (*driver).to_owned(),
            "overload control: connections wait about 20ms at most, or are refused by the sink".to_owned(),
            (*confined).to_owned(),
            format!("admin on {}", server.admin_address),
        ]
    );
    server.stop_well();
}

#[test]
fn a_root_without_an_index_is_said_to_have_none() {
    let files = Files::new();
    let server = Server::start(&files.root(), &["--index=start.html"]);
    let hint = server.said.lines().find(|line| line.starts_with("inrush: ")).unwrap();
    assert!(hint.contains("no start.html in ") && hint.contains("--index NAME"), "{hint}");
    assert!(server.client().get("/").text().contains("There is no folder with start.html here"));
    server.stop_well();
}

#[test]
fn addresses_may_be_short() {
    let files = Files::new();
    // The harness adds an address of its own before this one.
    for (given, host) in
        [("0", "127.0.0.1"), ("localhost:0", "127.0.0.1"), (":0", "0.0.0.0"), ("*:0", "0.0.0.0")]
    {
        let server = Server::start(&files.root(), &["--listen", given]);
        let second =
            server.said.lines().filter_map(|line| line.strip_prefix("listening on ")).nth(1).unwrap();
        let mut address: SocketAddr = second.parse().unwrap();
        assert_eq!(address.ip().to_string(), host, "{given}");
        address.set_ip([127, 0, 0, 1].into());
        assert!(server.said.contains(&format!(" http://{address}/\n")), "{}", server.said);
        assert_eq!(Client::connect(address).get(Files::SMALL.0).status, 200);
        server.stop_well();
    }
}

#[test]
fn the_server_goes_on_when_nobody_reads_what_it_says() {
    let files = Files::new();
    let config = files.beside("inrush.toml");
    std::fs::write(&config, "max-fields = 3\n").unwrap();
    let flag = format!("--config={}", config.display());
    let root = files.root().display().to_string();
    let program = Program::new(env!("CARGO_BIN_EXE_inrush"));
    let mut child = program.arguments(["serve", "--listen=127.0.0.1:0", &flag, &root]).start().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    let address = line.trim_end().strip_prefix("listening on ").unwrap().parse().unwrap();
    drop(stderr);
    std::fs::write(&config, "max-fields = 30\n").unwrap();
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::HUP).unwrap();
    let lines = "X: y\r\n".repeat(10);
    let served = || Client::connect(address).get_with(Files::SMALL.0, &lines).status == 200;
    assert!((0..100_000).any(|_| served()), "the new limit is never in force");
}
