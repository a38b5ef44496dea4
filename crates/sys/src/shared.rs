//! Memory shared by several processes, or by processes and BPF programs: an array of atomics.
//!
//! The array is in a memfd or in a BPF array map. Each process that inherits or receives the descriptor can
//! map the same array. Its length never changes: a memfd is sealed before it is mapped, and a map is made
//! with its size. No access can therefore exceed its end. All accesses are atomic, so no process can cause
//! undefined behaviour in another.
//!
//! `nameless` is memory of one process, in a file.

pub mod nameless;

use std::io;
use std::marker::PhantomData;
use std::mem::{align_of, size_of};
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::AtomicU32 {}
    impl Sealed for super::AtomicU64 {}
}

/// An atomic integer: every bit pattern is a value, and zero is one.
pub trait Atomic: sealed::Sealed + Sync {}
impl Atomic for AtomicU32 {}
impl Atomic for AtomicU64 {}

/// Memory that is unmapped with it.
#[derive(Debug)]
pub(crate) struct Mapping {
    pub start: NonNull<u8>,
    /// Bytes.
    pub length: usize,
}

impl Mapping {
    /// Maps memory for reading and writing; the arguments are those of mmap(2).
    pub fn new(length: usize, flags: libc::c_int, fd: RawFd, offset: i64) -> io::Result<Mapping> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, fd, offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).expect("the kernel maps nothing at 0 unasked");
        Ok(Mapping { start, length })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the mapping made in `new`, and every reference into it borrows its owner.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// An array of atomics, mapped into every process that opens it. It dereferences to a slice.
#[derive(Debug)]
pub struct SharedArray<A: Atomic> {
    memory: OwnedFd,
    mapping: Mapping,
    kind: PhantomData<A>,
}

// SAFETY: the array gives out only shared references to atomics, which are Sync, and the mapping belongs to
// the process, not to a thread.
unsafe impl<A: Atomic> Send for SharedArray<A> {}
// SAFETY: as above.
unsafe impl<A: Atomic> Sync for SharedArray<A> {}

impl<A: Atomic> SharedArray<A> {
    /// A new array of `length` zeros, at least one.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM; EINVAL for a length of 0.
    pub fn create(length: usize) -> io::Result<SharedArray<A>> {
        let bytes = length.checked_mul(size_of::<A>()).ok_or(io::ErrorKind::InvalidInput)?;
        let memory = memfd_create("inrush", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&memory, bytes as u64)?;
        fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        SharedArray::open(memory)
    }

    /// Maps an existing array of another process or of a BPF program.
    ///
    /// # Errors
    /// EINVAL if the descriptor is neither that of a [`SharedArray`] nor that of a mappable BPF array map;
    /// ENOMEM.
    pub fn open(memory: OwnedFd) -> io::Result<SharedArray<A>> {
        let bytes = match fcntl_get_seals(&memory) {
            Ok(seals) if seals.contains(SealFlags::SHRINK) => {
                usize::try_from(fstat(&memory)?.st_size).map_err(|_| io::ErrorKind::InvalidInput)?
            }
            _ => crate::bpf::mappable_bytes(memory.as_fd())?,
        };
        let mapping = Mapping::new(bytes, libc::MAP_SHARED, memory.as_raw_fd(), 0)?;
        assert!(mapping.start.addr().get().is_multiple_of(align_of::<A>()), "a mapping begins at a page");
        Ok(SharedArray { memory, mapping, kind: PhantomData })
    }
}

impl<A: Atomic> Deref for SharedArray<A> {
    type Target = [A];

    fn deref(&self) -> &[A] {
        // SAFETY: the mapping has this length, is aligned, cannot shrink, and lives as long as `self`. Any
        // bits that other processes write are a value of an atomic.
        unsafe {
            std::slice::from_raw_parts(
                self.mapping.start.as_ptr().cast(),
                self.mapping.length / size_of::<A>(),
            )
        }
    }
}

impl<A: Atomic> AsFd for SharedArray<A> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn both_mappings_of_an_array_show_the_same() {
        let array = SharedArray::<AtomicU64>::create(1000).unwrap();
        let other = SharedArray::<AtomicU64>::open(array.as_fd().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!((array.len(), other.len()), (1000, 1000));
        assert!(array.iter().all(|word| word.load(Ordering::Relaxed) == 0));
        array[999].store(7, Ordering::Release);
        assert_eq!(other[999].load(Ordering::Acquire), 7);
    }

    #[test]
    fn only_what_cannot_shrink_is_mapped() {
        assert!(SharedArray::<AtomicU32>::create(0).is_err());
        let array = SharedArray::<AtomicU32>::create(10).unwrap();
        assert!(ftruncate(&array, 0).is_err());
        let unsealed = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        assert!(SharedArray::<AtomicU32>::open(unsealed).is_err());
        let (pipe, _) = rustix::pipe::pipe().unwrap();
        assert!(SharedArray::<AtomicU32>::open(pipe).is_err());
    }
}
