//! The starter: the part of a guard that keeps the rights, and attaches for the part that decides.
//!
//! ```text
//!   controller                                    starter: capabilities
//!      ─── begin ────────────────────────────────>
//!      <── ready: the address; two descriptors ───   sock_diag and /proc/net/snmp of the listeners' namespace
//!      ─── attach ───────────────────────────────>   finds the listeners and their processes, loads, attaches
//!      <── attached: description, descriptors ────   memory of the programs, or the socket of a sink
//!      ─── devices ──────────────────────────────>   attaches to new devices
//!      <── devices: lines ────────────────────────
//!      ─── release ──────────────────────────────>   detaches, and undoes what can be undone
//!      <── released ──────────────────────────────
//! ```
//!
//! A request is one word without arguments. The starter's own settings say which listener it guards, by which hook, and
//! whom it exempts. So the worst that a controller can ask for is what the user has asked for, again and again.
//!
//! Owns both ends of the socket between them, and the messages.
//!
//! Invariants: the starter reads nothing else from the controller. When the controller ends, or asks for anything else,
//! the starter detaches everything. When the starter ends, the kernel does.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use base::Nanos;
use confine::Rights;
use serde::{Deserialize, Serialize};
use sys::network::netlink::{Listener, SocketDiagnostics};
use sys::proc_file::ProcFile;
use sys::readiness::poll::{self, PollFd, bits};
use sys::socket::passing::{self, Sent};

use crate::GuardError;
use crate::address::Address;
use crate::attachment::{Attachment, Found, Wanted};
use crate::confinement::keep_to_attach;
use crate::parts::Description;
use crate::queue::SNMP;
use crate::search::owner::{Holding, Owner, holders};
use crate::search::target::Place;

/// Bytes of the longest message.
const MESSAGE_BYTES: usize = 64 << 10;
/// Maximum number of owners in a message. With their longest names they fit.
const OWNERS: usize = 64;
/// Characters of the longest text in a message, and the maximum number of lines. A machine may have thousands of devices.
const TEXT: usize = 4096;
const LINES: usize = 100;
/// The time that an answer may take. Attaching to many devices takes seconds.
const PATIENCE: Nanos = Nanos::from_secs(60);

/// A request of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Pass the descriptors of the listeners' namespace.
    Begin,
    /// Attach to the present listeners.
    Attach,
    /// Attach to devices that have come to reach the listeners.
    Devices,
    /// Detach.
    Release,
}

impl Request {
    const ALL: [Request; 4] = [Request::Begin, Request::Attach, Request::Devices, Request::Release];

    fn word(self) -> &'static [u8] {
        match self {
            Request::Begin => b"begin",
            Request::Attach => b"attach",
            Request::Devices => b"devices",
            Request::Release => b"release",
        }
    }

    /// The request of exactly this word.
    fn parse(word: &[u8]) -> Option<Request> {
        Request::ALL.into_iter().find(|request| request.word() == word)
    }
}

/// A message of the starter.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    /// It serves.
    Ready {
        /// The address of the listeners, as text.
        address: String,
        /// The rights that it keeps; absent in the same process.
        rights: Option<Rights>,
    },
    /// It has attached.
    Attached(Description),
    /// It could not attach, or follow.
    Failed(String),
    /// It has followed the devices; a line for each change.
    Devices(Vec<String>),
    /// It has detached.
    Released,
}

/// Attaches to the listeners of one place.
pub struct Starter {
    place: Place,
    wanted: Wanted,
    diagnostics: SocketDiagnostics,
    attachment: Option<Attachment>,
}

impl Starter {
    /// Finds the listeners of a place, and attaches to them. Everything is admitted at first.
    ///
    /// # Errors
    /// [`GuardError::NoListener`], and those of attaching.
    pub fn open(place: Place, wanted: Wanted) -> Result<Starter, GuardError> {
        let diagnostics = place.within(SocketDiagnostics::open)??;
        let mut starter = Starter { place, wanted, diagnostics, attachment: None };
        starter.attach()?;
        Ok(starter)
    }

    /// Gives up the rights of this thread that attaching again does not need. Returns those that the kernel says are left.
    /// `ends_server` keeps the right to end a server that may have changed its user.
    ///
    /// # Errors
    /// Without /proc.
    pub fn give_up_rights(&self, ends_server: bool) -> io::Result<Rights> {
        keep_to_attach(&self.place, &self.wanted, ends_server)
    }

    /// Answers the requests of a controller until it ends. Then everything is detached. Blocks. `rights` are told to the
    /// controller.
    ///
    /// # Errors
    /// The controller asked for something else; the errors of opening and passing descriptors.
    pub fn serve(&mut self, controller: &OwnedFd, rights: Option<Rights>) -> io::Result<()> {
        let served = self.answer_all(controller.as_fd(), rights.as_ref());
        self.release();
        served
    }

    fn answer_all(&mut self, controller: BorrowedFd<'_>, rights: Option<&Rights>) -> io::Result<()> {
        loop {
            // Longer than any request, so that a longer message is none.
            let mut word = [0; 16];
            wait_readable(controller, None)?;
            match passing::receive(controller, &mut [IoSliceMut::new(&mut word)])? {
                None => {}
                Some(message) if message.bytes == 0 => return Ok(()),
                Some(message) => {
                    let request = Request::parse(&word[..message.bytes]).ok_or_else(unknown)?;
                    let (reply, descriptors) = self.answer(request, rights)?;
                    let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
                    send_reply(controller, &reply, &borrowed)?;
                }
            }
        }
    }

    fn answer(&mut self, request: Request, rights: Option<&Rights>) -> io::Result<(Reply, Vec<OwnedFd>)> {
        Ok(match request {
            Request::Begin => {
                // The controller must not find it among the listeners.
                self.close_sink();
                let open =
                    || io::Result::Ok(vec![SocketDiagnostics::open()?.into(), ProcFile::open(SNMP)?.into()]);
                let address = self.place.address.to_string();
                (Reply::Ready { address, rights: rights.cloned() }, self.place.within(open)??)
            }
            Request::Attach => match self.attach().and_then(|owners| Ok((owners, self.hand_over()?))) {
                Ok((owners, (mut description, descriptors))) => {
                    description.text = shortened(&description.text);
                    description.owner_count = owners.len();
                    description.owners = owners;
                    description.owners.truncate(OWNERS);
                    (Reply::Attached(description), descriptors)
                }
                Err(error) => (Reply::Failed(shortened(&error.to_string())), Vec::new()),
            },
            Request::Devices => {
                let attachment = self.attachment.as_mut();
                let lines = attachment.map(|all| all.follow_devices(&self.place)).unwrap_or_default();
                let lines = lines.iter().take(LINES).map(|line| line.chars().take(TEXT / 10).collect());
                (Reply::Devices(lines.collect()), Vec::new())
            }
            Request::Release => {
                self.release();
                (Reply::Released, Vec::new())
            }
        })
    }

    /// Attaches to the present listeners. Returns the processes that hold them.
    fn attach(&mut self) -> Result<Vec<Owner>, GuardError> {
        self.close_sink();
        let listeners = self.listeners()?;
        let holdings = self.holdings(&listeners)?;
        let found = Found { place: &self.place, listeners: &listeners, holdings: &holdings };
        let attached = match self.attachment.take() {
            None => Attachment::make(&self.wanted, found),
            Some(mut attachment) => attachment.follow(found).map(|()| attachment),
        };
        self.attachment = Some(attached?);
        let mut pids: Vec<i32> = holdings.iter().map(|holding| holding.pid).collect();
        pids.dedup();
        Ok(pids.into_iter().filter_map(Owner::of).collect())
    }

    /// Closes the socket of a sink that nobody has taken.
    fn close_sink(&mut self) {
        if let Some(attachment) = &mut self.attachment {
            attachment.close_sink();
        }
    }

    /// The present listeners, at least one. Every sink is closed: the controller closes its own before it asks.
    fn listeners(&mut self) -> Result<Vec<Listener>, GuardError> {
        let Place { address, .. } = self.place;
        let mut found = self.diagnostics.listeners(address.port)?;
        found.retain(|listener| address.is_taken_by(listener));
        match found.is_empty() {
            true => Err(GuardError::NoListener {
                place: "this network namespace".to_owned(),
                address: Some(address),
            }),
            false => Ok(found),
        }
    }

    /// The descriptors of the listeners. Those of an MPTCP listener name its outer socket.
    fn holdings(&mut self, listeners: &[Listener]) -> io::Result<Vec<Holding>> {
        let mut outer = self.diagnostics.mptcp_listeners(self.place.address.port)?;
        outer.retain(|outer| listeners.iter().any(|listener| listener.address == outer.address));
        let inodes: Vec<u32> = listeners
            .iter()
            .chain(&outer)
            .map(|listener| listener.inode)
            .filter(|inode| *inode != 0)
            .collect();
        let mut found: Vec<Holding> = holders(&inodes).into_values().flatten().collect();
        found.sort_unstable_by_key(|holding| (holding.pid, holding.descriptor));
        Ok(found)
    }

    fn hand_over(&mut self) -> io::Result<(Description, Vec<OwnedFd>)> {
        self.attachment.as_mut().expect("it was just made").hand_over()
    }

    fn release(&mut self) {
        if let Some(mut attachment) = self.attachment.take() {
            attachment.release();
        }
    }
}

/// The controller's end of the socket.
pub struct Link(OwnedFd);

/// The first message of a starter.
pub struct Ready {
    /// The address of the listeners.
    pub address: Address,
    /// Examines the sockets of their namespace.
    pub diagnostics: SocketDiagnostics,
    /// The counters of their namespace.
    pub snmp: ProcFile,
    /// The rights that the starter keeps, if it is another process.
    pub rights: Option<Rights>,
}

impl Link {
    /// Asks the starter for its first message.
    ///
    /// # Errors
    /// [`GuardError::Starter`].
    pub fn open(socket: OwnedFd) -> Result<(Link, Ready), GuardError> {
        let link = Link(socket);
        match link.ask(Request::Begin)? {
            (Reply::Ready { address, rights }, descriptors) => {
                let address = address.parse().map_err(|_| link.confused())?;
                let [diagnostics, snmp] =
                    <[OwnedFd; 2]>::try_from(descriptors).map_err(|_| link.confused())?;
                let diagnostics = SocketDiagnostics::passed_on(diagnostics);
                Ok((link, Ready { address, diagnostics, snmp: ProcFile::passed_on(snmp), rights }))
            }
            _ => Err(link.confused()),
        }
    }

    /// Has the starter attach. Blocks until it has.
    ///
    /// # Errors
    /// [`GuardError::Starter`], with the starter's reason.
    pub fn attach(&self) -> Result<(Description, Vec<OwnedFd>), GuardError> {
        match self.ask(Request::Attach)? {
            (Reply::Attached(description), descriptors) => Ok((description, descriptors)),
            (Reply::Failed(reason), _) => Err(GuardError::Starter(reason)),
            _ => Err(self.confused()),
        }
    }

    /// Has the starter follow the devices. Returns a line for each change.
    ///
    /// # Errors
    /// [`GuardError::Starter`].
    pub fn follow_devices(&self) -> Result<Vec<String>, GuardError> {
        match self.ask(Request::Devices)? {
            (Reply::Devices(lines), _) => Ok(lines),
            _ => Err(self.confused()),
        }
    }

    /// Has the starter detach everything.
    ///
    /// # Errors
    /// [`GuardError::Starter`].
    pub fn release(&self) -> Result<(), GuardError> {
        match self.ask(Request::Release)? {
            (Reply::Released, _) => Ok(()),
            _ => Err(self.confused()),
        }
    }

    /// True once the starter has ended. Never blocks.
    pub fn is_gone(&self) -> bool {
        let mut ends = [PollFd::new(self.0.as_raw_fd(), 0)];
        poll::wait(&mut ends, Some(Nanos::ZERO)).is_ok_and(|_| ends[0].reported() & bits::HUP != 0)
    }

    fn ask(&self, request: Request) -> Result<(Reply, Vec<OwnedFd>), GuardError> {
        match passing::send(self.0.as_fd(), &[IoSlice::new(request.word())], &[])? {
            Sent::Yes => self.receive_reply(),
            Sent::Full | Sent::Gone => Err(gone()),
        }
    }

    fn receive_reply(&self) -> Result<(Reply, Vec<OwnedFd>), GuardError> {
        if !wait_readable(self.0.as_fd(), Some(PATIENCE))? {
            return Err(GuardError::Starter("the starter does not answer".to_owned()));
        }
        let mut text = vec![0; MESSAGE_BYTES];
        match passing::receive(self.0.as_fd(), &mut [IoSliceMut::new(&mut text)])? {
            Some(message) if message.bytes == 0 => Err(gone()),
            Some(message) if message.truncated => Err(self.confused()),
            Some(message) => {
                let reply = serde_json::from_slice(&text[..message.bytes]).map_err(|_| self.confused())?;
                Ok((reply, message.descriptors))
            }
            None => Err(self.confused()),
        }
    }

    fn confused(&self) -> GuardError {
        GuardError::Starter(
            "the starter's answer makes no sense, or this process has no free descriptor".to_owned(),
        )
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(TEXT).collect()
}

fn gone() -> GuardError {
    GuardError::Starter("the starter has ended".to_owned())
}

fn unknown() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the controller asked for something that no controller asks for",
    )
}

fn send_reply(controller: BorrowedFd<'_>, reply: &Reply, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let text = serde_json::to_vec(reply).map_err(io::Error::other)?;
    match passing::send(controller, &[IoSlice::new(&text)], descriptors)? {
        // Its end is seen with the next message.
        Sent::Yes | Sent::Gone => Ok(()),
        Sent::Full => Err(io::Error::other("the controller does not read its answers")),
    }
}

/// Returns false when the time has passed.
fn wait_readable(socket: BorrowedFd<'_>, timeout: Option<Nanos>) -> io::Result<bool> {
    let mut polled = [PollFd::new(socket.as_raw_fd(), bits::IN)];
    loop {
        match poll::wait(&mut polled, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            waited => return Ok(waited? > 0),
        }
    }
}

#[cfg(test)]
mod tests;
