//! Sources that connect at a steady pace, by the program of XDP, and networks.

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
const SERVER: ([u8; 4], u16) = ([10, 80, 0, 1], 80);

/// `struct pace` of `programs/admission.h`: the newest connection's time, its gap, and the steady gaps with its identity.
type Pace = [u64; 3];

/// The program of XDP, with sources whose paces a test sets.
struct Fixture {
    admission: Admission,
    paces: HashMap<MapData, [u8; 16], Pace>,
}

impl Fixture {
    fn load() -> Option<Fixture> {
        let exempt = Exempt::NONE.with_steady_sources(true);
        let mut admission = match Admission::load_exempting(Hook::Xdp, &Queues::one(), &exempt) {
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

    /// Makes a source's newest connection one of `ago` seconds before now, ten seconds after the one before.
    fn set(&mut self, source: u8, ago: u64, steady: u64) {
        let now = clock_gettime(ClockId::Monotonic);
        let now = now.tv_sec as u64 * SECOND + now.tv_nsec as u64;
        self.paces.insert(key(source), [now - ago * SECOND, 10 * SECOND, steady], 0).unwrap();
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
fn steady_source_is_admitted_in_a_rush() {
    let Some(mut fixture) = Fixture::load() else { return };
    fixture.refuse();
    fixture.set(2, 10, 3);
    assert!(fixture.is_admitted(2, 7) && fixture.steady_gaps(2) == 4, "{:?}", fixture.pace(2));
    // The same SYN again, as its kernel sends it after a second.
    assert!(fixture.is_admitted(2, 7) && fixture.steady_gaps(2) == 4, "{:?}", fixture.pace(2));
}

#[test]
fn changed_or_short_gap_ends_a_steady_pace() {
    let Some(mut fixture) = Fixture::load() else { return };
    fixture.refuse();
    fixture.set(2, 15, 9);
    fixture.set(3, 0, 9);
    for source in [2, 3] {
        assert!(
            !fixture.is_admitted(source, 7) && fixture.steady_gaps(source) == 0,
            "{:?}",
            fixture.pace(source)
        );
    }
}

#[test]
fn rush_teaches_no_new_sources() {
    let Some(fixture) = Fixture::load() else { return };
    assert!(fixture.is_admitted(2, 7) && fixture.steady_gaps(2) == 0);
    fixture.refuse();
    assert!(!fixture.is_admitted(3, 7) && fixture.pace(3).is_none());
    assert!(!fixture.is_admitted(2, 7), "one connection is no pace");
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
