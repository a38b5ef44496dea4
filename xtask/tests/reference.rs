//! The reference pages agree with the program.

#[test]
fn reference_pages_equal_the_programs_output() {
    if let Err(stale) = manual::check() {
        panic!("{stale}");
    }
}
