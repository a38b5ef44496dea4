//! Steering: the choice follows the array, arrivals do not herd, and connections outlive their listener.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};

use base::PerSecond;
use bpf::BpfError;
use bpf::steering::{GROUPS, Schedule, Steering, Totals, WORKERS, Workers};
use common::or_skip;
use rustix::net::{
    AddressFamily, Shutdown, SocketFlags, SocketType, bind, listen, shutdown, socket_with, sockopt,
};

/// One listener of a SO_REUSEPORT group.
fn listener(address: SocketAddr) -> TcpListener {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket: OwnedFd = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    sockopt::set_socket_reuseport(&socket, true).unwrap();
    bind(&socket, &address).unwrap();
    listen(&socket, 1024).unwrap();
    let listener = TcpListener::from(socket);
    listener.set_nonblocking(true).unwrap();
    listener
}

/// Opens `count` listeners of one address.
fn group(count: usize) -> Vec<TcpListener> {
    let mut address = SocketAddr::from(([127, 0, 0, 1], 0));
    (0..count)
        .map(|_| {
            let listener = listener(address);
            address = listener.local_addr().unwrap();
            listener
        })
        .collect()
}

/// Workers with room for 1000 connections each, all alive, at one address.
struct Fixture {
    steering: Steering,
    listeners: Vec<TcpListener>,
    clients: Vec<TcpStream>,
}

impl Fixture {
    fn new(schedule: Schedule, count: usize) -> Option<Fixture> {
        let mut steering = or_skip(Steering::load(schedule, count))?;
        let listeners = group(count);
        let address = steering.add_address(listeners[0].as_fd()).unwrap();
        for (index, listener) in listeners.iter().enumerate() {
            steering.set_listener(address, index, listener.as_fd()).unwrap();
            let worker = steering.workers().worker(index);
            worker.set_capacity(1000);
            worker.set_alive(true);
        }
        Some(Fixture { steering, listeners, clients: Vec::new() })
    }

    fn connect(&mut self, count: usize) {
        let address = self.listeners.last().unwrap().local_addr().unwrap();
        self.clients.extend((0..count).map(|_| TcpStream::connect(address).unwrap()));
    }

    /// Returns the number of connections that each worker got since the last call.
    fn accepted(&self) -> Vec<usize> {
        self.listeners.iter().map(|listener| accept_all(listener).len()).collect()
    }

    /// Reports the connections of each worker.
    fn report(&self, connections: &[u64]) {
        for (index, connections) in connections.iter().enumerate() {
            self.steering.workers().worker(index).set_connections(*connections);
        }
    }

    fn set_throughputs(&self, throughputs: &[f64]) {
        for (index, throughput) in throughputs.iter().enumerate() {
            self.steering.workers().worker(index).set_throughput(PerSecond(*throughput));
        }
    }

    fn connections(&self) -> Vec<u64> {
        (0..self.listeners.len()).map(|index| self.steering.workers().worker(index).connections()).collect()
    }
}

fn accept_all(listener: &TcpListener) -> Vec<TcpStream> {
    std::iter::from_fn(|| match listener.accept() {
        Ok((stream, _)) => Some(stream),
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => panic!("accept: {error}"),
    })
    .collect()
}

#[test]
fn the_papers_schedule_takes_the_least_product() {
    let Some(mut fixture) = Fixture::new(Schedule::LeastProduct, 3) else { return };
    fixture.set_throughputs(&[100.0, 50.0, 25.0]);
    // 100 x 4, 50 x 10, 25 x 30: the first, until its fifth connection makes 500 and ties go to fewer.
    fixture.report(&[4, 10, 30]);
    fixture.connect(1);
    assert_eq!(fixture.accepted(), [1, 0, 0]);
    fixture.connect(1);
    assert_eq!(fixture.accepted(), [1, 0, 0], "500 ties with 500, and has fewer connections");
    fixture.connect(1);
    assert_eq!(fixture.accepted(), [0, 1, 0], "600, 500, 750");
    assert_eq!(fixture.connections(), [6, 11, 30]);
    // A worker without connections comes first, whatever its throughput: step 1 of the paper.
    fixture.report(&[6, 0, 1]);
    fixture.set_throughputs(&[0.0, 50.0, 0.0]);
    fixture.connect(1);
    assert_eq!(fixture.accepted(), [0, 1, 0]);
}

#[test]
fn a_report_holds_for_the_next_connection() {
    let Some(mut fixture) = Fixture::new(Schedule::LeastConnections, 4) else { return };
    for favourite in [2, 0, 3, 1, 2] {
        let mut loads = [100; 4];
        loads[favourite] = 10;
        fixture.report(&loads);
        fixture.connect(3);
        let mut expected = [0; 4];
        expected[favourite] = 3;
        assert_eq!(fixture.accepted(), expected);
    }
}

#[test]
fn arrivals_between_reports_do_not_herd() {
    let Some(mut fixture) = Fixture::new(Schedule::LeastConnections, 8) else { return };
    fixture.connect(80);
    assert_eq!(fixture.accepted(), [10; 8]);
    assert_eq!(fixture.connections(), [10; 8]);
    assert!((0..8).all(|index| fixture.steering.workers().worker(index).assigned() == 10));
    fixture.report(&[0, 5, 5, 5, 5, 5, 5, 5]);
    fixture.connect(5);
    assert_eq!(fixture.accepted(), [5, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn workers_in_turn_and_by_chance_all_get_some() {
    let Some(mut fixture) = Fixture::new(Schedule::RoundRobin, 5) else { return };
    for expected in [[1, 1, 1, 0, 0], [1, 0, 0, 1, 1]] {
        fixture.connect(3);
        assert_eq!(fixture.accepted(), expected);
    }
    let Some(mut fixture) = Fixture::new(Schedule::Random, 4) else { return };
    fixture.connect(200);
    // 50 each are expected; fewer than 15 come once in a billion runs.
    assert!(fixture.accepted().iter().all(|count| *count >= 15), "{:?}", fixture.connections());
}

#[test]
fn full_worker_is_passed_over_and_reported() {
    let Some(mut fixture) = Fixture::new(Schedule::LeastProduct, 2) else { return };
    fixture.set_throughputs(&[1.0, 10.0]);
    fixture.steering.workers().worker(0).set_capacity(5);
    fixture.steering.workers().worker(1).set_capacity(7);
    fixture.report(&[5, 3]);
    fixture.connect(2);
    assert_eq!(fixture.accepted(), [0, 2], "5 x 1 is less than 3 x 10, and has no room");
    assert_eq!(fixture.steering.totals(), Totals { crowded: 2, ..Totals::default() });
    fixture.report(&[5, 7]);
    fixture.connect(1);
    assert_eq!(fixture.accepted(), [1, 0], "waits in the queue of the first by the schedule");
    assert_eq!(fixture.steering.totals(), Totals { crowded: 3, full: 1, ..Totals::default() });
}

#[test]
fn dead_worker_gets_nothing_while_another_lives() {
    let Some(mut fixture) = Fixture::new(Schedule::LeastConnections, 3) else { return };
    fixture.report(&[0, 9, 9]);
    fixture.steering.workers().worker(0).set_alive(false);
    fixture.connect(20);
    assert_eq!(fixture.accepted(), [0, 10, 10]);
    for index in [1, 2] {
        fixture.steering.workers().worker(index).set_alive(false);
    }
    fixture.connect(20);
    assert_eq!(fixture.accepted().iter().sum::<usize>(), 20, "by the kernel's hash");
    assert_eq!(fixture.steering.totals(), Totals { unsteered: 20, ..Totals::default() });
}

#[test]
fn a_worker_opens_its_record_by_a_descriptor() {
    let Some(mut fixture) = Fixture::new(Schedule::LeastConnections, 2) else { return };
    let descriptor = fixture.steering.workers().as_fd().try_clone_to_owned().unwrap();
    let elsewhere = Workers::open(descriptor).unwrap();
    elsewhere.worker(0).set_connections(50);
    elsewhere.worker(0).set_throughput(PerSecond(1.5));
    assert_eq!(fixture.steering.workers().worker(0).throughput(), PerSecond(1.5));
    assert!(elsewhere.worker(1).alive());
    fixture.connect(4);
    assert_eq!(fixture.accepted(), [0, 4]);
    assert_eq!(elsewhere.worker(1).connections(), 4);
    assert_eq!(elsewhere.totals(), fixture.steering.totals());
    let unrelated = fixture.listeners[0].as_fd().try_clone_to_owned().unwrap();
    assert!(Workers::open(unrelated).is_err());
}

#[test]
fn two_addresses_share_the_workers() {
    let Some(mut fixture) = Fixture::new(Schedule::LeastConnections, 2) else { return };
    let other = match TcpListener::bind("[::1]:0") {
        Ok(other) => other.local_addr().unwrap(),
        Err(error) => return println!("skipped: no IPv6 here: {error}"),
    };
    let others = [listener(other), listener(other)];
    let second = fixture.steering.add_address(others[0].as_fd()).unwrap();
    for (index, listener) in others.iter().enumerate() {
        fixture.steering.set_listener(second, index, listener.as_fd()).unwrap();
    }
    fixture.report(&[0, 4]);
    fixture.connect(2);
    let over_ipv6: Vec<_> = (0..2).map(|_| TcpStream::connect(other).unwrap()).collect();
    assert_eq!(fixture.accepted(), [2, 0]);
    assert_eq!(others.each_ref().map(|listener| accept_all(listener).len()), [2, 0]);
    assert_eq!(fixture.connections(), [4, 4]);
    assert_eq!(fixture.steering.totals(), Totals::default());
    drop(over_ipv6);
}

#[test]
fn queue_moves_at_shutdown_and_listener_reopens() {
    let Some(mut fixture) = Fixture::new(Schedule::RoundRobin, 2) else { return };
    for round in 1..=3 {
        fixture.connect(20);
        fixture.steering.workers().worker(1).set_alive(false);
        shutdown(&fixture.listeners[1], Shutdown::Both).unwrap();
        listen(&fixture.listeners[1], 1024).unwrap();
        fixture.steering.set_listener(0, 1, fixture.listeners[1].as_fd()).unwrap();
        assert_eq!(fixture.accepted(), [20, 0]);
        assert_eq!(fixture.steering.totals(), Totals { migrated: 10 * round, ..Totals::default() });
        fixture.connect(3);
        assert_eq!(fixture.accepted(), [3, 0], "it is not alive yet");
        fixture.steering.workers().worker(1).set_alive(true);
        fixture.connect(4);
        assert_eq!(fixture.accepted(), [2, 2]);
    }
}

/// The fates of connections that were queued at a listener when it closed.
#[derive(Debug, PartialEq, Eq)]
struct Closed {
    /// Accepted by the others.
    accepted: usize,
    /// Requests the others have read of those.
    requests: usize,
    /// Reset.
    reset: usize,
}

/// Queues connections, half of them with a request, and closes the second of the listeners, after `closing`.
fn close_with_a_queue(listeners: &mut Vec<TcpListener>, count: usize, closing: impl FnOnce()) -> Closed {
    let address = listeners[1].local_addr().unwrap();
    let mut clients: Vec<_> = (0..count).map(|_| TcpStream::connect(address).unwrap()).collect();
    for client in clients.iter_mut().step_by(2) {
        client.write_all(b"hello").unwrap();
    }
    closing();
    drop(listeners.remove(1));
    let accepted: Vec<_> = listeners.iter().flat_map(accept_all).collect();
    let mut requests = 0;
    for mut stream in &accepted {
        stream.set_nonblocking(true).unwrap();
        let mut request = [0; 5];
        requests += usize::from(stream.read(&mut request).is_ok_and(|length| &request[..length] == b"hello"));
    }
    let reset = |mut client: &TcpStream| {
        client.set_nonblocking(true).unwrap();
        client.read(&mut [0; 1]).is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
    };
    Closed {
        accepted: accepted.len(),
        requests,
        reset: clients.iter().filter(|client| reset(client)).count(),
    }
}

#[test]
fn connections_queued_at_a_closing_listener_move() {
    let Some(mut fixture) = Fixture::new(Schedule::LeastConnections, 3) else { return };
    fixture.report(&[500, 0, 500]);
    let closed = close_with_a_queue(&mut fixture.listeners, 50, || {
        let worker = fixture.steering.workers().worker(1);
        assert_eq!(worker.assigned(), 50);
        worker.set_alive(false);
    });
    assert_eq!(closed, Closed { accepted: 50, requests: 25, reset: 0 });
    assert_eq!(fixture.steering.totals(), Totals { migrated: 50, ..Totals::default() });
}

#[test]
fn without_the_program_they_are_reset() {
    let mut listeners = group(3);
    // The kernel's hash gives the second about a third of them.
    let closed = close_with_a_queue(&mut listeners, 150, || ());
    assert!(closed.reset > 0, "{closed:?}");
    assert_eq!(closed.accepted + closed.reset, 150, "{closed:?}");
}

#[test]
fn limits_are_named() {
    let Some(mut fixture) = Fixture::new(Schedule::Random, 1) else { return };
    let error = Steering::load(Schedule::Random, WORKERS + 1).err().unwrap();
    assert_eq!(error.to_string(), "steering of workers takes 256 at most");
    for _ in 1..GROUPS {
        fixture.steering.add_address(group(1)[0].as_fd()).unwrap();
    }
    let error = fixture.steering.add_address(group(1)[0].as_fd()).unwrap_err();
    assert!(matches!(error, BpfError::TooMany { limit: GROUPS, .. }), "{error}");
}

#[test]
fn a_socket_outside_of_a_group_is_refused() {
    let Some(mut fixture) = Fixture::new(Schedule::Random, 1) else { return };
    let alone = TcpListener::bind("127.0.0.1:0").unwrap();
    assert!(fixture.steering.set_listener(0, 0, alone.as_fd()).is_err());
    assert!(fixture.steering.add_address(alone.as_fd()).is_err());
}
