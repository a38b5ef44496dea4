//! The side of the server that hands over.
//!
//! ```text
//!   serving ──begin──> starting ──prepared──> withdrawn ──ready──> handed over
//!      ^                   |                      |
//!      └── failed, late ───┴──────────────────────┘
//! ```

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use base::{Clock, Nanos, RealClock};
use side_servers::AdminAddress;

use super::starter::Starter;
use super::{ACTIVATED, ADMIN, ALL, GO_ON, LISTENS, PREPARED, READY, READY_WITHIN, SINKS, TICKETS};
use crate::processes::{Control, Heard, Sent};

/// Maximum number of sockets in a message, below the kernel's limit.
const MOST_SOCKETS: usize = 200;

/// The socket of the admin interface, with the address of the configuration.
pub type AdminSocket = (AdminAddress, OwnedFd);

/// A server that can hand over.
pub struct Predecessor {
    starter: Starter,
    /// The sockets of each configured address.
    sockets: Vec<(SocketAddr, Vec<OwnedFd>)>,
    admin: Option<AdminSocket>,
    /// True if the addresses came with the sockets, and not from the configuration.
    is_activated: bool,
    attempt: Option<Attempt>,
    /// True if overload control was withdrawn for a successor.
    has_withdrawn: bool,
    clock: RealClock,
}

/// A successor that is not ready.
struct Attempt {
    channel: Control,
    until: Nanos,
}

/// The progress of an attempt since the last call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// No news for the server.
    None,
    /// The successor waits until overload control is withdrawn.
    Prepared,
    /// There is no successor.
    Failed,
    /// The process of this number serves.
    Ready(u32),
}

impl Predecessor {
    /// Makes a predecessor with the sockets that a successor gets.
    pub fn new(
        starter: Starter,
        sockets: Vec<(SocketAddr, Vec<OwnedFd>)>,
        admin: Option<AdminSocket>,
        is_activated: bool,
    ) -> Predecessor {
        let clock = RealClock::new();
        Predecessor { starter, sockets, admin, is_activated, attempt: None, has_withdrawn: false, clock }
    }

    /// Tells whether a successor is being started.
    pub fn is_under_way(&self) -> bool {
        self.attempt.is_some()
    }

    /// Has a successor started, and reports that or the reason why not. Returns true if one is being started now. The
    /// successor also gets copies of the `sinks`.
    pub fn begin(&mut self, sinks: &[OwnedFd], ticket_keys: Option<&[u8]>) -> bool {
        if self.is_under_way() {
            sys::say!("inrush: SIGUSR2: a new program is being started already");
            return false;
        }
        // Drops a late report on the last attempt.
        let _ = self.starter.failure();
        match self.try_begin(sinks, ticket_keys) {
            Ok(channel) => {
                sys::say!("inrush: SIGUSR2: starting {}", self.starter.program().display());
                self.attempt = Some(Attempt { channel, until: self.clock.now() + READY_WITHIN });
            }
            Err(error) => sys::say!("inrush: SIGUSR2: cannot start a new program: {error}; this one goes on"),
        }
        self.is_under_way()
    }

    fn try_begin(&self, sinks: &[OwnedFd], ticket_keys: Option<&[u8]>) -> io::Result<Control> {
        let (channel, theirs) = Control::pair()?;
        for (address, sockets) in &self.sockets {
            pass(&channel, &[LISTENS, address.to_string().as_bytes()].concat(), sockets)?;
        }
        pass(&channel, SINKS, sinks)?;
        if let Some((address, socket)) = &self.admin {
            say(&channel, &[ADMIN, address.to_string().as_bytes()].concat(), &[socket.as_fd()])?;
        }
        if let Some(keys) = ticket_keys {
            say(&channel, &[TICKETS, keys].concat(), &[])?;
        }
        if self.is_activated {
            say(&channel, ACTIVATED, &[])?;
        }
        say(&channel, ALL, &[])?;
        self.starter.ask(&theirs)?;
        Ok(channel)
    }

    /// Checks the progress of the successor, and reports it to the operator. Never blocks.
    pub fn advance(&mut self) -> Progress {
        let Some(Attempt { channel, until }) = &self.attempt else { return Progress::None };
        if let Ok(Heard::Message(message)) = channel.receive() {
            if message.bytes == PREPARED {
                self.has_withdrawn = true;
                return Progress::Prepared;
            }
            let number = message.bytes.strip_prefix(READY).and_then(|number| str::from_utf8(number).ok());
            if let Some(process) = number.and_then(|number| number.parse().ok()) {
                self.attempt = None;
                sys::say!("inrush: process {process} serves now; this one finishes its connections");
                return Progress::Ready(process);
            }
        }
        if let Some(why) = self.starter.failure() {
            return self.failed(&why);
        }
        if self.clock.now() >= *until {
            self.starter.give_up();
            return self.failed(&format!("the new program was not ready within {READY_WITHIN}"));
        }
        Progress::None
    }

    /// Lets the successor control the accept queues.
    pub fn let_go_on(&self) {
        if let Some(Attempt { channel, .. }) = &self.attempt {
            // A successor that has ended is reported by the starter.
            let _ = say(channel, GO_ON, &[]);
        }
    }

    fn failed(&mut self, why: &str) -> Progress {
        self.attempt = None;
        let without = if self.has_withdrawn { ", without overload control" } else { "" };
        sys::say!("inrush: {why}; this one goes on{without}");
        Progress::Failed
    }
}

/// Passes copies of sockets on, in as many messages as they need.
fn pass(channel: &Control, word: &[u8], sockets: &[OwnedFd]) -> io::Result<()> {
    for sockets in sockets.chunks(MOST_SOCKETS) {
        let sockets: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
        say(channel, word, &sockets)?;
    }
    Ok(())
}

fn say(channel: &Control, word: &[u8], sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
    match channel.send(word, sockets)? {
        Sent::Yes => Ok(()),
        Sent::Full => Err(io::Error::other("the socket to it has no room left for the listening sockets")),
        Sent::Gone => Err(io::Error::other("it has ended")),
    }
}
