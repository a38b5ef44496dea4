//! Requests from files against a small shop: a login, a cookie, a token, users from a CSV file, and bodies.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use load::{Config, DataOrder};
use record::{LoadResult, Outcome};

use super::servers::Server;
use super::{all_at_the_beginning, assert_all, config, run};

/// A request as the shop heard it.
#[derive(Clone, Debug, Default)]
struct Heard {
    line: String,
    fields: BTreeMap<String, String>,
    content: String,
}

fn read(stream: &mut BufReader<TcpStream>) -> Option<Heard> {
    let mut heard = Heard::default();
    stream.read_line(&mut heard.line).ok().filter(|length| *length > 0)?;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        heard.fields.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length = heard.fields.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut content = vec![0; length];
    stream.read_exact(&mut content).ok()?;
    heard.content = String::from_utf8(content).unwrap();
    Some(heard)
}

/// The shop's answer: a login gives a cookie and a token for the user, and everything else needs both.
fn answer(heard: &Heard) -> (u16, String, String) {
    let path = heard.line.split(' ').nth(1).unwrap_or_default();
    if path == "/open" {
        return (200, String::new(), "open".to_owned());
    }
    if path == "/login" {
        let user: serde_json::Value = serde_json::from_str(&heard.content).unwrap_or_default();
        let Some(user) = user["user"].as_str() else { return (400, String::new(), "need json".to_owned()) };
        let cookie = format!("Set-Cookie: id={user}; Path=/; HttpOnly\r\nLocation: /cart/{user}\r\n");
        return (200, cookie, format!("{{\"auth\": {{\"token\": \"t-{user}\"}}}}"));
    }
    let field = |name: &str| heard.fields.get(name).map_or("", String::as_str);
    let user = field("cookie").strip_prefix("id=").unwrap_or("nobody");
    let is_known = field("authorization") == format!("Bearer t-{user}") && path == format!("/cart/{user}");
    if is_known {
        (200, String::new(), format!("cart of {user}"))
    } else {
        (401, String::new(), String::new())
    }
}

struct Shop {
    server: Server,
    heard: Arc<Mutex<Vec<Heard>>>,
    folder: tempfile::TempDir,
}

impl Shop {
    fn open() -> Shop {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let diary = Arc::clone(&heard);
        let server = Server::accepting(move |stream| {
            let mut out = stream.try_clone().unwrap();
            let mut stream = BufReader::new(stream);
            while let Some(request) = read(&mut stream) {
                let (status, fields, content) = answer(&request);
                let is_last = request.fields.get("connection").is_some_and(|value| value == "close");
                diary.lock().unwrap().push(request);
                let length = content.len();
                let head =
                    format!("HTTP/1.1 {status} X\r\n{fields}Content-Length: {length}\r\n\r\n{content}");
                if out.write_all(head.as_bytes()).is_err() || is_last {
                    break;
                }
            }
        });
        Shop { server, heard, folder: tempfile::tempdir().unwrap() }
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn config(&self, requests: &str) -> Config {
        let file = self.file("requests.jsonl", requests);
        Config { requests: Some(file.parse().unwrap()), ..config(&self.server) }
    }

    fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone()
    }
}

const SESSION: &str = r#"[{"method": "POST", "path": "/login", "body": {"user": "{{user}}"}, "capture": {"token": "/auth/token", "cart": "header:location"}}, {"path": "{{cart}}", "headers": {"Authorization": "Bearer {{token}}"}, "expect_text": "cart of "}]"#;

#[track_caller]
fn of_each_request(result: &LoadResult) -> u64 {
    assert_all(result, Outcome::Ok);
    result.outcomes.get(Outcome::Ok)
}

#[test]
fn session_logs_in_and_goes_on_with_cookie_and_token() {
    let shop = Shop::open();
    let mut config = shop.config(SESSION);
    config.data = Some(shop.file("users.csv", "user\nann\nbob\ncy\n").parse().unwrap());
    let result = run(all_at_the_beginning(400, config.clone()));
    assert_eq!(of_each_request(&result), 200, "100 sessions of two requests");
    let users: Vec<String> =
        shop.heard().iter().filter_map(|heard| heard.fields.get("cookie").cloned()).collect();
    for user in ["ann", "bob", "cy"] {
        let count = users.iter().filter(|cookie| **cookie == format!("id={user}")).count();
        assert!(count.abs_diff(users.len() / 3) <= 1, "{user}: {count} of {}", users.len());
    }
    config.data_order = DataOrder::Random;
    of_each_request(&run(config));
}

#[test]
fn reply_without_its_value_is_wrong() {
    let shop = Shop::open();
    let text =
        r#"[{"path": "/open", "capture": {"token": "/auth/token"}}, {"path": "/open", "think": "1ms"}]"#;
    let result = run(all_at_the_beginning(400, shop.config(text)));
    let [wrong, right] = [Outcome::WrongBody, Outcome::Ok].map(|outcome| result.outcomes.get(outcome));
    assert_eq!((wrong, right), (100, 100), "{:?}", result.outcomes);
}

#[test]
fn expected_text_is_looked_for() {
    let shop = Shop::open();
    assert_all(&run(shop.config(r#"{"path": "/open", "expect_text": "pe"}"#)), Outcome::Ok);
    assert_all(&run(shop.config(r#"{"path": "/open", "expect_text": "closed"}"#)), Outcome::WrongBody);
}

#[test]
fn table_requests_have_methods_bodies_and_statuses() {
    let shop = Shop::open();
    let body = shop.file("body.json", r#"{"user": "ann"}"#);
    let text = format!(
        r#"{{"method": "POST", "path": "/login", "body": "@{body}"}}
        {{"method": "PUT", "path": "/login", "body": "no json", "expect": 400}}
        {{"path": "/cart/x", "expect": [401]}}"#
    );
    let result = run(shop.config(&text));
    assert_eq!(of_each_request(&result), 100);
    let heard = shop.heard();
    let of = |line: &str| heard.iter().filter(|heard| heard.line.starts_with(line)).count();
    let counts = ["POST /login ", "PUT /login ", "GET /cart/x "].map(of);
    assert!(
        counts.iter().all(|count| *count > 10) && counts.iter().sum::<usize>() == heard.len(),
        "{counts:?}"
    );
    assert!(heard.iter().any(|heard| heard.content == r#"{"user": "ann"}"#));
}

#[test]
fn counter_and_random_differ_between_sessions() {
    let shop = Shop::open();
    let mut config = shop.config(r#"{"path": "/{{counter}}/{{random:1..6}}", "expect": 401}"#);
    config.threads = std::num::NonZeroU32::new(2).unwrap();
    of_each_request(&run(config));
    let lines: Vec<String> = shop.heard().into_iter().map(|heard| heard.line).collect();
    let numbers: std::collections::BTreeSet<&str> =
        lines.iter().filter_map(|line| line.split('/').nth(1)).collect();
    assert_eq!(numbers.len(), lines.len(), "every session has a number of its own");
    let dice: std::collections::BTreeSet<&str> =
        lines.iter().filter_map(|line| line.split(['/', ' ']).nth(3)).collect();
    assert_eq!(dice, ["1", "2", "3", "4", "5", "6"].into());
}

#[test]
fn settings_that_a_script_cannot_have_are_refused() {
    let shop = Shop::open();
    let config = shop.config(&SESSION.replace("{{user}}", "ann"));
    let told = |change: &dyn Fn(&mut Config)| {
        let mut config = config.clone();
        change(&mut config);
        load::prepare(config).unwrap_err().to_string()
    };
    assert!(told(&|config| config.retry = "fixed:1s".parse().unwrap()).contains("leave --retry fixed"));
    assert!(told(&|config| config.streams = std::num::NonZeroU32::new(2)).contains("leave --http2 out"));
    assert!(told(&|config| config.populations = vec!["hot:2".parse().unwrap()]).contains("--population"));
    let length = told(&|config| config.requests_per_connection = Some("3".parse().unwrap()));
    assert!(length.contains("leave --requests-per-connection 3 out"), "{length}");
    let mut plain = shop.config(r#"{"path": "/open"}"#);
    plain.data = Some(shop.file("users.csv", "user\nann\n").parse().unwrap());
    assert!(load::prepare(plain).unwrap_err().to_string().contains("--data has no {{name}}"));
}
