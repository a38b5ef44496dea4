//! The same engine over TCP in user space, in its own network namespace. On a machine without namespaces or
//! TUN devices the tests print that they are skipped, and pass.

use std::num::NonZeroU32;
use std::os::fd::AsFd;

use load::{LinkError, LoadError, Stack};
use record::Population;
use sys::network::netlink::Route;
use sys::network::netns::NetworkNamespace;
use usertcp::SourceNet;

use super::*;

/// The address of a server behind a device.
const SERVER: [u8; 4] = [10, 91, 0, 1];

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// The SHA-256 digest of three million letters a.
const DIGEST: &str = "2a152c894398719c0570f83fac34ac03a0f6e8e474b995c2403aa5434f7b9dd4";

fn user() -> Stack {
    Stack::User { link: load::Link::Tun, net: None, server_cpus: Vec::new(), must_steer: true }
}

/// Runs a test in a namespace with its loopback link up.
fn in_namespace(test: impl FnOnce() + Send) {
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

fn over_user_tcp(config: &Config) -> Option<LoadResult> {
    run_over(user(), config)
}

/// Runs over TCP in user space; prints the reason and returns `None` on a machine without such links.
fn run_over(stack: Stack, config: &Config) -> Option<LoadResult> {
    let plan = load::prepare(Config { stack, ..config.clone() }).unwrap();
    match load::run(&plan, &mut |_: &Snapshot<'_>| {}, &Stop::new()) {
        Ok(result) => {
            result.balance().unwrap();
            Some(result)
        }
        Err(LoadError::Link(LinkError::System { operation, source })) => {
            println!("skipped: cannot {operation}: {source}");
            None
        }
        Err(LoadError::Link(LinkError::Program(error))) => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Asserts that every request of a run has this outcome over the kernel's sockets, and that the same run has the same
/// figures over both stacks, except figures that depend on time.
#[track_caller]
fn compare(config: &Config, outcome: Outcome) {
    let kernel = run(config.clone());
    assert_all(&kernel, outcome);
    let Some(user) = over_user_tcp(config) else { return };
    assert_eq!(user.offered, kernel.offered);
    assert_eq!(user.outcomes, kernel.outcomes);
    assert_eq!(user.statuses, kernel.statuses);
    assert_eq!(user.in_flight_at_end, kernel.in_flight_at_end);
    assert_eq!(user.connections.attempted, kernel.connections.attempted);
    assert_eq!(user.connections.established, kernel.connections.established);
    assert_eq!(user.latency_intended_ns.unanswered, kernel.latency_intended_ns.unanswered);
}

#[test]
fn both_stacks_have_equal_ledgers_per_connection() {
    in_namespace(|| {
        let mut poisson = config(&Server::replying(OK));
        let arrivals = "poisson".parse().unwrap();
        poisson.client = Client::SClient { rate: PerSecond(800.0), arrivals, sockets: Sockets::Auto };
        compare(&poisson, Outcome::Ok);
        poisson.close = Close::Reset;
        compare(&poisson, Outcome::Ok);
    });
}

#[test]
fn both_stacks_have_the_same_ledger_for_sessions() {
    in_namespace(|| {
        let mut sessions = all_at_the_beginning(400, config(&Server::replying(OK)));
        sessions.requests_per_connection = Some("1..9".parse().unwrap());
        sessions.threads = NonZeroU32::new(3).unwrap();
        compare(&sessions, Outcome::Ok);
    });
}

#[test]
fn both_stacks_have_the_same_ledger_for_kept_ones() {
    in_namespace(|| {
        let mut pooled = all_at_the_beginning(400, config(&Server::replying(OK)));
        pooled.connections = NonZeroU32::new(4);
        compare(&pooled, Outcome::Ok);
        let closing = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
        let mut reopened = all_at_the_beginning(400, config(&Server::replying(closing)));
        reopened.connections = NonZeroU32::new(4);
        compare(&reopened, Outcome::Ok);
    });
}

#[test]
fn both_stacks_have_equal_outcomes_of_failures() {
    in_namespace(|| {
        for (server, outcome) in [
            (Server::replying(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"), Outcome::StatusError),
            (Server::replying(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"), Outcome::Shed),
            (Server::resetting(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nabc"), Outcome::Reset),
            (Server::replying_once(b"HTTP/1.1 200 OK\r\n\r\nuntil the end"), Outcome::Ok),
            (Server::replying_once(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nabc"), Outcome::Reset),
            (Server::replying(b"What?\r\n\r\n"), Outcome::Malformed),
        ] {
            compare(&config(&server), outcome);
        }
        let mut impatient = config(&Server::silent());
        impatient.request_timeout = Nanos::from_millis(50);
        compare(&impatient, Outcome::ResponseTimeout);
    });
}

#[test]
fn a_closed_port_refuses_tcp_in_user_space_too() {
    in_namespace(|| {
        let nobody = Server::closed();
        let Some(result) = over_user_tcp(&config(&nobody)) else { return };
        assert_all(&result, Outcome::Refused);
        assert_eq!(result.verdict, Verdict::Unreachable);
    });
}

/// The accept queue has room for the SYNs, but none for the ends of the handshakes.
#[test]
fn dropped_connections_differ_from_unanswered_ones() {
    in_namespace(|| {
        let (server, backlog) = (Server::never_accepting(), 1);
        let mut burst = config(&server);
        // All sessions are due before the run begins its first turn.
        let arrivals = "steps:100Mx1us,0x1h".parse().unwrap();
        burst.client = Client::SClient { rate: PerSecond(1.0), arrivals, sockets: Sockets::Auto };
        burst.warmup = Nanos::ZERO;
        burst.request_timeout = Nanos::from_millis(200);
        let Some(result) = over_user_tcp(&burst) else { return };
        println!("{:?}", result.outcomes);
        assert!(result.outcomes.get(Outcome::Dropped) > 0, "{:?}", result.outcomes);
        assert!(result.outcomes.get(Outcome::ResponseTimeout) <= backlog + 1, "{:?}", result.outcomes);
    });
}

#[test]
fn large_replies_come_whole_over_tcp_in_user_space() {
    in_namespace(|| {
        let reply: Vec<u8> =
            [b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n", &[b'a'; 3_000_000][..]].concat();
        let mut large = config(&Server::replying(reply.leak()));
        large.client =
            Client::SClient { rate: PerSecond(20.0), arrivals: Process::constant(), sockets: Sockets::Auto };
        large.expected.length = Some(3_000_000);
        large.expected.digest = Some(format!("sha256:{DIGEST}").parse().unwrap());
        compare(&large, Outcome::Ok);
    });
}

#[test]
fn closed_clients_and_retries_work_over_user_tcp() {
    in_namespace(|| {
        let mut closed = config(&Server::replying(OK));
        closed.client = Client::Closed { clients: NonZeroU32::new(8).unwrap() };
        closed.requests_per_connection = Some("3".parse().unwrap());
        let Some(result) = over_user_tcp(&closed) else { return };
        assert_eq!(result.outcomes.get(Outcome::Ok), result.outcomes.total(), "{:?}", result.outcomes);
        assert!(result.outcomes.get(Outcome::Ok) > 100);
        let busy = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n";
        let mut retried = all_at_the_beginning(400, config(&Server::replying(busy)));
        retried.retry = "fixed:1ms,2".parse().unwrap();
        compare(&retried, Outcome::Shed);
    });
}

#[test]
fn tls_is_spoken_over_tcp_in_user_space() {
    in_namespace(|| {
        let identity = identity::identity();
        let server = Server::replying_over_tls(std::sync::Arc::clone(&identity.config), OK);
        let mut secure = all_at_the_beginning(400, config(&server));
        secure.urls = vec![server.secure_url()];
        secure.tls.trust = load::Trust::Anybody;
        secure.requests_per_connection = Some("3".parse().unwrap());
        compare(&secure, Outcome::Ok);
    });
}

fn population<'a>(result: &'a LoadResult, name: &str) -> &'a Population {
    &result.populations[name]
}

#[test]
fn populations_are_held_over_tcp_in_user_space() {
    in_namespace(|| {
        let mut beside = config(&Server::replying(OK));
        let names = ["idle:30", "idle:20,half-request", "hot:5", "slow-send:5,2KiB/s"];
        beside.populations = names.iter().map(|name| name.parse().unwrap()).collect();
        let Some(result) = over_user_tcp(&beside) else { return };
        assert_all(&result, Outcome::Ok);
        for (name, clients) in [("idle:30", 30), ("idle:20,half-request", 20)] {
            let idle = population(&result, name);
            assert_eq!((idle.open_at_end, idle.in_flight_at_end), (clients, clients), "{idle:?}");
        }
        for name in ["hot:5", "slow-send:5,2KiB/s"] {
            let asking = population(&result, name);
            assert!(asking.outcomes.get(Outcome::Ok) > 0, "{name}: {asking:?}");
            assert_eq!(asking.outcomes.get(Outcome::Ok), asking.outcomes.total(), "{name}: {asking:?}");
        }
    });
}

#[test]
fn populations_use_the_kernel_beside_af_xdp() {
    let Ok(there) = NetworkNamespace::create() else {
        return println!("skipped: no network namespaces here");
    };
    in_namespace(|| {
        let mut route = Route::open().unwrap();
        route.create_veth("client", there.as_fd(), "server").unwrap();
        let mut other = there.enter(Route::open).unwrap().unwrap();
        let net: SourceNet = "10.94.0.0/24".parse().unwrap();
        for (route, name, address) in [(&mut route, "client", [10, 91, 0, 2]), (&mut other, "server", SERVER)]
        {
            let link = route.link_index(name).unwrap();
            route.add_address(link, address, 24).unwrap();
            route.set_up(link).unwrap();
        }
        let link = other.link_index("server").unwrap();
        other.add_route(net.network(), net.prefix_length(), link, None).unwrap();
        let mut beside = config(&there.enter(|| Server::replying_at((SERVER, 0).into(), OK)).unwrap());
        beside.populations = vec!["idle:30".parse().unwrap(), "hot:5".parse().unwrap()];
        beside.own_this_server = true;
        let link = load::Link::AfXdp("client".to_owned());
        let stack = Stack::User { link, net: Some(net), server_cpus: Vec::new(), must_steer: true };
        let Some(result) = run_over(stack, &beside) else { return };
        assert_all(&result, Outcome::Ok);
        assert_eq!(population(&result, "idle:30").open_at_end, 30);
        let hot = population(&result, "hot:5");
        assert!(hot.outcomes.get(Outcome::Ok) > 0, "{hot:?}");
        assert_eq!(hot.outcomes.get(Outcome::Ok), hot.outcomes.total(), "{hot:?}");
    });
}

/// A reply of 10 KB at 20 KB/s takes half a second. A client that reads at once would get it much sooner.
#[test]
fn slow_readers_keep_their_pace_over_user_tcp() {
    in_namespace(|| {
        let reply: Vec<u8> =
            [b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n", &[b'a'; 10_000][..]].concat();
        let mut slow = config(&Server::replying(reply.leak()));
        slow.populations = vec!["slow-read:3,20000/s".parse().unwrap()];
        slow.duration = Nanos::from_millis(1_500);
        let Some(result) = over_user_tcp(&slow) else { return };
        let readers = population(&result, "slow-read:3,20000B/s");
        assert!(readers.outcomes.get(Outcome::Ok) >= 3, "{readers:?}");
        assert_eq!(readers.outcomes.get(Outcome::Ok), readers.outcomes.total(), "{readers:?}");
        assert!(readers.latency_intended_ns.answered.p50 >= 400_000_000, "{:?}", readers.latency_intended_ns);
    });
}

#[test]
fn a_run_leaves_no_device_and_no_route() {
    in_namespace(|| {
        let server = Server::replying(OK);
        if over_user_tcp(&config(&server)).is_none() {
            return;
        }
        let mut route = Route::open().unwrap();
        assert!(route.link_index("inrush0").is_err());
        let networks = route.networks("127.0.0.1".parse().unwrap()).unwrap();
        assert!(!networks.contains(&("10.94.0.0".parse().unwrap(), 16)), "{networks:?}");
    });
}

#[test]
fn a_stack_refuses_settings_of_the_other() {
    let refused = |change: fn(&mut Config), expected: &str| {
        let nobody = Server::closed();
        let mut config = config(&nobody);
        config.stack = user();
        change(&mut config);
        let error = load::prepare(config).unwrap_err().to_string();
        assert!(error.starts_with("--stack user: ") && error.contains(expected), "{error}");
    };
    refused(|config| config.source = Some("127.0.0.5".parse().unwrap()), "expected --source-net");
    refused(|config| config.processes = load::Processes::Pair, "cannot change their process");
    refused(
        |config| {
            config.stack = Stack::User {
                link: load::Link::Tun,
                net: Some("203.0.113.0/24".parse().unwrap()),
                server_cpus: Vec::new(),
                must_steer: true,
            }
        },
        "not a private network",
    );
    refused(
        |config| {
            config.stack = Stack::User {
                link: "af-xdp:eth0".parse().unwrap(),
                net: None,
                server_cpus: vec![0],
                must_steer: true,
            };
        },
        "--server-cpus steers a TUN device",
    );
    refused(
        |config| {
            config.stack = Stack::User {
                link: "af-xdp:eth0".parse().unwrap(),
                net: None,
                server_cpus: Vec::new(),
                must_steer: true,
            };
            config.threads = NonZeroU32::new(2).unwrap();
        },
        "one thread",
    );
}
