//! `inrush load --stack user` against `inrush serve`, in a network namespace. If this machine allows no
//! namespace or no TUN device, the tests print so and pass.

use assert_cmd::Command;
use serde_json::Value;
use sys::network::netlink::Route;
use sys::network::netns::NetworkNamespace;
use sys::process::find_program;

use super::common::{Files, Server};
use super::http2::identity;
use super::{PATIENCE, refused};
use crate::schema::obeys_schema;

/// Counters of a server that depend on the offered requests alone. The number of broken connections depends on time: the
/// client's reset of a late close_notify comes before or after the server's close.
const SAME: [&str; 7] = [
    "accepts",
    "requests",
    "responses_2xx",
    "received_bytes",
    "sent_bytes",
    "body_bytes",
    "tls_handshakes_full",
];

/// Runs a test in a namespace with its loopback link up. Children of the test start there too.
pub fn in_namespace(test: impl FnOnce() + Send) {
    let namespace = match NetworkNamespace::create() {
        Ok(namespace) => namespace,
        Err(error) => return println!("skipped: no network namespaces here: {error}"),
    };
    let entered = namespace.enter(|| {
        Route::open().unwrap().set_up(1).unwrap();
        test();
    });
    entered.unwrap();
}

/// The result of a run. Prints the reason and returns `None` if this machine has no TUN device.
pub fn result(url: &str, flags: &[&str]) -> Option<Value> {
    let always = ["load", url, "--warmup=0", "--connect-timeout=5s", "--output=json"];
    let run = Command::new(env!("CARGO_BIN_EXE_inrush")).args(always).args(flags).timeout(PATIENCE).assert();
    let output = run.get_output();
    if output.status.code() == Some(1) {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("cannot make a TUN device"), "{said}");
        println!("skipped: {said}");
        return None;
    }
    // On a busy machine the generator is late, which changes the exit code but not the ledger.
    assert!(matches!(output.status.code(), Some(0 | 5)), "{output:?}");
    let result = serde_json::from_slice(&output.stdout).unwrap();
    obeys_schema(&result, "load-result");
    Some(result)
}

/// Offers the same load over both stacks. Asserts that the ledger of each equals the counters of its server, and that
/// both servers counted the same.
fn check_against_the_server(flags: &[&str]) {
    check_against(false, flags);
}

fn check_against(secure: bool, flags: &[&str]) {
    in_namespace(|| {
        let files = Files::new();
        let [certificate, key] = identity(&files);
        let tls = [format!("--tls-cert={certificate}"), format!("--tls-key={key}")];
        let serve: Vec<&str> = tls.iter().map(String::as_str).filter(|_| secure).collect();
        let mut server = Server::start(&files.root(), &serve);
        let (scheme, host) = if secure { ("https", "localhost") } else { ("http", "127.0.0.1") };
        let url = format!("{scheme}://{host}:{}{}", server.address.port(), Files::SMALL.0);
        let length = format!("--expect-length={}", Files::SMALL.1);
        let ca = if secure { &["--ca", &certificate][..] } else { &[] };
        let flags = [ca, &[&length], flags].concat();
        let Some(user) = counted(&mut server, &url, &[&["--stack=user"], &flags[..]].concat()) else {
            return;
        };
        assert_eq!(counted(&mut server, &url, &flags), Some(user), "{SAME:?}");
    });
}

/// Offers a load to the server, and returns what it counted. Asserts that the ledger says the same.
fn counted(server: &mut Server, url: &str, flags: &[&str]) -> Option<[u64; SAME.len()]> {
    let before = server.status();
    let result = result(url, flags)?;
    let offered = result["offered"].as_u64().unwrap();
    assert!(offered > 0);
    assert_eq!(result["outcomes"]["ok"], offered, "{result:#}");
    assert_eq!(result["in_flight_at_end"], 0);
    // The figures may be older than the last connections.
    let all = before.count("requests") + offered;
    let after = server.eventually("all answered and closed", |status| {
        status.count("requests") >= all && status.connections() == 0
    });
    let count = |name| after.count(name) - before.count(name);
    assert_eq!(count("requests"), offered, "{after:?}");
    assert_eq!(result["connections"]["attempted"], count("accepts"), "{after:?}");
    Some(SAME.map(count))
}

#[test]
fn the_ledger_equals_the_counters_of_the_server() {
    check_against_the_server(&["--rate=2k", "--arrivals=poisson", "--duration=500ms"]);
}

#[test]
fn session_ledger_equals_the_servers_counters() {
    // All sessions begin long before the run ends, so that the run's end interrupts none.
    let arrivals = "--arrivals=steps:400x200ms,0x1h";
    check_against_the_server(&[arrivals, "--duration=1s", "--requests-per-connection=1..9", "--threads=3"]);
}

#[test]
fn stream_ledger_equals_the_servers_counters() {
    let arrivals = "--arrivals=steps:400x200ms,0x1h";
    let streams = ["--http2", "--streams=3", "--requests-per-connection=1..9"];
    check_against_the_server(&[&[arrivals, "--duration=1s"], &streams[..]].concat());
}

#[test]
fn tls_ledger_equals_the_servers_counters() {
    let arrivals = "--arrivals=steps:100x200ms,0x1h";
    let work = [arrivals, "--duration=1s", "--requests-per-connection=1..9"];
    check_against(true, &[&work[..], &["--handshakes=full"]].concat());
    check_against(true, &[&work[..], &["--handshakes=full", "--http2", "--streams=3"]].concat());
}

#[test]
fn missing_right_to_make_a_device_is_named() {
    let Some(setpriv) = find_program("setpriv") else { return println!("skipped: setpriv is not installed") };
    let without = ["--bounding-set=-net_admin", "--inh-caps=-net_admin", env!("CARGO_BIN_EXE_inrush")];
    let run = Command::new(setpriv)
        .args(without)
        .args(["load", "http://127.0.0.1:9/", "--stack=user"])
        .timeout(PATIENCE)
        .assert();
    let output = run.get_output();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if said.starts_with("setpriv") {
        return println!("skipped: {said}");
    }
    let complaints = said.lines().filter(|line| !line.contains("server's receive work")).count();
    assert_eq!((output.status.code(), complaints), (Some(1), 1), "{said}");
    assert!(said.contains("CAP_NET_ADMIN") || said.contains("/dev/net/tun"), "{said}");
}

#[test]
fn settings_of_the_other_stack_are_refused() {
    let url = "http://127.0.0.1:9/";
    refused(&["load", url, "--link=tun"], 2, &["--link tun", "add --stack user"]);
    refused(
        &["load", url, "--source-net=10.95.0.0/16"],
        2,
        &["--source-net 10.95.0.0/16", "add --stack user"],
    );
    refused(
        &["load", url, "--stack=user", "--link=dpdk"],
        2,
        &["'dpdk' is not a link: expected tun or af-xdp:INTERFACE"],
    );
    refused(&["load", url, "--stack=user", "--source-ip=127.0.0.2"], 2, &["expected --source-net"]);
    refused(&["load", url, "--stack=user", "--client=s-client-pair"], 2, &["cannot change their process"]);
    refused(
        &["load", "calibrate", "--stack=user", "--link=af-xdp:eth0"],
        2,
        &["unexpected argument '--link'"],
    );
    refused(
        &["load", "http://192.0.2.1/", "--i-own-this-server", "--stack=user", "--server-cpus=0"],
        2,
        &["192.0.2.1 is not an address of this network namespace"],
    );
}

#[test]
fn doctor_states_the_rate_of_a_thread_per_link() {
    in_namespace(|| {
        let doctor = ["doctor", "--output=json"];
        let run =
            Command::new(env!("CARGO_BIN_EXE_inrush")).args(doctor).timeout(PATIENCE).assert().success();
        let findings: Vec<Value> = serde_json::from_slice(&run.get_output().stdout).unwrap();
        findings.iter().for_each(|finding| obeys_schema(finding, "doctor-finding"));
        for what in ["load over TUN", "load over AF_XDP"] {
            let finding = findings.iter().find(|finding| finding["what"] == what).unwrap();
            let found = finding["found"].as_str().unwrap();
            if found == "not here" {
                println!("skipped: {what}: {}", finding["consequence"]);
                continue;
            }
            let per_s = found.strip_prefix("at most ").and_then(|rest| rest.split(' ').next()).unwrap();
            assert!(per_s.parse::<u64>().unwrap() > 0, "{found}");
        }
    });
}

#[test]
fn user_stacks_leave_cpus_to_the_server() {
    in_namespace(|| {
        let files = Files::new();
        files.write("index.html", b"hello");
        let server = Server::start(&files.root(), &["--arch=sped"]);
        let url = format!("http://{}/index.html", server.address);
        let flags = ["load", &url, "--stack=user", "--rate=20", "--duration=500ms", "--warmup=0", "-o=json"];
        let run = Command::new(env!("CARGO_BIN_EXE_inrush")).args(flags).timeout(PATIENCE).output().unwrap();
        let said = String::from_utf8_lossy(&run.stderr);
        if run.status.code() == Some(1) {
            assert!(said.contains("cannot make a TUN device"), "{said}");
            return println!("skipped: {said}");
        }
        let result: Value = serde_json::from_slice(&run.stdout).unwrap();
        let config = &result["manifest"]["config"];
        let cpus = sys::cpu::allowed().unwrap();
        let expected: Vec<String> = cpus[..cpus.len() - 1].iter().map(usize::to_string).collect();
        match expected.is_empty() {
            true => assert!(said.contains("no CPU is left for the server's receive work"), "{said}"),
            false => {
                let others = format!("the server's receive work on CPU {};", expected.join(","));
                assert!(said.contains(&others), "{said}");
                assert_eq!(config["server_cpus"], expected.join(","));
            }
        }
    });
}
