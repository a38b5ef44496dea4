//! Sources that connect at a steady pace, by the programs on devices, and networks.

use aya::maps::{HashMap, MapData};
use rustix::time::{ClockId, clock_gettime};

use super::*;
use crate::admission::{Admission, Hook, Limits, Queues};
use base::Nanos;
use packet::{Packet, SYN};

#[allow(dead_code, reason = "the integration tests use the rest")]
#[path = "../../../tests/common/packet.rs"]
mod packet;

const SECOND: u64 = Nanos::SECOND.0;
const MILLISECOND: u64 = Nanos::MILLISECOND.0;
const SERVER: ([u8; 4], u16) = ([10, 80, 0, 1], 80);

/// `struct pace` of `programs/admission.h`: the newest connection's time, its gap, and the steady gaps with its identity.
type Pace = [u64; 3];

/// A program on devices, with sources whose paces a test sets.
struct Fixture {
    admission: Admission,
    paces: HashMap<MapData, [u8; 16], Pace>,
}

impl Fixture {
    fn load(hook: Hook) -> Option<Fixture> {
        let exempt = Exempt::NONE.with_steady_sources(true);
        let mut admission = match Admission::load_exempting(hook, &Queues::one(), &exempt) {
            Ok(admission) => admission,
            Err(
                error @ (BpfError::Capability { .. } | BpfError::Refused { .. } | BpfError::Kernel { .. }),
            ) => {
                println!("skipped: {error}");
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        admission.add_listener(SERVER.into()).unwrap();
        let paces = HashMap::try_from(admission.loaded.take_map("paces")).unwrap();
        Some(Fixture { admission, paces })
    }

    /// Refuses everybody from the second SYN on.
    fn refuse(&self) {
        let limits =
            Limits { interval: Nanos::from_secs(3600), burst: Nanos(0), new_are_free: false, until: None };
        self.admission.table().limit(0, &limits);
        self.is_admitted(1, 1);
    }

    /// Sends a SYN from a source and a port.
    fn is_admitted(&self, source: u8, port: u16) -> bool {
        let packet = Packet { from: ([10, 80, 1, source], port).into(), ..Packet::new(SERVER.into(), SYN) };
        let before = self.admission.table().totals(0).passed;
        self.admission.test_run(&packet.ethernet(), 1).unwrap();
        self.admission.table().totals(0).passed > before
    }

    /// Makes a source's newest connection one of `ago` before now, with that gap before it.
    fn set(&mut self, source: u8, (gap_ms, ago_ms): (u64, u64), steady: u64) {
        let now = clock_gettime(ClockId::Monotonic);
        let now = now.tv_sec as u64 * SECOND + now.tv_nsec as u64;
        let pace = [now - ago_ms * MILLISECOND, gap_ms * MILLISECOND, steady];
        self.paces.insert(key(source), pace, 0).unwrap();
    }

    fn pace(&self, source: u8) -> Option<Pace> {
        self.paces.get(&key(source), 0).ok()
    }

    fn steady_gaps(&self, source: u8) -> u32 {
        self.pace(source).expect("a known source")[2] as u32
    }
}

fn key(source: u8) -> [u8; 16] {
    address_octets([10, 80, 1, source].into())
}

#[test]
fn source_becomes_steady_while_nobody_is_refused() {
    for hook in [Hook::Tc, Hook::TcReset, Hook::Xdp] {
        let Some(mut fixture) = Fixture::load(hook) else { return };
        fixture.set(2, (10_000, 10_000), 3);
        assert!(fixture.is_admitted(2, 7) && fixture.steady_gaps(2) == 4, "{:?}", fixture.pace(2));
        fixture.refuse();
        // The same SYN again, as its kernel sends it after a second.
        assert!(fixture.is_admitted(2, 7) && fixture.steady_gaps(2) == 4, "{:?}", fixture.pace(2));
        fixture.set(2, (10_000, 10_000), 4);
        assert!(fixture.is_admitted(2, 8) && fixture.steady_gaps(2) == 4, "{:?}", fixture.pace(2));
    }
}

#[test]
fn other_gaps_end_a_steady_pace() {
    let Some(mut fixture) = Fixture::load(Hook::Xdp) else { return };
    fixture.refuse();
    // The gap has changed, is too short, and is too long.
    let gaps = [(2, (10_000, 15_000)), (3, (300, 300)), (4, (130_000, 130_000))];
    for (source, gap) in gaps {
        fixture.set(source, gap, 9);
        assert!(
            !fixture.is_admitted(source, 7) && fixture.steady_gaps(source) == 0,
            "{:?}",
            fixture.pace(source)
        );
    }
}

#[test]
fn rush_makes_no_source_steady() {
    let Some(mut fixture) = Fixture::load(Hook::Xdp) else { return };
    assert!(fixture.is_admitted(2, 7) && fixture.steady_gaps(2) == 0);
    fixture.refuse();
    assert!(!fixture.is_admitted(3, 7) && fixture.pace(3).is_none());
    fixture.set(2, (10_000, 10_000), 3);
    assert!(!fixture.is_admitted(2, 8) && fixture.steady_gaps(2) == 3, "{:?}", fixture.pace(2));
}

#[test]
fn exempt_network_contains_mapped_addresses() {
    let contains = |network: &str, address: &str| {
        Exempt::new(vec![network.parse().unwrap()]).unwrap().contains(address.parse().unwrap())
    };
    assert!(contains("10.0.0.0/8", "10.1.2.3") && !contains("10.0.0.0/8", "11.1.2.3"));
    assert!(contains("::/0", "10.1.2.3") && contains("::/0", "2001:db8::1"));
    assert!(!contains("2001:db8::/32", "10.1.2.3") && !contains("0.0.0.0/0", "2001:db8::1"));
}
