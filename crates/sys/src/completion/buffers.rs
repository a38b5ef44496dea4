//! Receive buffers that the kernel chooses from as bytes arrive, instead of one for each idle connection.
//!
//! Invariant: a buffer belongs to the kernel, or to one [`Received`]. Only that value gives access to it.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;

use super::kernel::Kernel;

/// Number of receive buffers, a power of two. The kernel takes them in turn, so that few of them stay in the
/// processor's cache, and a turn of a loop returns all that it was given.
pub(super) const BUFFERS: u16 = 256;
/// Size of a receive buffer: a request with its head, or several.
pub const BUFFER_BYTES: usize = 4096;

/// Bytes from a peer, in a buffer that the kernel does not use until it is recycled.
#[derive(Debug)]
pub struct Received {
    buffer: u16,
    length: usize,
}

/// The buffers of a ring, and the ring of those that the kernel may fill.
pub(super) struct Buffers {
    entries: NonNull<BufRingEntry>,
    memory: NonNull<u8>,
    /// Buffers that were ever given to the kernel, modulo 2^16.
    tail: u16,
    /// By buffer: it belongs to a [`Received`].
    lent: Box<[bool]>,
    leaked: bool,
}

fn layouts() -> (Layout, Layout) {
    let page =
        |bytes| Layout::from_size_align(bytes, rustix::param::page_size()).expect("a page is a power of two");
    (page(usize::from(BUFFERS) * size_of::<BufRingEntry>()), page(usize::from(BUFFERS) * BUFFER_BYTES))
}

fn allocate(layout: Layout) -> NonNull<u8> {
    // SAFETY: the layout is not empty.
    NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap_or_else(|| handle_alloc_error(layout))
}

impl Buffers {
    /// Gives the kernel a ring of buffers.
    pub(super) fn register(kernel: &mut impl Kernel) -> io::Result<Buffers> {
        let (entries, memory) = layouts();
        let mut this = Buffers {
            entries: allocate(entries).cast(),
            memory: allocate(memory),
            tail: 0,
            lent: vec![true; usize::from(BUFFERS)].into(),
            leaked: false,
        };
        // SAFETY: the memory has room for the entries, is aligned to a page, and lives as long as the ring uses it.
        unsafe { kernel.register(this.entries.as_ptr(), BUFFERS)? };
        (0..BUFFERS).for_each(|buffer| this.recycle(Received { buffer, length: 0 }));
        Ok(this)
    }

    /// The bytes of a receive; `None` at the end of the stream.
    pub(super) fn received(&mut self, buffer: Option<u16>, length: usize) -> Option<Received> {
        let received = Received { buffer: buffer?, length };
        assert!(
            length <= BUFFER_BYTES && !self.lent[usize::from(received.buffer)],
            "the kernel's own buffer"
        );
        self.lent[usize::from(received.buffer)] = true;
        if length == 0 {
            self.recycle(received);
            return None;
        }
        Some(received)
    }

    fn at(&self, buffer: u16) -> *mut u8 {
        // SAFETY: only numbers of buffers are passed, so that the result lies within the memory.
        unsafe { self.memory.as_ptr().add(usize::from(buffer) * BUFFER_BYTES) }
    }

    pub(super) fn bytes(&self, received: &Received) -> &[u8] {
        assert!(self.lent[usize::from(received.buffer)], "of this ring");
        // SAFETY: the kernel has written these bytes and leaves them alone until the buffer is recycled, which needs the
        // value that is borrowed here.
        unsafe { std::slice::from_raw_parts(self.at(received.buffer), received.length) }
    }

    pub(super) fn recycle(&mut self, received: Received) {
        let Received { buffer, .. } = received;
        assert!(std::mem::take(&mut self.lent[usize::from(buffer)]), "of this ring");
        let (address, place) = (self.at(buffer) as u64, usize::from(self.tail % BUFFERS));
        // SAFETY: there are as many places as buffers, so that the kernel does not use this one before the tail says so.
        let entry = unsafe { &mut *self.entries.as_ptr().add(place) };
        entry.set_addr(address);
        entry.set_len(BUFFER_BYTES as u32);
        entry.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the tail lies in the first entry, which lives as long as `self`, and both sides access it atomically.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(self.entries.as_ptr()).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }

    /// Leaves the memory to the kernel for ever.
    pub(super) fn leak(&mut self) {
        self.leaked = true;
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        if !self.leaked {
            let (entries, memory) = layouts();
            // SAFETY: allocated with these layouts, and no operation is in flight that could use a buffer. The kernel pins
            // the pages of the entries by itself and writes nothing to them.
            unsafe {
                dealloc(self.entries.as_ptr().cast(), entries);
                dealloc(self.memory.as_ptr(), memory);
            }
        }
    }
}
