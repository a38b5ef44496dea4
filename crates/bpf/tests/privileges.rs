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

/// The verifier's measures against Spectre refuse its arithmetic.
#[cfg(feature = "kernel-cache")]
#[test]
fn kernel_cache_needs_a_third_capability() {
    use bpf::kernel_cache::{KernelCache, Limits};
    let load = || KernelCache::load(Limits::default(), 7).map(drop);
    let Some(loaded) = with_only(NAMED | CapabilitySet::PERFMON, load) else { return };
    loaded.unwrap();
    let Some(Err(error)) = with_only(NAMED, load) else {
        return println!("this kernel needs no third one");
    };
    assert_eq!(error.to_string(), "cannot load cache_in: it needs CAP_PERFMON too, which root has");
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
                let needing = ["counting drops at the final ACK", "the kernel cache"];
                assert!(needing.contains(&facility.name), "{}: {missing}", facility.name);
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
