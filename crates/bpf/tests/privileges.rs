//! Without a capability the error names it; with the two that are named, everything works.

mod common;

use base::Nanos;
use bpf::admission::{Admission, Hook, Queues};
use bpf::guard::Guard;
use bpf::steering::{Schedule, Steering};
use bpf::xsk_redirect::XskRedirect;
use bpf::{Exempt, probe};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

const NAMED: CapabilitySet = CapabilitySet::BPF.union(CapabilitySet::NET_ADMIN);

/// Runs `work` on a thread that has these capabilities and no other, or prints why that cannot be.
fn with_only<T: Send>(kept: CapabilitySet, work: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let helper = scope.spawn(|| {
            let mut sets = capabilities(None).unwrap();
            if !sets.permitted.contains(kept) {
                println!("skipped: this process has no {kept:?}");
                return None;
            }
            (sets.effective, sets.permitted) = (kept, kept);
            set_capabilities(None, sets).unwrap();
            Some(work())
        });
        helper.join().unwrap()
    })
}

#[test]
fn a_missing_capability_is_named() {
    let error =
        |kept| with_only(kept, || Admission::load(Hook::Tc, &Queues::one()).err().unwrap().to_string());
    for (kept, missing) in [
        (CapabilitySet::empty(), "both"),
        (CapabilitySet::BPF, "CAP_NET_ADMIN"),
        (CapabilitySet::NET_ADMIN, "CAP_BPF"),
    ] {
        let Some(error) = error(kept) else { return };
        let expected =
            format!("admission in tc needs CAP_BPF and CAP_NET_ADMIN, and this process lacks {missing}");
        assert!(error.starts_with(&expected) && error.lines().count() == 1, "{error}");
    }
}

#[test]
fn the_two_capabilities_that_are_named_are_enough() {
    let loaded = with_only(NAMED, || {
        for hook in [Hook::Tc, Hook::Xdp] {
            Admission::load(hook, &Queues::one()).map(drop)?;
        }
        XskRedirect::load([10, 0, 0, 0].into(), 8).map(drop)?;
        Guard::load(([127, 0, 0, 1], 80).into(), Nanos::SECOND, 0, &Exempt::NONE).map(drop)?;
        Steering::load(Schedule::Random, 4).map(drop)
    });
    if let Some(loaded) = loaded {
        loaded.unwrap();
    }
}

#[test]
fn the_probe_says_what_is_missing() {
    let Some(facilities) = with_only(CapabilitySet::empty(), probe) else { return };
    assert_eq!(facilities.len(), 8);
    for facility in facilities {
        let missing = facility.missing.unwrap();
        assert!(missing.contains("needs CAP_BPF and CAP_NET_ADMIN"), "{missing}");
    }
}

/// The probe's namespace needs CAP_SYS_ADMIN, and the programs do not.
#[test]
fn probe_without_a_namespace_finds_usable_programs() {
    let Some(facilities) = with_only(NAMED, probe) else { return };
    for facility in facilities {
        match facility.missing {
            Some(missing) if missing.contains("CAP_PERFMON") => {
                assert!(facility.name.starts_with("counting drops"), "{}: {missing}", facility.name);
            }
            Some(missing) => {
                assert!(!missing.contains("namespace"), "{}: {missing}", facility.name);
                println!("skipped: {}: {missing}", facility.name);
            }
            None => {}
        }
    }
}

#[test]
fn the_probe_leaves_nothing_missing_here() {
    if !capabilities(None).unwrap().effective.contains(NAMED) {
        return println!("skipped: this process has no {NAMED:?}");
    }
    for facility in probe() {
        if let Some(missing) = facility.missing {
            assert!(!missing.contains("needs CAP_"), "{missing}");
            println!("skipped: {}: {missing}", facility.name);
        }
    }
}
