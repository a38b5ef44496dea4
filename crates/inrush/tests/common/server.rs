//! `inrush serve` as a child process.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{ChildStderr, ChildStdout};

use base::Nanos;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use serde_json::Value;
use sys::process::{Child, Program};

use super::{Client, PATIENCE};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_inrush");
/// Time between two readings of `/status`, half of the maximum age of its figures.
const LOOK_EVERY: Nanos = Nanos::from_millis(5);

/// A running server, killed when dropped.
pub struct Server {
    child: Child,
    stderr: BufReader<ChildStderr>,
    /// The lines that the server wrote to stderr before it was ready.
    pub said: String,
    /// The address that it serves.
    pub address: SocketAddr,
    /// A connection to the admin interface, made at the start. It stays when descriptors run out.
    pub admin: Client,
    pub admin_address: SocketAddr,
}

/// `/status` at one moment.
#[derive(Debug)]
pub struct Status(pub Value);

impl Status {
    /// A counter by its name.
    pub fn count(&self, name: &str) -> u64 {
        let counters = &self.0["counters"];
        counters[name].as_u64().unwrap_or_else(|| panic!("no counter {name} in {counters}"))
    }

    pub fn connections(&self) -> u64 {
        self.0["connections"].as_u64().unwrap()
    }
}

fn arguments(root: &Path, flags: &[&str]) -> Vec<OsString> {
    let fixed = ["serve", "--listen=127.0.0.1:0", "--admin=127.0.0.1:0"];
    let words = fixed.iter().chain(flags).map(OsString::from);
    words.chain([root.as_os_str().to_owned()]).collect()
}

/// A flag of a server that must answer all requests. On a busy machine a server is overloaded, and refuses some.
const ANSWER_ALL: &str = "--overload=off";

impl Server {
    /// Serves `root` from one loop on `mechanism`, without overload control.
    pub fn sped(root: &Path, mechanism: &str, flags: &[&str]) -> Server {
        let flags = [&["--arch=sped", "--dispatch", mechanism], flags].concat();
        Server::start(root, &flags)
    }

    /// Serves `root` with these flags, and without overload control.
    pub fn start(root: &Path, flags: &[&str]) -> Server {
        Server::start_with_control(root, &[flags, &[ANSWER_ALL]].concat())
    }

    /// Serves `root` with these flags alone, so with overload control unless they turn it off.
    pub fn start_with_control(root: &Path, flags: &[&str]) -> Server {
        Server::from(Program::new(PROGRAM).arguments(arguments(root, flags)))
    }

    /// Serves what the flags alone name, without overload control.
    pub fn start_without_root(flags: &[&str]) -> Server {
        let mut words = arguments(Path::new(""), &[flags, &[ANSWER_ALL]].concat());
        words.pop();
        Server::from(Program::new(PROGRAM).arguments(words))
    }

    /// Serves `root` by this program, which is or starts ours.
    pub fn start_by(program: Program<'_>, root: &Path, flags: &[&str]) -> Server {
        Server::from(program.arguments(arguments(root, flags)))
    }

    /// Serves `root` with at most `most` descriptors and without overload control.
    pub fn start_with_descriptors(most: u32, root: &Path, flags: &[&str]) -> Server {
        let script = format!("ulimit -n {most}; exec \"$0\" \"$@\"");
        let program = Program::new("sh").arguments(["-c", &script, PROGRAM]);
        Server::from(program.arguments(arguments(root, &[flags, &[ANSWER_ALL]].concat())))
    }

    /// Serves `root` without any capability.
    pub fn start_without_capabilities(root: &Path, flags: &[&str]) -> Server {
        let none = ["--bounding-set=-all", "--inh-caps=-all", PROGRAM].map(OsString::from);
        Server::from(Program::new("setpriv").arguments(none.into_iter().chain(arguments(root, flags))))
    }

    fn from(program: Program<'_>) -> Server {
        let mut child = program.start().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let (mut said, mut address, mut admin) = (String::new(), None, None);
        while admin.is_none() {
            let from = said.len();
            assert!(stderr.read_line(&mut said).unwrap() > 0, "it ended at the start: {said}");
            let line = said[from..].trim_end();
            let parse = |text: &str| text.parse::<SocketAddr>().unwrap();
            address = address.or_else(|| line.strip_prefix("listening on ").map(parse));
            admin = line.strip_prefix("admin on ").map(parse);
        }
        let (address, admin_address) = (address.unwrap(), admin.unwrap());
        let admin = Client::connect(admin_address);
        let mut server = Server { child, stderr, said, address, admin, admin_address };
        // From here on the server has accepted the connection, not only queued it, and the loops have begun.
        server.eventually("listening", |status| status.0["queue"]["limit"] != 0);
        server
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// The server's standard output; may be called once.
    pub fn stdout(&mut self) -> BufReader<ChildStdout> {
        BufReader::new(self.child.stdout.take().unwrap())
    }

    /// The server's status, with figures at most 10 ms old.
    pub fn status(&mut self) -> Status {
        let response = self.admin.get("/status");
        assert_eq!(response.status, 200);
        Status(serde_json::from_slice(&response.body).unwrap())
    }

    /// Reads `/status` until `shows` returns true, and returns the status.
    pub fn eventually(&mut self, what: &str, shows: impl Fn(&Status) -> bool) -> Status {
        let mut last = None;
        for _ in 0..PATIENCE.as_nanos() / u128::from(LOOK_EVERY.0) {
            let status = self.status();
            if shows(&status) {
                return status;
            }
            last = Some(status);
            pause(LOOK_EVERY);
        }
        panic!("never {what}: {last:#?}");
    }

    /// Waits until `shows` returns true, for facts that `/status` does not have.
    pub fn eventually_of(&mut self, what: &str, mut shows: impl FnMut(&mut Server) -> bool) {
        eventually(what, || shows(self));
    }

    /// Number of open sockets of the server and its processes.
    pub fn sockets(&self) -> usize {
        self.children().into_iter().chain([self.child.id()]).map(sockets).sum()
    }

    /// Number of open descriptors of the server, without its processes.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).map_or(0, Iterator::count)
    }

    /// The processes that the server has started.
    pub fn children(&self) -> Vec<u32> {
        self.children_of(self.child.id())
    }

    /// The process that the test started.
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// The processes that another process started.
    pub fn children_of(&self, process: u32) -> Vec<u32> {
        let stat = |process: u32| std::fs::read_to_string(format!("/proc/{process}/stat")).ok();
        let parent = |stat: String| stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok();
        let folder = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        let all = folder.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        all.filter(|child| stat(*child).and_then(parent) == Some(process)).collect()
    }

    /// Stops a process of the server, and returns once no thread of it does anything any more: the thread that takes
    /// the signal must get a processor before the others stop.
    pub fn stop_process(&mut self, process: u32) {
        kill_process(Pid::from_raw(process as i32).unwrap(), Signal::STOP).unwrap();
        let stopped = |_: &mut Server| {
            let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
            let stat =
                |task: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(task?.path().join("stat"));
            let is_stopped = |stat: String| stat.rsplit(')').next().unwrap().trim_start().starts_with('T');
            tasks.map(stat).all(|stat| is_stopped(stat.unwrap()))
        };
        self.eventually_of("stopped", stopped);
    }

    /// The server's process id.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Sends the server a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Runs `then` while every thread of the server is stopped. When the server continues, it finds all
    /// results of the kernel's work during that time, such as completed connections.
    pub fn while_stopped<T>(&self, then: impl FnOnce() -> T) -> T {
        self.signal(Signal::STOP);
        let waited = waitpid(Some(self.pid()), WaitOptions::UNTRACED).unwrap().expect("a change of state");
        assert!(waited.1.stopped(), "it ended instead of stopping");
        let result = then();
        self.signal(Signal::CONT);
        result
    }

    /// The next line that the server writes to stderr.
    pub fn says(&mut self) -> String {
        let mut line = String::new();
        assert!(self.stderr.read_line(&mut line).unwrap() > 0, "it ended");
        line
    }

    /// Asks the server to end and waits. Returns its exit code and the lines that it wrote to stderr since it
    /// was ready.
    #[must_use]
    pub fn stop(mut self) -> (Option<i32>, String) {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Waits for the server's end, which the test must have caused.
    pub fn wait(&mut self) -> (Option<i32>, String) {
        let exit = self.child.wait(Nanos(PATIENCE.as_nanos() as u64)).unwrap().expect("it ends");
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).unwrap();
        (exit.status.code(), said)
    }

    /// Waits until the server has stopped listening, as a draining one does.
    pub fn refuses_connections(&mut self) {
        self.eventually_of("deaf", |server| std::net::TcpStream::connect(server.address).is_err());
    }

    /// Asks the server to end, and asserts that it ends without a message.
    pub fn stop_well(self) {
        assert_eq!(self.stop(), (Some(0), String::new()));
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32).unwrap()
    }
}

/// Sends a signal to a process.
pub fn send(process: u32, signal: Signal) {
    kill_process(Pid::from_raw(process as i32).unwrap(), signal).unwrap();
}

/// Waits until the condition holds.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..PATIENCE.as_nanos() / u128::from(LOOK_EVERY.0) {
        if holds() {
            return;
        }
        pause(LOOK_EVERY);
    }
    panic!("never {what}");
}

/// Number of sockets that a process has open.
pub fn sockets(process: u32) -> usize {
    let folder = std::fs::read_dir(format!("/proc/{process}/fd"));
    folder.map_or(0, |folder| folder.filter_map(Result::ok).filter(is_socket).count())
}

fn is_socket(entry: &std::fs::DirEntry) -> bool {
    std::fs::read_link(entry.path()).is_ok_and(|link| link.to_string_lossy().starts_with("socket:"))
}

/// True if a process is gone or waits to be reaped by its new parent.
pub fn has_ended(process: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{process}/stat")) else { return true };
    stat.rsplit(')').next().unwrap().trim_start().starts_with('Z')
}

/// Lets other processes work for a moment. A signal ends it early.
pub fn pause(time: Nanos) {
    if let Err(error) = sys::readiness::poll::wait(&mut [], Some(time)) {
        assert_eq!(error.kind(), std::io::ErrorKind::Interrupted, "{error}");
    }
}
