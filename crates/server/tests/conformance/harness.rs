//! The variants of the server, and one of them running.

use std::fs;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use base::setting::Chosen;
use base::{Clock, Limit, Nanos, RealClock};
use server::{
    AcceptLimit, Architecture, Drained, Driver, HostConfig, LogFormat, ServeConfig, ServeError, Server,
    architecture,
};
use tempfile::TempDir;

use super::client::Client;

macro_rules! names {
    ($($name:literal => $mechanism:ty,)*) => { &[$($name),*] };
}
pub const MECHANISMS: &[&str] = dispatch::for_each_mechanism!(names);

/// Longer than anything takes but a failure.
const PATIENCE: Nanos = Nanos::from_secs(30);

/// One thread for each connection.
const PER_CONNECTION: (&str, &str) = ("--threads", "per-connection");

/// The settings whose every value is a variant.
const SETTINGS: [(&str, &str); 8] = [
    ("--wake", "exclusive"),
    ("--wake", "one"),
    ("--wake", "mutex"),
    ("--wake", "all"),
    ("--wake", "steered"),
    ("--batch", "serial"),
    ("--batch", "interleaved"),
    PER_CONNECTION,
];

/// A setting of an architecture, by its flag.
pub fn chosen(flag: &str, value: &str) -> Chosen {
    let mut settings = architecture::settings().into_iter();
    let setting = settings.find(|setting| setting.declaration().flag == flag).unwrap();
    let mut chosen = Chosen::default();
    chosen.add(setting, value).unwrap();
    chosen
}

/// One way to run the server.
#[derive(Clone, Copy)]
pub struct Variant {
    pub architecture: &'static Architecture,
    dispatch: Option<&'static str>,
    driver: Option<Driver>,
    /// A setting of the architecture.
    pub setting: Option<(&'static str, &'static str)>,
    /// In place of the few that there are otherwise.
    pub workers: Option<usize>,
}

impl Variant {
    /// An architecture with nothing else chosen.
    pub fn plain(architecture: &'static Architecture) -> Variant {
        Variant { architecture, dispatch: None, driver: None, setting: None, workers: None }
    }

    pub fn name(&self) -> String {
        let mut words = vec![self.architecture.name.to_owned()];
        words.extend(self.dispatch.map(str::to_owned));
        words.extend(self.driver.map(|driver| driver.to_string()));
        words.extend(self.setting.map(|(_, value)| value.to_owned()));
        words.join(" ")
    }

    /// Nearly everything at its default. Few threads, so that each serves more than one connection.
    pub fn config(&self, root: &Files) -> ServeConfig {
        let workers = match self.architecture.name {
            "per-core" => Some(2),
            "mt" if self.setting != Some(PER_CONNECTION) => Some(16),
            "knot-c" => Some(16),
            _ => None,
        };
        ServeConfig {
            hosts: vec![HostConfig {
                names: Vec::new(),
                root: Some(root.folder.path().to_owned()),
                site: site::Options::default(),
                access_log: None,
            }],
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            listen_http: Vec::new(),
            dispatch: self.dispatch,
            driver: self.driver,
            chosen: self.setting.map(|(flag, value)| chosen(flag, value)).unwrap_or_default(),
            accept_limit: Some(AcceptLimit::Fixed(Limit::AtMost(1))),
            read_after_accept: false,
            mechanism: Default::default(),
            workers: self.workers.or(workers),
            cpus: Vec::new(),
            max_connections: 1000,
            clients: server::ClientSettings::default(),
            backlog: 1024,
            // On a busy machine a server is overloaded, and would refuse some requests.
            overload: Some(server::Switch::Off),
            queue_target: None,
            overload_hook: None,
            burn: Nanos::ZERO,
            admin: None,
            agent_check: None,
            load_reports: false,
            http: http_semantics::server::Settings::default(),
            kernel_cache: false,
            tls: Vec::new(),
            access_log: None,
            log_format: LogFormat::Combined,
            account: None,
            confine: server::Switch::Off,
            upgrade: server::Switch::Off,
            reads_again: Vec::new(),
            drain_timeout: Nanos::from_secs(20),
        }
    }
}

/// Lists every architecture by itself and on every mechanism, and every choice by itself. Leaves out combinations
/// that the server refuses. Also leaves out separate queues for threads, where a connection waits behind another that
/// stays.
fn variants() -> Vec<Variant> {
    let files = Files::new();
    let mut all = Vec::new();
    for architecture in architecture::ALL.iter().copied() {
        let plain = Variant::plain(architecture);
        all.push(plain);
        all.extend(MECHANISMS.iter().map(|name| Variant { dispatch: Some(name), ..plain }));
        all.push(Variant { driver: Some(Driver::Completion), ..plain });
        all.extend(SETTINGS.map(|setting| Variant { setting: Some(setting), ..plain }));
    }
    all.retain(|variant| match Server::start(variant.architecture, variant.config(&files), None) {
        Ok(server) => {
            server.shut_down().unwrap_or_else(|error| panic!("{}: {error}", variant.name()));
            true
        }
        Err(ServeError::Setting { .. }) => false,
        Err(ServeError::Processes { .. }) => {
            println!("skipped: {} needs the program for its worker processes", variant.name());
            false
        }
        Err(error) => panic!("{}: {error}", variant.name()),
    });
    for name in MECHANISMS {
        assert!(all.iter().any(|variant| variant.dispatch == Some(name)), "nothing runs on {name}");
    }
    all
}

/// Runs a case on every variant, one after another.
pub fn on_every(case: impl Fn(&Variant, &Files)) {
    let _alone = alone();
    let files = Files::new();
    for variant in variants() {
        println!("{}", variant.name());
        case(&variant, &files);
    }
}

/// Runs a case on every variant at once, for cases that mostly wait. They cannot count descriptors and threads.
pub fn on_every_at_once(case: impl Fn(&Variant, &Files) + Sync) {
    let _alone = alone();
    let (files, variants) = (Files::new(), variants());
    let before = held();
    std::thread::scope(|scope| {
        for variant in &variants {
            let (case, files) = (&case, &files);
            // The counts leave out threads of this name.
            let thread = std::thread::Builder::new().name("cases::at_once".to_owned());
            thread.spawn_scoped(scope, move || case(variant, files)).unwrap();
        }
    });
    until("descriptors and threads to be gone", || no_more_than(before));
}

/// Cases count the descriptors and threads of this process: one at a time.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The files of the site.
pub struct Files {
    folder: TempDir,
    pub contents: Vec<(String, Vec<u8>)>,
}

impl Files {
    /// One in the head's segment, one beyond it, one that is sent from the file, and one that fills buffers.
    pub fn new() -> Files {
        let folder = tempfile::tempdir().unwrap();
        let contents: Vec<(String, Vec<u8>)> = [10, 20_000, 200_000, 3_000_000]
            .map(|length: usize| {
                let name = format!("{length}.bin");
                (name, (0..length).map(|at| (at / 7 + at * length) as u8).collect())
            })
            .into();
        for (name, content) in &contents {
            fs::write(folder.path().join(name), content).unwrap();
        }
        Files { folder, contents }
    }

    pub fn largest(&self) -> &(String, Vec<u8>) {
        self.contents.last().unwrap()
    }
}

/// A server of this process, and what there was before it.
pub struct Running {
    server: Server,
    pub address: SocketAddr,
    before: (usize, usize),
}

impl Running {
    pub fn start(variant: &Variant, config: ServeConfig) -> Running {
        let before = held();
        let server = Server::start(variant.architecture, config, None).unwrap();
        let address = server.addresses()[0];
        Running { server, address, before }
    }

    pub fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    pub fn counters(&self) -> server::Counters {
        self.server.counters()
    }

    /// Waits until the counters say so.
    pub fn until(&self, what: &str, reached: impl Fn(&server::Counters) -> bool) {
        until_or(what, || reached(&self.counters()), || format!("{:?}", self.counters()));
    }

    /// Shuts down, and sees that nothing is left behind. The caller has closed all of its own.
    pub fn stop(self) -> Drained {
        self.stop_before(|| ())
    }

    /// Shuts down, and then lets the clients find out.
    pub fn stop_before(self, clients: impl FnOnce()) -> Drained {
        let drained = self.server.shut_down().unwrap();
        clients();
        until("descriptors and threads to be gone", || no_more_than(self.before));
        drained
    }

    /// Begins to shut down, lets the clients do what they will, and gives how it went.
    pub fn stop_while(self, clients: impl FnOnce() + Send) -> Drained {
        let (server, before) = (self.server, self.before);
        let drained = std::thread::scope(|scope| {
            let ends = scope.spawn(|| server.shut_down().unwrap());
            clients();
            ends.join().unwrap()
        });
        until("descriptors and threads to be gone", || no_more_than(before));
        drained
    }
}

/// Counts descriptors and threads of this process. Leaves out the threads of the test harness, which come and go. The
/// first one has the program's name, the others have their tests' names.
fn held() -> (usize, usize) {
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().count();
    let tasks = fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok);
    // A thread that has ended since the folder was read has no name.
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    let of_tests = ["cases::", "legal::", "paced::", "secure::", "conformance"];
    let threads = names.filter(|name| !of_tests.iter().any(|test| name.starts_with(test)));
    (descriptors, threads.count())
}

/// True if no more is held than `before`. A thread of an earlier server may have been counted on its way out.
fn no_more_than(before: (usize, usize)) -> bool {
    let now = held();
    now.0 <= before.0 && now.1 <= before.1
}

/// Waits until something is so.
pub fn until(what: &str, reached: impl FnMut() -> bool) {
    until_or(what, reached, || format!("{:?}", held()));
}

/// The same; `state` tells more about a wait in vain.
fn until_or(what: &str, mut reached: impl FnMut() -> bool, state: impl Fn() -> String) {
    let clock = RealClock::new();
    let end = clock.now() + PATIENCE;
    while !reached() {
        assert!(clock.now() < end, "waited in vain for {what}: {}", state());
        std::thread::yield_now();
    }
}
