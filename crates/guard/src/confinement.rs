//! The rights that the two processes of a guard keep.
//!
//! ```text
//!   starter      all that it was started with ──> finds, attaches ──> the capabilities to attach again
//!   controller   none: files, capabilities ──> opens its page ──> system calls
//! ```
//!
//! Every statement about rights that a guard prints is read back from the kernel.

use std::io;

use confine::{
    Calls, CapabilitySet, Facility, Files, OwnRights, Rights, calls_in_words, drop_capabilities,
    files_in_words, keep_capabilities,
};

use crate::attachment::{HookChoice, Wanted};
use crate::search::target::Place;

/// The first port at which every user may listen, unless the machine has another.
const FIRST_FREE_PORT: u16 = 1024;

/// Reduces the rights of this thread to those that a starter needs. Returns what the kernel says is left. `ends_server` is
/// true if the starter ends the server too, whose user may be another one by then.
///
/// # Errors
/// Without /proc.
pub fn keep_to_attach(place: &Place, wanted: &Wanted, ends_server: bool) -> io::Result<Rights> {
    let own = OwnRights::open()?;
    let held = own.read()?;
    let names_bpf = held.capabilities.iter().any(|name| name == "CAP_BPF");
    let sink = matches!(wanted.hook, Some(HookChoice::Auto | HookChoice::Sink));
    // The first ones attach, the others find the processes that hold the listener.
    let always = CapabilitySet::BPF
        | CapabilitySet::NET_ADMIN
        | CapabilitySet::SYS_PTRACE
        | CapabilitySet::DAC_READ_SEARCH;
    let sometimes = [
        // Enters the network namespace. It also stands for CAP_BPF.
        (place.namespace.is_some() || !names_bpf, CapabilitySet::SYS_ADMIN),
        // Makes the socket in the name of the listener's user.
        (sink, CapabilitySet::SETUID),
        // Listens beside a listener at such a port.
        (sink && place.address.port < FIRST_FREE_PORT, CapabilitySet::NET_BIND_SERVICE),
        (ends_server, CapabilitySet::KILL),
    ];
    let kept = sometimes.into_iter().filter(|(needed, _)| *needed).fold(always, |all, (_, more)| all | more);
    keep_capabilities(kept)?;
    own.read()
}

/// The confinement of a controller, which has begun.
pub struct Confinement {
    own: OwnRights,
    files: io::Result<Facility>,
}

impl Confinement {
    /// Gives up all files and capabilities. Call it before the first thread.
    ///
    /// # Errors
    /// Without /proc. A kernel without Landlock is no error.
    pub fn begin() -> io::Result<Confinement> {
        let own = OwnRights::open()?;
        let files = Files::default().restrict();
        drop_capabilities()?;
        Ok(Confinement { own, files })
    }

    /// Gives up system calls, for all threads. Returns a description, and the rights that the kernel says are left.
    ///
    /// # Errors
    /// The rights cannot be read. A kernel without seccomp is no error.
    pub fn finish(self) -> io::Result<(String, Rights)> {
        let calls = Calls { map_sizes: true, ..Calls::default() }.restrict();
        let rights = self.own.read()?;
        let line = format!("{rights}, {}, {}", files_in_words(&self.files), calls_in_words(&calls));
        Ok((line, rights))
    }
}
