//! The sites of the main process: they answer from memory, or not yet.
//!
//! For a small file, memory is the site's own cache or the kernel's. A large file leaves by sendfile. Before
//! each part is sent, the site checks it by reading without waiting (preadv2, RWF_NOWAIT). Flash asked
//! mincore about a mapping; today mincore tells the truth only to a process that owns the file or may write
//! to it.
//!
//! Invariant: the site makes a call that may wait for a disk only after helpers have tried and could not
//! help. It counts such calls.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use base::Nanos;
use connection::SocketService;
use dispatch::Token;
use http_semantics::{FileRange, Request, Responder, Response, Service};
use rustix::io::{Errno, IoSliceMut, ReadWriteFlags, preadv2, retry_on_intr};
use site::{File, Sites};

use super::helpers::Helpers;
use super::need::{Need, SameFile, TOUCH_BYTES};

/// Sites, with helpers for data that is not in memory.
pub struct AmpedSite {
    sites: Sites,
    helpers: Rc<RefCell<Helpers>>,
    notices: OwnedFd,
    /// Needs of the connection whose turn it is.
    missing: Vec<Need>,
    scratch: Box<[u8]>,
}

impl AmpedSite {
    /// Sites with these helpers.
    ///
    /// # Errors
    /// EMFILE.
    pub fn new(sites: Sites, helpers: Rc<RefCell<Helpers>>) -> io::Result<AmpedSite> {
        let notices = helpers.borrow().ready()?;
        let scratch = vec![0; TOUCH_BYTES].into_boxed_slice();
        Ok(AmpedSite { sites, helpers, notices, missing: Vec::new(), scratch })
    }

    /// Returns true if the connection must wait for the need. Otherwise the caller makes the blocking call,
    /// which is counted.
    fn is_waited_for(&mut self, need: Option<Need>) -> bool {
        let mut helpers = self.helpers.borrow_mut();
        match need.filter(|need| helpers.can_help(need)) {
            Some(need) => self.missing.push(need),
            None => {
                helpers.counts.main_waits += 1;
                return false;
            }
        }
        true
    }
}

impl Responder for AmpedSite {
    type File = File;

    fn respond_or_wait(&mut self, request: &Request<'_>, now: Nanos) -> Option<Response<File>> {
        match self.sites.respond_from_memory(request, now) {
            None if self.is_waited_for(Need::of(self.sites.number(request.host), request)) => None,
            None => Some(self.sites.respond(request, now)),
            response => response,
        }
    }

    fn refuse_early(&self, request: &Request<'_>) -> Option<Response<File>> {
        site::refused_method(request.method)
    }
}

impl SocketService for AmpedSite {
    fn counts(&self) -> Vec<(&'static str, u64)> {
        self.sites.counts().named().chain(self.helpers.borrow().counts.named()).collect()
    }

    fn sendable(&mut self, range: &FileRange<File>, most: u64) -> u64 {
        let length = most.min(TOUCH_BYTES as u64);
        let part = &mut self.scratch[..length as usize];
        let read = retry_on_intr(|| {
            preadv2(&*range.file, &mut [IoSliceMut::new(&mut *part)], range.offset, ReadWriteFlags::NOWAIT)
        });
        match read {
            // A file system that cannot tell which contents are in memory counts as having none.
            Err(Errno::AGAIN | Errno::OPNOTSUPP) => {
                let need = Need::Touch { file: SameFile(range.file.clone()), offset: range.offset };
                if self.is_waited_for(Some(need)) { 0 } else { length }
            }
            // Sending will report an error, or that the file has become shorter.
            Err(_) | Ok(0) => most,
            Ok(count) => count as u64,
        }
    }

    fn waits(&mut self, token: Token) -> bool {
        let mut to_send = false;
        for need in self.missing.drain(..) {
            to_send |= matches!(need, Need::Touch { .. });
            self.helpers.borrow_mut().fetch(need, token);
        }
        to_send
    }

    fn notices(&self) -> Option<BorrowedFd<'_>> {
        Some(self.notices.as_fd())
    }

    fn due_in(&self) -> Option<Nanos> {
        self.helpers.borrow().due_in()
    }

    fn arrived(&mut self, tokens: &mut Vec<Token>) -> io::Result<()> {
        self.helpers.borrow_mut().handle_arrivals(tokens)
    }
}
