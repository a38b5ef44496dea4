//! The examples `deploy/haproxy.cfg` and `deploy/envoy.yaml`, with the real load balancers and real servers.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use base::Nanos;
use sys::process::{Child, Program, Streams, find_program};

use crate::common::{Files, PATIENCE, Server, pause};

/// Three servers, each with its own `/who.txt`, behind a load balancer.
struct Door {
    files: Files,
    servers: Vec<Option<Server>>,
    /// Killed when dropped.
    _balancer: Child,
}

/// An example of a configuration, with other addresses in place of its own.
struct Example(String);

impl Example {
    fn read(name: &str) -> Example {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name);
        Example(std::fs::read_to_string(path).unwrap())
    }

    fn replace(&mut self, from: &str, to: &str) {
        assert!(self.0.contains(from), "the example has no {from:?}");
        self.0 = self.0.replace(from, to);
    }
}

/// The path of a load balancer; prints a skip without it.
fn balancer(name: &str) -> Option<PathBuf> {
    let found = find_program(name);
    if found.is_none() {
        println!("skipped: {name} is not on PATH");
    }
    found
}

/// Starts a server of one loop with a folder of its own.
fn serve(files: &Files, name: &str, flags: &[&str]) -> Server {
    std::fs::create_dir(files.path(name)).unwrap();
    files.write(&format!("/{name}/who.txt"), name);
    files.write(&format!("/{name}/index.html"), name);
    Server::start(&files.path(name), &[&["--arch=sped"], flags].concat())
}

impl Door {
    /// `None` without HAProxy.
    fn of_haproxy() -> Option<Door> {
        let program = balancer("haproxy")?;
        let (files, mut example) = (Files::new(), Example::read("haproxy.cfg"));
        let servers = ["s1", "s2", "s3"].map(|name| {
            let server = serve(&files, name, &["--agent-check=127.0.0.1:0"]);
            let agent = server.said.lines().find_map(|line| line.strip_prefix("agent check on 127.0.0.1:"));
            let own = format!("10.0.0.1{}:8080 agent-port 8081", &name[1..]);
            example.replace(&own, &format!("{} agent-port {}", server.address, agent.unwrap()));
            Some(server)
        });
        example.replace("bind :8000", &format!("bind unix@{}", files.beside("door").display()));
        example.replace("/run/haproxy/inrush.sock", &files.beside("control").display().to_string());
        Some(Door::open(files, servers.into(), &Program::new(program).arguments(["-db", "-f"]), &example))
    }

    /// `None` without Envoy. One server needs 2 ms for a request.
    fn of_envoy() -> Option<Door> {
        let program = balancer("envoy")?;
        let (files, mut example) = (Files::new(), Example::read("envoy.yaml"));
        let servers = ["s1", "s2", "s3"].map(|name| {
            let burn = if name == "s1" { "--burn=2ms" } else { "--burn=200us" };
            let server = serve(&files, name, &["--load-reports=on", burn]);
            let own = format!("address: 10.0.0.1{}, port_value: 8080", &name[1..]);
            let port = server.address.port();
            example.replace(&own, &format!("address: 127.0.0.1, port_value: {port}"));
            Some(server)
        });
        let door = format!("pipe: {{path: {}}}", files.beside("door").display());
        example.replace("socket_address: {address: 0.0.0.0, port_value: 8000}", &door);
        example.replace("blackout_period: 10s", "blackout_period: 1s");
        let program = Program::new(program).arguments([
            "--disable-hot-restart",
            "--log-level",
            "warning",
            "--concurrency",
            "1",
            "-c",
        ]);
        Some(Door::open(files, servers.into(), &program, &example))
    }

    /// Starts the load balancer with the path of its configuration as the last argument.
    fn open(
        files: Files,
        servers: Vec<Option<Server>>,
        program: &Program<'static>,
        example: &Example,
    ) -> Door {
        let config = files.beside("config.yaml");
        std::fs::write(&config, &example.0).unwrap();
        let program = program.clone().arguments([config]).with_streams(Streams::Output);
        let door = Door { files, servers, _balancer: program.start().unwrap() };
        door.eventually("up", || UnixStream::connect(door.socket()).is_ok());
        door
    }

    fn socket(&self) -> PathBuf {
        self.files.beside("door")
    }

    /// Sends bytes over a connection of their own. Returns the bytes until its end.
    fn exchange(path: &Path, text: &str) -> String {
        let mut socket = UnixStream::connect(path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    }

    /// The name of the server that answers a request.
    fn who(socket: &Path) -> String {
        let answer = Door::exchange(socket, "GET /who.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        answer.rsplit("\r\n").next().unwrap().to_owned()
    }

    /// The answers of 60 requests, by server.
    fn shares(&self) -> BTreeMap<String, usize> {
        let mut shares = BTreeMap::new();
        for _ in 0..60 {
            *shares.entry(Door::who(&self.socket())).or_default() += 1;
        }
        shares
    }

    /// HAProxy's answer to a command.
    fn says(&self, command: &str) -> String {
        Door::exchange(&self.files.beside("control"), &format!("{command}\n"))
    }

    /// The weight of a server, in percent of its configured one.
    fn weight(&self, name: &str) -> u32 {
        let answer = self.says(&format!("get weight sites/{name}"));
        assert!(answer.contains("(initial 100)"), "{answer}");
        answer.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// True if HAProxy was told to drain a server. This stays true when the health check finds the server gone.
    fn is_drained(&self, name: &str) -> bool {
        const FORCED_DRAIN: u32 = 8;
        let states = self.says("show servers state sites");
        let state = states.lines().find_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            (fields.get(3) == Some(&name)).then(|| fields[6].parse::<u32>().unwrap())
        });
        state.unwrap() & FORCED_DRAIN != 0
    }

    /// Looks until `shows` returns true.
    fn eventually(&self, what: &str, mut shows: impl FnMut() -> bool) {
        for _ in 0..PATIENCE.as_millis() / 20 {
            if shows() {
                return;
            }
            pause(Nanos::from_millis(20));
        }
        panic!("never {what}: {:?}", self.shares());
    }
}

#[test]
fn haproxy_drains_a_server_without_losing_requests() {
    let Some(mut door) = Door::of_haproxy() else { return };
    let names = ["s1", "s2", "s3"];
    door.eventually("weights of the agents", || {
        names.iter().all(|name| (1..100).contains(&door.weight(name)))
    });
    door.eventually("a share for each", || door.shares().len() == 3);
    assert!(!door.is_drained("s2"));
    let (socket, ended) = (door.socket(), AtomicBool::new(false));
    let second = door.servers[1].take().unwrap();
    std::thread::scope(|scope| {
        // Each request of these is answered, before, during and after the end of the server.
        let clients = scope.spawn(|| {
            let mut asked = 0;
            while !ended.load(Ordering::Relaxed) {
                Door::who(&socket);
                asked += 1;
            }
            asked
        });
        second.stop_well();
        ended.store(true, Ordering::Relaxed);
        assert!(clients.join().unwrap() > 0);
    });
    assert!(door.is_drained("s2"));
    let shares = door.shares();
    assert!(shares.len() == 2 && !shares.contains_key("s2"), "{shares:?}");
}

#[test]
fn haproxy_health_check_finds_a_dead_server() {
    let Some(mut door) = Door::of_haproxy() else { return };
    door.eventually("a share for each", || door.shares().len() == 3);
    let first = door.servers[0].take().unwrap();
    first.signal(rustix::process::Signal::KILL);
    drop(first);
    door.eventually("down", || {
        door.says("show stat").lines().any(|line| line.starts_with("sites,s1,") && line.contains(",DOWN,"))
    });
    assert!(!door.shares().contains_key("s1"));
}

#[test]
fn behind_envoy_a_slow_server_gets_less() {
    let Some(door) = Door::of_envoy() else { return };
    door.eventually("a share for each", || door.shares().len() == 3);
    // By its speed it would get 1 of 21 requests, and by turns 20 of 60.
    door.eventually("a small share", || door.shares().get("s1").is_none_or(|share| *share <= 10));
    let answer = Door::exchange(&door.socket(), "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(!answer.contains("endpoint-load-metrics"), "{answer}");
    for server in door.servers.into_iter().flatten() {
        server.stop_well();
    }
}
