//! Redirection to AF_XDP sockets: the packets that are taken from the kernel.

mod common;

use std::net::{Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};

use bpf::xsk_redirect::{QUEUES, XskRedirect};
use common::packet::{ACK, Packet, SYN};
use common::{CLIENT, DEVICE, Networks, device, namespace, or_skip};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
use sys::network::netns::NetworkNamespace;
use sys::network::xdp::Socket;

const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;

/// An AF_XDP socket with a receive ring, which the map requires.
fn socket() -> Option<OwnedFd> {
    let made = socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None);
    let socket = made.inspect_err(|error| println!("skipped: no AF_XDP here: {error}")).ok()?;
    sockopt::set_xdp_rx_ring_size(&socket, 64).unwrap();
    Some(socket)
}

/// The redirecting program for a network, on loopback, with a socket for queue 0.
fn redirect(network: &str, prefix: u32) -> Option<(XskRedirect, OwnedFd, NetworkNamespace)> {
    let (here, socket) = (namespace()?, socket()?);
    let lo = device(&here, "lo");
    let mut redirect = or_skip(XskRedirect::load(network.parse().unwrap(), prefix))?;
    here.enter(|| redirect.attach(&lo)).unwrap().unwrap();
    let ours = Packet::new(SocketAddr::new(network.parse().unwrap(), 80), SYN).ethernet();
    assert_eq!(verdict(&redirect, &ours), XDP_PASS, "its queue has no socket");
    redirect.set_socket(0, socket.as_fd()).unwrap();
    Some((redirect, socket, here))
}

fn verdict(redirect: &XskRedirect, packet: &[u8]) -> u32 {
    redirect.test_run(packet, 1).unwrap().verdict
}

fn to(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// A frame of ARP that asks for an IPv4 address, or says who has it.
fn arp(operation: u8, about: [u8; 4]) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, operation]);
    frame.extend([2, 0, 0, 0, 0, 1, 10, 77, 0, 1, 0, 0, 0, 0, 0, 0]);
    frame.extend(about);
    frame
}

#[test]
fn only_packets_to_the_network_are_redirected() {
    let Some((redirect, _socket, _here)) = redirect("10.94.0.0", 16) else { return };
    let ours = Packet::new(to("10.94.200.1:80"), SYN);
    let mut udp = ours.ethernet();
    udp[14 + 9] = 17;
    for (name, packet) in [
        ("a SYN", ours.ethernet()),
        ("data to another port", Packet::new(to("10.94.0.0:1"), ACK).ethernet()),
        ("with options", Packet { ip_options: 8, ..ours.clone() }.ethernet()),
        ("a fragment", Packet { fragment: 0x2000, ..ours.clone() }.ethernet()),
        ("UDP", udp),
        ("a question of ARP", arp(1, [10, 94, 3, 7])),
        ("an answer of ARP", arp(2, [10, 94, 3, 7])),
    ] {
        assert_eq!(verdict(&redirect, &packet), XDP_REDIRECT, "{name}");
    }
    let mut other_arp = ours.ethernet();
    other_arp[12..14].copy_from_slice(&[0x08, 0x06]);
    for (name, packet) in [
        ("another network", Packet::new(to("10.95.0.1:80"), SYN).ethernet()),
        ("the other family", Packet::new(to("[fd00::1]:80"), SYN).ethernet()),
        ("a tag", Packet { tags: 1, ..ours.clone() }.ethernet()),
        ("ARP that names 10.94.200.1 elsewhere", other_arp),
        ("ARP about another network", arp(1, [10, 95, 3, 7])),
        ("ARP that was cut", arp(1, [10, 94, 3, 7])[..41].to_vec()),
    ] {
        assert_eq!(verdict(&redirect, &packet), XDP_PASS, "{name}");
    }
}

#[test]
fn a_network_of_ipv6_is_redirected() {
    let Some((redirect, _socket, _here)) = redirect("fd94::", 48) else { return };
    let syn = |text: &str| Packet::new(to(text), SYN);
    let verdict = |packet: &[u8]| verdict(&redirect, packet);
    let options = Packet { next_header: 0, ..syn("[fd94::1:2:3]:80") };
    assert_eq!(verdict(&syn("[fd94::1:2:3]:80").ethernet()), XDP_REDIRECT);
    assert_eq!(verdict(&options.ethernet()), XDP_REDIRECT, "with an extension header");
    assert_eq!(verdict(&syn("[fd94:0:1::1]:80").ethernet()), XDP_PASS);
    assert_eq!(verdict(&syn("10.94.0.1:80").ethernet()), XDP_PASS);
}

/// A message of ICMPv6 with an address where a neighbour solicitation has the one it asks for.
fn icmpv6(destination: &str, kind: u8, about: &str) -> Vec<u8> {
    let mut frame = Packet::new(to(&format!("[{destination}]:80")), SYN).ethernet();
    frame[14 + 6] = 58;
    frame.truncate(14 + 40);
    frame.extend([kind, 0, 0, 0, 0, 0, 0, 0]);
    frame.extend(about.parse::<Ipv6Addr>().unwrap().octets());
    frame
}

#[test]
fn neighbour_solicitation_goes_by_its_target_address() {
    let Some((redirect, _socket, _here)) = redirect("fd94::", 64) else { return };
    const SOLICITATION: u8 = 135;
    const ADVERTISEMENT: u8 = 136;
    let group = "ff02::1:ff00:7";
    let solicitation = icmpv6(group, SOLICITATION, "fd94::7");
    assert_eq!(verdict(&redirect, &solicitation), XDP_REDIRECT);
    assert_eq!(verdict(&redirect, &icmpv6("fd94::1", ADVERTISEMENT, "fd00::1")), XDP_REDIRECT, "to us");
    for (name, packet) in [
        ("for another address", icmpv6(group, SOLICITATION, "fd95::7")),
        ("another message", icmpv6(group, ADVERTISEMENT, "fd94::7")),
        ("cut", solicitation[..solicitation.len() - 1].to_vec()),
    ] {
        assert_eq!(verdict(&redirect, &packet), XDP_PASS, "{name}");
    }
}

#[test]
fn programs_for_any_prefix_redirect_their_own_network() {
    for (network, prefix) in [
        ("10.94.0.0", 16),
        ("10.0.0.0", 8),
        ("10.94.3.7", 32),
        ("fd94::", 64),
        ("fd94::", 48),
        ("fd94::7", 128),
    ] {
        let Some((redirect, _socket, _here)) = redirect(network, prefix) else { return };
        let ours = Packet::new(SocketAddr::new(network.parse().unwrap(), 80), SYN);
        assert_eq!(verdict(&redirect, &ours.ethernet()), XDP_REDIRECT, "{network}/{prefix}");
    }
}

fn wait(socket: &Socket) {
    let mut set = [PollFd::new(socket, PollFlags::IN)];
    let patience = Timespec { tv_sec: 20, tv_nsec: 0 };
    assert_eq!(rustix::io::retry_on_intr(|| poll(&mut set, Some(&patience))).unwrap(), 1, "no frame came");
}

#[test]
fn xdp_socket_receives_and_sends_frames() {
    let Some(networks) = Networks::create() else { return };
    for namespace in [&networks.server, &networks.client] {
        namespace.set_sysctl("net.ipv6.conf.all.disable_ipv6", "1").ok();
    }
    let link = device(&networks.server, DEVICE);
    let opened = networks.server.enter(|| Socket::open(link.index, 0)).unwrap();
    let mut socket = match opened {
        Ok(socket) => socket,
        Err(error) => return println!("skipped: no AF_XDP here: {error}"),
    };
    let load = || XskRedirect::load([10, 80, 0, 128].into(), 25);
    let Some(mut redirect) = or_skip(load()) else { return };
    networks.server.enter(|| redirect.attach(&link)).unwrap().unwrap();
    redirect.set_socket(0, socket.as_fd()).unwrap();
    assert!(!socket.receive() && socket.frame().is_empty());
    // The kernel asks for the hardware address first: 10.80.0.3 is not in the network, 10.80.0.200 is.
    let sender = networks.client.enter(|| UdpSocket::bind((CLIENT, 700))).unwrap().unwrap();
    sender.send_to(b"not for us", "10.80.0.3:900").unwrap();
    sender.send_to(b"for us", "10.80.0.200:900").unwrap();
    wait(&socket);
    assert!(socket.receive());
    let question = socket.frame().to_vec();
    assert_eq!((&question[12..14], &question[38..42]), (&[8, 6][..], &[10, 80, 0, 200][..]));
    // The answer: addresses change places, and the one asked for is given.
    let answer = socket.reserve(42).unwrap();
    answer.copy_from_slice(&question[..42]);
    let mac = [2, 0, 0, 0, 0, 9];
    answer[..6].copy_from_slice(&question[6..12]);
    answer[6..12].copy_from_slice(&mac);
    answer[21] = 2;
    answer[22..28].copy_from_slice(&mac);
    answer[28..32].copy_from_slice(&question[38..42]);
    answer[32..42].copy_from_slice(&question[22..32]);
    socket.send().unwrap();
    wait(&socket);
    assert!(socket.receive());
    assert_eq!(&socket.frame()[..6], &mac);
    assert!(socket.frame().ends_with(b"for us"));
    assert!(!socket.receive());
    // Every frame comes back: many more than there are pass through.
    for _ in 0..40_000 {
        assert!(socket.reserve(60).is_some());
        socket.send().unwrap();
    }
    drop(redirect);
    let mut other = load().unwrap();
    let attached = networks.server.enter(|| other.attach(&link)).unwrap();
    assert!(attached.is_ok(), "the program is gone, so there is room for another");
}

#[test]
fn other_sockets_and_queues_past_the_last_are_refused() {
    let Some(mut redirect) = or_skip(XskRedirect::load([10, 94, 0, 0].into(), 16)) else { return };
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let error = redirect.set_socket(0, udp.as_fd()).unwrap_err().to_string();
    assert!(error.starts_with("cannot give queue 0 its socket: "), "{error}");
    let error = redirect.set_socket(QUEUES as u32, udp.as_fd()).unwrap_err().to_string();
    assert_eq!(error, "redirecting by receive queue takes 64 at most");
}
