//! The filter of system calls, in a process of its own: it stays until the end.

use std::io::ErrorKind::PermissionDenied;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;

use confine::{Calls, Facility, probe};

#[test]
fn a_process_makes_the_calls_it_keeps_and_no_others() {
    if probe()[1] == Facility::Missing {
        return println!("skipped: this kernel has no seccomp filters");
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let connected = TcpStream::connect(address).unwrap();
    // A thread that runs already is confined as well.
    let (go, wait) = std::sync::mpsc::channel();
    let other = std::thread::spawn(move || {
        wait.recv().unwrap();
        TcpStream::connect(address).unwrap_err().kind()
    });
    Calls { processes: true, ..Calls::default() }.restrict().unwrap();
    assert!(std::fs::File::open("/dev/null").is_ok());
    assert!(listener.accept().is_ok());
    assert_eq!(connected.peer_addr().unwrap(), address);
    assert_eq!(TcpListener::bind("127.0.0.1:0").unwrap_err().kind(), PermissionDenied);
    assert_eq!(std::fs::rename("/no/such/file", "/no/other").unwrap_err().kind(), PermissionDenied);
    assert_eq!(rustix::fs::fchmod(listener.as_fd(), 0o777.into()), Err(rustix::io::Errno::PERM));
    go.send(()).unwrap();
    assert_eq!(other.join().unwrap(), PermissionDenied);
    // A second filter refuses more, and gives nothing back.
    let own = || rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty());
    assert!(own().is_ok());
    Calls { rings: true, ..Calls::default() }.restrict().unwrap();
    assert_eq!(own().unwrap_err(), rustix::io::Errno::PERM);
    assert_eq!(TcpListener::bind("127.0.0.1:0").unwrap_err().kind(), PermissionDenied);
}
