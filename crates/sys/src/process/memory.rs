//! The memory of this process.
//!
//! glibc gives a block from 128 KiB on a mapping of its own, and the kernel moves such a block when it grows, without a copy.
//! But each mapping that is freed raises that size to its own. After the loader of BPF programs has freed 9 MiB, a table
//! of connections would grow by a copy, and the memory of the old table would stay.

/// Keeps the size from which a block has a mapping of its own, whatever is freed. Other allocators than glibc's have no
/// such rule.
pub fn map_large_blocks() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes numbers only. A value that is refused changes nothing.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 128 * 1024)
    };
}
