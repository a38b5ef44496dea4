//! Mistakes on the command line and in the config file, and failures of the machine: one clear line, the
//! right exit code.

use assert_cmd::Command;

use crate::common::{Files, PATIENCE, Server};

/// Runs `inrush` with impossible arguments, and returns its only line.
fn refused(arguments: &[&str], code: i32) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_inrush"));
    let assert = command.args(arguments).timeout(PATIENCE).assert().code(code);
    let output = assert.get_output();
    assert!(output.stdout.is_empty(), "{arguments:?}");
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
    assert!(said.starts_with("inrush: "), "{arguments:?}: {said}");
    said
}

fn check(arguments: &[&str], code: i32, expected: &[&str]) {
    let said = refused(arguments, code);
    for part in expected {
        assert!(said.contains(part), "{arguments:?}: no {part:?} in: {said}");
    }
}

/// Wrong flags of `inrush serve`, and what the error says.
const FLAGS: &[(&[&str], &[&str])] = &[
    (&["--accept-limit=0"], &["--accept-limit", "'0'", "a whole number from 1 up, inf, or adaptive"]),
    (&["--accept-limit=-3"], &["--accept-limit", "'-3'", "from 1 up, inf, or adaptive"]),
    (&["--client-connections=0"], &["--client-connections", "'0'", "1..=1000000"]),
    (
        &["--client-connections=5", "--client-exempt=10.0.0.1/8"],
        &["--client-exempt", "'10.0.0.1/8'", "expected 10.0.0.0/8"],
    ),
    (
        &["--overload=off", "--client-exempt=10.0.0.0/8"],
        &["--client-exempt", "add --client-connections or --client-rate", "overload control"],
    ),
    (&["--arch=seda", "--client-exempt=10.0.0.0/8"], &["--client-exempt", "no client is refused"]),
    (&["--limit-rate=/a 100k"], &["--limit-rate", "100KiB", "expected PATH SIZE [after SIZE]"]),
    (
        &["--arch=smped", "--client-connections=5"],
        &["--client-connections", "smped serves from processes", "per-core"],
    ),
    (&["--arch=mp", "--client-rate=5"], &["--client-rate", "mp serves from processes", "per-core"]),
    (&["--proxy-protocol-from=lb.example"], &["--proxy-protocol-from", "such as 192.0.2.7"]),
    (
        &["--proxy-protocol-from=10.0.0.0/8", "--kernel-cache=on"],
        &["--kernel-cache", "the kernel answers before the server knows the client"],
    ),
    (
        &["--listen=127.0.0.1:8099", "--listen=0.0.0.0:8099"],
        &["--listen 0.0.0.0:8099", "has this address and port already"],
    ),
    (&["--listen=127.0.0.1:8099", "--admin=127.0.0.1:8099"], &["--admin", "--listen has this address"]),
    (&["--workers=two"], &["--workers", "'two'", "expected a whole number"]),
    (&["--log-format=json"], &["--log-format json", "add --access-log"]),
    (&["--port=80"], &["'--port'", "--listen ADDR:PORT"]),
    (&["--burn=fast"], &["--burn", "'fast'", "a time such as 500ms"]),
    (&["--header-timeout=10"], &["--header-timeout", "'10'", "a time such as 500ms"]),
    (&["--max-head=big"], &["--max-head", "'big'", "a size such as 512, 64KiB"]),
    (&["--max-head=0"], &["--max-head", "'0'", "0 would refuse every request", "from 1 to 1GiB"]),
    (&["--max-head=5GiB"], &["--max-head", "'5GiB'", "from 1 to 1GiB"]),
    (&["--max-target=0"], &["--max-target", "'0'", "0 would refuse every request"]),
    (&["--max-fields=0"], &["--max-fields", "'0'", "1..=128"]),
    (&["--header-timeout=0s"], &["--header-timeout", "'0s'", "a time above 0, such as 10s"]),
    (&["--body-timeout=0"], &["--body-timeout", "'0'", "a time above 0"]),
    (&["--idle-timeout=0s"], &["--idle-timeout", "'0s'", "a time above 0"]),
    (&["--write-timeout=0ms"], &["--write-timeout", "'0ms'", "a time above 0"]),
    (&["--dispatch=kqueue"], &["--dispatch", "'kqueue'", "epoll, epoll-et, poll, select"]),
    (
        &["--dispatch=fdm", "--wait=spin", "--fdm-live-counter=adaptive"],
        &["--fdm-live-counter adaptive has no effect with --wait spin", "give a number"],
    ),
    (
        &["--dispatch=fdm", "--wait=spin", "--sleep-threshold=adaptive"],
        &["--sleep-threshold adaptive has no effect with --wait spin", "give a number"],
    ),
    (&["--arch=pm"], &["--arch", "'pm'", "sped", "per-core"]),
    (&["--arch=smped", "--workers=3"], &["--workers 3", "--smped initial=N,p-min=N,p-max=N"]),
    (&["--smped=c-max=0"], &["--smped", "'c-max=0'", "adaptive, or a number of connections from 1 up"]),
    (
        &["--arch=smped", "--handoff=kernel", "--smped=c-max=adaptive"],
        &["--smped c-max=adaptive", "a number with --handoff kernel"],
    ),
    (&["--smped=p-min=9,p-max=8"], &["--smped", "p-min=9 is more than p-max=8"]),
    (&["--schedule=random"], &["--schedule random", "per-core has no dispatcher", "for smped"]),
    (&["--handoff=kernel"], &["--handoff kernel", "per-core has no workers", "for smped"]),
    (
        &["--arch=smped", "--handoff=kernel", "--overload-hook=tc"],
        &["--overload-hook tc", "--handoff kernel has the backlog alone"],
    ),
    (&["--handoff=mail"], &["--handoff", "'mail'", "fd, kernel"]),
    (&["--arch=mp", "--dispatch=epoll"], &["--dispatch epoll", "mp waits for one descriptor at a time"]),
    (&["--arch=mp", "--workers=20000"], &["--workers", "1 to 10000 worker processes"]),
    (&["--arch=mp", "--min-spare=7", "--max-spare=7"], &["--max-spare 7", "above --min-spare, which is 7"]),
    (&["--min-spare=7"], &["--min-spare", "per-core does not keep processes in reserve", "for mp"]),
    (&["--workers=2000"], &["--workers 2000", "1 to 1024 loops"]),
    (&["--workers=0"], &["--workers", "'0'", "1..=100000"]),
    (&["--arch=sped", "--workers=2"], &["--workers 2", "sped is one loop"]),
    (&["--arch=seda", "--workers=2"], &["--workers 2", "--seda max-threads=N bounds them"]),
    (&["--seda=target=0s"], &["--seda", "'target=0s'", "target=TIME (at least 1ms), max-threads=N"]),
    (&["--seda=target=1s"], &["--seda target=1s", "per-core has no stages", "is for seda"]),
    (&["--overload=maybe"], &["--overload", "'maybe'", "expected on, off"]),
    (&["--queue-target=1us"], &["--queue-target", "'1us'", "from 1ms to 10s, such as 20ms"]),
    (&["--queue-target=99999999999999999s"], &["--queue-target", "is not a time up to 10000h"]),
    (&["--overload=off", "--queue-target=9ms"], &["--queue-target 9ms", "no effect with --overload off"]),
    (&["--overload=off", "--overload-hook=tc"], &["--overload-hook tc", "no effect with --overload off"]),
    (&["--kernel-cache=on", "--small-file=0"], &["--kernel-cache on", "no file fits"]),
    (&["--burn=11s"], &["--burn", "'11s'", "expected a time up to 10s"]),
    (&["--drain-timeout", "-1s"], &["'-1'", "no setting takes a negative number"]),
    (&["--arch=seda", "--overload=on"], &["seda has controllers of its own", "per-core, sped"]),
    (&["--arch=seda", "--queue-target=9ms"], &["--queue-target 9ms", "controllers of its own"]),
    (&["--overload-hook=bpf"], &["--overload-hook", "'bpf'", "expected tc, xdp"]),
    (&["--arch=seda", "--overload-hook=tc"], &["--overload-hook tc", "controllers of its own"]),
    (&["--cpus=3-1"], &["--cpus", "'3-1'", "0-3"]),
    (&["--cpus=1000"], &["--cpus", "1000"]),
    (&["--max-connections=0"], &["--max-connections", "'0'"]),
    (&["--backlog=70000"], &["--backlog", "'70000'", "1..=65535"]),
    (&["--max-fields=500"], &["--max-fields", "'500'", "1..=128"]),
    (&["--max-requests=none"], &["--max-requests", "'none'", "or inf"]),
    (&["--log-format=xml"], &["--log-format", "'xml'", "combined, json"]),
    (&["--listen=localhost"], &["--listen", "'localhost'", "ADDR:PORT such as 127.0.0.1:8090", ":8090"]),
    (&["--admin=example.org:80"], &["--admin", "'example.org:80'", "ADDR:PORT", "unix:PATH"]),
    (&["--admin-host=a"], &["not provided", "--admin <ADDR:PORT|unix:PATH>"]),
    (&["--admin=0", "--admin-host=http://a"], &["--admin-host", "'http://a'", "without scheme and port"]),
    (&["--admin=0", "--admin-token-file=/no/such"], &["--admin-token-file /no/such", "No such file"]),
    (&["--admin=0", "--admin-token-file=/dev/null"], &["/dev/null: expected one line"]),
    (&["--access-log=/no/such/folder/log"], &["--access-log", "/no/such/folder/log", "No such file"]),
    (&["--user=nobodyhere"], &["--user nobodyhere", "no such user", "NAME or NAME:GROUP"]),
    (&["--user=root:nogroup"], &["--user root", "root keeps its rights"]),
    (&["--user=12345"], &["--user 12345", "no such group", "NAME:GROUP"]),
    (&["--upgrade=on", "--kernel-cache=on"], &["--upgrade on", "stay with their process"]),
    (&["--upgrade=on", "--agent-check=0"], &["--upgrade on", "the port of --agent-check stays"]),
    (&["--confine=some"], &["--confine", "'some'", "on, off"]),
    (&["--wait=spin", "--nap=2s"], &["--nap", "'2s'", "from 10us to 1s"]),
    (&["--idle-sessions=stay"], &["--idle-sessions stay", "per-core has no pool", "for mp, mt, knot-c"]),
    (
        &["--arch=mt", "--threads=per-connection", "--idle-sessions=stay"],
        &["--idle-sessions stay", "--threads pool"],
    ),
    (
        &["--arch=mp", "--processes=per-connection", "--idle-sessions=stay"],
        &["--idle-sessions stay", "no pool"],
    ),
    (&["--acceptor=runs-ahead"], &["--acceptor runs-ahead", "for knot-a"]),
    (&["--acept-limit=1"], &["--acept-limit", "--accept-limit"]),
    (&["second"], &["second"]),
];

#[test]
fn wrong_flag_is_named_with_value_and_choices() {
    let files = Files::new();
    let root = files.root();
    let root = root.to_str().unwrap();
    for (flags, expected) in FLAGS {
        let words = [&["serve", "--listen=127.0.0.1:0", root], *flags].concat();
        check(&words, 2, expected);
        check(&[&words[..], &["--check"]].concat(), 2, expected);
    }
    check(&["serve", "/no/such/root"], 2, &["ROOT", "/no/such/root", "No such file"]);
    let nearly = format!("{root}s");
    check(&["serve", &nearly], 2, &["ROOT", &nearly, &format!("did you mean {root}?")]);
    check(&["demo", "/no/such/folder"], 2, &["cannot serve /no/such/folder", "No such file"]);
    check(&["serve", "/dev/null"], 2, &["ROOT", "/dev/null", "as a directory"]);
    check(&[], 2, &["a command is missing"]);
    check(&["sevre"], 2, &["'sevre'", "serve"]);
}

#[test]
fn mechanism_setting_is_refused_with_other_mechanisms() {
    let files = Files::new();
    let root = files.root();
    for (mechanism, flag) in [
        ("rt-signals", "--rt-fetch=sigtimedwait"),
        ("rt-signals", "--rt-upkeep=4"),
        ("fdm", "--fdm-live-counter=2"),
        ("fdm", "--fdm-rule=counter"),
        ("fdm", "--sleep-threshold=2"),
        ("fdm", "--nap=20ms"),
    ] {
        let dispatch = format!("--dispatch={mechanism}");
        let words = ["serve", "--listen=127.0.0.1:0", "--check", flag, root.to_str().unwrap()];
        let mut command = Command::new(env!("CARGO_BIN_EXE_inrush"));
        command.args(words).arg(dispatch).timeout(PATIENCE).assert().success();
        check(&[&words[..], &["--dispatch=select"]].concat(), 2, &["has no effect", mechanism]);
    }
}

#[test]
fn who_may_not_change_the_user_is_told_so() {
    let files = Files::new();
    let root = files.root();
    let arguments = ["serve", "--listen=127.0.0.1:0", "--user=12345:12345", root.to_str().unwrap()];
    if !confine::is_root() {
        return check(
            &arguments,
            2,
            &["--user 12345:12345", "only root can change", "start the server as root"],
        );
    }
    // The superuser of a container may lack the capabilities for it.
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-all", "--inh-caps=-all", env!("CARGO_BIN_EXE_inrush")]).args(arguments);
    let assert = command.timeout(PATIENCE).assert().code(1);
    let said = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
    assert_eq!(said, "inrush: cannot change to the user of --user: Operation not permitted (os error 1)\n");
}

#[test]
fn a_wrong_config_file_is_named_with_the_setting() {
    let files = Files::new();
    let path = files.beside("inrush.toml");
    let flag = format!("--config={}", path.display());
    for (text, expected) in [
        ("accept-limit = 0", &["--accept-limit", "'0'", "from 1 up, inf, or adaptive"][..]),
        ("acept-limit = 1", &["inrush.toml", "'acept-limit'", "did you mean 'accept-limit'?"]),
        ("listen = 'here:80'", &["--listen", "'here:80'"]),
        ("header-timeout = 0", &["--header-timeout", "'0'", "a time above 0"]),
        (
            "show-dot-files = 'perhaps'",
            &["inrush.toml", "'show-dot-files'", "'perhaps'", "expected true or false"],
        ),
        ("burn = '1s'\nburn = '2s'", &["inrush.toml", "line 2", "duplicate key"]),
        ("[table]\nx = 1", &["inrush.toml", "'table'"]),
    ] {
        std::fs::write(&path, text).unwrap();
        check(&["serve", &flag], 2, expected);
    }
    check(&["serve", "--config=/no/such.toml"], 2, &["--config", "/no/such.toml", "No such file"]);
}

#[test]
fn a_config_file_says_what_flags_say_and_flags_win() {
    let files = Files::new();
    let path = files.beside("inrush.toml");
    std::fs::write(&path, "arch = 'sped'\naccept-limit = 3\ndispatch = 'poll'\nmax-connections = 7\n")
        .unwrap();
    let mut server =
        Server::start(&files.root(), &["--dispatch=select", &format!("--config={}", path.display())]);
    let status = server.status();
    for (name, value) in [("architecture", "sped"), ("accept_limit", "3"), ("dispatch", "select")] {
        assert_eq!(status.0[name], value);
    }
    server.stop_well();
}

#[test]
fn an_address_that_is_taken_is_no_reason_to_share_it() {
    let files = Files::new();
    let root = files.root();
    let root = root.to_str().unwrap();
    for arch in ["--arch=sped", "--arch=per-core"] {
        let mut server = Server::start(&files.root(), &[arch]);
        let address = format!("--listen={}", server.address);
        for other in [&["--arch=sped"][..], &["--arch=per-core", "--workers=2"]] {
            let arguments = [&["serve", &address, root], other].concat();
            let whose = format!("process {} (inrush) listens there", server.process_id());
            check(&arguments, 1, &["cannot listen on 127.0.0.1:", "in use (os error 98)", &whose]);
        }
        let admin = format!("--admin={}", server.admin_address);
        check(&["serve", "--listen=127.0.0.1:0", &admin, root], 1, &["in use (os error 98)"]);
        assert_eq!(server.client().get(Files::SMALL.0).status, 200);
        assert_eq!(server.eventually("counted", |status| status.count("requests") == 1).count("accepts"), 1);
        server.stop_well();
    }
    check(&["serve", "--listen=192.0.2.1:0", root], 1, &["cannot listen on 192.0.2.1:0", "Cannot assign"]);
}
