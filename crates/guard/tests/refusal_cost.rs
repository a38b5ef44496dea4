//! The price of a refused SYN by hook, beside a SYN that finds a full accept queue: rounds over a veth pair.
//!
//! On a veth pair the sender's processor runs the receiver's part. So the time of a non-blocking connect(2) has the SYN's
//! whole way: out, through the program, and back to the client if there is a reset. The client's part is in each of
//! these times. The difference to the full queue in the same round is the hook's alone, but for a reset: the client's part of
//! it counts too, so its figure is an upper bound.
//!
//! By itself this is a smoke run of few rounds. `INRUSH_ROUNDS=200` before `cargo test --release` measures.

mod common;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use base::{Clock, Nanos, RealClock};
use bpf::Exempt;
use bpf::admission::{Admission, Hook, LimitTable, Limits};
use bpf::device::Bound;
use bpf::guard::Guard;
use common::programs::{self, Networks, cgroup_root, or_skip, own_cgroup};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, listen, socket_with, sockopt};
use statistics::Spread;
use sys::socket::accept_queue;

/// Connects of a block, of one kind.
const CONNECTS: u32 = 500;
/// Rounds without `INRUSH_ROUNDS`.
const ROUNDS: usize = 3;
const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(programs::SERVER), 80);

/// What refuses a SYN.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Refuser {
    FullQueue,
    Device(Hook),
    Cgroup,
}

const REFUSERS: [Refuser; 5] = [
    Refuser::FullQueue,
    Refuser::Device(Hook::Tc),
    Refuser::Device(Hook::TcReset),
    Refuser::Device(Hook::Xdp),
    Refuser::Cgroup,
];

/// A place with a listener that refuses everybody.
struct Refusing {
    listener: OwnedFd,
    /// The connection that fills its queue.
    _inside: Option<OwnedFd>,
    program: Program,
}

enum Program {
    None,
    Device(Admission),
    Cgroup(Guard),
}

impl Refusing {
    fn table(&self) -> Option<&LimitTable> {
        match &self.program {
            Program::None => None,
            Program::Device(admission) => Some(admission.table()),
            Program::Cgroup(guard) => Some(guard.memory().table()),
        }
    }

    /// SYNs refused so far.
    fn refused(&self) -> u64 {
        let by_queue = || u64::from(accept_queue(self.listener.as_fd()).unwrap().drops);
        self.table().map_or_else(by_queue, |table| table.totals(0).dropped)
    }
}

/// Two networks with a veth pair between them, and a cgroup for the server.
struct Place {
    networks: Networks,
    cgroup: PathBuf,
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.cgroup);
    }
}

impl Place {
    /// The place, or the printed reason to skip the test.
    fn create() -> Option<Place> {
        let networks = Networks::create()?;
        let cgroup = cgroup_root()?.join(format!("inrush-test-{}", std::process::id()));
        if let Err(error) = std::fs::create_dir(&cgroup) {
            println!("skipped: cannot make a cgroup: {error}");
            return None;
        }
        Some(Place { networks, cgroup })
    }

    /// A listener that belongs to the server's cgroup. Its backlog of 0 is one connection.
    fn listener(&self, backlog: i32) -> OwnedFd {
        let home = own_cgroup().expect("there was a hierarchy").join("cgroup.procs");
        let id = std::process::id().to_string();
        std::fs::write(self.cgroup.join("cgroup.procs"), &id).unwrap();
        let listener = self.networks.server.enter(|| {
            let socket = stream(SocketFlags::CLOEXEC);
            sockopt::set_socket_reuseaddr(&socket, true).unwrap();
            bind(&socket, &SERVER).unwrap();
            listen(&socket, backlog).unwrap();
            socket
        });
        std::fs::write(home, &id).unwrap();
        listener.unwrap()
    }

    /// Refuses everybody by this means, or prints why that cannot be.
    fn refusing(&self, refuser: Refuser) -> Option<Refusing> {
        let is_full = refuser == Refuser::FullQueue;
        let listener = self.listener(if is_full { 0 } else { 16 });
        let fill = || {
            let socket = stream(SocketFlags::CLOEXEC);
            connect(&socket, &SERVER).unwrap();
            socket
        };
        let inside = is_full.then(|| self.networks.client.enter(fill).unwrap());
        let program = match refuser {
            Refuser::FullQueue => Program::None,
            Refuser::Device(hook) => {
                let bound = Bound { address: SERVER.ip(), port: SERVER.port(), dual: false };
                let load = || Admission::of_addresses(hook, 0, &Exempt::NONE, vec![bound]);
                Program::Device(or_skip(self.networks.server.enter(load).unwrap())?.0)
            }
            Refuser::Cgroup => {
                let folder = std::fs::File::open(&self.cgroup).unwrap();
                let number = rustix::fs::fstat(&folder).unwrap().st_ino;
                let mut guard = or_skip(Guard::load(SERVER, Nanos::SECOND, 7, &Exempt::NONE))?;
                or_skip(guard.attach(number, folder.as_fd()))?;
                Program::Cgroup(guard)
            }
        };
        let refusing = Refusing { listener, _inside: inside, program };
        let limits =
            Limits { interval: Nanos::from_secs(3600), burst: Nanos(0), new_are_free: false, until: None };
        refusing.table().inspect(|table| table.limit(0, &limits));
        Some(refusing)
    }

    /// Time of a refused connect, in ns.
    fn block(&self, clock: &RealClock, refusing: &Refusing, answer: Errno) -> f64 {
        let before = refusing.refused();
        let time = self.networks.client.enter(|| {
            seen();
            assert_eq!(seen(), answer);
            let began = clock.now();
            for _ in 0..CONNECTS {
                let _ = connect(stream(SocketFlags::NONBLOCK | SocketFlags::CLOEXEC), &SERVER);
            }
            (clock.now() - began).0 as f64 / f64::from(CONNECTS)
        });
        let refused = refusing.refused() - before;
        assert!(refused >= u64::from(CONNECTS), "{answer}: {refused} refused");
        time.unwrap()
    }
}

fn stream(flags: SocketFlags) -> OwnedFd {
    socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap()
}

/// What a client sees of a refusal.
fn seen() -> Errno {
    let socket = stream(SocketFlags::NONBLOCK);
    let first = connect(&socket, &SERVER).unwrap_err();
    sockopt::socket_error(&socket).unwrap().err().unwrap_or(first)
}

#[test]
fn rounds_tell_the_price_of_each_refusal() {
    let Some(place) = Place::create() else { return };
    let rounds = std::env::var("INRUSH_ROUNDS").map_or(ROUNDS, |text| text.parse().unwrap());
    let clock = RealClock::new();
    let mut times = [const { Vec::new() }; REFUSERS.len()];
    for round in 0..rounds {
        // Each begins a round as often as the others.
        for place_in_round in 0..REFUSERS.len() {
            let index = (round + place_in_round) % REFUSERS.len();
            let refuser = REFUSERS[index];
            let is_reset = refuser == Refuser::Device(Hook::TcReset);
            let answer = if is_reset { Errno::CONNREFUSED } else { Errno::INPROGRESS };
            let Some(refusing) = place.refusing(refuser) else { return };
            times[index].push(place.block(&clock, &refusing, answer));
        }
    }
    println!(
        "{rounds} rounds of {CONNECTS} connects each; us: median, and what is more than with a full queue"
    );
    for (refuser, own) in REFUSERS.iter().zip(&times) {
        let more: Vec<f64> = own.iter().zip(&times[0]).map(|(own, full)| (own - full) / 1000.0).collect();
        let [own, more] = [own.iter().map(|ns| ns / 1000.0).collect::<Vec<_>>(), more]
            .map(|values| Spread::of(&values).unwrap());
        let name = format!("{refuser:?}");
        println!("{name:<16} {:6.2}  {:+.2} ({:+.2}..{:+.2})", own.median, more.median, more.min, more.max);
    }
}
