//! select(2) over our own bitmaps, so that descriptors beyond FD_SETSIZE (1024) work. The limit belongs to
//! the C library's type, not to the kernel's call.

use std::io;
use std::os::fd::RawFd;

use base::Nanos;

use crate::{check, timespec};

const WORD_BITS: usize = 64;

/// A set of descriptors that grows with its largest member.
#[derive(Clone, Debug, Default)]
pub struct FdSet {
    words: Vec<u64>,
}

impl FdSet {
    /// Adds a descriptor.
    pub fn insert(&mut self, fd: RawFd) {
        let (word, bit) = place(fd);
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= bit;
    }

    /// Removes a descriptor.
    pub fn remove(&mut self, fd: RawFd) {
        let (word, bit) = place(fd);
        if let Some(word) = self.words.get_mut(word) {
            *word &= !bit;
        }
    }

    /// Returns true if the set has the descriptor.
    pub fn contains(&self, fd: RawFd) -> bool {
        let (word, bit) = place(fd);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }

    /// Makes the set equal to `other` below `end`, and keeps its memory.
    fn copy_below(&mut self, other: &FdSet, end: RawFd) {
        let words = (end as usize).div_ceil(WORD_BITS);
        self.words.clear();
        self.words.extend(other.words.iter().take(words));
        self.words.resize(words, 0);
    }

    /// Calls `each` for every member below `end`, in ascending order.
    pub fn for_each_below(&self, end: RawFd, mut each: impl FnMut(RawFd)) {
        for (index, word) in self.words.iter().enumerate().take((end as usize).div_ceil(WORD_BITS)) {
            let mut rest = *word;
            while rest != 0 {
                each((index * WORD_BITS + rest.trailing_zeros() as usize) as RawFd);
                rest &= rest - 1;
            }
        }
    }
}

fn place(fd: RawFd) -> (usize, u64) {
    let fd = fd as usize;
    (fd / WORD_BITS, 1 << (fd % WORD_BITS))
}

/// Waits until a member below `end` of `read` or `write` is ready, and writes the ready ones to `ready_read`
/// and `ready_write`. Returns the number of bits set in both. `None` waits forever.
///
/// # Errors
/// EINTR, EBADF (a member is not open), ENOMEM.
pub fn wait(
    end: RawFd,
    (read, ready_read): (&FdSet, &mut FdSet),
    (write, ready_write): (&FdSet, &mut FdSet),
    timeout: Option<Nanos>,
) -> io::Result<usize> {
    ready_read.copy_below(read, end);
    ready_write.copy_below(write, end);
    let timeout = timeout.map(timespec);
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the kernel reads and writes whole words up to bit `end` of both bitmaps, and both were
    // made that long; on this little-endian-word ABI fd_set is an array of unsigned longs of 64 bits.
    // The C library's function only passes the pointers on. `timeout` is null or lives through the call.
    let ready = check(unsafe {
        libc::pselect(
            end,
            ready_read.words.as_mut_ptr().cast(),
            ready_write.words.as_mut_ptr().cast(),
            std::ptr::null_mut(),
            timeout,
            std::ptr::null(),
        )
    })?;
    Ok(ready as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_no_upper_bound_of_its_own() {
        let mut set = FdSet::default();
        for fd in [0, 63, 64, 5000] {
            set.insert(fd);
        }
        set.remove(64);
        let mut members = Vec::new();
        set.for_each_below(5001, |fd| members.push(fd));
        assert_eq!(members, [0, 63, 5000]);
        assert!(set.contains(5000) && !set.contains(64) && !set.contains(100_000));
    }
}
