//! Networks of this machine: the namespaces, links and routes that experiments are made of, and frames below TCP.
//!
//! `netns` makes namespaces, `userns` gives an ordinary user the right to make them, and `netlink` sets up links, addresses and
//! routes and lists the kernel's sockets. `tun` and `xdp` exchange packets with a link.
//!
//! Leaves out the sockets of connections: [`socket`](crate::socket).

pub mod netlink;
pub mod netns;
pub mod tun;
pub mod userns;
pub mod xdp;
