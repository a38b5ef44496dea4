//! The kernel cache of a build without it: no value of its types exists.

use std::os::fd::BorrowedFd;

use base::Nanos;
use http_semantics::{Request, Response};
use site::{File, Hosts};

use super::Materials;
use crate::ground::counters::KernelCacheCounts;
use crate::ground::error::ServeError;
use crate::ground::listener::Listener;
use crate::ground::threads::LoopHandle;

/// No cache.
#[derive(Clone)]
pub enum SharedCache {}

impl SharedCache {
    /// Returns `None`. A configuration with a kernel cache was refused before.
    pub fn load(_sets: &[Vec<Listener>]) -> Option<SharedCache> {
        None
    }

    /// Cannot be called.
    pub fn start_keeper(&self, _materials: Materials) -> Result<LoopHandle, ServeError> {
        match *self {}
    }

    /// Cannot be called.
    pub fn observer(&self, _hosts: Hosts) -> Observer {
        match *self {}
    }

    /// Cannot be called.
    pub fn counts(&self) -> KernelCacheCounts {
        match *self {}
    }

    /// Cannot be called.
    pub fn disable(&self) {
        match *self {}
    }
}

/// No observer.
#[derive(Clone)]
pub enum Observer {}

impl Observer {
    /// Cannot be called.
    pub fn see(&mut self, _request: &Request<'_>, _response: &Response<File>) {
        match *self {}
    }

    /// Cannot be called.
    pub fn idle_for(&self, _socket: BorrowedFd<'_>) -> Option<Nanos> {
        match *self {}
    }
}
