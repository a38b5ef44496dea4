//! AF_XDP sockets: frames exchanged with a network device through rings in shared memory (the kernel's
//! Documentation/networking/af_xdp.rst).
//!
//! Owns the memory for frames, the four rings, and the system calls that have the kernel look at them. The program on
//! the device, which is not this crate's, chooses the frames that a socket receives.
//!
//! ```text
//!   free ──reserve──> tx ring ──kernel──> completion ring ──> free
//!   fill ring ──kernel──> rx ring ──receive──> current ──> fill ring
//! ```
//!
//! Invariants: a frame is in exactly one of these places. The caller sees a frame only while it is neither in
//! a ring nor free: the one received last, and the one reserved last until the next call. Half of the frames
//! are for receiving, and never leave their cycle.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::check;
use crate::errno::{Failure, classify};
use crate::shared::Mapping;

/// The size of a frame: a packet of 1500 bytes, its Ethernet header, and the room that the kernel wants.
const FRAME: usize = 2048;
/// Frames for either direction: 40 ms of 200,000 packets a second. A power of two, as all rings are.
const FRAMES: u32 = 8192;
/// Received frames after which those before are given back to the kernel.
const PUBLISH_EVERY: u32 = 64;
/// Frames that wait to be sent.
const SEND_RING: u32 = 4096;

/// A socket buffer for this much is asked for: the kernel counts every frame on its way to the receiver
/// against it.
const SEND_BUFFER: libc::c_int = 64 << 20;

/// Frames that the kernel sends a call where it copies them (TX_BATCH_SIZE in net/xdp/xsk.c).
const SENT_PER_CALL: u32 = 32;

/// The types of a ring's entries.
trait Entry: Copy {}
impl Entry for u64 {}
impl Entry for libc::xdp_desc {}

/// One ring, of which this process is the producer or the consumer.
struct Ring<T: Entry> {
    mapping: Mapping,
    producer: usize,
    consumer: usize,
    entries: usize,
    mask: u32,
    /// Our own index, published by `publish`.
    ours: u32,
    /// The kernel's index as it was last looked at.
    theirs: u32,
    kind: std::marker::PhantomData<T>,
}

impl<T: Entry> Ring<T> {
    fn map(socket: &OwnedFd, page: u64, offsets: &libc::xdp_ring_offset, size: u32) -> io::Result<Ring<T>> {
        let length = offsets.desc as usize + size as usize * size_of::<T>();
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        let mapping = Mapping::new(length, flags, socket.as_raw_fd(), page as i64)?;
        Ok(Ring {
            mapping,
            producer: offsets.producer as usize,
            consumer: offsets.consumer as usize,
            entries: offsets.desc as usize,
            mask: size - 1,
            ours: 0,
            theirs: 0,
            kind: std::marker::PhantomData,
        })
    }

    fn index(&self, at: usize) -> &AtomicU32 {
        assert!(at + size_of::<u32>() <= self.mapping.length && at.is_multiple_of(4));
        // SAFETY: within the mapping and aligned; the kernel accesses it atomically as well.
        unsafe { &*self.mapping.start.as_ptr().add(at).cast::<AtomicU32>() }
    }

    fn entry(&self, index: u32) -> *mut T {
        let at = self.entries + (index & self.mask) as usize * size_of::<T>();
        // SAFETY: the mapping has room for `mask + 1` entries from `entries` on.
        unsafe { self.mapping.start.as_ptr().add(at).cast::<T>() }
    }

    /// As the producer: puts an entry that the kernel sees after `publish_produced`. The caller has seen to
    /// it that there is room.
    fn put(&mut self, value: T) {
        // SAFETY: the place is ours until it is published, because the kernel has consumed its last content.
        unsafe { self.entry(self.ours).write(value) };
        self.ours = self.ours.wrapping_add(1);
    }

    fn publish_produced(&self) {
        self.index(self.producer).store(self.ours, Ordering::Release);
    }

    /// As the producer: returns true if there is room for one more.
    fn has_room(&mut self) -> bool {
        if self.ours.wrapping_sub(self.theirs) > self.mask {
            self.theirs = self.index(self.consumer).load(Ordering::Acquire);
        }
        self.ours.wrapping_sub(self.theirs) <= self.mask
    }

    /// As the producer: entries that the kernel has not taken.
    fn pending(&mut self) -> u32 {
        self.theirs = self.index(self.consumer).load(Ordering::Acquire);
        self.ours.wrapping_sub(self.theirs)
    }

    /// As the consumer: the next entry. When there is none, what was taken so far is given back to the
    /// kernel.
    fn take(&mut self) -> Option<T> {
        if self.ours == self.theirs {
            self.index(self.consumer).store(self.ours, Ordering::Release);
            self.theirs = self.index(self.producer).load(Ordering::Acquire);
            if self.ours == self.theirs {
                return None;
            }
        }
        // SAFETY: the kernel has written it and published that, and writes it again only after our index has
        // passed.
        let value = unsafe { self.entry(self.ours).read() };
        self.ours = self.ours.wrapping_add(1);
        Some(value)
    }
}

/// A socket on one queue of a device.
pub struct Socket {
    fd: OwnedFd,
    frames: Mapping,
    fill: Ring<u64>,
    received: Ring<libc::xdp_desc>,
    to_send: Ring<libc::xdp_desc>,
    completed: Ring<u64>,
    /// Frames for sending that are in no ring.
    free: Vec<u64>,
    /// The frame received last.
    current: Option<libc::xdp_desc>,
}

// SAFETY: the mappings belong to the process, not to a thread, and only this value's methods access them.
unsafe impl Send for Socket {}

impl Socket {
    /// A socket bound to a receive queue of the link with that number. It receives frames once a program
    /// sends them to it. The kernel uses the driver's zero-copy mode where there is one.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_RAW; EAFNOSUPPORT from a kernel without AF_XDP; EBUSY while the
    /// queue has a socket, which may be for a moment after one was closed; EINVAL for a queue that does not
    /// exist.
    pub fn open(link: u32, queue: u32) -> io::Result<Socket> {
        // SAFETY: no pointer is passed.
        let fd = check(unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })?;
        // SAFETY: the descriptor is new and nobody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let length = FRAME * 2 * FRAMES as usize;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        let frames = Mapping::new(length, flags, -1, 0)?;
        let region = libc::xdp_umem_reg {
            addr: frames.start.as_ptr().addr() as u64,
            len: length as u64,
            chunk_size: FRAME as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        set(&fd, libc::SOL_XDP, libc::XDP_UMEM_REG, &region)?;
        let sizes = [
            (libc::XDP_UMEM_FILL_RING, FRAMES),
            (libc::XDP_UMEM_COMPLETION_RING, FRAMES),
            (libc::XDP_RX_RING, FRAMES),
            (libc::XDP_TX_RING, SEND_RING),
        ];
        for (ring, size) in sizes {
            set(&fd, libc::SOL_XDP, ring, &size)?;
        }
        // Needs CAP_NET_ADMIN; without, bursts are sent in more calls.
        let _ = set(&fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER);
        let offsets = offsets(&fd)?;
        let mut socket = Socket {
            fill: Ring::map(&fd, libc::XDP_UMEM_PGOFF_FILL_RING, &offsets.fr, FRAMES)?,
            received: Ring::map(&fd, libc::XDP_PGOFF_RX_RING as u64, &offsets.rx, FRAMES)?,
            to_send: Ring::map(&fd, libc::XDP_PGOFF_TX_RING as u64, &offsets.tx, SEND_RING)?,
            completed: Ring::map(&fd, libc::XDP_UMEM_PGOFF_COMPLETION_RING, &offsets.cr, FRAMES)?,
            free: (u64::from(FRAMES)..2 * u64::from(FRAMES)).map(|frame| frame * FRAME as u64).collect(),
            current: None,
            fd,
            frames,
        };
        (0..u64::from(FRAMES)).for_each(|frame| socket.fill.put(frame * FRAME as u64));
        socket.fill.publish_produced();
        socket.bind(link, queue)?;
        Ok(socket)
    }

    fn bind(&self, link: u32, queue: u32) -> io::Result<()> {
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: 0,
            sxdp_ifindex: link,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        let length = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
        // SAFETY: the kernel reads one sockaddr_xdp behind the pointer, which lives through the call.
        check(unsafe { libc::bind(self.fd.as_raw_fd(), std::ptr::from_ref(&address).cast(), length) })?;
        Ok(())
    }

    /// Goes on to the next received frame; returns false if there is none. The last one is given back to the
    /// kernel.
    pub fn receive(&mut self) -> bool {
        if let Some(frame) = self.current.take() {
            // There is always room: the ring has a place for each of its frames.
            self.fill.put(start_of(frame.addr));
        }
        self.current = self.received.take();
        // Under a steady backlog the ring is never seen empty.
        if self.current.is_none() || self.fill.ours.is_multiple_of(PUBLISH_EVERY) {
            self.fill.publish_produced();
        }
        self.current.is_some()
    }

    /// The frame that [`receive`](Self::receive) went on to; empty before the first.
    pub fn frame(&self) -> &[u8] {
        self.current.as_ref().map_or(&[], |frame| {
            let (start, length) = (frame.addr as usize, frame.len as usize);
            assert!(start + length <= self.frames.length, "the kernel names frames of ours");
            // SAFETY: within the mapping, and the frame is in no ring while `current` names it, which the
            // borrow of `self` keeps as it is.
            unsafe { std::slice::from_raw_parts(self.frames.start.as_ptr().add(start), length) }
        })
    }

    /// Room for a frame to be sent by the next [`send`](Self::send), with any content; `None` where there is
    /// none, or for a frame that is too long.
    pub fn reserve(&mut self, length: usize) -> Option<&mut [u8]> {
        if self.free.is_empty() {
            self.reap();
        }
        if length > FRAME || !self.to_send.has_room() {
            return None;
        }
        let start = self.free.pop()?;
        self.to_send.put(libc::xdp_desc { addr: start, len: length as u32, options: 0 });
        assert!(start as usize + FRAME <= self.frames.length);
        // SAFETY: within the mapping; the frame was free, and the kernel looks at the ring only after `send`,
        // which needs the borrow of `self` to end.
        Some(unsafe {
            std::slice::from_raw_parts_mut(self.frames.start.as_ptr().add(start as usize), length)
        })
    }

    /// Has the kernel send what was reserved. The remaining frames go out with the next call. Returns the number of
    /// frames that the device dropped.
    ///
    /// # Errors
    /// ENETDOWN and ENXIO when the device is down or gone.
    pub fn send(&mut self) -> io::Result<u64> {
        self.to_send.publish_produced();
        let mut pending = self.to_send.pending();
        let mut calls = pending / SENT_PER_CALL + 2;
        let mut dropped = 0;
        while pending > 0 && calls > 0 {
            // SAFETY: no memory is passed.
            let sent = check(unsafe {
                let nothing = std::ptr::null();
                libc::sendto(self.fd.as_raw_fd(), nothing, 0, libc::MSG_DONTWAIT, std::ptr::null(), 0)
                    as libc::c_int
            });
            if let Err(error) = sent {
                match classify(&error) {
                    Failure::Retry | Failure::WouldBlock | Failure::NoMemory => {}
                    // Where the kernel copies frames, this is the device's drop of one (NET_XMIT_DROP), as without a
                    // carrier. A full ring of the driver is EAGAIN.
                    _ if error.raw_os_error() == Some(libc::EBUSY) => dropped += 1,
                    _ => return Err(error),
                }
            }
            pending = self.to_send.pending();
            calls -= 1;
        }
        self.reap();
        Ok(dropped)
    }

    /// Takes back the frames that were sent.
    fn reap(&mut self) {
        while let Some(frame) = self.completed.take() {
            self.free.push(start_of(frame));
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The start of the frame that an address lies in.
fn start_of(address: u64) -> u64 {
    address & !(FRAME as u64 - 1)
}

/// Values of socket options: plain data.
trait Plain {}
impl Plain for u32 {}
impl Plain for libc::c_int {}
impl Plain for libc::xdp_umem_reg {}

fn set<T: Plain>(fd: &OwnedFd, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads one `T` behind the pointer, which lives through the call.
    check(unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), length)
    })?;
    Ok(())
}

fn offsets(fd: &OwnedFd) -> io::Result<libc::xdp_mmap_offsets> {
    let mut length = size_of::<libc::xdp_mmap_offsets>() as libc::socklen_t;
    // SAFETY: the struct is integers: zero is a value.
    let mut offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
    let value = std::ptr::from_mut(&mut offsets).cast();
    // SAFETY: the kernel writes at most `length` bytes into `offsets`, which is that large.
    check(unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, value, &mut length)
    })?;
    if length as usize != size_of::<libc::xdp_mmap_offsets>() {
        // A kernel before 5.4 has shorter ones.
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(offsets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::netlink::Route;
    use crate::network::netns::NetworkNamespace;

    #[test]
    fn frames_that_a_device_drops_are_counted() {
        let namespace = match NetworkNamespace::create() {
            Ok(namespace) => namespace,
            Err(error) => return println!("skipped: no network namespaces here: {error}"),
        };
        let opened = namespace.enter(|| {
            let mut route = Route::open().unwrap();
            route.create_veth("left", namespace.as_fd(), "right").unwrap();
            let link = route.link_index("left").unwrap();
            // The other end stays down, so this one has no carrier.
            route.set_up(link).unwrap();
            Socket::open(link, 0)
        });
        let mut socket = match opened.unwrap() {
            Ok(socket) => socket,
            Err(error) => return println!("skipped: no AF_XDP here: {error}"),
        };
        let mut dropped = 0;
        for _ in 0..3 {
            socket.reserve(60).unwrap().fill(0);
            dropped += socket.send().unwrap();
        }
        assert_eq!((dropped, socket.to_send.pending()), (3, 0));
        assert_eq!(socket.send().unwrap(), 0);
    }
}
