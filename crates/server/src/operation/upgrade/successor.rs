//! The side of the program that takes over.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use connection::Custody;
use rustix::process::set_parent_process_death_signal;
use sys::process::inherited;

use super::{ACTIVATED, ADMIN, ALL, GO_ON, LISTENS, PREPARED, READY, SINKS, TICKETS, VARIABLE};
use crate::ground::error::{ServeError, system};
use crate::ground::listener::Inheritance;
use crate::processes::{Control, Heard, Sent};

/// A program that is to take over, until it is ready.
pub struct Successor(Control);

/// The sockets and keys that a server inherits at its start.
#[derive(Default)]
pub struct Inherited {
    /// The listening sockets.
    pub listeners: Inheritance,
    /// The socket of the admin interface, with its configured address as text.
    pub admin: Option<(String, OwnedFd)>,
    /// Whose the sockets are: the predecessor's until [`Successor::ready`].
    pub custody: Custody,
    /// Keys of tickets.
    pub ticket_keys: Option<Vec<u8>>,
    /// True if the sockets replace the configured addresses.
    pub is_activated: bool,
}

impl Inherited {
    /// Takes the sockets that systemd has opened, if it has.
    pub fn of_service_manager(listeners: Option<Inheritance>) -> Inherited {
        let is_activated = listeners.is_some();
        Inherited { listeners: listeners.unwrap_or_default(), is_activated, ..Inherited::default() }
    }
}

impl Successor {
    /// Becomes the successor of the server that started this process; `None` if none did.
    ///
    /// # Errors
    /// [`ServeError::NoParent`]: the standard input is not a channel. [`ServeError::System`]: no descriptor left.
    pub fn of_environment() -> Result<Option<(Successor, Inherited)>, ServeError> {
        if std::env::var_os(VARIABLE).is_none() {
            return Ok(None);
        }
        let channel = inherited(0).map_err(|_| ServeError::NoParent)?;
        let copy = channel.try_clone().map_err(system("take over"))?;
        // The standard input no longer keeps the channel open, so the channel closes with the successor.
        let null = File::open("/dev/null").map_err(system("open /dev/null"))?;
        rustix::stdio::dup2_stdin(&null).map_err(|errno| system("take over")(errno.into()))?;
        let channel = Control::from_inherited(channel);
        let mut inherited = receive_inheritance(&channel)?;
        inherited.custody = channel.custody().clone();
        inherited.custody.pass_on();
        inherited.listeners.set_predecessor_wait(move || prepared(&Control::from_inherited(copy)));
        Ok(Some((Successor(channel), inherited)))
    }

    /// Tells the predecessor that this process serves. From here on neither ends with the other.
    pub fn ready(self) {
        // Without this call, this process would end with the starter.
        let _ = set_parent_process_death_signal(None);
        self.0.custody().take_on();
        let process = std::process::id();
        // A predecessor that has ended needs no word: its sockets are here.
        let _ = self.0.send(&[READY, process.to_string().as_bytes()].concat(), &[]);
    }
}

/// Reads the messages of the predecessor, which has sent them already.
fn receive_inheritance(channel: &Control) -> Result<Inherited, ServeError> {
    let mut inherited = Inherited::default();
    loop {
        let Ok(Heard::Message(message)) = channel.receive() else { return Err(ServeError::NoParent) };
        if message.truncated {
            return Err(system("take over the sockets")(io::Error::other("no descriptor left")));
        }
        let text = |word: &[u8]| Some(str::from_utf8(message.bytes.strip_prefix(word)?).ok()?.to_owned());
        if let Some(address) = text(LISTENS).and_then(|address| address.parse::<SocketAddr>().ok()) {
            inherited.listeners.add(address, message.descriptors);
        } else if let Some(address) = text(ADMIN) {
            inherited.admin = message.descriptors.into_iter().next().map(|socket| (address, socket));
        } else if let Some(keys) = message.bytes.strip_prefix(TICKETS) {
            inherited.ticket_keys = Some(keys.to_vec());
        } else if message.bytes == SINKS {
            inherited.listeners.add_sinks(message.descriptors);
        } else if message.bytes == ACTIVATED {
            inherited.is_activated = true;
        } else if message.bytes == ALL {
            return Ok(inherited);
        }
    }
}

/// Waits until the predecessor no longer controls the accept queues. Blocks; the starter ends a wait that is too long.
fn prepared(channel: &Control) -> io::Result<()> {
    let gone = || io::Error::other("the running server has ended");
    if channel.send(PREPARED, &[])? != Sent::Yes {
        return Err(gone());
    }
    loop {
        match channel.receive()? {
            Heard::Nothing => channel.wait(),
            Heard::Message(message) if message.bytes == GO_ON => return Ok(()),
            Heard::Gone => return Err(gone()),
            _ => {}
        }
    }
}
