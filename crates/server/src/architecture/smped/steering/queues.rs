//! The listeners of all workers, and the kernel's program that chooses among them.
//!
//! Each slot has a listener at every address, from the server's start to its end. The worker in the slot accepts from
//! them. The parent keeps them open, so that a queue outlives its worker. A slot without a worker does not listen.
//!
//! Owns the set of slots that listen. The account decides which workers are alive.
//!
//! Invariant: an open slot is in the program's map at every address.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use base::PerSecond;
use bpf::BpfError;
use bpf::steering::{Steering, Totals, Worker, Workers};

use crate::architecture::smped::settings::Schedule;
use crate::ground::error::{ServeError, system};
use crate::ground::listener::Listener;
use crate::plan::addresses;

/// The listeners by slot, and the program.
pub struct Queues {
    steering: Steering,
    by_slot: Vec<Vec<Listener>>,
    open: Vec<bool>,
    /// True once the program chooses at every address.
    in_force: bool,
    backlog: u32,
    capacity: u64,
}

impl Queues {
    /// Makes the queues of these listeners, none of which listens yet. A worker has room for `capacity` connections.
    pub fn new(steering: Steering, by_slot: Vec<Vec<Listener>>, backlog: u32, capacity: u64) -> Queues {
        let open = vec![false; by_slot.len()];
        Queues { steering, by_slot, open, in_force: false, backlog, capacity }
    }

    /// Makes a slot listen. The first slot that listens puts the program into force.
    ///
    /// # Errors
    /// [`ServeError::Listen`]; [`ServeError::System`] if the kernel rejects the listener.
    pub fn open(&mut self, slot: usize) -> Result<(), ServeError> {
        for (address, listener) in self.by_slot[slot].iter().enumerate() {
            let failed = |cause| ServeError::Listen { address: listener.address, cause };
            listener.listen(self.backlog).map_err(failed)?;
            if !self.in_force {
                self.steering.add_address(listener.socket.as_fd()).map_err(refused)?;
            }
            self.steering.set_listener(address, slot, listener.socket.as_fd()).map_err(refused)?;
        }
        (self.open[slot], self.in_force) = (true, true);
        Ok(())
    }

    /// Stops a slot from listening. The kernel moves the connections in its queue to other workers.
    pub fn shut(&mut self, slot: usize) {
        self.by_slot[slot].iter().for_each(Listener::hand_over);
        self.open[slot] = false;
    }

    /// Makes the kernel move the connections in the queue of a slot to other workers. The slot listens again
    /// afterwards.
    ///
    /// # Errors
    /// As [`Queues::open`]; the slot does not listen then.
    pub fn hand_over(&mut self, slot: usize) -> Result<(), ServeError> {
        self.shut(slot);
        self.open(slot)
    }

    /// Returns true if a slot listens.
    pub fn is_open(&self, slot: usize) -> bool {
        self.open[slot]
    }

    /// Returns true if a connection waits in the queue of a slot.
    pub fn waits(&self, slot: usize) -> bool {
        self.depth(slot) > 0
    }

    /// Returns the number of connections in the queue of a slot.
    pub fn depth(&self, slot: usize) -> u64 {
        Listener::queues(&self.by_slot[slot]).depth.into()
    }

    /// Lets no more connections into any queue.
    pub fn seal(&self) {
        self.by_slot.iter().flatten().for_each(Listener::seal);
    }

    /// Returns the listeners of a slot.
    pub fn listeners(&self, slot: usize) -> &[Listener] {
        &self.by_slot[slot]
    }

    /// Returns the addresses of the server.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        addresses(&self.by_slot[0])
    }

    /// Returns the record of a worker.
    pub fn worker(&self, slot: usize) -> Worker<'_> {
        self.steering.workers().worker(slot)
    }

    /// Returns the program's counters.
    pub fn totals(&self) -> Totals {
        self.steering.totals()
    }

    /// Clears the record of a slot for a new worker.
    pub fn reset(&self, slot: usize) {
        let worker = self.worker(slot);
        worker.set_alive(false);
        worker.set_connections(0);
        worker.set_throughput(PerSecond(0.0));
        worker.set_capacity(self.capacity);
    }

    /// Returns the memory of the workers, for another process.
    ///
    /// # Errors
    /// EMFILE.
    pub fn memory(&self) -> io::Result<OwnedFd> {
        self.steering.workers().as_fd().try_clone_to_owned()
    }

    /// Maps the same memory once more, for figures that outlive the queues.
    ///
    /// # Errors
    /// [`ServeError::System`]: descriptors, memory.
    pub fn figures(&self) -> Result<Workers, ServeError> {
        self.memory().and_then(Workers::open).map_err(system("map the memory of the workers"))
    }
}

fn refused(error: BpfError) -> ServeError {
    system("steer connections to workers")(io::Error::other(error))
}

/// Returns the program's name of a schedule.
pub fn schedule(schedule: Schedule) -> bpf::steering::Schedule {
    match schedule {
        Schedule::Smped => bpf::steering::Schedule::LeastProduct,
        Schedule::LeastConnections => bpf::steering::Schedule::LeastConnections,
        Schedule::RoundRobin => bpf::steering::Schedule::RoundRobin,
        Schedule::Random => bpf::steering::Schedule::Random,
    }
}
