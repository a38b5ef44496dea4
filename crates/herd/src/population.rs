//! The waiters of one point: starts them, finds them asleep, ends them.
//!
//! Waiters are threads of this process, or processes of their own that inherit the listener and the shared
//! memory. No waiter is left behind. Dropping a population shuts the listeners down, wakes the wait queue and
//! waits for its threads, or kills its processes; the kernel also kills them if this process dies.

use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::thread::JoinHandle;

use base::Nanos;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, ipproto, sockopt};
use rustix::process::Pid;
use sys::cpu;
use sys::process::Child;
use sys::readiness::epoll::{self, Operation, bits};
use sys::shared::SharedArray;
use sys::socket::{local_address, steer_by_cpu};
use wake::Event;

use crate::board::Board;
use crate::error::{HerdError, system};
use crate::wait::Wait;
use crate::waiter::{self, Waiter};

/// Connections come one at a time; the rest of the queue is for the warm-up.
const BACKLOG: i32 = 64;

/// Waiters have shallow call stacks.
const STACK_BYTES: usize = 128 * 1024;

/// The kind of task that waiters run in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tasks {
    /// Threads of one process.
    Threads,
    /// Processes.
    Processes,
}

enum Running {
    Threads(Vec<JoinHandle<io::Result<()>>>),
    Processes(Vec<Child>),
}

/// The waiters of a point, and the acceptor for wake-all and wake-one.
pub(crate) struct Population {
    /// The way to wait.
    pub wait: Wait,
    /// The number of waiters; the acceptor is one more task.
    pub waiters: usize,
    /// The address of the listeners.
    pub address: SocketAddr,
    running: Running,
    board: Arc<SharedArray<AtomicU64>>,
    words: Arc<SharedArray<AtomicU32>>,
    epoll: Option<Arc<OwnedFd>>,
    listeners: Vec<Arc<OwnedFd>>,
}

impl Population {
    /// Starts the waiters; `program` is this program, for processes. Some may not wait yet on return.
    pub fn start(wait: Wait, waiters: usize, tasks: Tasks, program: &Path) -> Result<Population, HerdError> {
        let mut herd = Population::without_tasks(wait, waiters, tasks)?;
        for index in 0..herd.tasks() {
            herd.add(index, program)?;
        }
        Ok(herd)
    }

    /// A population whose waiters and acceptor are still to be started.
    fn without_tasks(wait: Wait, waiters: usize, tasks: Tasks) -> Result<Population, HerdError> {
        let (listeners, address) = listen(wait, waiters).map_err(system("listen on 127.0.0.1"))?;
        let epoll = shared_epoll(wait, &listeners[0]).map_err(system("make an epoll"))?;
        let memory = system("share memory");
        let count = waiters + usize::from(wait.queues_as().is_some());
        let board = Arc::new(SharedArray::create(Board::words(count)).map_err(&memory)?);
        let words = Arc::new(SharedArray::<AtomicU32>::create(waiter::words(waiters)).map_err(memory)?);
        let running = match tasks {
            Tasks::Threads => Running::Threads(Vec::new()),
            Tasks::Processes => Running::Processes(Vec::new()),
        };
        Ok(Population { wait, waiters, address, running, board, words, epoll, listeners })
    }

    /// Starts the task with this number.
    fn add(&mut self, index: usize, program: &Path) -> Result<(), HerdError> {
        let waiter = Waiter {
            wait: self.wait,
            index,
            listener: self.listeners[index.min(self.listeners.len() - 1)].clone(),
            epoll: self.epoll.clone(),
            board: self.board.clone(),
            words: self.words.clone(),
        };
        match &mut self.running {
            Running::Threads(threads) => {
                let thread = std::thread::Builder::new().name("waiter".into()).stack_size(STACK_BYTES);
                threads.push(thread.spawn(move || waiter.run()).map_err(system("start a thread"))?);
            }
            Running::Processes(children) => {
                children.push(waiter.program(program).start().map_err(system("start a process"))?);
            }
        }
        Ok(())
    }

    /// The board on which the waiters report.
    pub fn board(&self) -> Board<'_> {
        Board::new(&self.board)
    }

    /// The thread numbers of all tasks, the acceptor last; `None` until each has begun to wait.
    pub fn threads(&self) -> Option<Vec<Pid>> {
        let board = self.board();
        (0..self.tasks()).map(|task| board.thread(task)).collect()
    }

    /// The number of tasks, the acceptor included.
    fn tasks(&self) -> usize {
        self.board.len() / Board::words(1)
    }

    /// Returns true if the tasks are processes.
    pub fn are_processes(&self) -> bool {
        matches!(self.running, Running::Processes(_))
    }

    /// The sum of the CPU time of these tasks.
    pub fn cpu_time(&self, tasks: &[Pid]) -> io::Result<Nanos> {
        let time = if self.are_processes() { cpu::process_time_of } else { cpu::thread_time_of };
        tasks.iter().try_fold(Nanos::ZERO, |sum, task| Ok(sum + time(*task)?))
    }

    /// The reason why a task ended early; `None` while all run.
    pub fn failure(&mut self) -> Option<String> {
        match &mut self.running {
            Running::Threads(threads) => {
                let ended = threads.iter().position(JoinHandle::is_finished)?;
                Some(match threads.swap_remove(ended).join() {
                    Ok(Ok(())) => "a waiter found the listener closed".to_owned(),
                    Ok(Err(error)) => format!("a waiter failed: {error}"),
                    Err(_) => "a waiter panicked".to_owned(),
                })
            }
            Running::Processes(children) => children.iter_mut().find_map(|child| {
                let exit = child.wait(Nanos::ZERO).ok()??;
                let mut said = String::new();
                // Text that cannot be read is left out.
                child.stderr.as_mut().map(|stderr| stderr.read_to_string(&mut said));
                Some(format!("a waiter ended, {}: {}", exit.status, said.trim()))
            }),
        }
    }
}

impl Drop for Population {
    fn drop(&mut self) {
        if let Running::Threads(threads) = &mut self.running {
            for listener in &self.listeners {
                // An error means that the listener was shut down already.
                let _ = rustix::net::shutdown(&**listener, Shutdown::Both);
            }
            // The acceptor, which otherwise does this, may have failed. A waiter that queues later finds the
            // listener closed.
            waiter::queue(&self.words).wake(Event::Close);
            for thread in threads.drain(..) {
                // The thread's error no longer matters.
                let _ = thread.join();
            }
        }
    }
}

/// Opens one listener, or one for each waiter.
fn listen(wait: Wait, waiters: usize) -> io::Result<(Vec<Arc<OwnedFd>>, SocketAddr)> {
    let count = if wait.has_own_listeners() { waiters } else { 1 };
    let mut address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut listeners = Vec::with_capacity(count);
    for _ in 0..count {
        let blocks = if wait.blocks_in_accept() { SocketFlags::empty() } else { SocketFlags::NONBLOCK };
        let flags = SocketFlags::CLOEXEC | blocks;
        let socket =
            rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, Some(ipproto::TCP))?;
        sockopt::set_socket_reuseport(&socket, wait.has_own_listeners())?;
        rustix::net::bind(&socket, &address)?;
        rustix::net::listen(&socket, BACKLOG)?;
        address = local_address(&socket)?;
        listeners.push(Arc::new(socket));
    }
    if wait == Wait::Steered {
        let cpus = cpu::allowed()?;
        steer_by_cpu(listeners[0].as_fd(), &cpus[..cpus.len().min(waiters)])?;
    }
    Ok((listeners, address))
}

fn shared_epoll(wait: Wait, listener: &OwnedFd) -> io::Result<Option<Arc<OwnedFd>>> {
    if wait != Wait::EpollShared {
        return Ok(None);
    }
    let epoll = epoll::create()?;
    epoll::control(&epoll, Operation::Add, listener.as_raw_fd(), bits::IN, 0)?;
    Ok(Some(Arc::new(epoll)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeping_waiters_end_without_an_acceptor() {
        for wait in [Wait::WakeAll, Wait::WakeOne] {
            let mut herd = Population::without_tasks(wait, 4, Tasks::Threads).unwrap();
            (0..4).for_each(|index| herd.add(index, Path::new("")).unwrap());
            while (0..4).any(|index| herd.board().sleeps(index) == 0) {
                std::thread::yield_now();
            }
            drop(herd);
        }
    }
}
