//! The commands of the pages about load: each one is accepted, word for word.
//!
//! A run is planned and not carried out. A search for the capacity asks a closed port, which ends it. What is compared
//! and reported is the result of a short run.

use std::fs;
use std::path::Path;

use assert_cmd::Command;
use tempfile::TempDir;

use super::closed_port::closed_port;
use super::common::{Files, Server};
use super::{PATIENCE, written};

/// The pages, with the number of their commands at least.
const PAGES: [(&str, usize); 6] = [
    ("docs/load.md", 30),
    ("docs/coming-from.md", 3),
    ("docs/tasks/api.md", 3),
    ("docs/tasks/capacity.md", 5),
    ("docs/tasks/ci.md", 3),
    ("docs/tasks/rush.md", 1),
];

/// The program as a function of the shell, so that the shell splits the words.
const FUNCTION: &str = r#"
inrush() {
    case "$*" in
        "load compare"* | "load report"* | "load calibrate"* | *--dry-run* | capacity*) "$PROGRAM" "$@" ;;
        load*) "$PROGRAM" "$@" --dry-run ;;
    esac
}
"#;

/// The commands of a page that stand in lines or cells of their own.
fn commands(page: &str) -> Vec<String> {
    let joined = page.replace("\\\n", " ");
    let cells = joined.lines().filter(|line| line.starts_with('|')).flat_map(|line| line.split('`'));
    let lines = joined.lines().map(str::trim_start);
    let is_command = |text: &&str| text.starts_with("inrush load ") || text.starts_with("inrush capacity ");
    lines.chain(cells).filter(is_command).map(str::to_owned).collect()
}

/// A folder with the files that the commands name, and the result among them.
fn folder() -> (TempDir, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &[u8]| fs::write(folder.path().join(name), text).unwrap();
    let files = Files::new();
    files.write("index.html", b"hello");
    let server = Server::start(&files.root(), &["--arch=sped"]);
    let url = format!("http://{}/", server.address);
    let run = written(&["load", &url, "--rate=200", "--duration=1s", "--warmup=0s", "--output=json"]);
    for name in ["run", "before", "after", "before-1", "before-2", "after-1", "after-2"] {
        write(&format!("{name}.json"), &run);
    }
    for name in ["before", "after"] {
        fs::create_dir(folder.path().join(name)).unwrap();
        write(&format!("{name}/run-1.json"), &run);
        write(&format!("{name}/run-2.json"), &run);
    }
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (certified.cert.pem(), certified.signing_key.serialize_pem());
    write("cert.pem", certificate.as_bytes());
    write("client.pem", (certificate + &key).as_bytes());
    write("client.key", key.as_bytes());
    write("body.json", br#"{"name": "tea"}"#);
    write("requests.jsonl", br#"{"path": "/items", "name": "list"}"#);
    write("replay.jsonl", br#"{"path": "/items", "at": 0.5}"#);
    write("access.log", b"::1 - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200 5\n");
    write("session.jsonl", br#"[{"path": "/login", "body": {"user": "{{user}}"}}]"#);
    write("users.csv", b"user,password\nann,red\n");
    (folder, run)
}

#[test]
fn documented_commands_are_accepted() {
    let (folder, result) = folder();
    let nobodys = closed_port();
    let url = format!("http://{}", nobodys.local_addr().unwrap());
    let request = serde_json::json!({"method": "GET", "url": format!("{url}/")});
    let entry = serde_json::json!({"startedDateTime": "2026-01-01T10:00:00Z", "request": request});
    let archive = serde_json::json!({"log": {"entries": [entry]}});
    fs::write(folder.path().join("page.har"), archive.to_string()).unwrap();
    for (page, least) in PAGES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
        let commands = commands(&fs::read_to_string(path).unwrap());
        assert!(commands.len() >= least, "{page} has {} commands", commands.len());
        for command in commands {
            // A planned run may have written its plan to it.
            fs::write(folder.path().join("run.json"), &result).unwrap();
            let here = command.replace("http://127.0.0.1:8080", &url);
            let run = Command::new("sh")
                .args(["-c", &format!("{FUNCTION}\n{here}")])
                .current_dir(folder.path())
                .env("PROGRAM", env!("CARGO_BIN_EXE_inrush"))
                .env("URL", format!("{url}/"))
                .timeout(PATIENCE)
                .output()
                .unwrap();
            let expected = if here.starts_with("inrush capacity") { 3 } else { 0 };
            let said = String::from_utf8_lossy(&run.stderr);
            assert_eq!(run.status.code(), Some(expected), "{page}: {command}: {said}");
        }
    }
}
