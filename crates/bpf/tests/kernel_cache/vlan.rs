//! Packets that pass two devices with the program: a VLAN device, and the device below it.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use base::{Clock, Nanos, RealClock};
use bpf::kernel_cache::{KernelCache, Limits};
use sys::network::netns::NetworkNamespace;
use sys::process::Program;

use crate::common::{DEVICE, Networks, SERVER, or_skip};
use crate::fixture::{HOUR, get, response};

const VLAN: &str = "veth0.5";
const SERVER_IN_VLAN: Ipv4Addr = Ipv4Addr::new(10, 81, 0, 1);
const CLIENT_IN_VLAN: Ipv4Addr = Ipv4Addr::new(10, 81, 0, 2);
/// The longest wait for bytes that must come.
const PATIENCE: Duration = Duration::from_secs(20);

/// Makes a VLAN device above [`DEVICE`]. Returns false, and prints the reason, if the kernel has none.
fn add_vlan(namespace: &NetworkNamespace, address: Ipv4Addr) -> bool {
    let script = format!(
        "ip link add link {DEVICE} name {VLAN} type vlan id 5 && \
         ip address add {address}/24 dev {VLAN} && ip link set {VLAN} up"
    );
    let program = Program::new("sh").arguments(["-c", &script]).in_namespace(Some(namespace.as_fd()));
    let output = program.start().unwrap().output(Nanos::MILLISECOND, || true).unwrap();
    if !output.exit.status.success() {
        println!("skipped: no VLAN devices here: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    output.exit.status.success()
}

fn asks(client: &mut TcpStream, request: &[u8], length: usize) -> Vec<u8> {
    client.write_all(request).unwrap();
    let mut bytes = vec![0; length];
    client.read_exact(&mut bytes).unwrap();
    bytes
}

#[test]
fn packets_of_a_vlan_are_translated_once() {
    let Some(networks) = Networks::create() else { return };
    if !add_vlan(&networks.server, SERVER_IN_VLAN) || !add_vlan(&networks.client, CLIENT_IN_VLAN) {
        return;
    }
    for address in [SERVER_IN_VLAN, SERVER] {
        let listener = networks.server.enter(|| TcpListener::bind("0.0.0.0:0")).unwrap().unwrap();
        let port = listener.local_addr().unwrap().port();
        let limits = Limits { objects: 1, requests: 4, connections: 10 };
        let made =
            networks.server.enter(|| KernelCache::of_listeners(limits, 1, &[listener.as_fd()])).unwrap();
        let Some(mut cache) = or_skip(made) else { return };
        cache.set_enabled(true);
        let (request, response) = (get("/a"), response(1000).bytes);
        let object = cache.put(&response, None, RealClock.now()).unwrap();
        assert!(cache.know(&request, object) && cache.renew(object, RealClock.now() + HOUR));
        let mut client = networks.client.enter(|| TcpStream::connect((address, port))).unwrap().unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        for _ in 0..2 {
            assert_eq!(asks(&mut client, &request, 1000), response);
        }
        assert_eq!(cache.totals().answers, 2);
        server.write_all(b"the server's").unwrap();
        assert_eq!(asks(&mut client, b"another request", 12), b"the server's");
        let mut other = [0; 15];
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        server.read_exact(&mut other).unwrap();
        assert_eq!(&other, b"another request");
    }
}
