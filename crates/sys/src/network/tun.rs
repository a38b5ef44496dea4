//! TUN devices: network links whose other end is a descriptor of this process (the kernel's
//! Documentation/networking/tuntap.rst).
//!
//! A read takes a packet that the kernel would have sent, and a write makes the kernel receive one. Each call
//! moves one whole packet, which begins with its IP header. The device is not persistent: it vanishes with
//! its descriptor, however this process ends.
//!
//! An *offloading* device behaves like a network card with checksum and segmentation offload. A header of
//! [`OFFLOAD_HEADER`] bytes precedes each packet (`struct virtio_net_hdr`). The kernel then leaves checksums
//! incomplete, as it does for such a card, and hands over TCP segments of up to 64 KiB.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use crate::check;

/// The device file that makes TUN devices.
const CLONE_DEVICE: &str = "/dev/net/tun";

/// Length of the header before each packet of an offloading device, in bytes.
pub const OFFLOAD_HEADER: usize = 10;

// From <linux/virtio_net.h>; libc has none of them.
const CHECKSUM_MISSING: u8 = 1;
const CHECKSUM_VALID: u8 = 2;

/// The offload header of a packet whose checksum the receiver must complete. The checksum covers the bytes
/// from `start` to the end and stands `offset` bytes after `start`.
pub fn checksum_missing(start: u16, offset: u16) -> [u8; OFFLOAD_HEADER] {
    let ([a, b], [c, d]) = (start.to_ne_bytes(), offset.to_ne_bytes());
    [CHECKSUM_MISSING, 0, 0, 0, 0, 0, a, b, c, d]
}

/// Returns true if the checksum of a packet from the device needs no check, because this machine made the
/// packet or has verified it.
pub fn checksum_is_known(header: &[u8; OFFLOAD_HEADER]) -> bool {
    header[0] & (CHECKSUM_MISSING | CHECKSUM_VALID) != 0
}

/// Tells whether this user may open the device file, whatever its capabilities. Some machines leave the file to root.
pub fn may_open() -> bool {
    open_clone_device().is_ok()
}

fn open_clone_device() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(CLONE_DEVICE)
}

/// One end of a link, whose other end the kernel has.
#[derive(Debug)]
pub struct Tun {
    fd: OwnedFd,
}

impl Tun {
    /// Makes a device of this name, at most 15 bytes, in the network namespace of the calling thread. It is
    /// down and has no address. Neither reading nor writing blocks.
    ///
    /// # Errors
    /// `NotFound` or ENODEV from a kernel without TUN; `PermissionDenied` without CAP_NET_ADMIN; EBUSY if
    /// there is a link of that name; EINVAL for a name that is too long.
    pub fn create(name: &str) -> io::Result<Tun> {
        Ok(open(name, 0)?.0)
    }

    /// Makes an offloading device, otherwise as [`create`](Self::create) does, and returns its name. A `%d`
    /// in `name` becomes the lowest free number.
    ///
    /// # Errors
    /// The errors of [`create`](Self::create).
    pub fn create_offloading(name: &str) -> io::Result<(Tun, String)> {
        let (tun, name) = open(name, libc::IFF_VNET_HDR)?;
        let offloads = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
        // SAFETY: the argument is a number.
        check(unsafe {
            libc::ioctl(tun.fd.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(offloads))
        })?;
        Ok((tun, name))
    }

    /// Takes the next packet into `buffer` and cuts it to the buffer's length.
    ///
    /// # Errors
    /// `WouldBlock` if there is no packet; EIO while the device is down.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| rustix::io::read(&self.fd, &mut *buffer))?)
    }

    /// Makes the kernel receive a packet. When the call returns, the kernel has received it or handed it to
    /// another processor.
    ///
    /// # Errors
    /// EINVAL if the bytes are no IP packet; EIO while the device is down; `WouldBlock` and ENOBUFS if
    /// memory runs out.
    pub fn write(&self, packet: &[u8]) -> io::Result<()> {
        rustix::io::retry_on_intr(|| rustix::io::write(&self.fd, packet))?;
        Ok(())
    }
}

/// Makes a device with these flags and returns its name.
fn open(name: &str, flags: libc::c_int) -> io::Result<(Tun, String)> {
    let named = |error: io::Error| {
        io::Error::new(error.kind(), format!("make the TUN device {name} with {CLONE_DEVICE}: {error}"))
    };
    let fd = OwnedFd::from(open_clone_device().map_err(named)?);
    // SAFETY: an ifreq consists of integers, bytes and pointers that are not followed here: zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(named(io::Error::from_raw_os_error(libc::EINVAL)));
    }
    for (place, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *place = byte as libc::c_char;
    }
    // The flag omits the four bytes of packet information that would come first: the IP header has the same
    // information.
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI | flags) as libc::c_short;
    // SAFETY: the kernel reads and writes one ifreq behind the pointer, which lives through the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &mut request) }).map_err(named)?;
    let bytes = request.ifr_name.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8);
    Ok((Tun { fd }, String::from_utf8_lossy(&bytes.collect::<Vec<_>>()).into_owned()))
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::netlink::Route;
    use crate::network::netns::NetworkNamespace;
    use rustix::event::{PollFd, PollFlags, poll};
    use std::net::{Ipv4Addr, UdpSocket};

    const MTU: u32 = 1400;

    /// A TUN device that is up in a namespace of its own. Prints the reason if there is none.
    fn link() -> Option<(NetworkNamespace, Tun)> {
        let namespace = NetworkNamespace::create()
            .inspect_err(|error| println!("skipped: no network namespaces here: {error}"))
            .ok()?;
        let tun = namespace.enter(|| Tun::create("tun-test")).unwrap();
        let tun = tun.inspect_err(|error| println!("skipped: no TUN devices here: {error}")).ok()?;
        namespace.set_sysctl("net.ipv6.conf.all.disable_ipv6", "1").ok();
        let mut route = namespace.enter(Route::open).unwrap().unwrap();
        let index = route.link_index("tun-test").unwrap();
        route.set_sizes(index, MTU, 3).unwrap();
        route.add_address(index, Ipv4Addr::new(10, 77, 0, 2), 24).unwrap();
        route.set_up(index).unwrap();
        Some((namespace, tun))
    }

    #[test]
    fn tun_delivers_packets_both_ways() {
        let Some((namespace, tun)) = link() else { return };
        let mut buffer = [0; 2048];
        assert_eq!(tun.read(&mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let socket = namespace.enter(|| UdpSocket::bind("10.77.0.2:700")).unwrap().unwrap();
        socket.send_to(b"out", "10.77.0.1:900").unwrap();
        poll(&mut [PollFd::new(&tun, PollFlags::IN)], None).unwrap();
        let length = tun.read(&mut buffer).unwrap();
        let packet = &mut buffer[..length];
        assert_eq!(&packet[28..], b"out");
        // Addresses and ports change places, which returns the packet to its sender and leaves both checksums
        // right.
        packet[12..20].rotate_left(4);
        packet[20..24].rotate_left(2);
        tun.write(packet).unwrap();
        let mut text = [0; 8];
        let (length, from) = socket.recv_from(&mut text).unwrap();
        assert_eq!((&text[..length], from.port()), (&b"out"[..], 900));
        assert!(tun.write(&[0; 4]).is_err(), "that is not a packet");
    }

    #[test]
    fn packets_that_nobody_reads_in_time_are_counted() {
        let Some((namespace, _tun)) = link() else { return };
        let socket = namespace.enter(|| UdpSocket::bind("10.77.0.2:0")).unwrap().unwrap();
        for _ in 0..10 {
            // If the device's queue is full, the kernel may report an error to the sender.
            let _ = socket.send_to(b"out", "10.77.0.1:900");
        }
        let mut route = namespace.enter(Route::open).unwrap().unwrap();
        let index = route.link_index("tun-test").unwrap();
        let dropped = route.statistics(index).unwrap().sent_dropped;
        assert_eq!(dropped, 7, "the queue was set to three packets");
    }

    #[test]
    fn offloading_device_leaves_checksums_to_its_peer() {
        let Some(namespace) = NetworkNamespace::create()
            .inspect_err(|error| println!("skipped: no network namespaces here: {error}"))
            .ok()
        else {
            return;
        };
        let made = namespace.enter(|| Tun::create_offloading("tun-test%d")).unwrap();
        let Ok((tun, name)) = made.inspect_err(|error| println!("skipped: no TUN devices here: {error}"))
        else {
            return;
        };
        assert_eq!(name, "tun-test0");
        namespace.set_sysctl("net.ipv6.conf.all.disable_ipv6", "1").ok();
        let mut route = namespace.enter(Route::open).unwrap().unwrap();
        let index = route.link_index(&name).unwrap();
        route.add_address(index, Ipv4Addr::new(10, 77, 0, 2), 24).unwrap();
        route.set_up(index).unwrap();
        let socket = namespace.enter(|| UdpSocket::bind("10.77.0.2:700")).unwrap().unwrap();
        socket.send_to(b"out", "10.77.0.1:900").unwrap();
        let mut buffer = [0; 2048];
        poll(&mut [PollFd::new(&tun, PollFlags::IN)], None).unwrap();
        let length = tun.read(&mut buffer).unwrap();
        let (header, packet) = buffer[..length].split_first_chunk_mut::<OFFLOAD_HEADER>().unwrap();
        assert!(checksum_is_known(header));
        *header = checksum_missing(20, 6);
        packet[12..20].rotate_left(4);
        packet[20..24].rotate_left(2);
        tun.write(&buffer[..length]).unwrap();
        let mut text = [0; 8];
        assert_eq!(socket.recv_from(&mut text).unwrap().0, 3);
    }

    #[test]
    fn a_name_that_is_too_long_is_refused() {
        let error = Tun::create("sixteen-bytes-xx").unwrap_err().to_string();
        assert!(error.starts_with("make the TUN device sixteen-bytes-xx with /dev/net/tun: "), "{error}");
    }
}
