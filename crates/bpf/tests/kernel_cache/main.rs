//! The kernel cache, packet by packet: a client by hand at the end of a TUN device, a listener of the kernel's.

#[path = "../common/mod.rs"]
mod common;

mod answering;
mod fixture;
mod handing_over;
mod objects;
mod vlan;
