//! Threads of the server: their start, and the end of the server if one of them ends by itself.

use std::io;
use std::net::SocketAddr;
use std::thread::JoinHandle;

use rustix::process::{Signal, getpid, kill_process};
use sys::thread::stop::Stop;

use crate::ground::counters::Board;
use crate::ground::error::{ServeError, system};
use crate::ground::privileges::wait_until_confined;

/// A running loop, or group of threads.
pub struct LoopHandle {
    /// Its thread, or the thread that waits for the others.
    pub thread: JoinHandle<io::Result<()>>,
    /// Stops it.
    pub stop: Stop,
    /// Its counters.
    pub board: Board,
    /// The addresses that it listens on.
    pub addresses: Vec<SocketAddr>,
}

impl LoopHandle {
    /// Waits until its thread has ended. Blocks.
    ///
    /// # Errors
    /// [`ServeError::Thread`] if the thread failed.
    pub fn join(self) -> Result<(), ServeError> {
        let name = self.thread.thread().name().unwrap_or_default().to_owned();
        let ended = match self.thread.join() {
            Ok(ended) => ended.map_err(|error| error.to_string()),
            Err(_) => Err("it panicked".to_owned()),
        };
        ended.map_err(|cause| ServeError::Thread { name, cause })
    }
}

/// Starts a thread. An empty `cpus` means any processor. If the thread ends by itself, the server ends.
///
/// # Errors
/// [`ServeError::System`]: no thread.
pub fn start_thread(
    name: String,
    cpus: &[usize],
    stop: Stop,
    board: Board,
    addresses: Vec<SocketAddr>,
    body: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> Result<LoopHandle, ServeError> {
    let (cpus, guard) = (cpus.to_vec(), EndsTheServer(stop.clone()));
    let body = move || {
        let _guard = guard;
        wait_until_confined()?;
        if !cpus.is_empty() {
            sys::cpu::pin(&cpus)?;
        }
        body()
    };
    let thread = std::thread::Builder::new().name(name).spawn(body).map_err(system("start a thread"))?;
    Ok(LoopHandle { thread, stop, board, addresses })
}

/// A guard for a thread that the server needs. If the thread ends before its stop, for example by a panic, the server
/// ends too.
pub struct EndsTheServer(pub Stop);

impl Drop for EndsTheServer {
    fn drop(&mut self) {
        if !self.0.asked() {
            // The main thread waits only for signals.
            let _ = kill_process(getpid(), Signal::TERM);
        }
    }
}
