//! Forked children, in a process that has no other children.

use std::io::ErrorKind;

use sys::process::Children;

#[test]
fn a_process_with_several_threads_does_not_fork() {
    // The test runner has threads.
    let children = Children::new().unwrap();
    assert_eq!(children.fork().unwrap_err().kind(), ErrorKind::Unsupported);
    assert!(matches!(children.reap(), Ok(None)));
}
