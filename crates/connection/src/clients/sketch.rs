//! Figures of clients in tables of fixed size, shared by all threads of a process.
//!
//! ```text
//!             row 0    row 1    row 2    row 3
//!   client ──> cell     cell     cell     cell     one in each, by a keyed hash for each row
//!                └────────┴────────┴────────┘
//!                  its figure: the least of the four
//! ```
//!
//! [`Counts`] is a count-min sketch (Cormode and Muthukrishnan 2005) of open connections. [`Rates`] has the time of a
//! generic cell rate algorithm (ITU-T I.371) in each cell, as `http2`'s floods have. It admits a connection if any of
//! the four cells does. Deviation: connections end, so a count is taken back from the cells that it was added to.
//!
//! Invariants: a client's figure is never lower than its own connections make it, whatever other clients and
//! concurrent threads do. So `open` and `admit` never exceed a limit. They refuse by mistake only if other clients
//! share the client's cell in each of the four rows. `docs/decisions/0035` derives how often, and the tests below
//! measure it.

use std::hash::Hasher as _;
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use base::{Nanos, lock};
use siphasher::sip::SipHasher13;

/// Rows of each table. Four rows of a table that is loaded to a quarter make one mistake in 256 at most.
const ROWS: usize = 4;
/// Cells of a row for each connection that may be open.
const CELLS_A_CONNECTION: usize = 4;
/// Cells of a row of [`Counts`]: 16 KiB to 16 MiB in all.
const COUNT_CELLS: std::ops::RangeInclusive<usize> = 1 << 10..=1 << 20;
/// Cells of a row of [`Rates`]: 2 MiB in all. A cell is empty a second after its last connection.
const RATE_CELLS: usize = 1 << 16;
/// Clients that can be admitted at once, on as many threads: enough that threads seldom wait for each other.
const TURNS: usize = 64;

/// Gives each client its places. Attackers choose addresses, so the key is secret.
#[derive(Debug)]
pub struct Hasher([u64; 2]);

/// The place of a client in each row, before it is reduced to the size of a table.
#[derive(Clone, Copy, Debug)]
pub struct Places([u32; ROWS]);

impl Hasher {
    /// Makes a hasher with a key.
    pub fn new(key: [u64; 2]) -> Hasher {
        Hasher(key)
    }

    /// Returns the places of a client: an IPv4 address, or the first 64 bits of an IPv6 address.
    pub fn places(&self, client: IpAddr) -> Places {
        let place = |row: usize| {
            let mut hash = SipHasher13::new_with_keys(self.0[0], self.0[1]);
            hash.write_usize(row);
            match client {
                IpAddr::V4(address) => hash.write(&address.octets()),
                IpAddr::V6(address) => hash.write(&address.octets()[..8]),
            }
            hash.finish() as u32
        };
        Places(std::array::from_fn(place))
    }
}

impl Places {
    /// Returns the cell of each row in a table. The number of cells of a row is a power of two.
    fn cells<'a, T>(&self, table: &'a [T]) -> [&'a T; ROWS] {
        let cells = table.len() / ROWS;
        std::array::from_fn(|row| &table[row * cells + (self.0[row] as usize & (cells - 1))])
    }
}

/// Makes a table whose rows have this number of cells, a power of two.
fn table<T: Default>(cells: usize) -> Box<[T]> {
    std::iter::repeat_with(T::default).take(ROWS * cells).collect()
}

/// The open connections of each client.
#[derive(Debug)]
pub struct Counts {
    most: u32,
    table: Box<[AtomicU32]>,
}

impl Counts {
    /// Makes a table for `most` connections of one client, and `connections` of all.
    pub fn new(most: u32, connections: usize) -> Counts {
        let cells = connections.saturating_mul(CELLS_A_CONNECTION).checked_next_power_of_two();
        let cells = cells.unwrap_or(usize::MAX).clamp(*COUNT_CELLS.start(), *COUNT_CELLS.end());
        Counts { most, table: table(cells) }
    }

    /// Adds a connection of a client. Returns false, and adds none, if the client is at its limit. Adds first and
    /// compares afterwards: if two threads take the last place at once, at most one gets it, and both may be refused.
    pub fn open(&self, places: &Places) -> bool {
        let cells = places.cells(&self.table);
        for cell in cells {
            cell.fetch_add(1, Ordering::SeqCst);
        }
        let fits = cells.iter().any(|cell| cell.load(Ordering::SeqCst) <= self.most);
        if !fits {
            self.close(places);
        }
        fits
    }

    /// Takes back a connection that [`Counts::open`] has added.
    pub fn close(&self, places: &Places) {
        for cell in places.cells(&self.table) {
            cell.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// The new connections of each client.
#[derive(Debug)]
pub struct Rates {
    /// The time by which one connection moves a cell forward.
    interval: Nanos,
    /// The time by which a full burst moves a cell forward.
    burst: Nanos,
    /// Each cell is the time, in nanoseconds, at which its connections so far are paid off.
    table: Box<[AtomicU64]>,
    /// Held while a client of these places is admitted.
    turns: [Mutex<()>; TURNS],
}

impl Rates {
    /// Makes a table for `rate_per_s` new connections of one client, which may come at once.
    pub fn new(rate_per_s: u32) -> Rates {
        Rates::of_size(rate_per_s, RATE_CELLS)
    }

    fn of_size(rate_per_s: u32, cells: usize) -> Rates {
        let interval = Nanos::SECOND.0 / u64::from(rate_per_s);
        Rates {
            interval: Nanos(interval),
            burst: Nanos(interval * u64::from(rate_per_s)),
            table: table(cells),
            turns: std::array::from_fn(|_| Mutex::default()),
        }
    }

    /// Charges a new connection to a client. Returns false, and charges nothing, if the connection comes too early.
    ///
    /// The first row with room decides, in one atomic step. The other rows are charged up to a full burst at most,
    /// because the client's own connections cannot have charged more. Another connection of this client waits until all
    /// rows are charged. Otherwise it could find room in a row that is not charged yet.
    pub fn admit(&self, places: &Places, now: Nanos) -> bool {
        let _turn = lock(&self.turns[places.0[0] as usize % TURNS]);
        let full = now.saturating_add(self.burst).0;
        let paid = |until: u64| until.max(now.0).saturating_add(self.interval.0);
        let cells = places.cells(&self.table);
        let take = |cell: &&AtomicU64| {
            let fits = |until| Some(paid(until)).filter(|until| *until <= full);
            cell.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits).is_ok()
        };
        let Some(decided) = cells.iter().position(take) else { return false };
        for (row, cell) in cells.iter().enumerate() {
            if row != decided {
                let charge = |until: u64| Some(until.max(paid(until).min(full)));
                let _ = cell.fetch_update(Ordering::SeqCst, Ordering::SeqCst, charge);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::hash::{BuildHasher, RandomState};
    use std::net::Ipv4Addr;
    use std::sync::Barrier;
    use std::sync::atomic::AtomicUsize;

    use proptest::prelude::*;

    use super::*;

    fn client(number: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from(number))
    }

    /// Rows so short that most clients share each of their cells.
    fn crowded_counts(most: u32) -> Counts {
        Counts { most, table: table(4) }
    }

    proptest! {
        #[test]
        fn no_client_exceeds_its_connections(
            key: [u64; 2],
            most in 1_u32..6,
            steps in prop::collection::vec((0_u32..12, any::<bool>()), 1..200),
        ) {
            let (hasher, counts) = (Hasher::new(key), crowded_counts(most));
            let mut exact = HashMap::<u32, u32>::new();
            for (number, opens) in steps {
                let places = hasher.places(client(number));
                let open = exact.entry(number).or_default();
                if opens {
                    let admitted = counts.open(&places);
                    prop_assert!(!admitted || *open < most);
                    *open += u32::from(admitted);
                } else if *open > 0 {
                    counts.close(&places);
                    *open -= 1;
                }
            }
            // Connections that were taken back leave no trace.
            for (number, open) in exact {
                (0..open).for_each(|_| counts.close(&hasher.places(client(number))));
            }
            prop_assert!(counts.table.iter().all(|cell| cell.load(Ordering::SeqCst) == 0));
        }

        #[test]
        fn no_client_exceeds_its_rate(
            key: [u64; 2],
            rate in 1_u32..20,
            steps in prop::collection::vec((0_u32..12, 0_u64..200), 1..200),
        ) {
            let (hasher, rates) = (Hasher::new(key), Rates::of_size(rate, 4));
            let mut exact = HashMap::<u32, u64>::new();
            let mut now = Nanos::SECOND;
            for (number, pause_ms) in steps {
                now += Nanos::from_millis(pause_ms);
                let admitted = rates.admit(&hasher.places(client(number)), now);
                let paid_until = exact.entry(number).or_default();
                let paid = (*paid_until).max(now.0) + rates.interval.0;
                prop_assert!(!admitted || paid <= now.0 + rates.burst.0);
                if admitted {
                    *paid_until = paid;
                }
            }
        }
    }

    #[test]
    fn a_client_alone_gets_all_that_its_limits_say() {
        let (places, counts) = (Hasher::new([7, 8]).places(client(1)), crowded_counts(3));
        let opened = [(); 5].map(|()| counts.open(&places));
        assert_eq!(opened, [true, true, true, false, false]);
        let rates = Rates::new(4);
        let burst = [(); 6].map(|()| rates.admit(&places, Nanos::SECOND));
        assert_eq!(burst, [true, true, true, true, false, false]);
        // Refused ones were not charged: each quarter of a second pays for one.
        for quarter in 1..9 {
            let now = Nanos::SECOND + Nanos::from_millis(250) * quarter;
            assert_eq!([(); 2].map(|()| rates.admit(&places, now)), [true, false]);
        }
    }

    /// With the most connections open, a client with `room` left is refused by mistake at most once in (4 room)^4. Others
    /// that keep as many connections as they may fill no more cells than others that keep one each.
    #[test]
    fn mistakes_are_as_rare_as_the_bound_says() {
        const CONNECTIONS: u32 = 1 << 12;
        const ASKED: u32 = 200_000;
        let seed = RandomState::new().hash_one(0);
        println!("seed {seed}");
        let hasher = Hasher::new([seed, !seed]);
        for (room, each) in [(1_u32, 1), (2, 1), (2, 2)] {
            let counts = Counts::new(room, CONNECTIONS as usize);
            for other in 0..CONNECTIONS {
                counts.open(&hasher.places(client(other / each)));
            }
            let is_mistaken = |asked: &u32| {
                let places = hasher.places(client(CONNECTIONS + asked));
                let admitted = counts.open(&places);
                if admitted {
                    counts.close(&places);
                }
                !admitted
            };
            let mistakes = (0..ASKED).filter(is_mistaken).count() as f64;
            let bound = f64::from(ASKED) / f64::from(4 * room).powi(ROWS as i32);
            println!(
                "room {room}, others with {each} each: {mistakes} of {ASKED} refused by mistake, bound {bound}"
            );
            // The bound is on the mean. A result six standard deviations beyond it means that the table is wrong.
            assert!(mistakes <= bound + 6.0 * bound.sqrt(), "seed {seed}: {mistakes} > {bound}");
        }
    }

    #[test]
    fn threads_that_ask_at_once_never_exceed_a_limit() {
        let (places, counts) = (Hasher::new([3, 4]).places(client(1)), crowded_counts(3));
        let open = AtomicUsize::new(0);
        on_four_threads(|| {
            for _ in 0..20_000 {
                if counts.open(&places) {
                    assert!(open.fetch_add(1, Ordering::SeqCst) < 3);
                    open.fetch_sub(1, Ordering::SeqCst);
                    counts.close(&places);
                }
            }
        });
        assert!(counts.table.iter().all(|cell| cell.load(Ordering::SeqCst) == 0));
    }

    #[test]
    fn threads_that_ask_at_once_never_exceed_a_rate() {
        const BURSTS: u64 = 2000;
        let (places, rates) = (Hasher::new([3, 4]).places(client(1)), Rates::new(5));
        let (begun, admitted) = (Barrier::new(4), AtomicUsize::new(0));
        on_four_threads(|| {
            // Each burst is paid off before the next.
            for now in (1..=BURSTS).map(|burst| Nanos::SECOND * burst) {
                begun.wait();
                let new = (0..5).filter(|_| rates.admit(&places, now)).count();
                admitted.fetch_add(new, Ordering::SeqCst);
            }
        });
        assert_eq!(admitted.into_inner(), 5 * BURSTS as usize);
    }

    fn on_four_threads(work: impl Fn() + Sync) {
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(&work))));
    }
}
