//! The hook on devices: SYNs are refused in traffic control or in XDP, before the kernel's TCP sees them.
//!
//! ```text
//!   device ──> program: which queue? ──> its bucket ────────────> SO_REUSEPORT group: the same queue ──> loop
//!                                              ^ plain stores                                              │
//!                                              └──────────────────── control of the queue <────────────────┘
//! ```
//!
//! The process that made the listeners owns one program for all of them. Each loop has an accept queue and a control,
//! and each control sets the limits of its own queue. So allowances are neither added up nor divided. The programs on
//! the devices and of the SO_REUSEPORT group choose a queue by one rule, so that a SYN meets its own queue's limits.
//! With `--wake steered` on a machine that steers packets (RPS), XDP in a driver runs before the steering, and may
//! apply another queue's limits.
//!
//! Leaves out the program (`bpf`) and the decision (`overload`).
//!
//! Invariant: the links die with this process, however it ends.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};

use base::lock;
use bpf::Exempt;
use bpf::admission::{self, Admission, Attached, Changes, LimitTable, Queues, ReachingDevice};
use overload::hook::program::Program;
use overload::hook::{BucketHook, Routing};

use crate::ground::listener::{Listener, one_for_each_address};

/// The program on the devices of the listeners.
#[derive(Clone)]
pub struct DeviceHooks {
    /// The program with its links.
    admission: Arc<Mutex<Admission>>,
    table: LimitTable,
    name: &'static str,
}

impl DeviceHooks {
    /// Attaches the program to each device that may bring packets to the listeners. Gives the listeners' groups the same
    /// rule. `sets` has a set of listeners for each accept queue.
    ///
    /// # Errors
    /// One line that names the missing facility. Nothing is attached then.
    pub fn attach(
        hook: admission::Hook,
        sets: &[Vec<Listener>],
        routing: &Routing,
        salt: u32,
        exempt: &Exempt,
    ) -> Result<(DeviceHooks, Vec<ReachingDevice>), String> {
        let name = match hook {
            admission::Hook::Tc | admission::Hook::TcReset => "tc",
            admission::Hook::Xdp => "XDP",
        };
        let cpus = match routing {
            Routing::Even => Vec::new(),
            Routing::ByCpu(cpus) => cpus.clone(),
        };
        let queues = Queues { count: sets.len(), cpus, salt };
        let first = one_for_each_address(sets);
        let first: Vec<BorrowedFd<'_>> = first.iter().map(|listener| listener.socket.as_fd()).collect();
        let (admission, devices) =
            Admission::of_listeners(hook, &queues, exempt, &first).map_err(|error| error.to_string())?;
        if sets.len() > 1 {
            let shares = vec![1.0; sets.len()];
            let listeners = sets.iter().map(Vec::len).sum::<usize>() / first.len();
            let exempt = &Exempt::NONE;
            let program =
                Program { routing, shares: &shares, listeners, salt, exempt, filler: None }.operations();
            for listener in first {
                sys::socket::reuseport::attach(listener, &program)
                    .map_err(|error| format!("cannot choose accept queues by a program: {error}"))?;
            }
        }
        let table = admission.table().clone();
        Ok((DeviceHooks { admission: Arc::new(Mutex::new(admission)), table, name }, devices))
    }

    /// Attaches the program to devices that have come to reach the listeners since the last call, and brings `attached` up
    /// to date. Reports each change in one line. Blocks while a driver restarts its device for XDP.
    pub fn follow(&self, attached: &mut Vec<Attached>) {
        let name = self.name;
        let Changes { new, gone, refused } = match lock(&self.admission).follow() {
            Ok(changes) => changes,
            Err(error) => {
                sys::say!("inrush: overload control may miss connections through new devices: {error}");
                return;
            }
        };
        for error in refused {
            sys::say!("inrush: overload control may miss connections to a new address: {error}");
        }
        for gone in attached.extract_if(.., |known| gone.contains(&known.device)) {
            sys::say!("inrush: overload control: {} is gone or down, and had {name}", gone.device);
        }
        for ReachingDevice { name: device, attached: result } in new {
            match result {
                Ok(new) => {
                    attached.push(new);
                    sys::say!("inrush: overload control: {device} is new, and has {name} from now on");
                }
                Err(error) => {
                    sys::say!("inrush: overload control: {device} is new, and has no {name}: {error}");
                }
            }
        }
    }

    /// Splits the devices of the start into those that have the program, and a line for each other one.
    pub fn report(&self, devices: Vec<ReachingDevice>) -> (Vec<Attached>, Vec<String>) {
        let (mut attached, mut missed) = (Vec::new(), Vec::new());
        for ReachingDevice { name: device, attached: result } in devices {
            match result {
                Ok(new) => attached.push(new),
                Err(error) => {
                    missed.push(format!("overload control: {device} has no {}: {error}", self.name));
                }
            }
        }
        (attached, missed)
    }

    /// Returns the hook of one queue.
    pub fn hook(&self, queue: usize) -> BucketHook {
        BucketHook::new(self.name, self.table.clone(), queue)
    }

    /// Admits every SYN to a queue.
    pub fn withdraw(&self, queue: usize) {
        self.table.admit_all(queue);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Nanos, PerSecond};
    use overload::hook::{self, Hook};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, accept_with};
    use std::net::SocketAddr;
    use std::os::fd::{AsRawFd, OwnedFd};
    use sys::network::netlink::Route;
    use sys::network::netns::NetworkNamespace;
    use sys::readiness::poll::{PollFd, bits};

    const QUEUES: usize = 3;
    const CLIENTS: usize = 60;

    /// A connection, or `None` once its SYN was refused.
    fn connects(hooks: &DeviceHooks, address: SocketAddr) -> Option<OwnedFd> {
        let refused = || -> u64 { (0..QUEUES).map(|queue| hooks.hook(queue).refused().unwrap()).sum() };
        let before = refused();
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None).unwrap();
        let _ = rustix::net::connect(&socket, &address);
        while refused() == before {
            let mut wanted = [PollFd::new(socket.as_raw_fd(), bits::OUT)];
            if sys::readiness::poll::wait(&mut wanted, Some(Nanos::MILLISECOND)).unwrap() > 0 {
                return Some(socket);
            }
        }
        None
    }

    /// Connects many times to three queues, of which the second refuses everything at first.
    fn connect(hook: admission::Hook, routing: &Routing, address: SocketAddr) {
        let listeners = crate::ground::listener::listen(address, 128, QUEUES, true).unwrap();
        let sets: Vec<Vec<Listener>> = listeners.into_iter().map(|listener| vec![listener]).collect();
        let address = sets[0][0].address;
        let hooks = match DeviceHooks::attach(hook, &sets, routing, 7, &Exempt::NONE) {
            Ok((hooks, devices)) => {
                assert_eq!(devices.len(), 1, "loopback alone");
                hooks
            }
            Err(error) => return println!("skipped: {error}"),
        };
        let mut second = hooks.hook(1);
        let all = hook::Admission::ALL;
        second.admit(&hook::Admission { rate: PerSecond(0.001), new_are_free: false, ..all }).unwrap();
        let connected = (0..CLIENTS).filter_map(|_| connects(&hooks, address)).count();
        let taken: Vec<usize> = sets
            .iter()
            .map(|set| {
                (0..).take_while(|_| accept_with(&set[0].socket, SocketFlags::NONBLOCK).is_ok()).count()
            })
            .collect();
        assert_eq!(taken.iter().sum::<usize>(), connected, "{hook:?} {address}: {taken:?}");
        assert!(taken[1] <= 1, "one token: {taken:?}");
        let refused = [0, 1, 2].map(|queue| hooks.hook(queue).refused().unwrap());
        assert!(refused[1] > 0 && refused[0] + refused[2] == 0, "{refused:?}");
        assert!(taken[0] > 0 && taken[2] > 0, "{taken:?}");
        second.admit(&all).unwrap();
        assert!((0..CLIENTS).all(|_| connects(&hooks, address).is_some()));
    }

    #[test]
    fn syn_meets_the_limits_of_its_queue() {
        let namespace = match NetworkNamespace::create() {
            Ok(namespace) => namespace,
            Err(error) => return println!("skipped: no network namespaces here: {error}"),
        };
        namespace.enter(|| Route::open().and_then(|mut route| route.set_up(1))).unwrap().unwrap();
        for hook in [admission::Hook::Tc, admission::Hook::Xdp] {
            for address in ["127.0.0.1:0", "[::1]:0"] {
                let address = address.parse().unwrap();
                namespace.enter(|| connect(hook, &Routing::Even, address)).unwrap();
            }
        }
    }
}
