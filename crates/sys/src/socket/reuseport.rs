//! Programs that choose the listener of a new connection, in a group that shares an address by
//! `SO_REUSEPORT`.
//!
//! The kernel runs the program for each segment that belongs to no connection, and takes its result as the index of a
//! listener. That is a SYN, or the final ACK of a handshake whose SYN was answered by a cookie. Index 0 is the first
//! that began to listen. For an index without a listener the kernel chooses by its own hash. The kernel has moved the
//! start of the packet behind the TCP header, so a program reads headers relative to the network header.
//!
//! Owns the operations of classic BPF that such programs need, their encoding, and the system call. Leaves
//! the programs' decisions to the callers.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::check;

/// An operation of a program. A program has an accumulator, an index register, and 16 words of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Loads the number of the processor that received the packet.
    LoadCpu,
    /// Loads the byte at this offset from the network header.
    LoadByte(u32),
    /// Loads the two bytes at this offset, as a number in network order.
    LoadHalf(u32),
    /// Loads the four bytes at this offset, as a number in network order.
    LoadWord(u32),
    /// Loads a word of memory, 0 to 15, which must have been stored.
    LoadMemory(u32),
    /// Stores the accumulator in a word of memory.
    StoreMemory(u32),
    /// Copies the accumulator to the index register.
    CopyToIndex,
    /// Keeps the bits of a mask in the accumulator.
    And(u32),
    /// Flips the bits of the index register in the accumulator.
    XorIndex,
    /// Flips the bits of a mask in the accumulator.
    Xor(u32),
    /// Multiplies the accumulator, modulo 2^32.
    Multiply(u32),
    /// Leaves the remainder of a division by a number other than 0.
    Modulo(u32),
    /// Shifts the accumulator right by less than 32 bits.
    ShiftRight(u32),
    /// Skips this number of operations.
    Skip(u32),
    /// Skips this number of operations unless the accumulator has this value.
    SkipUnless(u32, u8),
    /// Skips this number of operations if the accumulator, unsigned, is at least this value.
    SkipIfAtLeast(u32, u8),
    /// Ends the program with a listener's index.
    Return(u32),
}

impl Op {
    fn encode(self) -> libc::sock_filter {
        let header = |offset: u32| (libc::SKF_NET_OFF as u32).wrapping_add(offset);
        let (load, alu, jump) = (libc::BPF_LD | libc::BPF_ABS, libc::BPF_ALU, libc::BPF_JMP);
        match self {
            Op::LoadCpu => statement(load | libc::BPF_W, (libc::SKF_AD_OFF + libc::SKF_AD_CPU) as u32),
            Op::LoadByte(offset) => statement(load | libc::BPF_B, header(offset)),
            Op::LoadHalf(offset) => statement(load | libc::BPF_H, header(offset)),
            Op::LoadWord(offset) => statement(load | libc::BPF_W, header(offset)),
            Op::LoadMemory(word) => statement(libc::BPF_LD | libc::BPF_MEM, word),
            Op::StoreMemory(word) => statement(libc::BPF_ST, word),
            Op::CopyToIndex => statement(libc::BPF_MISC | libc::BPF_TAX, 0),
            Op::And(mask) => statement(alu | libc::BPF_AND | libc::BPF_K, mask),
            Op::XorIndex => statement(alu | libc::BPF_XOR | libc::BPF_X, 0),
            Op::Xor(mask) => statement(alu | libc::BPF_XOR | libc::BPF_K, mask),
            Op::Multiply(by) => statement(alu | libc::BPF_MUL | libc::BPF_K, by),
            Op::Modulo(by) => statement(alu | libc::BPF_MOD | libc::BPF_K, by),
            Op::ShiftRight(bits) => statement(alu | libc::BPF_RSH | libc::BPF_K, bits),
            Op::Skip(operations) => statement(jump | libc::BPF_JA, operations),
            Op::SkipUnless(value, skipped) => {
                libc::sock_filter { jf: skipped, ..statement(jump | libc::BPF_JEQ | libc::BPF_K, value) }
            }
            Op::SkipIfAtLeast(value, skipped) => {
                libc::sock_filter { jt: skipped, ..statement(jump | libc::BPF_JGE | libc::BPF_K, value) }
            }
            Op::Return(index) => statement(libc::BPF_RET | libc::BPF_K, index),
        }
    }
}

/// Gives a group its program (`SO_ATTACH_REUSEPORT_CBPF`) in place of the present one. Any member of the
/// group may be passed, and listeners that join later take part. Needs no privilege.
///
/// # Errors
/// EINVAL if the socket is not in a group, or if the program is empty, has more than 4096 operations, or does
/// not end in [`Op::Return`]; ENOMEM.
pub fn attach(member: BorrowedFd<'_>, program: &[Op]) -> io::Result<()> {
    let mut filter: Vec<libc::sock_filter> = program.iter().copied().map(Op::encode).collect();
    attach_filter(member, libc::SO_ATTACH_REUSEPORT_CBPF, &mut filter)
}

/// A statement of classic BPF that does not jump.
pub(crate) fn statement(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// Attaches a classic BPF program to a socket, by any socket option that takes one.
pub(crate) fn attach_filter(
    socket: BorrowedFd<'_>,
    option: libc::c_int,
    filter: &mut [libc::sock_filter],
) -> io::Result<()> {
    let length = u16::try_from(filter.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len: length, filter: filter.as_mut_ptr() };
    // SAFETY: the kernel reads the program behind the pointer, which lives through the call. So does the
    // filter that the program points to, which has the stated length.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            std::ptr::from_ref(&program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::AsFd;

    use super::*;
    use crate::socket::detach;

    #[test]
    fn only_a_group_takes_a_program() {
        let alone = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(attach(alone.as_fd(), &[Op::Return(0)]).is_err());
    }

    #[test]
    fn every_operation_is_one_that_the_kernel_knows() {
        use rustix::net::{AddressFamily, SocketType, sockopt};
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        sockopt::set_socket_reuseport(&socket, true).unwrap();
        let program = [
            Op::LoadCpu,
            Op::LoadByte(0),
            Op::LoadHalf(20),
            Op::LoadWord(12),
            Op::StoreMemory(0),
            Op::CopyToIndex,
            Op::LoadMemory(0),
            Op::And(0xff),
            Op::XorIndex,
            Op::Xor(1),
            Op::Multiply(3),
            Op::Modulo(7),
            Op::ShiftRight(15),
            Op::Skip(0),
            Op::SkipUnless(1, 0),
            Op::SkipIfAtLeast(1, 0),
            Op::Return(0),
        ];
        assert!(detach(socket.as_fd()).is_err());
        attach(socket.as_fd(), &program).unwrap();
        detach(socket.as_fd()).unwrap();
        assert!(attach(socket.as_fd(), &[]).is_err());
        assert!(attach(socket.as_fd(), &vec![Op::Return(0); 40_000]).is_err());
    }
}
