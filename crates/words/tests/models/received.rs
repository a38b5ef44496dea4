//! The completion ring's receive buffers, which the kernel fills and the server gives back. The server's side is
//! `sys/src/completion/buffers.rs`; it writes into memory that the kernel reads, so this model repeats its steps.
//!
//! ```text
//!   server   uses the buffer    entry[tail] = buffer    tail + 1
//!   kernel                      tail > head?   buffer = entry[head]    fills it
//! ```

use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom::sync::atomic::{AtomicU32, AtomicU64};
use loom::thread;

use super::word::check;

/// The server has buffer 7 and returns it; the kernel fills it as soon as the tail says so.
fn buffer_has_one_owner(publish: Ordering) {
    check(move || {
        let shared = Arc::new((AtomicU32::new(0), AtomicU32::new(0), AtomicU64::new(7)));
        let of_kernel = Arc::clone(&shared);
        let kernel = thread::spawn(move || {
            let (tail, entry, bytes) = &*of_kernel;
            if tail.load(Ordering::Acquire) == 1 {
                assert_eq!(entry.load(Ordering::Relaxed), 7, "an entry that nobody wrote");
                bytes.store(8, Ordering::Relaxed);
            }
        });
        let (tail, entry, bytes) = &*shared;
        assert_eq!(bytes.load(Ordering::Relaxed), 7, "bytes of the next receive");
        entry.store(7, Ordering::Relaxed);
        tail.store(1, publish);
        kernel.join().unwrap();
    });
}

#[test]
fn returned_buffer_is_the_kernels_alone() {
    buffer_has_one_owner(Ordering::Release);
}

#[test]
#[should_panic(expected = "an entry that nobody wrote")]
fn tail_before_its_entry_is_found() {
    buffer_has_one_owner(Ordering::Relaxed);
}
