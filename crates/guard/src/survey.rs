//! Every listener of this network namespace, with its accept queue and an opinion.

use std::collections::HashMap;
use std::io;

use serde::Serialize;
use sys::network::netlink::{Listener, SocketDiagnostics};

use crate::GuardError;
use crate::search::owner::{Holding, Owner, holders};

/// The shortest backlog that a burst of browsers does not fill.
const SHORT_BACKLOG: u32 = 64;

/// A listener during the time of a survey.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Surveyed {
    /// The address that it is bound to.
    pub address: String,
    /// Connections in its accept queue at the last look.
    pub depth: u32,
    /// The most at any look.
    pub depth_most: u32,
    /// Capacity of its accept queue.
    pub limit: u32,
    /// Packets and connections dropped since it was made.
    pub drops: u32,
    /// Those during the survey.
    pub drops_now: u32,
    /// The processes that hold it; empty if this user may not see them.
    pub owners: Vec<Owner>,
    /// One clause on the queue, and the next step if there is one.
    pub opinion: String,
}

/// Repeated looks at all listeners.
pub struct Survey {
    diagnostics: SocketDiagnostics,
    /// By cookie: the first and the last look, and the greatest depth.
    seen: HashMap<u64, (Listener, Listener, u32)>,
}

impl Survey {
    /// Begins a survey of the calling thread's network namespace, with a first look.
    ///
    /// # Errors
    /// No sock_diag in this kernel.
    pub fn begin() -> io::Result<Survey> {
        let mut survey = Survey { diagnostics: SocketDiagnostics::open()?, seen: HashMap::new() };
        survey.read_listeners()?;
        Ok(survey)
    }

    /// Looks again.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read_listeners(&mut self) -> io::Result<()> {
        for listener in self.diagnostics.listeners(0)? {
            let seen = self.seen.entry(listener.cookie).or_insert((listener, listener, 0));
            seen.1 = listener;
            seen.2 = seen.2.max(listener.depth);
        }
        Ok(())
    }

    /// Ends the survey: the listeners in the order of their ports.
    ///
    /// # Errors
    /// The kernel's.
    pub fn end(mut self) -> Result<Vec<Surveyed>, GuardError> {
        self.read_listeners()?;
        let outer = self.diagnostics.mptcp_listeners(0)?;
        let mut listeners: Vec<_> = self.seen.into_values().collect();
        listeners.sort_unstable_by_key(|(_, last, _)| (last.address.port(), last.address.ip(), last.cookie));
        let inodes: Vec<u32> = listeners
            .iter()
            .map(|(_, last, _)| last.inode)
            .chain(outer.iter().map(|outer| outer.inode))
            .collect();
        let holdings = holders(&inodes);
        let held = |listener: &Listener| {
            let outside = outer.iter().filter(|outer| outer.address == listener.address);
            let inodes = outside.map(|outer| outer.inode).chain([listener.inode]);
            owners(inodes.filter_map(|inode| holdings.get(&inode)).flatten())
        };
        Ok(listeners.iter().map(|seen| surveyed(seen, held(&seen.1))).collect())
    }
}

fn owners<'a>(holdings: impl Iterator<Item = &'a Holding>) -> Vec<Owner> {
    let mut pids: Vec<i32> = holdings.map(|holding| holding.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    pids.into_iter().filter_map(Owner::of).collect()
}

fn surveyed((first, last, most): &(Listener, Listener, u32), owners: Vec<Owner>) -> Surveyed {
    let drops_now = last.drops.wrapping_sub(first.drops);
    Surveyed {
        address: last.address.to_string(),
        depth: last.depth,
        depth_most: (*most).max(last.depth),
        limit: last.limit,
        drops: last.drops,
        drops_now,
        owners,
        opinion: opinion(last, drops_now, *most),
    }
}

fn opinion(listener: &Listener, drops_now: u32, most: u32) -> String {
    let port = listener.address.port();
    let Listener { limit, drops, .. } = *listener;
    // A listener also drops what a filter refuses, and the bare ACKs of deferred connections.
    if drops_now > 0 && most >= limit {
        return format!("drops connections now: its accept queue is full; `inrush guard :{port}`");
    }
    if most > limit / 2 {
        return format!("its accept queue is more than half full; `inrush guard --observe :{port}`");
    }
    if drops > 0 {
        return format!("calm, but has dropped {drops}; `inrush guard --observe :{port}` at the next rush");
    }
    if limit < SHORT_BACKLOG {
        return format!("calm; a burst of more than {limit} connections does not fit its backlog");
    }
    "calm".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn survey_finds_our_listener_and_its_owner() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut survey = match Survey::begin() {
            Ok(survey) => survey,
            Err(error) => return println!("skipped: no sock_diag here: {error}"),
        };
        let _waits = TcpStream::connect(address).unwrap();
        survey.read_listeners().unwrap();
        listener.accept().unwrap();
        let all = survey.end().unwrap();
        let ours = all.iter().find(|found| found.address == address.to_string()).unwrap();
        assert_eq!((ours.depth, ours.depth_most, ours.drops_now), (0, 1, 0));
        assert!(ours.owners.iter().any(|owner| owner.pid == std::process::id() as i32), "{ours:?}");
    }

    #[test]
    fn opinion_names_the_worst_first() {
        let calm = Listener { limit: 128, ..crate::address::tests::listener("127.0.0.1:80", false) };
        assert_eq!(opinion(&calm, 0, 0), "calm");
        assert!(opinion(&calm, 1, 128).starts_with("drops connections now"));
        assert!(opinion(&calm, 0, 65).contains("half full"));
        assert!(opinion(&Listener { drops: 9, ..calm }, 0, 0).contains("has dropped 9"));
        assert!(opinion(&Listener { limit: 5, ..calm }, 0, 0).contains("more than 5 connections"));
    }
}
