//! The totals of a stack, and the limits that its connections share.

use crate::frame::Unusable;
use crate::wrapping::Millis;

base::counts! {
    /// Totals of one stack. A received segment that is in order and acknowledged counts only in `received`.
    pub struct Counts {
        /// Segments received for one of our addresses, from the server.
        received,
        /// Segments handed to the link.
        sent,
        /// Segments that the link had no room for. Retransmission repairs the loss.
        unsent,
        /// SYNs retransmitted because no answer came in time.
        syns_again,
        /// Data and FINs retransmitted because no acknowledgment came in time.
        retransmitted,
        /// Data retransmitted after three duplicate acknowledgments.
        fast_retransmitted,
        /// Repeated SYN-ACKs: the server had not accepted our final ACK.
        syn_acks_again,
        /// Segments without new data.
        duplicates,
        /// Segments stored because an earlier one is missing.
        out_of_order,
        /// Segments outside the receive window, or ahead of the sequence without room to store them.
        beyond_window,
        /// Segments with a timestamp of the past (PAWS, RFC 7323, section 5).
        old_timestamps,
        /// Segments with an acknowledgment number that no correct server sends.
        wrong_acks,
        /// Challenge ACKs sent (RFC 5961).
        challenges,
        /// Challenge ACKs not sent because the limit was reached.
        challenges_held_back,
        /// Probes of a closed window.
        window_probes,
        /// Segments of no connection; each is answered with an RST, unless it is one.
        unknown,
        /// RSTs sent, for any reason.
        resets_sent,
        /// RSTs that ended a connection.
        resets_received,
        /// Data received after we had closed; answered with an RST, as Linux does.
        data_after_close,
        /// Packets to our addresses from another sender than the server.
        strangers,
        /// Packets for addresses that are not ours, such as the kernel's own multicast.
        not_ours,
        /// Malformed packets.
        malformed,
        /// Fragments.
        fragments,
        /// ICMP messages.
        icmp,
        /// Packets of other protocols.
        not_tcp,
        /// Packets with a wrong checksum.
        wrong_checksums,
        /// Connects refused because every name of the source net is in use.
        no_name,
        /// Names used again before their rest was over: the server may still have the last connection in TIME-WAIT, and
        /// its late segments meet the new one.
        names_reused_early,
    }
}

impl Counts {
    /// Counts a packet that is dropped.
    pub fn dropped(&mut self, why: Unusable) {
        *match why {
            Unusable::Malformed => &mut self.malformed,
            Unusable::Fragment => &mut self.fragments,
            Unusable::Icmp => &mut self.icmp,
            Unusable::NotTcp => &mut self.not_tcp,
            Unusable::Checksum => &mut self.wrong_checksums,
        } += 1;
    }
}

/// The most bytes received out of order that all connections together store: a tenth of a second of a 5
/// Gbit/s link. A segment beyond that is dropped, and the server retransmits it.
pub const STORED_MAX: usize = 64 << 20;

/// The most challenge ACKs per second of all connections together: Linux's former `tcp_challenge_ack_limit`
/// (RFC 5961, section 7). Without a limit, two ends that contradict each other would answer each other for
/// ever.
pub const CHALLENGES_PER_S: u32 = 1000;

/// The state that all connections of a stack share.
#[derive(Debug, Default)]
pub struct Shared {
    /// Totals.
    pub counts: Counts,
    /// Retransmissions of a SYN before its timeout doubles: [`Config::syn_linear_timeouts`](crate::Config).
    syn_linear_timeouts: u8,
    /// Bytes stored out of order.
    stored: usize,
    /// The start of the current second of challenge ACKs, and their number in it.
    challenges: (Millis, u32),
}

impl Shared {
    /// The state of a stack without connections.
    pub fn new(syn_linear_timeouts: u8) -> Shared {
        Shared { syn_linear_timeouts, ..Shared::default() }
    }

    /// The number of times that a SYN is sent again before its timeout doubles.
    pub fn syn_linear_timeouts(&self) -> u8 {
        self.syn_linear_timeouts
    }

    /// Reserves room for `bytes` out of order; returns false without room.
    pub fn store(&mut self, bytes: usize) -> bool {
        let fits = self.stored + bytes <= STORED_MAX;
        if fits {
            self.stored += bytes;
        }
        fits
    }

    /// Releases room that [`store`](Self::store) reserved.
    pub fn unstore(&mut self, bytes: usize) {
        self.stored -= bytes;
    }

    /// Bytes stored out of order.
    pub fn stored(&self) -> usize {
        self.stored
    }

    /// Counts a challenge ACK, and returns true if it may be sent.
    pub fn challenge(&mut self, now: Millis) -> bool {
        if now.since(self.challenges.0) >= 1000 {
            self.challenges = (now, 0);
        }
        let allowed = self.challenges.1 < CHALLENGES_PER_S;
        match allowed {
            true => self.counts.challenges += 1,
            false => self.counts.challenges_held_back += 1,
        }
        self.challenges.1 += u32::from(allowed);
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_limited_by_the_second() {
        let mut shared = Shared::default();
        let now = Millis(u32::MAX - 100);
        let allowed = (0..CHALLENGES_PER_S + 5).filter(|_| shared.challenge(now)).count();
        assert_eq!(allowed, CHALLENGES_PER_S as usize);
        assert_eq!((shared.counts.challenges, shared.counts.challenges_held_back), (1000, 5));
        assert!(!shared.challenge(now + 999));
        assert!(shared.challenge(now + 1000));
    }

    #[test]
    fn the_store_is_limited() {
        let mut shared = Shared::default();
        assert!(shared.store(STORED_MAX - 1));
        assert!(!shared.store(2) && shared.store(1));
        shared.unstore(STORED_MAX);
        assert_eq!(shared.stored(), 0);
    }
}
