//! A link over AF_XDP sockets: to a server on the other side of a network device.
//!
//! One socket for each receive queue, all served by one thread, because the device chooses the queue of a
//! reply by a hash of its own. Frames leave by the first. The program on the device ([`bpf::xsk_redirect`]) hands
//! over frames to the source net alone, so the kernel's own traffic goes on.
//!
//! Owns the sockets and the hardware addresses: questions for addresses of the source net are answered,
//! and the next hop's address is asked for once, when the link is opened. A server with thousands of our
//! addresses on its own link would need as many entries in its neighbour table; give it a route to the source
//! net by this machine's address instead.
//!
//! Everything vanishes with the descriptors, however this process ends.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

use base::{Clock, Nanos};
use bpf::xsk_redirect::{QUEUES, XskRedirect};
use sys::errno::{Failure, classify};
use sys::network::netlink::Route;
use sys::network::xdp::Socket;
use sys::readiness::poll::{PollFd, bits};

use super::{Link, LinkError, Packet, same_family};
use crate::frame::ethernet::{self, Frame, HEADER, Mac};
use crate::frame::{Arriving, Leaving};
use crate::net::SourceNet;

/// Questions for the next hop's hardware address, and the wait for an answer to each.
const QUESTIONS: u32 = 3;
const ANSWER_WAIT: Nanos = Nanos::SECOND;

/// Attempts to open a queue, and the pause between them: it stays busy for a moment after another program's
/// socket on it was closed.
const BUSY_TRIES: u32 = 20;
const BUSY_WAIT: Nanos = Nanos::from_millis(100);

/// The link.
pub struct AfXdp {
    queues: Vec<Socket>,
    /// The queue that the last packet came from.
    current: usize,
    _program: XskRedirect,
    net: SourceNet,
    ours: Mac,
    next_hop: Mac,
    mtu: usize,
}

impl AfXdp {
    /// Opens the queues of an interface of this thread's network namespace. `owned` says that its user has
    /// declared the network and the server their own. Takes up to some seconds, until the next hop answers.
    ///
    /// # Errors
    /// Undeclared, or without CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF; an address of this machine in `net`; no Ethernet
    /// interface of that name, or one with more than 64 receive queues; no host answers for the server or the router
    /// towards it.
    pub fn open(
        interface: &str,
        server: IpAddr,
        net: SourceNet,
        owned: bool,
        clock: &impl Clock,
    ) -> Result<AfXdp, LinkError> {
        if !owned {
            return Err(LinkError::NotOurs { interface: interface.to_owned() });
        }
        same_family(server, net)?;
        let mut route = Route::open().map_err(LinkError::system("ask for routes"))?;
        refuse_own_addresses(&mut route, net)?;
        let device = route.device(interface).map_err(LinkError::system("use the interface"))?;
        let no_ethernet = || io::Error::other(format!("{interface} is not an Ethernet device"));
        let ours = device.address.ok_or_else(no_ethernet).map_err(LinkError::system("use the interface"))?;
        let gateway = route.destination(server).ok().filter(|found| found.link == device.index);
        let next_hop = gateway.and_then(|found| found.gateway).unwrap_or(server);
        let queues =
            open_queues(interface, device.receive_queues, |number| open_queue(device.index, number))?;
        let mut program = XskRedirect::load(net.network(), u32::from(net.prefix_length()))?;
        let links = route.links().map_err(LinkError::system("use the interface"))?;
        let link = links.iter().find(|link| link.index == device.index);
        program.attach(link.ok_or_else(no_ethernet).map_err(LinkError::system("use the interface"))?)?;
        for (number, queue) in queues.iter().enumerate() {
            program.set_socket(number as u32, queue.as_fd())?;
        }
        let mtu = device.mtu as usize;
        let mut link =
            AfXdp { queues, current: 0, _program: program, net, ours, next_hop: [0; 6], mtu: mtu.min(1500) };
        let found = link.ask(next_hop, clock).map_err(LinkError::system("ask for a hardware address"))?;
        let nobody = || LinkError::NoNeighbour { interface: interface.to_owned(), next_hop };
        link.next_hop = found.ok_or_else(nobody)?;
        Ok(link)
    }

    /// Asks for a hardware address and waits for the answer.
    fn ask(&mut self, target: IpAddr, clock: &impl Clock) -> io::Result<Option<Mac>> {
        let question = ethernet::question((self.net.name(0).ip(), self.ours), target);
        for _ in 0..QUESTIONS {
            self.send_frame(&question);
            self.flush()?;
            let deadline = clock.now() + ANSWER_WAIT;
            while clock.now() < deadline {
                self.wait(deadline.saturating_sub(clock.now()))?;
                while self.next_frame() {
                    match ethernet::read(self.queues[self.current].frame()) {
                        Frame::Neighbour(neighbour, mac) if neighbour == target => return Ok(Some(mac)),
                        _ => self.answer(),
                    }
                }
                self.flush()?;
            }
        }
        Ok(None)
    }

    fn send_frame(&mut self, frame: &[u8]) {
        if let Some(buffer) = self.queues[0].reserve(frame.len()) {
            buffer.copy_from_slice(frame);
        }
    }

    /// Goes on to the next frame of any queue.
    fn next_frame(&mut self) -> bool {
        for _ in 0..self.queues.len() {
            if self.queues[self.current].receive() {
                return true;
            }
            self.current = (self.current + 1) % self.queues.len();
        }
        false
    }

    /// Answers the current frame if it asks for one of our addresses.
    fn answer(&mut self) {
        if let Frame::Question { target, asker } = ethernet::read(self.queues[self.current].frame())
            && self.net.contains(target)
            && asker.0.is_ipv4() == target.is_ipv4()
        {
            let answer = ethernet::answer(target, self.ours, asker);
            self.send_frame(&answer);
        }
    }
}

/// Refuses a net with an address of this machine: the program would take the kernel's own packets.
fn refuse_own_addresses(route: &mut Route, net: SourceNet) -> Result<(), LinkError> {
    let own = route.addresses().map_err(LinkError::system("list this machine's addresses"))?;
    match own.into_iter().find(|own| net.contains(own.address)) {
        Some(own) => Err(LinkError::OwnAddress { net, address: own.address }),
        None => Ok(()),
    }
}

/// A socket for each receive queue that is in use. Replies in a queue without a socket would be lost.
fn open_queues<S>(
    interface: &str,
    possible: u32,
    open: impl Fn(u32) -> io::Result<S>,
) -> Result<Vec<S>, LinkError> {
    let mut queues = Vec::new();
    for number in 0..possible.max(1) {
        match open(number) {
            Ok(_) if queues.len() == QUEUES => {
                return Err(LinkError::Queues { interface: interface.to_owned(), limit: QUEUES });
            }
            Ok(socket) => queues.push(socket),
            // A device may have more queues than it uses.
            Err(error) if number > 0 && error.kind() == io::ErrorKind::InvalidInput => break,
            Err(source) => {
                let operation = "open an AF_XDP socket on the interface, which needs CAP_NET_RAW";
                return Err(LinkError::System { operation, source });
            }
        }
    }
    Ok(queues)
}

fn open_queue(index: u32, number: u32) -> io::Result<Socket> {
    for _ in 1..BUSY_TRIES {
        match Socket::open(index, number) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                sys::readiness::poll::wait(&mut [], Some(BUSY_WAIT))?;
            }
            other => return other,
        }
    }
    Socket::open(index, number)
}

impl Link for AfXdp {
    fn mtu(&self) -> usize {
        self.mtu
    }

    /// Computed here: a driver in zero-copy mode may not be able to complete a checksum, and a request fits
    /// one or two cache lines.
    fn leaving(&self) -> Leaving {
        Leaving::Whole
    }

    fn packet_out(&mut self, length: usize) -> Option<&mut [u8]> {
        let (to, from, ipv4) = (self.next_hop, self.ours, self.net.network().is_ipv4());
        let frame = self.queues[0].reserve(HEADER + length)?;
        ethernet::write_header(frame, to, from, ipv4);
        Some(&mut frame[HEADER..])
    }

    fn flush(&mut self) -> io::Result<u64> {
        self.queues[0].send()
    }

    fn receive(&mut self) -> io::Result<bool> {
        while self.next_frame() {
            if matches!(ethernet::read(self.queues[self.current].frame()), Frame::Packet(_)) {
                return Ok(true);
            }
            self.answer();
        }
        Ok(false)
    }

    fn packet(&self) -> Packet<'_> {
        let frame = self.queues[self.current].frame();
        // A server on this machine leaves its checksums to a device that never comes.
        Packet { bytes: frame.get(HEADER..).unwrap_or_default(), checksum: Arriving::WholeOrPartial }
    }

    fn wait(&mut self, timeout: Nanos) -> io::Result<()> {
        let polled = |queue: &Socket| PollFd::new(queue.as_fd().as_raw_fd(), bits::IN);
        let waited = match self.queues.as_slice() {
            [only] => sys::readiness::poll::wait(&mut [polled(only)], Some(timeout)),
            queues => {
                sys::readiness::poll::wait(&mut queues.iter().map(polled).collect::<Vec<_>>(), Some(timeout))
            }
        };
        match waited {
            Err(error) if classify(&error) != Failure::Retry => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Opens the queues of a device that has room for `possible` and uses `used`.
    fn opened(possible: u32, used: u32) -> Result<Vec<u32>, String> {
        let open = |number| if number < used { Ok(number) } else { Err(io::ErrorKind::InvalidInput.into()) };
        open_queues("eth0", possible, open).map_err(|error| error.to_string())
    }

    #[test]
    fn device_with_more_queues_than_sockets_is_refused() {
        assert_eq!(opened(8, 8).unwrap(), (0..8).collect::<Vec<_>>());
        assert_eq!(opened(128, 4).unwrap().len(), 4, "only queues in use count");
        assert_eq!(opened(128, 64).unwrap().len(), 64);
        for used in [65, 128] {
            assert_eq!(
                opened(128, used).unwrap_err(),
                "eth0 uses more than 64 receive queues, and AF_XDP takes 64: ethtool -L eth0 combined 64"
            );
        }
        assert!(opened(0, 0).unwrap_err().contains("open an AF_XDP socket"));
    }
}
