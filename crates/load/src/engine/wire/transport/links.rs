//! The links of a run over TCP in user space: one for each thread of this process.
//!
//! Over AF_XDP the threads of populations have none, because a queue of the interface belongs to one thread. They connect
//! through the kernel, whose own traffic goes on.
//!
//! The links are opened before the run begins, because a device takes some milliseconds. The kernel removes their devices
//! when this process ends, however it ends.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

use base::RealClock;
use usertcp::SourceNet;
use usertcp::link::{AfXdp, Tun};

use crate::error::LoadError;
use crate::plan::Plan;
use crate::plan::config::{Link, Stack};
use crate::plan::terms::share::Share;

/// A link of either kind.
pub(crate) enum AnyLink {
    /// Over a TUN device.
    Tun(Box<Tun>),
    /// Over AF_XDP sockets.
    AfXdp(Box<AfXdp>),
}

/// The links of this process that no thread has taken yet, by the thread's number in the whole run.
#[derive(Default)]
pub(crate) struct Links(BTreeMap<u32, (AnyLink, SourceNet)>);

impl Links {
    /// Opens a link for each thread of a process's share; no links for kernel sockets.
    ///
    /// # Errors
    /// Missing privileges, a source net that is in use, or a server that the link does not reach.
    pub fn open(plan: &Plan, share: Share) -> Result<Links, LoadError> {
        let Stack::User { link, server_cpus, must_steer, .. } = &plan.config.stack else {
            return Ok(Links::default());
        };
        let net = plan.source_net();
        let server = plan.user_target().ip();
        let mut links = BTreeMap::new();
        for thread in plan.threads_with_link(share) {
            let part = net
                .share(thread, plan.threads_in_all())
                .map_err(|error| LoadError::Stack { stack: "user", why: error.to_string() })?;
            let opened = match link {
                Link::Tun => AnyLink::Tun(Box::new(match tun(server, part, server_cpus) {
                    Err(LoadError::Stack { .. }) if !must_steer => Tun::open(server, part)?,
                    opened => opened?,
                })),
                Link::AfXdp(interface) => {
                    let owned = plan.config.own_this_server;
                    AnyLink::AfXdp(Box::new(AfXdp::open(interface, server, part, owned, &RealClock::new())?))
                }
            };
            links.insert(thread, (opened, part));
        }
        Ok(Links(links))
    }

    /// Takes the link of a thread and the source net of its connections; `None` over kernel sockets.
    pub fn take(&mut self, thread: u32) -> Option<(AnyLink, SourceNet)> {
        self.0.remove(&thread)
    }
}

fn tun(server: IpAddr, net: SourceNet, server_cpus: &[usize]) -> Result<Tun, LoadError> {
    let tun = Tun::open(server, net)?;
    if server_cpus.is_empty() {
        return Ok(tun);
    }
    let refused = |error| LoadError::Stack { stack: "user", why: format!("--server-cpus: {error}") };
    match sys::network::netns::steer_receive(tun.name(), server_cpus) {
        // A device is steered by root alone. New devices are steered by whoever made the namespace.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            drop(tun);
            Ok(sys::network::netns::steering_new_devices(server_cpus, || Tun::open(server, net))
                .map_err(refused)??)
        }
        steered => steered.map_err(refused).map(|()| tun),
    }
}
