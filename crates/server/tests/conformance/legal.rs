//! The legal combinations of architecture, `--wake`, driver, mechanism and TLS, beside those of the last change.
//!
//! The other cases leave out what the server refuses. A combination that it begins to refuse would leave them in
//! silence, so it has to leave `legal.txt` first. HTTP/2 has no column: no setting turns it off.

use std::collections::BTreeSet;

use server::{Architecture, Driver, ServeConfig, ServeError, URING, architecture, check};

use super::harness::{Files, MECHANISMS, Variant, alone, chosen};
use super::secure::Identity;

const WAKES: [&str; 7] = ["exclusive", "epoll-exclusive", "one", "mutex", "all", "reuseport", "steered"];
const DRIVERS: [Option<Driver>; 3] = [None, Some(Driver::Readiness), Some(Driver::Completion)];

#[test]
fn legal_combinations_are_those_of_the_table() {
    let _alone = alone();
    let (files, identity) = (Files::new(), Identity::new());
    let mut table = String::new();
    for architecture in architecture::ALL.iter().copied() {
        for wake in std::iter::once(None).chain(WAKES.map(Some)) {
            for driver in DRIVERS {
                let accepted =
                    |secure: bool| accepted(architecture, wake, driver, secure.then_some(&identity), &files);
                let (plain, tls) = (accepted(false), accepted(true));
                let row = |transport: &str, mechanisms: BTreeSet<&str>| {
                    let driver = driver.map_or("-".to_owned(), |driver| driver.to_string());
                    let mechanisms = mechanisms.into_iter().collect::<Vec<_>>().join(" ");
                    let wake = wake.unwrap_or("-");
                    format!("{:<9} {wake:<15} {driver:<10} {transport:<9} {mechanisms}\n", architecture.name)
                };
                match plain == tls {
                    true if plain.is_empty() => {}
                    true => table += &row("plain,tls", plain),
                    false => table += &(row("plain", plain) + &row("tls", tls)),
                }
            }
        }
    }
    let known = include_str!("legal.txt");
    assert!(table == known, "put this into tests/conformance/legal.txt if it is meant:\n{table}");
}

/// The mechanisms that the server accepts with these settings; `-` is the default.
fn accepted(
    architecture: &'static Architecture,
    wake: Option<&str>,
    driver: Option<Driver>,
    identity: Option<&Identity>,
    files: &Files,
) -> BTreeSet<&'static str> {
    let plain = Variant::plain(architecture);
    let is_accepted = |name: &&'static str| {
        let base = identity.map_or_else(|| plain.config(files), |identity| identity.config(&plain, files));
        let dispatch = Some(*name).filter(|name| *name != "-");
        let chosen = wake.map(|wake| chosen("--wake", wake)).unwrap_or_default();
        match check(architecture, ServeConfig { dispatch, driver, chosen, ..base }) {
            Ok(_) => true,
            Err(ServeError::Setting { .. }) => false,
            Err(error) => panic!("{}: {error}", architecture.name),
        }
    };
    MECHANISMS.iter().copied().chain([URING, "-"]).filter(is_accepted).collect()
}
