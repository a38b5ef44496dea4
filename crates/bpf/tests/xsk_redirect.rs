//! Redirection to AF_XDP sockets: which packets are taken from the kernel.

mod common;

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use bpf::xsk_redirect::{QUEUES, XskRedirect};
use common::packet::{ACK, Packet, SYN};
use common::{device, namespace, or_skip};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;

/// An AF_XDP socket with a receive ring, which is all that the map asks for.
fn socket() -> Option<OwnedFd> {
    let made = socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None);
    let socket = made.inspect_err(|error| println!("skipped: no AF_XDP here: {error}")).ok()?;
    sockopt::set_xdp_rx_ring_size(&socket, 64).unwrap();
    Some(socket)
}

#[test]
fn tcp_to_the_network_is_redirected_and_nothing_else() {
    let (Some(here), Some(socket)) = (namespace(), socket()) else { return };
    let lo = device(&here, "lo");
    let Some(mut redirect) = or_skip(XskRedirect::load([10, 94, 0, 0].into(), 16)) else { return };
    here.enter(|| redirect.attach(&lo)).unwrap().unwrap();
    let to = |text: &str| text.parse::<SocketAddr>().unwrap();
    let ours = Packet::new(to("10.94.200.1:80"), SYN);
    let verdict = |redirect: &XskRedirect, packet: &[u8]| redirect.test_run(packet, 1).unwrap().verdict;
    assert_eq!(verdict(&redirect, &ours.ethernet()), XDP_PASS, "its queue has no socket");
    redirect.set_socket(0, socket.as_fd()).unwrap();
    for (name, packet) in [
        ("a SYN", ours.clone()),
        ("data to another port", Packet::new(to("10.94.0.0:1"), ACK)),
        ("with options", Packet { ip_options: 8, ..ours.clone() }),
    ] {
        assert_eq!(verdict(&redirect, &packet.ethernet()), XDP_REDIRECT, "{name}");
    }
    for (name, packet) in [
        ("another network", Packet::new(to("10.95.0.1:80"), SYN)),
        ("the other family", Packet::new(to("[fd00::1]:80"), SYN)),
        ("a tag", Packet { tags: 1, ..ours.clone() }),
        ("a fragment", Packet { fragment: 0x2000, ..ours.clone() }),
    ] {
        assert_eq!(verdict(&redirect, &packet.ethernet()), XDP_PASS, "{name}");
    }
    let mut udp = ours.ethernet();
    udp[14 + 9] = 17;
    assert_eq!(verdict(&redirect, &udp), XDP_PASS, "UDP");
    let mut arp = ours.ethernet();
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    assert_eq!(verdict(&redirect, &arp), XDP_PASS, "ARP");
}

#[test]
fn a_network_of_ipv6_is_redirected() {
    let (Some(here), Some(socket)) = (namespace(), socket()) else { return };
    let lo = device(&here, "lo");
    let Some(mut redirect) = or_skip(XskRedirect::load("fd94::".parse().unwrap(), 48)) else { return };
    here.enter(|| redirect.attach(&lo)).unwrap().unwrap();
    redirect.set_socket(0, socket.as_fd()).unwrap();
    let verdict = |to: &str| {
        let packet = Packet::new(to.parse().unwrap(), SYN).ethernet();
        redirect.test_run(&packet, 1).unwrap().verdict
    };
    assert_eq!(verdict("[fd94::1:2:3]:80"), XDP_REDIRECT);
    assert_eq!(verdict("[fd94:0:1::1]:80"), XDP_PASS);
    assert_eq!(verdict("10.94.0.1:80"), XDP_PASS);
}

#[test]
fn sockets_of_other_kinds_and_queues_past_the_last_are_refused() {
    let Some(mut redirect) = or_skip(XskRedirect::load([10, 94, 0, 0].into(), 16)) else { return };
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let error = redirect.set_socket(0, udp.as_fd()).unwrap_err().to_string();
    assert!(error.starts_with("cannot give queue 0 its socket: "), "{error}");
    let error = redirect.set_socket(QUEUES as u32, udp.as_fd()).unwrap_err().to_string();
    assert_eq!(error, "redirecting by receive queue takes 64 at most");
}
