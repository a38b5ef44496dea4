use super::*;

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

/// One test, because a process has one library and tests run at the same time.
#[test]
fn a_call_is_alone_and_no_panic_leaves_it() {
    assert_eq!(call(|_| Ok(7)), 7);

    let overlapping = call(|_| {
        Ok(std::thread::scope(|scope| {
            scope.spawn(|| if fdm_start() == -1 { errno() } else { 0 }).join().unwrap()
        }))
    });
    assert_eq!(overlapping, libc::EBUSY);
    assert_eq!(call(|_| Ok(if fdm_stop() == -1 { errno() } else { 0 })), libc::EBUSY);

    assert_eq!(fdm_start(), 0);
    let outcome = (call(|_| panic!("a fault")), errno());
    assert_eq!(outcome, (-1, libc::ENOTRECOVERABLE));
    assert_eq!((fdm_unreg_fd(0), errno()), (-1, libc::ENXIO));
    assert_eq!((fdm_start(), fdm_stop()), (0, 0));
}

#[test]
fn times_have_normal_form() {
    let given = |tv_sec, tv_usec| span(&timeval { tv_sec, tv_usec });
    assert_eq!(given(1, 500_000), Ok(Nanos::from_millis(1500)));
    assert_eq!(given(i64::MAX, 999_999), Ok(Nanos::MAX));
    for (seconds, micros) in [(-1, 0), (0, -1), (0, 1_000_000)] {
        assert_eq!(given(seconds, micros), Err(Error::Invalid));
    }
}
