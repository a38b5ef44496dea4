//! One waiter: sleeps until a connection comes, accepts it, closes it, and sleeps again. The acceptor accepts
//! nothing and wakes the others.
//!
//! The same code runs in a thread and in a process. It ends when the listener is shut down. The kernel then
//! tells every task that waits in the listener, and the acceptor tells every task in the wait queue.
//!
//! Before each system call that may sleep, the waiter notes the time on the board. It cannot note a return to
//! sleep inside the kernel: poll and epoll look again within the call.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use sys::errno::{Failure, classify};
use sys::process::{Program, inherited};
use sys::readiness::epoll::{self, Operation, bits};
use sys::readiness::poll::{self, PollFd};
use sys::shared::SharedArray;
use wake::{Event, Kind, Mutex, Queue};

use crate::board::Board;
use crate::wait::Wait;

/// The words of the mutex, which has its own cache line in front of the queue.
const MUTEX_WORDS: usize = 16;

/// The number of words for the mutex and the queue of `waiters` waiters.
pub(crate) fn words(waiters: usize) -> usize {
    MUTEX_WORDS + Queue::words(waiters)
}

/// The queue in these words.
pub(crate) fn queue(words: &[AtomicU32]) -> Queue<'_> {
    Queue::new(&words[MUTEX_WORDS..])
}

/// One waiter and the memory and descriptors that it shares with the others.
#[derive(Clone, Debug)]
pub(crate) struct Waiter {
    /// The way to wait.
    pub wait: Wait,
    /// The waiter's number; the acceptor's number is the number of waiters.
    pub index: usize,
    /// The listener to accept from.
    pub listener: Arc<OwnedFd>,
    /// The shared interest set, for [`Wait::EpollShared`].
    pub epoll: Option<Arc<OwnedFd>>,
    /// The board on which it reports.
    pub board: Arc<SharedArray<AtomicU64>>,
    /// The mutex and the wait queue.
    pub words: Arc<SharedArray<AtomicU32>>,
}

/// The result of one turn.
enum Turn {
    /// A connection.
    Got(OwnedFd),
    /// No connection, or another waiter accepted it first.
    Missed,
    /// The listener was shut down.
    Closed,
}

impl Waiter {
    /// Waits until the listener is shut down. Blocks.
    ///
    /// # Errors
    /// Errors of accept(2) and of the waiting calls that no peer causes.
    pub fn run(&self) -> io::Result<()> {
        let board = Board::new(&self.board);
        board.arrive(self.index);
        if self.index == self.queue_length() && self.wait.queues_as().is_some() {
            return self.run_acceptor();
        }
        let own_epoll = self.own_epoll()?;
        loop {
            match self.turn(own_epoll.as_ref().or(self.epoll.as_deref()))? {
                Turn::Got(connection) => {
                    // Before the close, which tells the experiment that the connection was accepted.
                    board.accepted(self.index);
                    drop(connection);
                }
                Turn::Missed => {}
                Turn::Closed => return Ok(()),
            }
        }
    }

    fn turn(&self, epoll: Option<&OwnedFd>) -> io::Result<Turn> {
        match self.wait {
            Wait::Accept | Wait::Reuseport | Wait::Steered => self.accept_blocking(),
            Wait::Poll => self.poll(),
            Wait::Epoll | Wait::EpollExclusive | Wait::EpollShared => {
                self.epoll(epoll.expect("an epoll was made for it"))
            }
            Wait::WakeAll => self.queue(Kind::Ordinary),
            Wait::WakeOne => self.queue(Kind::Exclusive),
            Wait::Mutex => {
                let mutex = Mutex::new(&self.words[0]);
                mutex.lock(self.index, || self.about_to_sleep());
                let turn = self.accept_blocking();
                mutex.unlock();
                turn
            }
        }
    }

    fn accept_blocking(&self) -> io::Result<Turn> {
        self.about_to_sleep();
        self.accept()
    }

    fn poll(&self) -> io::Result<Turn> {
        self.about_to_sleep();
        match poll::wait(&mut [PollFd::new(self.listener.as_raw_fd(), poll::bits::IN)], None) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => self.accept(),
        }
    }

    fn epoll(&self, epoll: &OwnedFd) -> io::Result<Turn> {
        self.about_to_sleep();
        match epoll::wait(epoll, &mut [epoll::Event::EMPTY], None) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => self.accept(),
        }
    }

    fn queue(&self, kind: Kind) -> io::Result<Turn> {
        let queue = queue(&self.words);
        queue.enqueue(self.index, kind);
        let turn = self.accept()?;
        if let Turn::Missed = turn {
            self.about_to_sleep();
            queue.sleep(self.index);
        } else {
            // Another connection may have woken this task already. The next turn looks before it sleeps.
            queue.withdraw(self.index);
        }
        Ok(turn)
    }

    fn accept(&self) -> io::Result<Turn> {
        match accept_with(&*self.listener, SocketFlags::CLOEXEC) {
            Ok(connection) => Ok(Turn::Got(connection)),
            // The error of accept() on a socket that no longer listens.
            Err(Errno::INVAL) => Ok(Turn::Closed),
            Err(errno) => match classify(&errno.into()) {
                Failure::Retry | Failure::WouldBlock | Failure::PeerGone => Ok(Turn::Missed),
                _ => Err(errno.into()),
            },
        }
    }

    /// Notices each connection once and wakes the queue for it. The set is edge-triggered: a level-triggered
    /// one would report again and again until the connection is accepted. Two connections in one report are
    /// no loss, because a woken waiter accepts until none is left.
    fn run_acceptor(&self) -> io::Result<()> {
        let (queue, epoll) = (queue(&self.words), epoll::create()?);
        epoll::control(&epoll, Operation::Add, self.listener.as_raw_fd(), bits::IN | bits::ET, 0)?;
        let mut events = [epoll::Event::EMPTY];
        loop {
            self.about_to_sleep();
            match epoll::wait(&epoll, &mut events, None) {
                Ok(_) if events[0].bits() & (bits::HUP | bits::ERR) != 0 => {
                    queue.wake(Event::Close);
                    return Ok(());
                }
                Ok(_) => {
                    queue.wake(Event::DataReady);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The interest set of this waiter alone, for the ways that need one.
    fn own_epoll(&self) -> io::Result<Option<OwnedFd>> {
        let exclusive = match self.wait {
            Wait::Epoll => 0,
            Wait::EpollExclusive => bits::EXCLUSIVE,
            _ => return Ok(None),
        };
        let epoll = epoll::create()?;
        epoll::control(&epoll, Operation::Add, self.listener.as_raw_fd(), bits::IN | exclusive, 0)?;
        Ok(Some(epoll))
    }

    fn about_to_sleep(&self) {
        Board::new(&self.board).about_to_sleep(self.index);
    }

    /// The number of waiters that the queue has room for.
    fn queue_length(&self) -> usize {
        (self.words.len() - words(0)) / (words(1) - words(0))
    }

    /// The program that runs this waiter in a process, by [`run_in_this_process`].
    pub fn program<'a>(&'a self, program: &std::path::Path) -> Program<'a> {
        let mut fds = vec![self.listener.as_fd(), self.board.as_fd(), self.words.as_fd()];
        fds.extend(self.epoll.as_deref().map(AsFd::as_fd));
        let mut arguments = vec![COMMAND.to_owned(), self.wait.to_string(), self.index.to_string()];
        arguments.extend(fds.iter().map(|fd| fd.as_raw_fd().to_string()));
        Program::new(program).arguments(arguments).inheriting(&fds)
    }
}

/// The command that a program must handle to run an experiment with processes: it passes the arguments after
/// the command to [`run_in_this_process`].
pub const COMMAND: &str = "herd-waiter";

/// Runs as a waiter until the experiment ends, in a process that the experiment started. Blocks.
///
/// # Errors
/// Arguments that no experiment passes; a wait that fails.
pub fn run_in_this_process(arguments: &[OsString]) -> io::Result<()> {
    let refuse = || io::Error::new(io::ErrorKind::InvalidInput, "only inrush herd starts this command");
    let mut words = arguments.iter().map(|word| word.to_str().ok_or_else(refuse));
    let mut next = || words.next().unwrap_or_else(|| Err(refuse()));
    let wait: Wait = next()?.parse().map_err(|_| refuse())?;
    let index: usize = next()?.parse().map_err(|_| refuse())?;
    let fds = words.map(|word| word?.parse::<RawFd>().map_err(|_| refuse()));
    let mut fds = fds.map(|fd| inherited(fd?));
    let mut take = || fds.next().unwrap_or_else(|| Err(refuse()));
    let waiter = Waiter {
        wait,
        index,
        listener: Arc::new(take()?),
        board: Arc::new(SharedArray::open(take()?)?),
        words: Arc::new(SharedArray::open(take()?)?),
        epoll: fds.next().transpose()?.map(Arc::new),
    };
    waiter.run()
}
