//! Listening sockets.
//!
//! A server has one accept queue, or one for each loop. With several queues, or with overload control, listeners and
//! sinks of an address form a SO_REUSEPORT group. SO_REUSEPORT would also let a second server of the same user share
//! the port silently. So a given port is first bound without SO_REUSEPORT, which fails if another server listens
//! there.
//!
//! A server that hands over passes its listening sockets on to another process. Both processes then share each
//! socket, so an operation of one of them affects the other. A process that has passed its sockets on therefore only
//! closes its descriptors. A process whose sockets systemd keeps does the same at its end.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use connection::Custody;
use rustix::net::{Shutdown, sockopt};
use sys::readiness::poll::is_readable;
use sys::socket::{AcceptQueue, accept_queue, bind_stream, detach, drop_new_connections, local_address};

/// Listening sockets that another process has opened, by configured address.
#[derive(Default)]
pub struct Inheritance {
    sockets: Vec<(SocketAddr, Vec<OwnedFd>)>,
    /// The sinks of all addresses, in the order of their groups.
    sinks: Vec<OwnedFd>,
    predecessor_wait: Option<PredecessorWait>,
}

/// Waits until no other process controls the accept queues.
type PredecessorWait = Box<dyn FnOnce() -> io::Result<()> + Send>;

impl Inheritance {
    /// Adds sockets of an address, in the order of their group.
    pub fn add(&mut self, address: SocketAddr, sockets: Vec<OwnedFd>) {
        match self.sockets.last_mut() {
            Some((last, known)) if *last == address => known.extend(sockets),
            _ => self.sockets.push((address, sockets)),
        }
    }

    /// Adds sinks of the listening sockets, in the order of their groups.
    pub fn add_sinks(&mut self, sinks: Vec<OwnedFd>) {
        self.sinks.extend(sinks);
    }

    /// Sets the function that [`Inheritance::await_predecessor`] calls.
    pub fn set_predecessor_wait(&mut self, wait: impl FnOnce() -> io::Result<()> + Send + 'static) {
        self.predecessor_wait = Some(Box::new(wait));
    }

    /// Returns the addresses.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.sockets.iter().map(|(address, _)| *address).collect()
    }

    /// Takes the sockets of an address; empty if there are none.
    pub fn take(&mut self, address: SocketAddr) -> Vec<OwnedFd> {
        let index = self.sockets.iter().position(|(known, _)| *known == address);
        index.map_or_else(Vec::new, |index| self.sockets.remove(index).1)
    }

    /// Tells whether another process still accepts from the sockets.
    pub fn has_predecessor(&self) -> bool {
        self.predecessor_wait.is_some()
    }

    /// Waits until no other process controls the accept queues, and returns the sinks. Closes the sockets that nobody
    /// has taken. Blocks.
    ///
    /// # Errors
    /// The other process has ended.
    pub fn await_predecessor(self) -> io::Result<Vec<OwnedFd>> {
        self.predecessor_wait.map_or(Ok(()), |wait| wait())?;
        Ok(self.sinks)
    }
}

/// A socket that accepts connections.
#[derive(Debug)]
pub struct Listener {
    /// The socket, non-blocking.
    pub socket: OwnedFd,
    /// The address it is bound to, the port never 0.
    pub address: SocketAddr,
    custody: Custody,
}

impl Listener {
    /// Makes a listener of a socket of this process.
    pub fn new(socket: OwnedFd, address: SocketAddr) -> Listener {
        Listener { socket, address, custody: Custody::default() }
    }

    /// Returns the same listener, for a server that may pass its sockets on.
    pub fn in_custody(self, custody: &Custody) -> Listener {
        Listener { custody: custody.clone(), ..self }
    }

    /// Tells whether another process accepts from these listeners from now on.
    pub fn are_passed_on(listeners: &[Listener]) -> bool {
        listeners.iter().any(|listener| listener.custody.is_passed_on())
    }

    /// Takes over a listener that another process has made.
    ///
    /// # Errors
    /// The descriptor is not a socket with an internet address.
    pub fn inherited(socket: OwnedFd) -> io::Result<Listener> {
        let address = local_address(&socket)?;
        Ok(Listener::new(socket, address))
    }

    /// Begins to listen, or listens again after [`Listener::hand_over`].
    ///
    /// # Errors
    /// EADDRINUSE if another server listens at the address.
    pub fn listen(&self, backlog: u32) -> io::Result<()> {
        Ok(rustix::net::listen(&self.socket, i32::try_from(backlog).unwrap_or(i32::MAX))?)
    }

    /// Stops listening. In a group whose program migrates, the kernel moves the connections of the accept queue to
    /// other listeners of the group; elsewhere it resets them. Does nothing to a socket that was passed on.
    pub fn hand_over(&self) {
        if !self.custody.is_passed_on() {
            // A socket that does not listen has nothing to hand over.
            let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
        }
    }

    /// Tells whether a connection waits in the accept queue.
    pub fn somebody_waits(&self) -> bool {
        is_readable(self.socket.as_fd())
    }

    /// Stops the kernel from adding connections to the accept queue. Their clients try again, and are refused once
    /// the listener is closed. Otherwise the close would reset the connections that arrive after the last accept.
    /// Does nothing to a socket that was passed on.
    pub fn seal(&self) {
        if !self.custody.is_passed_on() {
            // If the kernel cannot do it, a gap of some microseconds remains.
            let _ = drop_new_connections(self.socket.as_fd());
        }
    }

    /// Tells whether a connection waits in one of these listeners' accept queues.
    pub fn any_waits(listeners: &[Listener]) -> bool {
        listeners.iter().any(Listener::somebody_waits)
    }

    /// Returns the depth, limit and drops of these listeners' accept queues together; zeros if the kernel does not
    /// report them.
    pub fn queues(listeners: &[Listener]) -> AcceptQueue {
        let queues =
            listeners.iter().map(|listener| accept_queue(listener.socket.as_fd()).unwrap_or_default());
        queues.fold(AcceptQueue::default(), |sum, queue| AcceptQueue {
            depth: sum.depth + queue.depth,
            limit: sum.limit + queue.limit,
            drops: sum.drops.wrapping_add(queue.drops),
        })
    }
}

/// Returns one listener for each address. A set may have several listeners for an address, all of the same loop.
pub fn one_for_each_address(sets: &[Vec<Listener>]) -> Vec<&Listener> {
    let mut first: Vec<&Listener> = Vec::new();
    for listener in sets.first().into_iter().flatten() {
        if first.iter().all(|known| known.address != listener.address) {
            first.push(listener);
        }
    }
    first
}

/// Binds `queues` sockets to an address and listens. Each socket has its own accept queue. Sinks can join a `group`;
/// several queues always form one. Accepted connections inherit TCP_NODELAY.
///
/// # Errors
/// The errors of bind(2) and listen(2): address in use, not an address of this machine, no permission.
pub fn listen(address: SocketAddr, backlog: u32, queues: usize, group: bool) -> io::Result<Vec<Listener>> {
    let group = group || queues > 1;
    // The kernel chooses an unused port, but lets a server of the same user share a given one.
    if group && address.port() != 0 {
        drop(bind_stream(address, false)?);
    }
    let first = listen_one(address, backlog, group)?;
    let address = first.address;
    let others = (1..queues).map(|_| listen_one(address, backlog, group));
    std::iter::once(Ok(first)).chain(others).collect()
}

/// The reason why loops cannot share a socket of systemd.
const ONE_LOOP: &str = "several loops would share this socket of systemd, which sends its signals to one of them; use \
                        --workers 1, or another --dispatch";

/// Listens with `sockets`, at least one, that another process has opened for an address, and with new sockets of
/// their group up to `queues`. If the address has no group to join, the same sockets are used several times, if the
/// event mechanism `shares` them. With `sinks`, the group has sinks and a program that sends them nothing; no new
/// socket may be needed then.
///
/// # Errors
/// The errors of [`listen`]; an error that tells what to do if sockets would have to be shared and cannot.
pub fn take_over(
    sockets: Vec<OwnedFd>,
    backlog: u32,
    queues: usize,
    sinks: bool,
    shares: bool,
) -> io::Result<Vec<Listener>> {
    let mut listeners = sockets.into_iter().map(Listener::inherited).collect::<io::Result<Vec<_>>>()?;
    let first = &listeners[0];
    if !sinks {
        // The group's program expects the listeners of the other process. An error means that there is no program.
        let _ = detach(first.socket.as_fd());
    }
    let address = first.address;
    for listener in &listeners {
        // The backlog of this server may differ.
        listener.listen(backlog)?;
    }
    use io::ErrorKind::{AddrInUse, PermissionDenied};
    let given = listeners.len();
    for index in given..queues {
        listeners.push(match listen_one(address, backlog, true) {
            // A socket of systemd may be in no group, belong to another user, or have a port that this process may
            // not bind. Several loops then share it.
            Err(error) if matches!(error.kind(), AddrInUse | PermissionDenied) => {
                if !shares {
                    return Err(io::Error::other(ONE_LOOP));
                }
                Listener::new(listeners[index % given].socket.try_clone()?, address)
            }
            opened => opened?,
        });
    }
    Ok(listeners)
}

fn listen_one(address: SocketAddr, backlog: u32, shared: bool) -> io::Result<Listener> {
    let socket = bind_stream(address, shared)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    let address = local_address(&socket)?;
    let listener = Listener::new(socket, address);
    listener.listen(backlog)?;
    Ok(listener)
}

/// Binds `count` sockets of a group to an address. None of them listens yet. Each keeps the port while it is open,
/// listening or not. Accepted connections inherit TCP_NODELAY.
///
/// # Errors
/// The errors of bind(2): address in use, not an address of this machine, no permission.
pub fn bind_group(address: SocketAddr, count: usize) -> io::Result<Vec<Listener>> {
    if address.port() != 0 {
        drop(bind_stream(address, false)?);
    }
    // A listener that stops loses a port that the kernel chose, so the sockets of the group name the port.
    let chooses = bind_stream(address, true)?;
    let address = local_address(&chooses)?;
    let bound = (0..count).map(|_| {
        let socket = bind_stream(address, true)?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        Ok(Listener::new(socket, address))
    });
    bound.collect()
}

/// Connects clients, and waits until all of them are in the accept queue.
#[cfg(test)]
pub fn connect(listener: &Listener, clients: u32) -> Vec<std::net::TcpStream> {
    let clients =
        (0..clients).map(|_| std::net::TcpStream::connect(listener.address).unwrap()).collect::<Vec<_>>();
    while Listener::queues(std::slice::from_ref(listener)).depth < clients.len() as u32 {
        std::thread::yield_now();
    }
    clients
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_listens_again_at_its_port() {
        let group = bind_group("127.0.0.1:0".parse().unwrap(), 2).unwrap();
        let address = group[0].address;
        let connects = || std::net::TcpStream::connect(address).is_ok();
        assert!(address.port() != 0 && group[1].address == address && !connects());
        for _ in 0..2 {
            group[0].listen(16).unwrap();
            assert!(connects() && group[0].somebody_waits());
            group[0].hand_over();
            assert!(!connects());
        }
        group[1].listen(16).unwrap();
        assert_eq!(bind_group(address, 1).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn passed_on_listener_goes_on_listening() {
        let custody = Custody::default();
        let listener = listen("127.0.0.1:0".parse().unwrap(), 16, 1, false).unwrap().remove(0);
        let listener = listener.in_custody(&custody);
        let connects = || std::net::TcpStream::connect(listener.address).is_ok();
        custody.pass_on();
        listener.seal();
        listener.hand_over();
        assert!(connects());
        custody.take_on();
        listener.hand_over();
        assert!(!connects());
    }

    #[test]
    fn inherited_sockets_keep_their_queues_and_get_more() {
        let before = listen("127.0.0.1:0".parse().unwrap(), 16, 2, false).unwrap();
        let address = before[0].address;
        let clients: Vec<_> = (0..8).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
        let copies = before.iter().map(|listener| listener.socket.try_clone().unwrap()).collect();
        drop(before);
        let after = take_over(copies, 32, 3, false, false).unwrap();
        assert!(after.iter().all(|listener| listener.address == address));
        assert_eq!((after.len(), Listener::queues(&after).depth), (3, clients.len() as u32));
        assert_eq!(Listener::queues(&after[..1]).limit, 32);
    }

    #[test]
    fn socket_without_a_group_is_shared_if_it_may_be() {
        let single = listen("127.0.0.1:0".parse().unwrap(), 16, 1, false).unwrap().remove(0);
        let take_over = |queues, shares| {
            let copy = single.socket.try_clone().unwrap();
            take_over(vec![copy], 16, queues, false, shares)
        };
        assert_eq!(take_over(2, true).unwrap().len(), 2);
        assert_eq!(take_over(1, false).unwrap().len(), 1);
        assert!(take_over(2, false).unwrap_err().to_string().contains("another --dispatch"));
    }

    #[test]
    fn queues_share_a_port_that_no_other_process_joins() {
        let first = listen("127.0.0.1:0".parse().unwrap(), 16, 3, false).unwrap();
        assert_eq!(first.len(), 3);
        assert!(first.iter().all(|listener| listener.address == first[0].address));
        for (queues, group) in [(2, true), (1, true), (1, false)] {
            let error = listen(first[0].address, 16, queues, group).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        }
    }
}
