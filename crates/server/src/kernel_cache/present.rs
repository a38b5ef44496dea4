//! The kernel cache of a build that has it: the state that the loops, the keeper and the admin interface share.

mod hot;
mod keeper;

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard};

use base::{Clock, Nanos, RealClock, lock};
use bpf::kernel_cache::{KernelCache, Limits};
use rustix::net::getpeername;
use site::Hosts;
use sys::network::netlink::SocketDiagnostics;
use sys::socket::local_address;

use super::Materials;
use crate::ground::counters::KernelCacheCounts;
use crate::ground::error::ServeError;
use crate::ground::listener::Listener;
use crate::ground::threads::LoopHandle;
use hot::Candidate;
pub use hot::Observer;

/// The state that the loops, the keeper and the admin interface share.
#[derive(Clone)]
pub struct SharedCache(Arc<Shared>);

struct Shared {
    program: Mutex<KernelCache>,
    /// Hot requests that the keeper has not looked at yet.
    candidates: Mutex<Vec<Candidate>>,
    /// The keeper's counters.
    kept: Mutex<KernelCacheCounts>,
}

impl SharedCache {
    /// Loads the program for connections to these listeners. Reports a failure in one line, and returns `None`.
    /// Answers nothing until a keeper runs.
    pub fn load(sets: &[Vec<Listener>]) -> Option<SharedCache> {
        let listeners: Vec<BorrowedFd<'_>> =
            sets.iter().flatten().map(|listener| listener.socket.as_fd()).collect();
        // A kernel without tcp_diag would show no connection to a keeper that asks if one still exists.
        if let Err(error) = SocketDiagnostics::open().and_then(|mut asked| asked.accept_queue(0)) {
            sys::say!("inrush: --kernel-cache on: {error}; serving without it");
            return None;
        }
        let seed = RandomState::new().hash_one(0);
        match KernelCache::of_listeners(Limits::default(), seed, &listeners) {
            Ok(program) => Some(SharedCache(Arc::new(Shared {
                program: Mutex::new(program),
                candidates: Mutex::default(),
                kept: Mutex::default(),
            }))),
            Err(error) => {
                sys::say!("inrush: --kernel-cache on: {error}; serving without it");
                None
            }
        }
    }

    /// Starts the thread that fills the cache.
    ///
    /// # Errors
    /// [`ServeError::System`]: descriptors, the thread.
    pub fn start_keeper(&self, materials: Materials) -> Result<LoopHandle, ServeError> {
        keeper::start(self.clone(), materials)
    }

    /// Makes an observer for one loop of a server with these hosts.
    pub fn observer(&self, hosts: Hosts) -> Observer {
        Observer::new(self.clone(), hosts)
    }

    /// Returns the totals of the program and of the keeper.
    pub fn counts(&self) -> KernelCacheCounts {
        let totals = self.program().totals();
        KernelCacheCounts {
            kernel_cache_answers: totals.answers,
            kernel_cache_bytes: totals.bytes,
            kernel_cache_repeated: totals.repeated,
            kernel_cache_connections: totals.taken,
            kernel_cache_handed_over: totals.handed_over,
            kernel_cache_no_room: totals.no_room,
            kernel_cache_damaged: totals.damaged,
            kernel_cache_swallowed: totals.swallowed,
            kernel_cache_aborted: totals.aborted,
            kernel_cache_unlogged: totals.unlogged,
            ..lock(&self.0.kept).clone()
        }
    }

    /// Answers no further requests. Connections that the program answered continue until this value is dropped.
    pub fn disable(&self) {
        self.program().set_enabled(false);
    }

    /// Returns the time since the program last answered a connection; `None` if it never did.
    fn idle_for(&self, socket: BorrowedFd<'_>) -> Option<Nanos> {
        let client: SocketAddr = getpeername(socket).ok()??.try_into().ok()?;
        let server = local_address(socket).ok()?;
        let last = self.program().last_answer(client, server).ok()??;
        Some(RealClock.now().saturating_sub(last))
    }

    fn program(&self) -> MutexGuard<'_, KernelCache> {
        lock(&self.0.program)
    }
}
