//! `inrush load compare`: two results side by side.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::common::{Files, Server};
use super::{inrush, refused, said, written};

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
