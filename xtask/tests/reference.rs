//! The reference pages agree with the program.

#[test]
fn the_reference_pages_are_those_that_the_program_writes() {
    if let Err(stale) = manual::check() {
        panic!("{stale}");
    }
}
