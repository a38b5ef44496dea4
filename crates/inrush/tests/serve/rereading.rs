//! SIGHUP: the server reads the config file again and applies the changes that it can.

use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;

use assert_cmd::Command;
use rustix::process::Signal;
use sys::process::Program;

use crate::common::{Files, PATIENCE, PROGRAM, Server, send};

struct Reread {
    files: Files,
    server: Server,
}

impl Reread {
    fn start(flags: &[&str], text: &str) -> Reread {
        let files = Files::new();
        std::fs::write(files.beside("inrush.toml"), text).unwrap();
        let config = format!("--config={}", files.beside("inrush.toml").display());
        let server = Server::start(&files.root(), &[flags, &[&config]].concat());
        Reread { files, server }
    }

    fn config(&self) -> impl AsRef<Path> {
        self.files.beside("inrush.toml")
    }

    fn hang_up_with(&mut self, text: &str) {
        // The file changes atomically, because an earlier signal may make the server read it at this moment.
        std::fs::write(self.files.beside("newest.toml"), text).unwrap();
        std::fs::rename(self.files.beside("newest.toml"), self.config()).unwrap();
        self.server.signal(Signal::HUP);
    }

    /// Waits until a request with `fields` fields gets the status `expected`.
    fn answers(&mut self, fields: usize, expected: u16) {
        let lines = "X: y\r\n".repeat(fields);
        self.server.eventually_of("the new limit", |server| {
            server.client().get_with(Files::SMALL.0, &lines).status == expected
        });
    }
}

/// Every way in which limits reach the serving threads and processes.
const ARCHITECTURES: [&[&str]; 5] = [
    &["--arch=sped"],
    &["--arch=mt", "--workers=3"],
    &["--arch=knot-c", "--workers=3"],
    &["--arch=mp", "--workers=3"],
    &["--arch=amped", "--helpers=2"],
];

#[test]
fn what_can_change_does_and_what_cannot_is_named() {
    for flags in ARCHITECTURES {
        println!("{flags:?}");
        let mut reread = Reread::start(flags, "max-fields = 5\naccept-limit = 3\n");
        reread.answers(10, 431);
        reread.hang_up_with("max-fields = 20\naccept-limit = 4\nbacklog = 9\nburn = '1us'\n");
        reread.answers(10, 200);
        assert_eq!(reread.server.status().0["accept_limit"], "4");
        let (code, said) = reread.server.stop();
        assert_eq!(code, Some(0));
        let expected = "inrush: changed: accept-limit, max-fields\ninrush: needs a restart: backlog, burn\n";
        assert_eq!(said, expected);
    }
}

#[test]
fn new_header_timeout_holds_for_the_next_connection() {
    for flags in [
        &["--arch=sped"][..],
        &["--arch=mt", "--threads=per-connection"],
        &["--arch=mp", "--processes=per-connection"],
    ] {
        println!("{flags:?}");
        let mut reread = Reread::start(flags, "header-timeout = '1h'\n");
        reread.hang_up_with("header-timeout = '1s'\nmax-fields = 5\n");
        reread.answers(10, 431);
        assert!(reread.server.client().ends(), "a silent client is cut off");
    }
}

#[test]
fn a_broken_file_changes_nothing() {
    let mut reread = Reread::start(&["--arch=sped"], "max-fields = 5\n");
    for broken in ["max-fields = 'many'\n", "max-fields = \n", "max-feelds = 9\n"] {
        reread.hang_up_with(broken);
        // Otherwise several signals may share one reading, which finds the last file.
        let said = reread.server.says();
        assert!(said.starts_with("inrush: the configuration stays as it was: "), "{broken:?}: {said}");
        reread.answers(10, 431);
    }
    reread.hang_up_with("max-fields = 20\n");
    reread.answers(10, 200);
    assert_eq!(reread.server.stop(), (Some(0), "inrush: changed: max-fields\n".to_owned()));
}

#[test]
fn partial_config_file_changes_nothing_and_is_named() {
    for (incomplete, expected) in [
        ("", "it has no settings any more"),
        ("# to be written\n", "it has no settings any more"),
        ("max-fields = 50\nidle-timeout = '2", "its last line does not end"),
        ("max-fields = 50\nidle-timeout = \n", "line 2: "),
        ("max-fields = 5", "its last line does not end"),
    ] {
        let mut reread = Reread::start(&["--arch=sped"], "max-fields = 7\naccept-limit = 3\n");
        reread.hang_up_with(incomplete);
        let said = reread.server.says();
        assert!(said.starts_with("inrush: the configuration stays as it was: --config "), "{said}");
        assert!(said.contains(expected), "{said}");
        reread.answers(5, 200);
        reread.answers(10, 431);
        assert_eq!(reread.server.status().0["accept_limit"], "3");
        reread.hang_up_with("max-fields = 20\naccept-limit = 3\n");
        reread.answers(10, 200);
        assert_eq!(reread.server.stop().0, Some(0));
    }
}

#[test]
fn a_file_that_was_empty_at_the_start_may_be_empty() {
    let mut reread = Reread::start(&["--arch=sped"], "");
    reread.hang_up_with("max-fields = 5\n");
    reread.answers(10, 431);
    assert_eq!(reread.server.says(), "inrush: changed: max-fields\n");
    reread.hang_up_with("\n");
    assert!(reread.server.says().contains("it has no settings any more"));
    let mut reread = Reread::start(&["--arch=sped"], "");
    reread.hang_up_with("# still nothing");
    reread.hang_up_with("max-fields = 5\n");
    assert_eq!(reread.server.says(), "inrush: changed: max-fields\n");
}

#[test]
fn one_broken_file_is_named_with_what_is_wrong() {
    let mut reread = Reread::start(&["--arch=mp", "--workers=3"], "max-fields = 5\naccept-limit = 3\n");
    reread.hang_up_with("max-fields = 'many'\n");
    let said = reread.server.says();
    assert!(said.starts_with("inrush: the configuration stays as it was: "), "{said}");
    assert!(said.contains("--max-fields") && said.contains("'many'"), "{said}");
    assert_eq!(reread.server.status().0["accept_limit"], "3");
    reread.answers(10, 431);
    assert_eq!(reread.server.stop(), (Some(0), String::new()));
}

#[test]
fn admin_limit_outlives_reload_of_an_unchanged_file() {
    let mut reread = Reread::start(&["--arch=sped"], "accept-limit = 3\nmax-fields = 5\n");
    reread.server.admin.send("PUT /accept-limit HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n7");
    assert_eq!(reread.server.admin.response().status, 200);
    reread.hang_up_with("accept-limit = 3\nmax-fields = 50\n");
    reread.answers(10, 200);
    assert_eq!(reread.server.status().0["accept_limit"], "7");
    reread.hang_up_with("accept-limit = 4\nmax-fields = 50\n");
    reread.server.eventually("the file's", |status| status.0["accept_limit"] == "4");
    assert_eq!(reread.server.stop().0, Some(0));
}

/// A server that asks for a password below `/folder`, and the file with the password.
fn with_passwords(flags: &[&str]) -> (Server, std::path::PathBuf, Files) {
    let files = Files::new();
    let passwords = files.beside("passwords");
    std::fs::write(&passwords, "ann:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n").unwrap();
    let rule = format!("--auth=/folder/* {} Staff", passwords.display());
    let server = Server::start(&files.root(), &[flags, &[&rule]].concat());
    (server, passwords, files)
}

#[test]
fn broken_password_file_keeps_the_configuration() {
    for flags in [&["--arch=sped"][..], &["--arch=mp", "--workers=1"]] {
        println!("{flags:?}");
        let (mut server, passwords, _files) = with_passwords(flags);
        std::fs::write(&passwords, "x").unwrap();
        server.signal(Signal::HUP);
        let said = server.says();
        let expected = "inrush: the configuration stays as it was: the passwords in ";
        assert!(said.starts_with(expected) && said.contains("line 1"), "{said}");
        assert_eq!(server.client().get(Files::SMALL.0).status, 200);
        assert_eq!(server.stop(), (Some(0), String::new()));
    }
}

#[test]
fn worker_starts_beside_a_broken_password_file() {
    let (mut server, passwords, _files) = with_passwords(&["--arch=mp", "--workers=1"]);
    server.eventually("begun", |status| status.count("workers_started") == 1);
    std::fs::write(&passwords, "x").unwrap();
    send(server.children()[0], Signal::KILL);
    server.eventually("replaced", |status| status.count("workers_started") == 2);
    let mut client = server.client();
    assert_eq!(client.get(Files::SMALL.0).status, 200);
    assert_eq!(client.get(Files::LARGE.0).status, 500, "nobody gets in");
    drop(client);
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn config_from_a_pipe_keeps_its_rules() {
    let files = Files::new();
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(b"access = '/folder/* deny all'\n").unwrap();
    drop(writer);
    let program = Program::new(PROGRAM).reading_from(reader.as_fd());
    let flags = ["--config=/dev/stdin", "--overload=off"];
    let mut server = Server::start_by(program, &files.root(), &flags);
    server.signal(Signal::HUP);
    let said = server.says();
    let expected = "inrush: the configuration stays as it was: --config /dev/stdin: it cannot be read again";
    assert!(said.starts_with(expected), "{said}");
    let mut client = server.client();
    assert_eq!(client.get(Files::LARGE.0).status, 403);
    assert_eq!(client.get(Files::SMALL.0).status, 200);
    drop(client);
    server.stop_well();
}

#[test]
fn config_of_an_upgrading_server_is_no_pipe() {
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "--upgrade=on", "--config=/dev/stdin"]).write_stdin("backlog = 9\n");
    let assert = command.timeout(PATIENCE).assert().code(2);
    let said = String::from_utf8_lossy(&assert.get_output().stderr);
    assert!(said.contains("--config /dev/stdin") && said.contains("expected a regular file"), "{said}");
}
