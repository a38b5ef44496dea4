//! Settings of `inrush load` that make no sense.

use super::refused;

const URL: &str = "http://127.0.0.1:9/";

fn check(flags: &[&str], expected: &[&str]) {
    refused(&[&["load", URL], flags].concat(), 2, expected);
}

#[test]
fn impossible_arrivals_are_named_with_the_reason() {
    check(&["--arrivals=bursty"], &["--arrivals", "'bursty'", "poisson", "pareto:ALPHA", "trace:FILE"]);
    check(&["--arrivals=on-off:6,20%"], &["--arrivals", "'on-off:6,20%'", "must be below 1"]);
    check(&["--arrivals=pareto:3"], &["--arrivals", "'pareto:3'", "between 1 and 2"]);
    check(&["--arrivals=ramp:5"], &["--arrivals", "'ramp:5'", "ramp:0..2k"]);
    check(&["--arrivals=steps:5"], &["--arrivals", "'steps:5'", "steps:100x10s"]);
    check(&["--arrivals=trace:/no/such/file"], &["--arrivals", "/no/such/file", "No such file"]);
}

#[test]
fn thread_numbers_without_use_are_refused() {
    check(&["--threads=1000000"], &["--threads 1000000: this process may use ", " CPUs; expected 1 to "]);
}

#[test]
fn control_characters_of_a_mistake_are_escaped() {
    check(&["--rate=x\ry"], &["'x\\ry'"]);
}

#[test]
fn a_wrong_line_of_a_trace_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    std::fs::write(&path, "1\n2\n1.5\n").unwrap();
    check(&[&format!("--arrivals=trace:{}", path.display())], &["line 3 is earlier", "ascend"]);
}

#[test]
fn impossible_workloads_are_named_with_the_reason() {
    check(&["--workload=web"], &["--workload", "'web'", "urls:FILE, hot or cold"]);
    check(&["--workload=urls:/no/such/file"], &["--workload", "/no/such/file", "No such file"]);
    check(&["--workload=hot", "--think=fast"], &["--think", "'fast'", "0..20ms"]);
    check(&["--rate=5", "--think=1s"], &["--think is the time between", "--requests-per-connection"]);
    check(&["--workload=specweb99", "http://127.0.0.1:9/b"], &["--workload specweb99:20", "give one"]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("urls");
    std::fs::write(&path, "2 /a\nb\n").unwrap();
    check(&[&format!("--workload=urls:{}", path.display())], &["line 2 is not WEIGHT /PATH"]);
}

#[test]
fn requests_that_could_not_be_written_are_refused() {
    check(&["--method=GE T"], &["--method", "'GE T'", "GET, HEAD or POST"]);
    check(&["--header=Accept"], &["--header", "'Accept'", "'Accept: text/html'"]);
    check(&["--header=Connection: a"], &["--header", "'Connection: a'", "follow from the other settings"]);
    check(&["-H", "Host: a b"], &["--header", "'Host: a b'", "Host: example.org:8080"]);
    check(&["-H", "Host: a", "-H", "host: b"], &["given twice", "one host"]);
    check(&["--body=@/no/such/file"], &["--body", "'@/no/such/file'", "No such file"]);
}

#[test]
fn expectations_that_nothing_can_meet_are_refused() {
    check(&["--expect-status=ok"], &["--expect-status", "'ok'", "200,301,4xx"]);
    check(&["--expect-status=100"], &["--expect-status", "'100'", "final"]);
    check(&["--expect-length=-1"], &["--expect-length", "64KiB"]);
    check(&["--expect-digest=md5:0"], &["--expect-digest", "'md5:0'", "sha256sum"]);
    check(&["--expect-length=5", "--method=HEAD"], &["--expect-length expects content", "HEAD"]);
    check(&["--deadline=0"], &["--deadline", "above 0"]);
}

#[test]
fn rate_and_arrivals_are_refused_where_impossible() {
    check(&["--rate=5", "--arrivals=ramp:1..2"], &["--rate 5/s", "ramp:1..2 has rates of its own"]);
    check(
        &["--spike=1k,5s", "--warmup=10000h"],
        &["--spike 1000/s,5s: expected a --warmup up to ", "not 10000h"],
    );
    check(&["--rate=5", "--client=closed"], &["--rate 5/s", "a closed loop has no rate", "--sockets"]);
    check(
        &["--arrivals=poisson", "--client=closed"],
        &["--arrivals poisson", "a closed loop has no arrivals", "--sockets"],
    );
}

#[test]
fn redirections_of_another_server_are_refused() {
    check(
        &["--connect-to=a:1:b:2"],
        &["--connect-to a:1:b:2 has no effect", "the run's server is 127.0.0.1"],
    );
    check(&["--resolve=a:80:127.0.0.1"], &["--resolve a:80:127.0.0.1 has no effect"]);
    check(&["--resolve=a:80:b"], &["--resolve", "'a:80:b'", "HOST:PORT:ADDRESS"]);
    check(&["-4", "-6"], &["--ipv4", "--ipv6"]);
}

#[test]
fn requests_of_a_file_are_checked_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let wrong = file("wrong.jsonl", "{\"path\": \"/\"}\n{\"metod\": \"GET\"}\n");
    check(&["--requests", &wrong], &["wrong.jsonl: line 2: column 8: unknown field `metod`", "`method`"]);
    let open = file("open.jsonl", "{\"path\": \"/{{user}}\"}");
    check(&["--requests", &open], &["open.jsonl: line 1: nothing defines '{{user}}'"]);
    let users = file("users.csv", "user\nann,x\n");
    check(&["--requests", &open, "--data", &users], &["users.csv: line 2: it has 2 values"]);
    let data = file("data.csv", "user\nann\n");
    check(&["--data", &data], &["--requests"]);
    let fine = file("fine.jsonl", "{\"path\": \"/\", \"name\": \"root\"}");
    check(&["--requests", &fine, "--fail-if=roof:p99>1s"], &["no request has the name 'roof'", "root"]);
}

#[test]
fn settings_of_tls_are_refused_in_cleartext() {
    check(&["--insecure"], &["--insecure is for https", URL]);
    check(&["--ca=none.pem"], &["--ca is for https", URL]);
    check(&["--key-exchange=classical"], &["--key-exchange classical is for https", URL]);
    check(&["--handshakes=full"], &["--handshakes full is for https", URL]);
    check(&["--sni=a"], &["--sni is for https", URL]);
    check(&["--cert=none.pem"], &["--cert is for https", URL]);
}

#[test]
fn settings_that_http2_cannot_have_are_refused() {
    check(&["--streams=8"], &["--streams 8 is for HTTP/2", "add --http2"]);
    check(&["--http2", "--streams=0"], &["--streams", "'0'", "1..=10000"]);
    check(&["--http2", "--client=s-client-pair"], &["--http2", "expected --client s-client or closed"]);
    check(
        &["--http2", "--population=idle:5"],
        &["--population idle:5 speaks HTTP/1.1", "expected hot or cold"],
    );
    check(&["--http2", "--header=Upgrade: x"], &["--header 'Upgrade: x'", "leave it out"]);
}

#[test]
fn a_calibration_has_no_target() {
    refused(&["load", "calibrate", URL], 2, &["unexpected argument", URL]);
    refused(&["load"], 2, &["<URL>"]);
}

#[test]
fn a_calibration_refuses_the_settings_of_a_run() {
    for setting in [
        "--rate=5",
        "--client=closed",
        "--processes=2",
        "--fail-if=errors>1%",
        "--hdr=h",
        "--prometheus=127.0.0.1:0",
    ] {
        let name = setting.split('=').next().unwrap();
        refused(&["load", "calibrate", setting], 2, &["unexpected argument", name]);
    }
    for format in ["csv", "ndjson", "html"] {
        refused(&["load", "calibrate", "--output", format], 2, &[format, "--output", "text, json"]);
    }
    refused(&["load", "calibrate", "--server-cpus=0"], 2, &["--server-cpus", "add --stack user"]);
}

#[test]
fn retries_that_make_no_sense_are_named() {
    check(&["--retry=always"], &["--retry", "'always'", "fixed:DELAY[,MAX]", "exponential:100ms,20s,5"]);
    check(&["--retry=fixed:1s,0"], &["--retry", "'fixed:1s,0'"]);
}

#[test]
fn populations_that_make_no_sense_are_named() {
    check(&["--population=idle:0"], &["--population", "'idle:0'", "idle:6000", "slow-read:50,1KiB/s"]);
    check(&["--population=cold:5", "--population=cold:5"], &["--population cold:5 is given twice", "sum"]);
}

#[test]
fn run_that_cannot_begin_leaves_files_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let [new, earlier] = ["new.json", "earlier.csv"].map(|name| folder.path().join(name));
    std::fs::write(&earlier, "of an earlier run").unwrap();
    let outputs = [format!("--output=json={}", new.display()), format!("--output=csv={}", earlier.display())];
    refused(&["load", "http://host.invalid/", &outputs[0], &outputs[1]], 3, &["host.invalid"]);
    assert!(!new.exists());
    assert_eq!(std::fs::read_to_string(&earlier).unwrap(), "of an earlier run");
}
