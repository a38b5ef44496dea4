use std::net::TcpStream;
use std::os::fd::AsRawFd;

use base::Limit;
use connection::LiveSettings;
use http_semantics::server::Settings;

use super::*;
use crate::connections::accept::{AcceptLimit, LiveLimit};
use crate::connections::refusals::Refusals;
use crate::driver::pools::full_pool::Pool;
use crate::ground::listener::{connect, listen};
use crate::plan::refusal_loop::Unavailable;

fn group(share: &Share, wake: Wake) -> Group {
    let listeners = listen("127.0.0.1:0".parse().unwrap(), 4, 1, false).unwrap();
    Group::new(vec![listeners], share.clone(), wake).unwrap()
}

fn acceptor(share: Share, refusals: Option<Refusals>) -> Acceptor {
    Acceptor::new(LiveLimit::new(AcceptLimit::Fixed(Limit::AtMost(1))), share, refusals)
}

fn thread(group: &Group, acceptor: Acceptor) -> AcceptingThread<'_, Unavailable> {
    let settings = LiveSettings::new(Settings::default());
    let lender = Lender::new(Unavailable, settings, None, group.clock(), 1);
    AcceptingThread::new(ServingThread::new(group, lender, Board::default()), acceptor, 0).unwrap()
}

#[test]
fn thread_without_connection_is_free_from_the_start() {
    let share = Share::alone(4);
    let group = group(&share, Wake::Exclusive);
    let address = group.listeners[0].address;
    let mut thread = thread(&group, acceptor(share, None));
    let free = || group.free.load(Ordering::Relaxed);
    assert_eq!(free(), 1, "it has not run yet, so that the pool is not full");
    for _ in 0..2 {
        let client = TcpStream::connect(address).unwrap();
        let batch = thread.accept_n().unwrap();
        assert_eq!((batch.len(), free()), (1, 0));
        drop(client);
    }
    group.end_within(Nanos::ZERO);
    assert!(thread.accept_n().unwrap().is_empty());
    assert_eq!(free(), 1);
    drop(thread);
    assert_eq!(free(), 0);
}

#[test]
fn every_inherited_listener_has_a_thread() {
    let mut listeners = listen("127.0.0.1:0".parse().unwrap(), 4, 5, false).unwrap().into_iter();
    let sets = [2, 2, 1].map(|size| listeners.by_ref().take(size).collect::<Vec<_>>());
    let group = Group::new(sets.into(), Share::alone(4), Wake::Reuseport).unwrap();
    let sockets = |of: &[Listener]| of.iter().map(|one| one.socket.as_raw_fd()).collect::<Vec<_>>();
    let accepted_from = (0..3).flat_map(|index| sockets(group.listeners_of(index))).collect::<Vec<_>>();
    assert_eq!((accepted_from, group.has_queues_of_their_own()), (sockets(&group.listeners), true));
}

#[test]
fn late_connections_are_added_up_over_all_threads() {
    let share = Share::alone(4);
    let group = group(&share, Wake::Exclusive);
    for (refused, total) in [(3, 3), (0, 3), (2, 5)] {
        let mut thread = thread(&group, acceptor(share.clone(), None));
        thread.serving.lender.get_mut().counts.late_connections = refused;
        thread.serving.publish();
        assert_eq!(group.late_connections.load(Ordering::Relaxed), total);
    }
}

#[test]
fn those_that_are_turned_away_have_left_the_queue() {
    let share = Share::alone(1);
    let group = group(&share, Wake::All);
    let _open = share.take().unwrap();
    let taken = || group.taken.load(Ordering::Relaxed);
    let mut acceptor = acceptor(share, Some(Refusals::new().unwrap()));
    let _clients = connect(&group.listeners[0], 2);
    KernelPool { group: &group, acceptor: &mut acceptor, board: &Board::default() }.turn_away(Nanos::ZERO);
    assert_eq!(taken(), 1);
    thread(&group, acceptor).make_room(Short::Connections, Nanos::ZERO).unwrap();
    assert_eq!(taken(), 2);
}
