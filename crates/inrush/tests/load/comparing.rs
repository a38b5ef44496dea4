//! `inrush load compare`: two results side by side.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::common::{Files, Server};
use super::{inrush, refused, said, written};
use crate::schema::obeys_schema;

/// Stores the result of a short run in a file.
fn run(server: &Server, path: &Path, flags: &[&str]) {
    let url = format!("http://{}/index.html", server.address);
    let fixed = ["load", &url, "--rate=50", "--duration=2s", "--warmup=0s", "--output=json"];
    fs::write(path, written(&[&fixed, flags].concat())).unwrap();
}

#[test]
fn compared_results_are_a_table_of_differences() {
    let (files, folder) = (Files::new(), tempfile::tempdir().unwrap());
    files.write("index.html", b"hello");
    let server = Server::start(&files.root(), &["--arch=sped"]);
    let (first, second) = (folder.path().join("a.json"), folder.path().join("b.json"));
    run(&server, &first, &[]);
    run(&server, &second, &["--threads=2"]);
    let (a, b) = (first.to_str().unwrap(), second.to_str().unwrap());
    let table = inrush(&["load", "compare", a, b], 0);
    let out = String::from_utf8(table.get_output().stdout.clone()).unwrap();
    for part in [
        "a.json, 2 measured intervals",
        "goodput",
        "latency p99.9",
        "cannot be told",
        "one run of the same server to the next",
        "a.json has 2 measured interval(s), too few",
        "differ in threads: '1' in A, '2' in B",
    ] {
        assert!(out.contains(part), "no {part:?} in: {out}");
    }
    assert_eq!(said(&table), "");
    let object = inrush(&["load", "compare", a, b, "--output=json"], 0);
    let object: Value = serde_json::from_slice(&object.get_output().stdout).unwrap();
    obeys_schema(&object, "load-comparison");
    assert_eq!(object["schema"], "inrush.load-comparison/1");
    assert_eq!(
        (&object["rows"][0]["metric"], &object["rows"][0]["change"]),
        (&"goodput_per_s".into(), &"unknown".into())
    );
}

#[test]
fn files_that_are_no_results_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (other, broken) =
        (write("other.json", "{\"schema\": \"inrush.capacity/1\"}"), write("broken.json", "{"));
    let accepted = "expected what inrush load --output json writes";
    refused(&["load", "compare", &other, &other], 2, &["other.json is not such a record", accepted]);
    refused(&["load", "compare", &broken, &other], 2, &["broken.json is not such a record", accepted]);
    refused(&["load", "compare", "/no/such", &other], 2, &["cannot read /no/such", accepted]);
    refused(&["load", "compare", &other], 2, &["B.json"]);
    refused(&["load", "--rate=5", "compare", &other, &other], 2, &["compare"]);
}

/// A stored result with these 99th percentiles for each run, made from one run.
fn runs_with_p99(folder: &Path, stored: &str, name: &str, times_ms: &[u64]) -> Vec<String> {
    let mut result: Value = serde_json::from_str(stored).unwrap();
    let write = |(number, ms): (usize, &u64)| {
        result["latency_intended_ns"]["p99"] = (ms * 1_000_000).into();
        let path = folder.join(format!("{name}{number}.json"));
        fs::write(&path, serde_json::to_vec(&result).unwrap()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    times_ms.iter().enumerate().map(write).collect()
}

/// The stored result of a run against a server of its own.
fn stored_run(folder: &Path) -> String {
    let files = Files::new();
    files.write("index.html", b"hello");
    let server = Server::start(&files.root(), &["--arch=sped"]);
    let path = folder.join("run.json");
    run(&server, &path, &[]);
    fs::read_to_string(path).unwrap()
}

#[test]
fn several_runs_decide_thresholds_by_their_scatter() {
    let folder = tempfile::tempdir().unwrap();
    let stored = stored_run(folder.path());
    let of = |name, times: &[u64]| runs_with_p99(folder.path(), &stored, name, times);
    let compare = |first: &[String], second: &[String], code| {
        let words = ["load", "compare", "--fail-if=p99>1.1x"].map(str::to_owned);
        let words = [&words, first, &["--".to_owned()], second].concat();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let out = inrush(&words, code);
        (String::from_utf8(out.get_output().stdout.clone()).unwrap(), said(&out))
    };
    let before = of("before", &[10, 11, 10]);
    let (out, said) = compare(&before, &of("slow", &[78, 80, 79]), 4);
    assert!(out.contains("FAIL  fails if p99>1.1x: 7.6"), "{out}");
    assert!(said.contains("p99>1.1x: 7.6") && said.lines().count() == 1, "{said}");
    let (out, _) = compare(&before, &of("same", &[10, 10, 11]), 0);
    assert!(out.contains("fails if p99>1.1x: 1×"), "{out}");
    let (out, _) = compare(&of("one", &[10]), &of("other", &[78]), 0);
    assert!(out.contains("undecided") && out.contains("; 2 runs of each would decide it"), "{out}");
}

/// A stored result with twenty measured seconds: in each the server ends `answered` of 200 requests, and `errors` fail.
fn long_run(folder: &Path, stored: &str, name: &str, (answered, errors): (u64, u64)) -> String {
    let mut result: Value = serde_json::from_str(stored).unwrap();
    let mut second = result["series"][0].clone();
    for (key, count) in [("offered", 200), ("sent", 200), ("replies", answered), ("good", answered)] {
        second[key] = count.into();
    }
    second["outcomes"] = json!({ "ok": answered, "reset": errors });
    let latency = &mut second["latency_intended_ns"];
    (latency["count"], latency["unanswered"]) = (answered.into(), errors.into());
    let points = (1..=20_u32).map(|at| {
        (second["at_s"], second["interval_s"]) = (at.into(), 1_u32.into());
        second.clone()
    });
    result["series"] = points.collect();
    result["in_flight_at_end"] = (20 * (200 - answered - errors)).into();
    let path = folder.join(name);
    fs::write(&path, serde_json::to_vec(&result).unwrap()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn documents_with_infinite_numbers_obey_schemas() {
    let folder = tempfile::tempdir().unwrap();
    let stored = stored_run(folder.path());
    let of = |name, counts| long_run(folder.path(), &stored, name, counts);
    let (whole, flawed, silent) = (of("whole", (200, 0)), of("flawed", (197, 3)), of("silent", (0, 0)));
    let compared = |words: &[&str]| {
        let words = [&["load", "compare", "--output=json", "--fail-if=p99>100x"], words].concat();
        let out = written(&words);
        serde_json::from_slice::<Value>(&out).unwrap()
    };
    for other in [&flawed, &silent] {
        let pair = compared(&[&whole, other]);
        obeys_schema(&pair, "load-comparison");
        let errors = &pair["rows"][2];
        assert!(errors["ratio"].is_null() && errors["ci95"].is_object(), "{errors}");
        assert!(errors["ci95"]["high"].is_null(), "{errors}");
        assert_eq!(errors["change"], "worse");
        assert_eq!(pair["thresholds"][0]["threshold"], "p99>100x");
        let several = compared(&[&whole, &whole, "--", other, other]);
        obeys_schema(&several, "load-runs");
        assert_eq!(several["schema"], "inrush.load-runs/1");
        assert_eq!(several["thresholds"][0]["threshold"], "p99>100x");
    }
}

#[test]
fn outputs_of_one_run_go_to_files_and_are_made_again() {
    let (files, folder) = (Files::new(), tempfile::tempdir().unwrap());
    files.write("index.html", b"hello");
    let server = Server::start(&files.root(), &["--arch=sped"]);
    let url = format!("http://{}/index.html", server.address);
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let forms = ["json", "html", "csv", "ndjson", "junit", "markdown"];
    let outputs: Vec<String> = forms.iter().map(|form| format!("--output={form}={}", path(form))).collect();
    let short = ["load", &url, "--rate=50", "--duration=1s", "--warmup=0s", "--fail-if=p99>1h", "-o", "text"];
    let words: Vec<&str> = short.into_iter().chain(outputs.iter().map(String::as_str)).collect();
    let text = String::from_utf8(written(&words)).unwrap();
    assert!(text.starts_with("50/s were offered for 1 s, "), "{text}");
    let read = |name: &str| fs::read_to_string(path(name)).unwrap();
    assert!(read("junit").contains(r#"name="fails if p99&gt;1h"/>"#), "{}", read("junit"));
    assert!(read("markdown").starts_with("**50"), "{}", read("markdown"));
    assert_eq!(read("ndjson").lines().last().unwrap().find(r#"{"type":"result""#), Some(0));
    // A number that was read from JSON may differ in its last digit, which the other formats do not show.
    for form in forms.into_iter().filter(|form| !form.ends_with("json")) {
        let again = inrush(&["load", "report", &path("json"), "-o", &format!("{form}={}", path("again"))], 0);
        assert_eq!(said(&again), "");
        assert_eq!(read("again"), read(form), "{form}");
    }
    let again = inrush(&["load", "report", &path("json")], 0);
    assert_eq!(String::from_utf8_lossy(&again.get_output().stdout), text);
    refused(&["load", &url, "-o", "text", "-o", "json"], 2, &["both go to standard output", "json=FILE"]);
    refused(
        &["load", &url, "-o", "json=/no/such/x"],
        2,
        &["--output json=/no/such/x: cannot write the file"],
    );
    refused(&["load", &url, "-o", "yaml"], 2, &["expected FORMAT or FORMAT=FILE, of text, json, "]);
}
