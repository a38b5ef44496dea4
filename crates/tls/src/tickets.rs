//! Session tickets (RFC 5077, RFC 8446 4.6.1) under keys that follow from one another.
//!
//! ```text
//!   period 0 ───────────────────────> period 1 ──> ...      one step each PERIOD of epochs
//!      |                                 |
//!   chain 0 ──> chain 1 ──> ...       chain 256 ──> ...     one step each EPOCH of the time of day
//!      |           |                     |
//!     key 0       key 1                 key 256             HMAC-SHA-256; nothing tells what came before it
//! ```
//!
//! A clock that jumps by years passes over whole periods, so that no client waits for the keys of all their epochs.
//!
//! Two processes with the same state derive the same keys at the same time, without a message. The loops of a process
//! share the state, and worker processes get a copy. A ticket is accepted in the epoch of its key and in the next
//! one. Older keys and chains are forgotten, so that a stolen state opens no older ticket.
//!
//! A ticket is the epoch, a random nonce, and the session under AES-256-GCM with the epoch as associated data. Under
//! one key, 2^32 random nonces are safe (NIST SP 800-38D, 8.3): 190,000 tickets per second.

use std::fmt;
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};

use base::Clock;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use rustls::server::ProducesTickets;

/// The time for which one key makes tickets, in seconds; the same as rustls' own rotation.
const EPOCH: u64 = 6 * 60 * 60;
/// The epochs of a period: 64 days.
const PERIOD: u64 = 256;
/// Bytes of a ticket before the session: the epoch and the nonce.
const HEAD_BYTES: usize = 8 + NONCE_LEN;
/// The size limit of a ticket; a session takes some hundred bytes.
const MOST_BYTES: usize = 4096;

type Secret = [u8; 32];

/// The state of the keys, in the form that other processes get.
#[derive(Clone, PartialEq, Eq)]
pub struct State {
    epoch: u64,
    previous: Secret,
    current: Secret,
    /// The chain of the next epoch, where that is in the same period.
    chain: Secret,
    /// The secret of the next period.
    period: Secret,
}

impl State {
    /// Bytes of [`State::to_bytes`].
    pub const BYTES: usize = 8 + 4 * 32;

    /// Makes new, random keys.
    fn random(epoch: u64) -> Option<State> {
        let (mut chain, mut period) = ([0; 32], [0; 32]);
        SystemRandom::new().fill(&mut chain).ok()?;
        SystemRandom::new().fill(&mut period).ok()?;
        // Earlier epochs have no tickets.
        let start = State { epoch: epoch.saturating_sub(1), previous: chain, current: chain, chain, period };
        Some(start.at(epoch))
    }

    /// Steps to the state of a later epoch. A clock that was set back changes nothing.
    fn at(mut self, epoch: u64) -> State {
        if epoch.saturating_sub(self.epoch) > 1_000_000 {
            // Seven hundred years: the clock was wrong before or is wrong now. Old tickets are lost.
            self.epoch = epoch - 2;
        }
        while self.epoch < epoch {
            let next_period = (self.epoch / PERIOD + 1) * PERIOD;
            // The epoch before has a key too.
            if next_period + PERIOD < epoch {
                self.period = derive(&self.period, b"inrush ticket period");
                self.epoch = next_period + PERIOD - 1;
            } else {
                self.step();
            }
        }
        self
    }

    /// Steps to the state of the next epoch.
    fn step(&mut self) {
        self.epoch += 1;
        if self.epoch.is_multiple_of(PERIOD) {
            self.chain = derive(&self.period, b"inrush ticket chain");
            self.period = derive(&self.period, b"inrush ticket period");
        }
        self.previous = self.current;
        self.current = derive(&self.chain, b"inrush ticket key");
        self.chain = derive(&self.chain, b"inrush ticket chain");
    }

    /// Returns the state as bytes.
    pub fn to_bytes(&self) -> [u8; State::BYTES] {
        let mut bytes = [0; State::BYTES];
        bytes[..8].copy_from_slice(&self.epoch.to_be_bytes());
        let secrets = [&self.previous, &self.current, &self.chain, &self.period];
        for (part, secret) in bytes[8..].chunks_mut(32).zip(secrets) {
            part.copy_from_slice(secret);
        }
        bytes
    }

    /// Returns the state of [`State::to_bytes`].
    pub fn from_bytes(bytes: &[u8; State::BYTES]) -> State {
        let (epoch, secrets) = bytes.split_first_chunk().expect("a state begins with an epoch");
        let mut secrets = secrets.as_chunks().0.iter().copied();
        let mut next = || secrets.next().expect("a state has four secrets");
        let epoch = u64::from_be_bytes(*epoch);
        State { epoch, previous: next(), current: next(), chain: next(), period: next() }
    }
}

fn derive(chain: &Secret, label: &[u8]) -> Secret {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, chain), label);
    tag.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

struct Keys {
    state: State,
    previous: LessSafeKey,
    current: LessSafeKey,
}

impl Keys {
    fn new(state: State) -> Keys {
        let (previous, current) = (key(&state.previous), key(&state.current));
        Keys { state, previous, current }
    }

    fn of(&self, epoch: u64) -> Option<&LessSafeKey> {
        match self.state.epoch.checked_sub(epoch)? {
            0 => Some(&self.current),
            1 => Some(&self.previous),
            _ => None,
        }
    }
}

fn key(secret: &Secret) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, secret).expect("AES-256 takes 32 bytes"))
}

/// Makes tickets and opens them.
pub struct Tickets<C> {
    clock: C,
    keys: RwLock<Keys>,
    random: SystemRandom,
}

impl<C: Clock> Tickets<C> {
    /// Makes tickets with random keys; `None` if the kernel has no randomness.
    pub fn new(clock: C) -> Option<Tickets<C>> {
        let state = State::random(clock.wall().seconds / EPOCH)?;
        Some(Tickets::of(state, clock))
    }

    /// Makes tickets that every holder of this state can open.
    pub fn of(state: State, clock: C) -> Tickets<C> {
        let state = state.at(clock.wall().seconds / EPOCH);
        Tickets { clock, keys: RwLock::new(Keys::new(state)), random: SystemRandom::new() }
    }

    /// Returns the current state.
    pub fn state(&self) -> State {
        self.rotate();
        self.keys.read().unwrap_or_else(PoisonError::into_inner).state.clone()
    }

    /// Steps to the key of this epoch.
    fn rotate(&self) {
        let epoch = self.clock.wall().seconds / EPOCH;
        if self.keys.read().unwrap_or_else(PoisonError::into_inner).state.epoch < epoch {
            let mut keys: RwLockWriteGuard<'_, Keys> =
                self.keys.write().unwrap_or_else(PoisonError::into_inner);
            *keys = Keys::new(keys.state.clone().at(epoch));
        }
    }

    fn seal(&self, session: &[u8]) -> Option<Vec<u8>> {
        self.rotate();
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).ok()?;
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let epoch = keys.state.epoch.to_be_bytes();
        let mut ticket = [&epoch[..], &nonce, session].concat();
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = keys
            .current
            .seal_in_place_separate_tag(nonce, Aad::from(epoch), &mut ticket[HEAD_BYTES..])
            .ok()?;
        ticket.extend_from_slice(tag.as_ref());
        (ticket.len() <= MOST_BYTES).then_some(ticket)
    }

    fn open(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        if ticket.len() > MOST_BYTES {
            return None;
        }
        self.rotate();
        let (epoch, rest) = ticket.split_first_chunk()?;
        let (nonce, sealed) = rest.split_first_chunk()?;
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let key = keys.of(u64::from_be_bytes(*epoch))?;
        let mut session = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = key.open_in_place(nonce, Aad::from(*epoch), &mut session).ok()?.len();
        session.truncate(length);
        Some(session)
    }
}

impl<C: Clock + Send + Sync> ProducesTickets for Tickets<C> {
    fn enabled(&self) -> bool {
        true
    }

    /// The lifetime sent to clients. A ticket made at the end of an epoch lives through the next one.
    fn lifetime(&self) -> u32 {
        EPOCH as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.seal(plain)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.open(cipher)
    }
}

impl<C> fmt::Debug for Tickets<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tickets").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use base::{Nanos, SimulatedClock, WallTime};

    use super::*;

    fn clock() -> SimulatedClock {
        SimulatedClock::new(WallTime { seconds: 20_000 * EPOCH + 5 })
    }

    fn epochs(count: u64) -> Nanos {
        Nanos::from_secs(count * EPOCH)
    }

    #[test]
    fn a_ticket_lives_for_its_epoch_and_the_next() {
        let clock = clock();
        let tickets = Tickets::new(clock.clone()).unwrap();
        let ticket = tickets.seal(b"a session").unwrap();
        assert_ne!(ticket, tickets.seal(b"a session").unwrap(), "nonces differ");
        for _ in 0..2 {
            assert_eq!(tickets.open(&ticket).unwrap(), b"a session");
            clock.advance(epochs(1));
        }
        assert_eq!(tickets.open(&ticket), None);
    }

    #[test]
    fn shared_state_opens_tickets_of_others_later_too() {
        let clock = clock();
        let one = Tickets::new(clock.clone()).unwrap();
        let state = State::from_bytes(&one.state().to_bytes());
        let early = Tickets::of(state.clone(), clock.clone());
        assert_eq!(early.open(&one.seal(b"1").unwrap()).unwrap(), b"1");
        clock.advance(epochs(3));
        let ticket = one.seal(b"2").unwrap();
        assert_eq!(early.open(&ticket).unwrap(), b"2");
        assert_eq!(Tickets::of(state, clock.clone()).open(&ticket).unwrap(), b"2", "from the old state");
        let late = Tickets::of(one.state(), clock.clone());
        clock.advance(epochs(1));
        assert_eq!(late.open(&ticket).unwrap(), b"2", "the previous key was handed over too");
        assert_eq!(Tickets::new(clock).unwrap().open(&ticket), None, "strangers open nothing");
    }

    #[test]
    fn what_is_no_ticket_of_ours_is_refused() {
        let tickets = Tickets::new(clock()).unwrap();
        let ticket = tickets.seal(b"a session").unwrap();
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert_eq!(tickets.open(&changed), None, "byte {at}");
            assert_eq!(tickets.open(&ticket[..at]), None, "{at} bytes");
        }
        assert_eq!(tickets.open(&vec![0; MOST_BYTES + 1]), None);
    }

    #[test]
    fn one_jump_leads_to_the_keys_of_many_steps() {
        for start in [0, 5, PERIOD - 2, PERIOD - 1, PERIOD] {
            let first = State::random(start).unwrap();
            let mut stepped = first.clone();
            for epoch in start + 1..start + 4 * PERIOD {
                stepped.step();
                let jumped = first.clone().at(epoch);
                assert!(jumped.to_bytes() == stepped.to_bytes(), "{start} to {epoch}");
            }
        }
    }

    #[test]
    fn a_clock_that_jumps_does_no_harm() {
        let state = State::random(5).unwrap();
        assert!(state.clone().at(3) == state, "back");
        assert_eq!(state.at(u64::MAX / EPOCH).epoch, u64::MAX / EPOCH, "far ahead");
    }
}
