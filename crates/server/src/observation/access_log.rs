//! The access logs of the server and of hosts: the loops make lines, and one thread writes them. When a disk is slow
//! or full, lines are dropped and counted; requests never wait for it.
//!
//! Each loop collects lines separately for each log. It hands over a batch when the batch is large, or when the loop
//! publishes its counters. The queue of batches is bounded; a batch that finds it full is dropped and counted.
//! `routes` chooses the log.

mod routes;

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use base::{Clock, Nanos, RealClock, WallTime, lock};
use confine::Account;
use http_semantics::Version;
use http_semantics::server::{Entry, Log};
use rustix::fs::OFlags;

use crate::config::serve::{LogFormat, LogTarget, ServeConfig};
use crate::ground::error::{ServeError, system};
use crate::ground::privileges::wait_until_confined;
use routes::Routes;

/// The size at which a batch is handed over.
const BATCH_BYTES: usize = 32 * 1024;
/// Waiting batches before lines are dropped: 8 MiB.
const BATCHES: usize = 256;
/// The longest wait for the log's last lines at the end of a process.
const PATIENCE: Nanos = Nanos::SECOND;
/// The shortest time between two reports of a failing disk on stderr.
const COMPLAIN_EVERY: Nanos = Nanos::from_secs(10);

enum Message {
    /// A batch, at most one part for each log.
    Lines(Vec<Lines>),
    Reopen,
    /// The logs end, even if senders remain.
    End,
}

/// Lines for one log.
struct Lines {
    /// The place of the log.
    log: usize,
    text: Vec<u8>,
    count: u64,
}

impl Lines {
    fn none(log: usize) -> Lines {
        Lines { log, text: Vec::new(), count: 0 }
    }
}

/// The writing end of all logs, shared by all loops.
#[derive(Clone, Debug)]
pub struct LogSender {
    batches: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
    /// A message to open the files again found the queue full.
    reopens: Arc<AtomicBool>,
    format: LogFormat,
    routes: Arc<Routes>,
}

impl LogSender {
    /// Asks for the files to be opened again, after a rotation.
    pub fn reopen(&self) {
        if self.batches.try_send(Message::Reopen).is_err() {
            self.reopens.store(true, Ordering::Release);
        }
    }

    /// Returns the number of lines lost so far, by all loops.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// Signals the end of the logs' thread.
pub struct LogEnd(Mutex<Receiver<()>>);

impl LogEnd {
    /// Waits until the thread has written its batches, at most for `patience`, because a pipe without a reader must
    /// not delay the server's end. Returns true if the thread has ended.
    pub fn wait(&self, patience: Nanos) -> bool {
        let alive = lock(&self.0);
        alive.recv_timeout(patience.into()) == Err(RecvTimeoutError::Disconnected)
    }
}

/// Opens the logs of a configuration and starts their thread, which ends when the last sender is gone. Returns `None` for a
/// configuration without any.
///
/// # Errors
/// [`ServeError::Log`]: a file cannot be opened for appending; [`ServeError::System`]: no thread can be started.
pub fn of(config: &ServeConfig) -> Result<Option<(LogSender, LogEnd)>, ServeError> {
    let Some(routes) = Routes::of(config)? else { return Ok(None) };
    let open = |target: &LogTarget| {
        let sink = open(target, config.account.as_ref()).map_err(|cause| failed(target, cause))?;
        Ok(Writer::new(target.clone(), sink))
    };
    let writers = routes.targets().iter().map(open).collect::<Result<Vec<_>, ServeError>>()?;
    let (batches, incoming) = sync_channel(BATCHES);
    let (dropped, reopens) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (lost, reopen) = (Arc::clone(&dropped), Arc::clone(&reopens));
    let (alive, ended) = sync_channel(0);
    let body = move || {
        // A thread that kept a capability would only write these logs with it.
        let _ = wait_until_confined();
        write_all(writers, incoming, &lost, &reopen);
        drop(alive);
    };
    let thread = std::thread::Builder::new().name("access-log".into()).spawn(body);
    thread.map_err(system("start the access log"))?;
    let sender = LogSender { batches, dropped, reopens, format: config.log_format, routes: Arc::new(routes) };
    Ok(Some((sender, LogEnd(Mutex::new(ended)))))
}

fn failed(target: &LogTarget, cause: io::Error) -> ServeError {
    match target {
        LogTarget::File(path) => ServeError::Log { path: path.clone(), cause },
        LogTarget::Stdout => ServeError::System { what: "start the access log", cause },
    }
}

/// Opens the logs of a configuration for a moment, and leaves no file behind that was not there.
///
/// # Errors
/// [`ServeError::Log`]: a file cannot be opened for appending.
pub fn check(config: &ServeConfig) -> Result<(), ServeError> {
    config.logs().into_iter().try_for_each(check_one)
}

fn check_one(target: &LogTarget) -> Result<(), ServeError> {
    let LogTarget::File(path) = target else { return Ok(()) };
    let is_new = !path.exists();
    let tried = open(target, None).and_then(|_| match is_new {
        // The file itself, if the path is a symbolic link.
        true => std::fs::remove_file(std::fs::canonicalize(path)?),
        false => Ok(()),
    });
    tried.map_err(|cause| failed(target, cause))
}

/// Lets the logs take their last lines, and reports a failure. Blocks, at most for [`PATIENCE`].
pub fn close(sender: LogSender, end: &LogEnd) {
    // A queue that is full ends when the last sender is dropped.
    let _ = sender.batches.try_send(Message::End);
    drop(sender);
    if !end.wait(PATIENCE) {
        sys::say!("inrush: the access log did not take its last lines within {PATIENCE}");
    }
}

/// Opens a target. Makes the account the owner of a regular file, so that it can open the file again after a
/// rotation.
fn open(target: &LogTarget, account: Option<&Account>) -> io::Result<Box<dyn Write + Send>> {
    Ok(match target {
        LogTarget::Stdout => Box::new(io::stdout()),
        LogTarget::File(path) => {
            // Without this flag, opening a FIFO would wait for a reader.
            let flags = OFlags::NONBLOCK.bits() as i32;
            let file = OpenOptions::new().append(true).create(true).custom_flags(flags).open(path)?;
            account.map_or(Ok(()), |account| account.own(&file))?;
            Box::new(file)
        }
    })
}

/// Writes all batches that come, each part to its log. A log that fails does not hinder the others.
fn write_all(
    mut writers: Vec<Writer>,
    incoming: Receiver<Message>,
    dropped: &AtomicU64,
    reopens: &AtomicBool,
) {
    let clock = RealClock::new();
    for message in incoming {
        let mut failures =
            if reopens.swap(false, Ordering::Acquire) { reopen(&mut writers) } else { Vec::new() };
        match message {
            Message::Lines(batch) => {
                let write = |lines: Lines| {
                    let error = writers[lines.log].write(&lines.text).err()?;
                    dropped.fetch_add(lines.count, Ordering::Relaxed);
                    Some((lines.log, error))
                };
                failures.extend(batch.into_iter().filter_map(write));
            }
            Message::Reopen => failures.extend(reopen(&mut writers)),
            Message::End => return,
        }
        for (log, error) in failures {
            writers[log].complain(&error, dropped.load(Ordering::Relaxed), clock.now());
        }
    }
}

/// Opens all files again, and returns the logs for which that failed.
fn reopen(writers: &mut [Writer]) -> Vec<(usize, io::Error)> {
    let logs = writers.iter_mut().enumerate();
    logs.filter_map(|(log, writer)| Some((log, writer.reopen().err()?))).collect()
}

/// The writing side of one log.
struct Writer {
    target: LogTarget,
    sink: Box<dyn Write + Send>,
    /// The last write ended in the middle of a line.
    torn: bool,
    complained: Option<Nanos>,
}

impl Writer {
    fn new(target: LogTarget, sink: Box<dyn Write + Send>) -> Writer {
        Writer { target, sink, torn: false, complained: None }
    }

    fn reopen(&mut self) -> io::Result<()> {
        self.sink = open(&self.target, None)?;
        let is_new = |path: &Path| std::fs::metadata(path).is_ok_and(|file| file.len() == 0);
        self.torn &= !matches!(&self.target, LogTarget::File(path) if is_new(path));
        Ok(())
    }

    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        if self.torn {
            self.sink.write_all(b"\n")?;
        }
        // A failed write may have left part of a line, so the next write begins on a new line.
        self.torn = true;
        self.sink.write_all(text)?;
        self.sink.flush()?;
        self.torn = false;
        Ok(())
    }

    fn complain(&mut self, error: &io::Error, dropped: u64, now: Nanos) {
        if self.complained.is_none_or(|last| now - last >= COMPLAIN_EVERY) {
            self.complained = Some(now);
            let log = match &self.target {
                LogTarget::File(path) => path.display().to_string(),
                LogTarget::Stdout => "-".to_owned(),
            };
            sys::say!("inrush: access log {log}: {error}; {dropped} lines dropped so far, serving goes on");
        }
    }
}

/// One loop's side of the logs: makes lines and collects them in batches.
pub struct LoopLog {
    sender: LogSender,
    /// The collected lines, by the place of their log.
    lines: Vec<Lines>,
    /// The size of all collected lines.
    bytes: usize,
    /// The peer of the connection that is being worked on.
    pub peer: Option<SocketAddr>,
    /// The time of day of this turn.
    pub wall: WallTime,
}

impl LoopLog {
    /// Makes a `LoopLog` without lines, at the present time of day.
    pub fn new(sender: LogSender) -> LoopLog {
        let lines = (0..sender.routes.targets().len()).map(Lines::none).collect();
        LoopLog { sender, lines, bytes: 0, peer: None, wall: RealClock::new().wall() }
    }

    /// Hands over the collected lines.
    pub fn flush(&mut self) {
        if self.bytes == 0 {
            return;
        }
        self.bytes = 0;
        let collected = self.lines.iter_mut().filter(|lines| lines.count > 0);
        let batch: Vec<Lines> =
            collected.map(|lines| std::mem::replace(lines, Lines::none(lines.log))).collect();
        let count: u64 = batch.iter().map(|lines| lines.count).sum();
        if self.sender.batches.try_send(Message::Lines(batch)).is_err() {
            self.sender.dropped.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Logs an entry for host number `host`, whatever host the entry names.
    pub fn entry_of(&mut self, host: u16, entry: &Entry<'_>) {
        self.put(self.sender.routes.of_host(host), entry);
    }

    /// Adds a line to the log at place `log`; does nothing for `None`.
    fn put(&mut self, log: Option<usize>, entry: &Entry<'_>) {
        let Some(log) = log else { return };
        let Lines { text, count, .. } = &mut self.lines[log];
        let before = text.len();
        let written = match self.sender.format {
            LogFormat::Combined => combined(text, entry, self.peer, self.wall),
            // The entry's times are those of turns, and a response may begin and end in one.
            LogFormat::Json => json(text, entry, self.peer, self.wall, RealClock::new().now()),
        };
        written.expect("writing to memory does not fail");
        *count += 1;
        self.bytes += text.len() - before;
        if self.bytes >= BATCH_BYTES {
            self.flush();
        }
    }
}

impl Log for LoopLog {
    fn client_is(&mut self, address: SocketAddr) {
        self.peer = Some(address);
    }

    fn entry(&mut self, entry: &Entry<'_>) {
        self.put(self.sender.routes.of_entry(entry), entry);
    }
}

fn version(entry: &Entry<'_>) -> &'static str {
    match entry.version {
        Some(Version::Http10) => "HTTP/1.0",
        Some(Version::Http11) => "HTTP/1.1",
        Some(Version::Http2) => "HTTP/2.0",
        None => "-",
    }
}

fn address(peer: Option<SocketAddr>) -> String {
    peer.map_or_else(|| "-".to_owned(), |peer| peer.ip().to_string())
}

/// Writes a field of a combined line. Quotes, backslashes and bytes that are not printable ASCII become `\xHH`, so
/// that no client can forge a line.
fn quoted(out: &mut Vec<u8>, bytes: &[u8]) -> io::Result<()> {
    if bytes.is_empty() {
        return out.write_all(b"\"-\"");
    }
    out.push(b'"');
    for byte in bytes {
        match byte {
            b'"' | b'\\' => write!(out, "\\x{byte:02X}")?,
            b' '..=b'~' => out.push(*byte),
            _ => write!(out, "\\x{byte:02X}")?,
        }
    }
    out.push(b'"');
    Ok(())
}

fn combined(
    out: &mut Vec<u8>,
    entry: &Entry<'_>,
    peer: Option<SocketAddr>,
    wall: WallTime,
) -> io::Result<()> {
    write!(out, "{} - - [{}] ", address(peer), clf_time(wall))?;
    let request = match entry.version {
        Some(_) => format!("{} {} {}", entry.method, entry.target, version(entry)),
        None => String::new(),
    };
    quoted(out, request.as_bytes())?;
    write!(out, " {} {} ", entry.status.0, entry.body_bytes)?;
    quoted(out, entry.referer)?;
    out.push(b' ');
    quoted(out, entry.user_agent)?;
    out.push(b'\n');
    Ok(())
}

/// `10/Oct/2000:13:55:36 +0000`, from the parts of an HTTP date.
fn clf_time(wall: WallTime) -> String {
    let date = http_semantics::HttpDate::new(wall);
    let text = std::str::from_utf8(date.value()).unwrap_or_default();
    // Sun, 06 Nov 1994 08:49:37 GMT
    format!("{}/{}/{}:{} +0000", &text[5..7], &text[8..11], &text[12..16], &text[17..25])
}

#[derive(serde::Serialize)]
struct JsonLine<'a> {
    time_unix_s: u64,
    client: String,
    method: &'a str,
    target: &'a str,
    version: &'a str,
    host: &'a str,
    status: u16,
    body_bytes: u64,
    sent_bytes: u64,
    complete: bool,
    duration_us: u64,
    referer: std::borrow::Cow<'a, str>,
    user_agent: std::borrow::Cow<'a, str>,
}

fn json(
    out: &mut Vec<u8>,
    entry: &Entry<'_>,
    peer: Option<SocketAddr>,
    wall: WallTime,
    now: Nanos,
) -> io::Result<()> {
    let finished = entry.finished.max(now);
    let line = JsonLine {
        time_unix_s: wall.seconds,
        client: address(peer),
        method: entry.method,
        target: entry.target,
        version: version(entry),
        host: entry.host,
        status: entry.status.0,
        body_bytes: entry.body_bytes,
        sent_bytes: entry.sent_bytes,
        complete: entry.complete,
        duration_us: finished.saturating_sub(entry.started).0.div_ceil(1000),
        referer: String::from_utf8_lossy(entry.referer),
        user_agent: String::from_utf8_lossy(entry.user_agent),
    };
    serde_json::to_writer(&mut *out, &line)?;
    out.push(b'\n');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_semantics::Status;

    fn entry() -> Entry<'static> {
        Entry {
            method: "GET",
            target: "/a?b",
            version: Some(Version::Http11),
            host: "example.org",
            referer: b"",
            user_agent: b"a \"b\"\xff",
            status: Status(200),
            sent_bytes: 300,
            body_bytes: 100,
            complete: true,
            started: Nanos(1_000),
            finished: Nanos(251_000),
        }
    }

    const PEER: &str = "192.0.2.7:4711";

    #[test]
    fn a_combined_line_cannot_be_forged() {
        let mut out = Vec::new();
        combined(&mut out, &entry(), PEER.parse().ok(), WallTime { seconds: 784_111_777 }).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "192.0.2.7 - - [06/Nov/1994:08:49:37 +0000] \"GET /a?b HTTP/1.1\" 200 100 \"-\" \"a \\x22b\\x22\\xFF\"\n"
        );
    }

    #[test]
    fn a_json_line_is_json() {
        let mut out = Vec::new();
        json(&mut out, &entry(), PEER.parse().ok(), WallTime { seconds: 5 }, Nanos::ZERO).unwrap();
        let line: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(line["duration_us"], 250);
        assert_eq!(line["client"], "192.0.2.7");
        assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1);
    }

    #[test]
    fn json_duration_counts_the_time_within_a_turn() {
        let started = entry().started;
        let same_turn = Entry { finished: started, ..entry() };
        for (later, duration) in [(1, 1), (1000, 1), (1001, 2), (5_000_000, 5000)] {
            let mut out = Vec::new();
            json(&mut out, &same_turn, None, WallTime { seconds: 5 }, started + Nanos(later)).unwrap();
            let line: serde_json::Value = serde_json::from_slice(&out).unwrap();
            assert_eq!(line["duration_us"], duration, "{later}");
        }
    }

    #[test]
    fn the_first_line_has_the_time_of_day() {
        let (batches, _incoming) = sync_channel(1);
        let routes = Arc::new(Routes::one(LogTarget::Stdout));
        let (dropped, reopens) = Default::default();
        let sender = LogSender { batches, dropped, reopens, format: LogFormat::Json, routes };
        assert_ne!(LoopLog::new(sender).wall, WallTime::default());
    }

    #[test]
    fn a_line_that_was_cut_off_is_ended_in_its_own_file() {
        let folder = tempfile::tempdir().unwrap();
        let (path, rotated) = (folder.path().join("log"), folder.path().join("log.1"));
        let target = LogTarget::File(path.clone());
        let mut writer = Writer::new(target.clone(), open(&target, None).unwrap());
        writer.write(b"cut").unwrap();
        writer.torn = true;
        writer.reopen().unwrap();
        assert!(writer.torn, "the file is the same");
        std::fs::rename(&path, rotated).unwrap();
        writer.reopen().unwrap();
        writer.write(b"next\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "next\n");
    }

    #[test]
    fn rotation_with_full_queue_reopens_before_next_line() {
        let folder = tempfile::tempdir().unwrap();
        let (path, rotated) = (folder.path().join("log"), folder.path().join("log.1"));
        let target = LogTarget::File(path.clone());
        let writer = Writer::new(target.clone(), open(&target, None).unwrap());
        let (batches, incoming) = sync_channel(1);
        let lines = Lines { log: 0, text: b"next\n".into(), count: 1 };
        batches.send(Message::Lines(vec![lines])).unwrap();
        let (dropped, reopens) = Default::default();
        let routes = Arc::new(Routes::one(target));
        let sender = LogSender { batches, dropped, reopens, format: LogFormat::Json, routes };
        std::fs::rename(&path, &rotated).unwrap();
        sender.reopen();
        let reopens = Arc::clone(&sender.reopens);
        drop(sender);
        write_all(vec![writer], incoming, &AtomicU64::new(0), &reopens);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "next\n");
        assert_eq!(std::fs::read_to_string(&rotated).unwrap(), "");
    }

    /// A disk that is full for a while.
    struct Full(Arc<AtomicU64>, Arc<std::sync::Mutex<Vec<u8>>>);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.0.load(Ordering::Relaxed) > 0 {
                self.0.fetch_sub(1, Ordering::Relaxed);
                return Err(io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error()));
            }
            self.1.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_costs_lines_and_counts_them() {
        let (failures, written) = (Arc::new(AtomicU64::new(1)), Arc::default());
        let sink = Box::new(Full(failures, Arc::clone(&written)));
        let dropped = AtomicU64::new(0);
        let writer = Writer::new(LogTarget::Stdout, sink);
        let (batches, incoming) = sync_channel(4);
        for text in ["first\n", "second\n"] {
            batches.send(Message::Lines(vec![Lines { log: 0, text: text.into(), count: 1 }])).unwrap();
        }
        drop(batches);
        write_all(vec![writer], incoming, &dropped, &AtomicBool::new(false));
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
        assert_eq!(String::from_utf8(written.lock().unwrap().clone()).unwrap(), "\nsecond\n");
    }
}
