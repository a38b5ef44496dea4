//! The faults of the campaign. Each names its act, its period, its architectures, and the outcomes that it may cause.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::iter;
use std::net::TcpStream;

use anyhow::ensure;
use base::{Clock, Nanos, RealClock, Rng, WallTime};
use http_semantics::HttpDate;
use rand::RngExt;
use rand::seq::IndexedRandom;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};

use stage::memory::address_space;
use sys::process::Child;

use super::peers;
use super::server::{DISK_BYTES, LARGE, LARGE_BYTES, LOG, MANY, Protocol, SMALL, Server, Setup, number};
use crate::test_bed::TICK;

/// One fault.
pub struct Fault {
    /// Name in the table and on the command line.
    pub name: &'static str,
    /// Architectures that it concerns; all if empty.
    architectures: &'static [&'static str],
    /// Settings of the server.
    pub setup: Setup,
    /// The act that needs root, if one does.
    pub needs_root: Option<&'static str>,
    /// True if the fault ends the server.
    pub ends_the_server: bool,
    /// True if its clients ask in HTTP/1 and have no TLS.
    asks_in_cleartext: bool,
    /// Period and act; `None` where the server's flags or limits are the fault.
    every: Option<(Nanos, Act)>,
    /// Outcomes that may occur. No other may.
    may_lose: &'static [(&'static str, Allowance)],
}

/// Makes a fault happen, and returns the number of occurrences.
type Act = fn(&mut Scene<'_>) -> anyhow::Result<u64>;

/// Number of requests that may end with an outcome.
#[derive(Clone, Copy)]
enum Allowance {
    /// For each occurrence.
    Each(u64),
    /// Any number: the server refused in time, by a reply or a reset.
    Any,
}

const PROCESSES: &[&str] = &["mp", "smped"];
/// Connections that a killed process may hold: the arrivals of 10 ms at the load's rate.
const HELD: Allowance = Allowance::Each(3);

const PLAIN: Setup =
    Setup { flags: &[], descriptors: None, many_files: false, own_disk: false, own_clock: false };

const NONE: Fault = Fault {
    name: "",
    architectures: &[],
    setup: PLAIN,
    needs_root: None,
    ends_the_server: false,
    asks_in_cleartext: false,
    every: None,
    may_lose: &[],
};
/// A fault by clients that ask in HTTP/1.
const BY_CLIENTS: Fault = Fault { asks_in_cleartext: true, ..NONE };

/// All faults.
pub const FAULTS: [Fault; 18] = [
    Fault { name: "none", ..NONE },
    Fault {
        name: "worker-killed",
        architectures: PROCESSES,
        every: Some((Nanos::from_millis(500), kill_worker)),
        may_lose: &[("reset", HELD), ("malformed", HELD)],
        ..NONE
    },
    Fault {
        name: "helper-killed",
        architectures: &["amped"],
        every: Some((Nanos::from_millis(500), kill_worker)),
        ..NONE
    },
    Fault {
        name: "worker-stopped",
        architectures: PROCESSES,
        every: Some((Nanos::from_millis(300), stop_or_continue_worker)),
        ..NONE
    },
    Fault { name: "sighup-storm", every: Some((Nanos::from_millis(10), reread)), ..NONE },
    Fault { name: "file-truncated", every: Some((Nanos::from_millis(100), truncate)), ..BY_CLIENTS },
    Fault { name: "disk-full", setup: Setup { flags: &["--access-log=/dev/full"], ..PLAIN }, ..NONE },
    Fault {
        name: "disk-fills",
        setup: Setup { own_disk: true, ..PLAIN },
        needs_root: Some("mounts a disk"),
        every: Some((Nanos::from_millis(200), fill_or_empty_disk)),
        ..NONE
    },
    Fault {
        name: "few-descriptors",
        setup: Setup { descriptors: Some(128), ..PLAIN },
        every: Some((Nanos::from_millis(20), hold_idle)),
        may_lose: &[("shed", Allowance::Any)],
        ..BY_CLIENTS
    },
    Fault {
        name: "few-connections",
        setup: Setup { flags: &["--max-connections=40"], ..PLAIN },
        every: Some((Nanos::from_millis(20), hold_idle)),
        may_lose: &[("shed", Allowance::Any)],
        ..BY_CLIENTS
    },
    Fault {
        name: "little-memory",
        setup: Setup { flags: &["--small-file=64KiB", "--cache-memory=1GiB"], many_files: true, ..PLAIN },
        every: Some((Nanos::from_millis(20), fill_cache)),
        may_lose: &[("shed", Allowance::Any), ("status_error", Allowance::Any)],
        ..BY_CLIENTS
    },
    Fault {
        name: "slow-readers",
        setup: Setup { flags: &["--write-timeout=1s"], ..PLAIN },
        every: Some((Nanos::from_millis(50), read_nothing)),
        ..BY_CLIENTS
    },
    Fault {
        name: "slowloris",
        setup: Setup { flags: &["--header-timeout=1s"], ..PLAIN },
        every: Some((Nanos::from_millis(50), drip)),
        ..NONE
    },
    Fault {
        name: "guard-killed",
        needs_root: Some("loads programs into the kernel"),
        every: Some((Nanos::from_millis(700), kill_guard)),
        ..NONE
    },
    Fault {
        name: "upgrade-attacked",
        setup: Setup { flags: &["--upgrade=on", "--header-timeout=1s"], ..PLAIN },
        every: Some((Nanos::from_millis(100), upgrade_under_attack)),
        ..NONE
    },
    Fault {
        name: "clock-jumps",
        setup: Setup { own_clock: true, ..PLAIN },
        every: Some((Nanos::from_millis(50), move_clock)),
        ..NONE
    },
    Fault { name: "garbage", every: Some((Nanos::from_millis(5), send_garbage)), ..NONE },
    Fault {
        name: "sigterm",
        ends_the_server: true,
        every: Some((Nanos::from_millis(700), terminate)),
        may_lose: &[("refused", Allowance::Any)],
        ..NONE
    },
];

impl Fault {
    /// Tells whether the fault concerns an architecture under a protocol.
    pub fn concerns(&self, architecture: &str, protocol: Protocol) -> bool {
        let is_for_it = self.architectures.is_empty() || self.architectures.contains(&architecture);
        is_for_it && !(self.asks_in_cleartext && protocol == Protocol::Tls)
    }

    /// Tells whether the fault happens during the load.
    pub fn happens(&self) -> bool {
        self.every.is_some()
    }

    /// Number of requests that may end with an outcome.
    pub fn allows(&self, outcome: &str, times: u64) -> u64 {
        let found = self.may_lose.iter().find(|(name, _)| *name == outcome);
        match found {
            None => 0,
            Some((_, Allowance::Each(count))) => count * times,
            Some((_, Allowance::Any)) => u64::MAX,
        }
    }

    /// The allowed outcomes in words.
    pub fn allowance(&self) -> String {
        let in_words = |(name, allowance): &(&str, Allowance)| match allowance {
            Allowance::Each(count) => format!("{count} {name} each"),
            Allowance::Any => name.to_string(),
        };
        let all: Vec<String> = self.may_lose.iter().map(in_words).collect();
        if all.is_empty() { "0".to_owned() } else { all.join(", ") }
    }
}

/// A server under a fault, and the fault's state between two occurrences.
pub struct Scene<'a> {
    server: &'a mut Server,
    rng: Rng,
    next: Nanos,
    times: u64,
    stopped: Option<Pid>,
    held: Vec<TcpStream>,
    guard: Option<Child>,
    /// The process that an upgrade replaces.
    replaced: Option<Pid>,
}

impl<'a> Scene<'a> {
    /// A scene before the first occurrence.
    pub fn new(server: &'a mut Server, rng: Rng) -> Scene<'a> {
        Scene {
            server,
            rng,
            next: Nanos::ZERO,
            times: 0,
            stopped: None,
            held: Vec::new(),
            guard: None,
            replaced: None,
        }
    }

    /// Makes a fault happen for each period that has passed.
    ///
    /// # Errors
    /// The act fails.
    pub fn advance(&mut self, fault: &Fault, since: Nanos) -> anyhow::Result<()> {
        let Some((every, act)) = fault.every else { return Ok(()) };
        while since >= self.next {
            self.times += act(self)?;
            self.next += every;
        }
        Ok(())
    }

    /// Continues a stopped worker.
    ///
    /// # Errors
    /// A stopped process cannot be continued.
    pub fn calm_down(&mut self) -> anyhow::Result<()> {
        if let Some(worker) = self.stopped.take() {
            kill_process(worker, Signal::CONT)?;
        }
        Ok(())
    }

    /// Continues a stopped worker, and returns the number of occurrences.
    ///
    /// # Errors
    /// A stopped process cannot be continued.
    pub fn end(mut self) -> anyhow::Result<u64> {
        self.calm_down()?;
        Ok(self.times)
    }

    /// All processes of the server.
    pub fn processes(&self) -> Vec<Pid> {
        iter::once(self.server.process()).chain(self.server.workers()).collect()
    }

    fn worker(&mut self) -> Option<Pid> {
        self.server.workers().choose(&mut self.rng).copied()
    }

    /// Holds a connection. Closes the oldest if more than `most` are held.
    fn hold(&mut self, stream: TcpStream, most: usize) {
        self.held.push(stream);
        if self.held.len() > most {
            self.held.remove(0);
        }
    }
}

fn kill_worker(scene: &mut Scene<'_>) -> anyhow::Result<u64> {
    let Some(worker) = scene.worker() else { return Ok(0) };
    kill_process(worker, Signal::KILL)?;
    Ok(1)
}

fn stop_or_continue_worker(scene: &mut Scene<'_>) -> anyhow::Result<u64> {
    if let Some(worker) = scene.stopped.take() {
        kill_process(worker, Signal::CONT)?;
        return Ok(0);
    }
    scene.stopped = scene.worker();
    let Some(worker) = scene.stopped else { return Ok(0) };
    kill_process(worker, Signal::STOP)?;
    Ok(1)
}

/// Whole, empty, half-written and wrong by turns.
fn reread(scene: &mut Scene<'_>) -> anyhow::Result<u64> {
    const TEXTS: [&str; 4] =
        ["accept-limit = \"1\"\n", "", "accept-limit = \"in", "accept-limit = \"many\"\n"];
    fs::write(scene.server.config(), TEXTS[scene.times as usize % TEXTS.len()])?;
    kill_process(scene.server.process(), Signal::HUP)?;
    Ok(1)
}

/// A client asks for a long file, which is cut short and made long again.
fn truncate(scene: &mut Scene<'_>) -> anyhow::Result<u64> {
    let stream = peers::asking(scene.server.address, LARGE)?;
    let file = File::options().write(true).open(scene.server.file(LARGE))?;
    file.set_len(scene.rng.random_range(0..LARGE_BYTES))?;
    file.set_len(LARGE_BYTES)?;
    scene.hold(stream, 8);
    Ok(1)
}

/// Fills the disk of the access log, or empties it, by turns.
fn fill_or_empty_disk(scene: &mut Scene<'_>) -> anyhow::Result<u64> {
    let filler = scene.server.on_disk("filler");
    if fs::remove_file(&filler).is_ok() {
        File::options().write(true).open(scene.server.on_disk(LOG))?.set_len(0)?;
        return Ok(0);
    }
    let full = fs::write(&filler, vec![b'f'; DISK_BYTES as usize]).err().map(|error| error.kind());
    ensure!(full == Some(ErrorKind::StorageFull), "the disk is not full: {full:?}");
    Ok(1)
}

fn hold_idle(scene: &mut Scene<'_>) -> anyhow::Result<u64> {
    let stream = peers::idle(scene.server.address, SMALL)?;
    scene.hold(stream, 200);
    Ok(1)
}

/// At first, 8 MiB are all the address space that the server gets from now on. Then it is asked for many files.
fn fill_cache(scene: &mut Scene<'_>) -> anyhow::Result<u64> {
    if scene.times == 0 {
        for process in scene.processes() {
            let most = address_space(number(process))?.0 + (8 << 20);
            let hard = getrlimit(Resource::As).maximum;
            prlimit(Some(process), Resource::As, Rlimit { current: Some(most), maximum: hard })?;
        }
    }
    let file = format!("{}.bin", scene.rng.random_range(0..MANY));
    peers::idle(scene.server.address, &file)?;
    Ok(1)
}

fn read_nothing(scene: &mut Scene<'_>) -> anyhow::Result<u64> {
    let stream = peers::asking(scene.server.address, LARGE)?;
    scene.hold(stream, 8);
    Ok(1)
}

/// Each of a few clients sends one more byte of a head that never ends.
fn drip(scene: &mut Scene<'_>) -> anyhow::Result<u64> {
    // The server has given up those that cannot send any more.
    scene.held.retain_mut(|stream| stream.write_all(b"x").is_ok());
    if scene.held.len() < 8 {
        let mut stream = peers::silent(scene.server.address)?;
        stream.write_all(b"GET / HTTP/1.1\r\nx-")?;
        scene.held.push(stream);
    }
    Ok(1)
}

fn send_garbage(scene: &mut Scene<'_>) -> anyhow::Result<u64> {
    const KNOWN: [&[u8]; 4] = [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"SSH-2.0-x\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/5.6\r\n\r\n",
    ];
    let random: [u8; 64] = scene.rng.random();
    let bytes = if scene.rng.random() { &random[..] } else { KNOWN[scene.rng.random_range(0..KNOWN.len())] };
    peers::garbage(scene.server.address, bytes)?;
    Ok(1)
}

/// Moves the server's time of day by years, to and fro. Only moves that its own date shows count.
fn move_clock(scene: &mut Scene<'_>) -> anyhow::Result<u64> {
    const YEAR: i64 = 365 * 86_400;
    /// The first goes to the epoch, where a machine without a battery begins.
    const MOVES: [i64; 5] = [-60 * YEAR, -2 * YEAR, 0, 2 * YEAR, 30 * YEAR];
    let moved = MOVES[scene.rng.random_range(0..MOVES.len())];
    let date = scene.server.move_clock(moved)?;
    let seconds = RealClock::new().wall().seconds.saturating_add_signed(moved);
    let expected = HttpDate::new(WallTime { seconds });
    /// `Sun, 06 Nov 1994`.
    const DAY: usize = 16;
    Ok(u64::from(moved != 0 && date.as_bytes().get(..DAY) == expected.value().get(..DAY)))
}

/// Replaces the serving process again and again, while clients drip heads, ask and leave, and send no requests at all.
fn upgrade_under_attack(scene: &mut Scene<'_>) -> anyhow::Result<u64> {
    // The predecessor may end before it has heard of an attacker. The losses of the load count.
    let _ = drip(scene);
    let _ = send_garbage(scene);
    let _ = peers::asking(scene.server.address, LARGE);
    // Twice a second: to start a program with twenty workers takes a tenth of a second, and the load wants its CPUs too.
    let (serving, is_time) = (scene.server.process(), scene.next.0.is_multiple_of(Nanos::from_millis(500).0));
    if !is_time || scene.replaced == Some(serving) {
        return Ok(0);
    }
    let upgraded = scene.replaced.replace(serving).is_some();
    kill_process(serving, Signal::USR2)?;
    Ok(u64::from(upgraded))
}

/// Kills the guard of the server, and starts another one. A guard that had not begun yet does not count.
fn kill_guard(scene: &mut Scene<'_>) -> anyhow::Result<u64> {
    let mut killed = 0;
    if let Some(mut guard) = scene.guard.take() {
        let ended_before = guard.wait(Nanos::ZERO)?.is_some();
        guard.kill()?;
        let said = guard.output(TICK, || true)?.stderr;
        let said = String::from_utf8_lossy(&said);
        ensure!(!ended_before, "the guard ended by itself: {said}");
        killed = u64::from(said.contains("guarding "));
    }
    scene.guard = Some(scene.server.start_guard()?);
    Ok(killed)
}

fn terminate(scene: &mut Scene<'_>) -> anyhow::Result<u64> {
    // The fault comes later, when the load has run for a while.
    if scene.next == Nanos::ZERO || scene.times > 0 {
        return Ok(0);
    }
    kill_process(scene.server.process(), Signal::TERM)?;
    Ok(1)
}
