//! The protocol with systemd: notifications about the server's state, and sockets that systemd opens.
//!
//! Implements sd_notify(3) and sd_listen_fds(3) as their manual pages describe them. `run` decides when to notify.
//!
//! Invariant: a server without systemd says nothing and costs nothing. A message that systemd does not take is
//! dropped.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram};

use base::{Clock, Nanos, RealClock};
use rustix::net::sockopt;
use sys::process::take_inherited;

use crate::ground::error::ServeError;
use crate::ground::listener::{Inheritance, Listener};

/// The number of the first socket that systemd passes.
const FIRST: RawFd = 3;
/// Maximum number of sockets taken from systemd.
const MOST: RawFd = 1000;

/// Sends notifications to systemd; does nothing without it.
pub struct Notifier {
    socket: Option<UnixDatagram>,
    alive_every: Option<Nanos>,
    keeps_sockets: bool,
}

impl Notifier {
    /// Connects to NOTIFY_SOCKET, and reads WATCHDOG_USEC and LISTEN_FDS. A `successor` has the watchdog and the
    /// sockets of its predecessor.
    pub fn of_environment(successor: bool) -> Notifier {
        let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
        let own = u64::from(std::process::id());
        let is_ours = number("WATCHDOG_PID").is_none_or(|process| process == own);
        let within = number("WATCHDOG_USEC").filter(|within| *within > 0 && (is_ours || successor));
        let is_given = number("LISTEN_PID").is_some_and(|process| process == own || successor);
        Notifier {
            socket: connect().unwrap_or_else(|error| {
                sys::say!("inrush: NOTIFY_SOCKET: {error}; systemd hears nothing");
                None
            }),
            // Half of the watchdog's time, as the manual page advises.
            alive_every: within.map(|within| Nanos::from_micros(within / 2)),
            keeps_sockets: is_given && number("LISTEN_FDS").is_some_and(|count| count > 0),
        }
    }

    /// Tells whether systemd keeps the listening sockets of this process, and gives them to the next one.
    pub fn keeps_sockets(&self) -> bool {
        self.keeps_sockets
    }

    /// The time between two calls of [`Notifier::alive`]; `None` if systemd does not watch.
    pub fn alive_every(&self) -> Option<Nanos> {
        self.alive_every.filter(|_| self.socket.is_some())
    }

    /// Tells systemd that the server serves.
    pub fn ready(&self) {
        self.say("READY=1");
    }

    /// Tells systemd that the server reads its settings again, or hands over; [`Notifier::ready`] follows.
    pub fn reloading(&self) {
        self.say(&format!("RELOADING=1\nMONOTONIC_USEC={}", RealClock::new().now().0 / 1000));
    }

    /// Tells systemd that another process serves from here on.
    pub fn replaced_by(&self, process: u32) {
        self.say(&format!("MAINPID={process}\nREADY=1"));
    }

    /// Tells systemd that the server begins to end.
    pub fn stopping(&self) {
        self.say("STOPPING=1");
    }

    /// Tells systemd that the server does not hang. Harmless if systemd does not watch.
    pub fn alive(&self) {
        if self.alive_every.is_some() {
            self.say("WATCHDOG=1");
        }
    }

    fn say(&self, message: &str) {
        let _ = self.socket.as_ref().map(|socket| socket.send(message.as_bytes()));
    }
}

fn connect() -> io::Result<Option<UnixDatagram>> {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return Ok(None) };
    let address = match name.as_bytes() {
        [b'@', name @ ..] => UnixAddress::from_abstract_name(name)?,
        _ => UnixAddress::from_pathname(&name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    socket.set_nonblocking(true)?;
    Ok(Some(socket))
}

/// Takes the listening sockets that systemd has opened for this process (LISTEN_FDS); `None` without any.
///
/// # Errors
/// [`ServeError::Setting`]: one of them is not a listening TCP socket.
pub fn passed_sockets() -> Result<Option<Inheritance>, ServeError> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<RawFd>().ok();
    if number("LISTEN_PID").and_then(|process| u32::try_from(process).ok()) != Some(std::process::id()) {
        return Ok(None);
    }
    let count = number("LISTEN_FDS").unwrap_or(0).clamp(0, MOST);
    let mut listeners = Inheritance::default();
    for number in FIRST..FIRST + count {
        let (address, socket) = take(number).map_err(|_| ServeError::Setting {
            setting: "LISTEN_FDS",
            given: count.to_string(),
            accepted: format!(
                "descriptor {number} is not a listening TCP socket; set ListenStream=ADDRESS:PORT"
            ),
        })?;
        listeners.add(address, vec![socket]);
    }
    Ok((count > 0).then_some(listeners))
}

fn take(number: RawFd) -> io::Result<(SocketAddr, OwnedFd)> {
    let Listener { socket, address, .. } = Listener::inherited(take_inherited(number)?)?;
    if !sockopt::socket_acceptconn(&socket)? {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    rustix::io::ioctl_fionbio(&socket, true)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    Ok((address, socket))
}
