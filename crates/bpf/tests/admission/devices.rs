//! The devices that bring SYNs to a listener have the program, each once, and it follows them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::PoisonError;

use base::Nanos;
use bpf::admission::{Admission, Hook, Queues, ReachingDevice, Totals};
use bpf::{BpfError, Exempt};
use sys::network::netlink::Route;
use sys::network::netns::NetworkNamespace;
use sys::network::tun::Tun;
use sys::process::Program;

use crate::common::packet::{ACK, Packet, SYN};
use crate::common::wire::{Client, Offer, SERVER as BEHIND_TUN, TUN, Wire};
use crate::common::{DEVICE, Networks, SERVER, device, namespace, or_skip};
use crate::{HOOKS, MINUTE, STARTS, admission, connects, limit, refuses_and_admits, v4};

/// Addresses that the tests give to a loopback device, as a router does that spreads clients over servers.
const ANYWHERE: Ipv4Addr = Ipv4Addr::new(10, 83, 0, 1);
const ANYWHERE6: Ipv6Addr = Ipv6Addr::new(0xfd83, 0, 0, 0, 0, 0, 0, 1);

/// A TUN device in a namespace of its own. Starts ip(8).
fn wire() -> Option<Wire> {
    let _nobody_starts = STARTS.lock().unwrap_or_else(PoisonError::into_inner);
    Wire::create()
}

/// The names of the devices that have the program.
fn attached(devices: &[ReachingDevice]) -> Vec<&str> {
    let attached = devices.iter().filter_map(|device| device.attached.as_ref().ok());
    attached.map(|attached| attached.device.as_str()).collect()
}

/// The program for a listener, and the devices that reach it.
fn of_listener(
    hook: Hook,
    namespace: &NetworkNamespace,
    listener: &TcpListener,
) -> Result<(Admission, Vec<ReachingDevice>), BpfError> {
    let of = || Admission::of_listeners(hook, &Queues::one(), &Exempt::NONE, &[listener.as_fd()]);
    namespace.enter(of).unwrap()
}

#[test]
fn loopback_listener_is_protected_on_both_families() {
    let Some(here) = namespace() else { return };
    for hook in HOOKS {
        for address in [SocketAddr::from(([127, 0, 0, 1], 0)), (Ipv6Addr::LOCALHOST, 0).into()] {
            let listener = here.enter(|| TcpListener::bind(address)).unwrap().unwrap();
            let made = of_listener(hook, &here, &listener);
            let Some((admission, devices)) = or_skip(made) else { return };
            assert_eq!(attached(&devices), ["lo"]);
            let what = format!("{hook:?} on {address}");
            refuses_and_admits(&admission, &here, listener.local_addr().unwrap(), &what);
        }
    }
}

#[test]
fn wildcard_listener_is_protected_on_each_device() {
    let Some(networks) = Networks::create() else { return };
    for hook in HOOKS {
        let listener = networks.server.enter(|| TcpListener::bind("0.0.0.0:0")).unwrap().unwrap();
        let made = of_listener(hook, &networks.server, &listener);
        let Some((admission, devices)) = or_skip(made) else { return };
        assert_eq!(attached(&devices), ["lo", DEVICE], "{devices:?}");
        let port = listener.local_addr().unwrap().port();
        refuses_and_admits(&admission, &networks.client, (SERVER, port).into(), &format!("{hook:?} by veth"));
        refuses_and_admits(&admission, &networks.server, (SERVER, port).into(), &format!("{hook:?} by lo"));
        let other = networks.server.enter(|| TcpListener::bind((SERVER, 0))).unwrap().unwrap();
        limit(&admission, MINUTE, Nanos(0));
        for _ in 0..3 {
            assert!(connects(&admission, &networks.client, other.local_addr().unwrap()), "another's port");
        }
    }
}

#[test]
fn syn_by_tun_to_an_address_of_lo_is_refused() {
    let Some(wire) = wire().map(Rc::new) else { return };
    let here = &wire.namespace;
    let mut route = here.enter(Route::open).unwrap().unwrap();
    let addresses: [(IpAddr, u8); 2] = [(ANYWHERE.into(), 32), (ANYWHERE6.into(), 128)];
    for (address, prefix) in &addresses[..1 + usize::from(wire.ipv6)] {
        route.add_address(1, *address, *prefix).unwrap();
        let listener = here.enter(|| TcpListener::bind((*address, 0))).unwrap().unwrap();
        let Some((admission, devices)) = or_skip(of_listener(Hook::Tc, here, &listener)) else { return };
        assert_eq!(attached(&devices), ["lo", TUN], "{devices:?}");
        limit(&admission, MINUTE, Nanos(0));
        for (port, dropped) in [(2001, 0), (2002, 1)] {
            let mut client = Client::new(&wire, listener.local_addr().unwrap(), port, Offer::default());
            client.transmit(client.next, 0, SYN, &[], &[]);
            if dropped == 0 {
                assert!(client.receive().is(SYN | ACK));
                client.reset();
            }
            assert_eq!(admission.table().totals(0), Totals { passed: 1, dropped }, "{address}");
        }
    }
}

#[test]
fn address_of_lo_is_protected_on_a_veth() {
    let Some(networks) = Networks::create() else { return };
    let mut ours = networks.server.enter(Route::open).unwrap().unwrap();
    ours.add_address(1, ANYWHERE, 32).unwrap();
    let mut theirs = networks.client.enter(Route::open).unwrap().unwrap();
    let link = theirs.link_index(DEVICE).unwrap();
    theirs.add_route(ANYWHERE.into(), 32, link, Some(SERVER.into())).unwrap();
    let listener = networks.server.enter(|| TcpListener::bind((ANYWHERE, 0))).unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    for hook in HOOKS {
        let made = of_listener(hook, &networks.server, &listener);
        let Some((admission, devices)) = or_skip(made) else { return };
        assert_eq!(attached(&devices), ["lo", DEVICE], "{devices:?}");
        refuses_and_admits(&admission, &networks.client, address, &format!("{hook:?} by veth"));
    }
}

#[test]
fn syn_over_a_bridge_is_charged_once() {
    let Some(networks) = Networks::create() else { return };
    // The bridge has its port's hardware address, so that the port takes packets to the bridge for its own.
    let script = format!(
        "ip link add br0 type bridge && ip link set {DEVICE} master br0 && ip address flush dev {DEVICE} && \
         ip address add {SERVER}/24 dev br0 && ip link set br0 up"
    );
    let _nobody_starts = STARTS.lock().unwrap_or_else(PoisonError::into_inner);
    let program = Program::new("sh").arguments(["-c", &script]);
    let bridged = program.in_namespace(Some(networks.server.as_fd())).start();
    let output = bridged.and_then(|child| child.output(Nanos::MILLISECOND, || true)).unwrap();
    if !output.exit.status.success() {
        return println!("skipped: no bridges here: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let listener = networks.server.enter(|| TcpListener::bind((SERVER, 0))).unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    for hook in HOOKS {
        let made = of_listener(hook, &networks.server, &listener);
        let Some((admission, devices)) = or_skip(made) else { return };
        assert_eq!(attached(&devices), ["lo", "br0"], "{devices:?}");
        refuses_and_admits(&admission, &networks.client, address, &format!("{hook:?} by a bridge"));
    }
}

#[test]
fn device_without_ethernet_takes_tc_and_no_xdp() {
    let Some(here) = namespace() else { return };
    let tun = match here.enter(|| Tun::create("tun0")).unwrap() {
        Ok(tun) => tun,
        Err(error) => return println!("skipped: {error}"),
    };
    let mut route = here.enter(Route::open).unwrap().unwrap();
    let link = device(&here, "tun0");
    route.add_address(link.index, Ipv4Addr::new(10, 1, 2, 3), 24).unwrap();
    route.set_up(link.index).unwrap();

    let Some(mut xdp) = admission(Hook::Xdp) else { return };
    let error = here.enter(|| xdp.attach(&link)).unwrap().unwrap_err().to_string();
    assert_eq!(error, "XDP needs a device with Ethernet headers, and tun0 has none: use tc");

    let Some(mut tc) = admission(Hook::Tc) else { return };
    or_skip(here.enter(|| tc.attach(&link)).unwrap());
    limit(&tc, MINUTE, Nanos(0));
    for _ in 0..3 {
        tun.write(&Packet::new(v4(), SYN).ip()).unwrap();
    }
    assert_eq!(tc.table().totals(0), Totals { passed: 1, dropped: 2 });
}

#[test]
fn xdp_without_ethernet_is_fatal_only_to_owners() {
    let Some(wire) = wire() else { return };
    let here = &wire.namespace;
    let mut route = here.enter(Route::open).unwrap().unwrap();
    route.add_address(1, ANYWHERE, 32).unwrap();
    for (address, owns) in [(ANYWHERE, false), (BEHIND_TUN, true)] {
        let _nobody_starts = STARTS.lock().unwrap_or_else(PoisonError::into_inner);
        let listener = here.enter(|| TcpListener::bind((address, 0))).unwrap().unwrap();
        match of_listener(Hook::Xdp, here, &listener) {
            Ok((_, devices)) => {
                let [lo, tun] = &devices[..] else { panic!("{devices:?}") };
                assert!(!owns && lo.attached.is_ok(), "{lo:?}");
                assert!(matches!(tun.attached, Err(BpfError::NotEthernet { .. })), "{tun:?}");
            }
            Err(BpfError::NotEthernet { device }) => assert_eq!((device.as_str(), owns), (TUN, true)),
            Err(error) => {
                or_skip::<()>(Err(error));
                return;
            }
        }
    }
}

#[test]
fn device_without_address_is_left_until_it_returns() {
    let Some(networks) = Networks::create() else { return };
    let listener = networks.server.enter(|| TcpListener::bind("0.0.0.0:0")).unwrap().unwrap();
    let change = |change: &str| {
        let arguments = ["address", change, &format!("{SERVER}/24"), "dev", DEVICE];
        let program = Program::new("ip").arguments(arguments).in_namespace(Some(networks.server.as_fd()));
        let output = program.start().and_then(|child| child.output(Nanos::MILLISECOND, || true)).unwrap();
        assert!(output.exit.status.success(), "{output:?}");
    };
    for hook in HOOKS {
        let _nobody_starts = STARTS.lock().unwrap_or_else(PoisonError::into_inner);
        let made = of_listener(hook, &networks.server, &listener);
        let Some((mut admission, _)) = or_skip(made) else { return };
        change("del");
        let lost = networks.server.enter(|| admission.follow()).unwrap().unwrap();
        assert!(lost.new.is_empty(), "{lost:?}");
        assert_eq!(lost.gone, [DEVICE]);
        change("add");
        let found = networks.server.enter(|| admission.follow()).unwrap().unwrap();
        let [ReachingDevice { name, attached: Ok(_) }] = &found.new[..] else {
            panic!("{hook:?}: {found:?}")
        };
        assert_eq!((name.as_str(), found.gone.len(), found.refused.len()), (DEVICE, 0, 0));
    }
}
