//! The library as a C program sees it: installed into a folder, compiled against with the system's C
//! compiler, linked both ways, and run. If the system has valgrind, the program runs under it too.

#[path = "c_library/installation.rs"]
mod installation;
#[path = "c_library/server.rs"]
mod server;

use std::mem::{align_of, offset_of, size_of};

use fdm::{FDM_TIMEOUT, FdmEvent};
use libc::{c_int, c_uint, c_void, pollfd, timeval};

use installation::{Installation, Linked};

/// Makes the same demands on the functions that `interface.c` makes on the header's declarations.
const _: () = {
    let _: extern "C" fn() -> c_int = fdm::fdm_start;
    let _: extern "C" fn() -> c_int = fdm::fdm_stop;
    let _: unsafe extern "C" fn(*const pollfd, c_int) -> c_int = fdm::fdm_reg_fd;
    let _: extern "C" fn(c_int) -> c_int = fdm::fdm_unreg_fd;
    let _: unsafe extern "C" fn(*const pollfd, *mut c_void, *mut timeval) -> c_int = fdm::fdm_update_fd_mode;
    let _: unsafe extern "C" fn(*mut FdmEvent, c_uint, c_int) -> c_int = fdm::fdm_wait_event;
};

#[test]
fn the_header_says_what_the_library_is() {
    let installation = Installation::new();
    installation.accepts_header("cc", &["-std=c99", "-x", "c"]);
    if sys::process::find_program("c++").is_some() {
        installation.accepts_header("c++", &["-std=c++11", "-x", "c++"]);
    } else {
        println!("skipped: no C++ compiler: c++ is not installed");
    }
    let layout = format!(
        "size {}\nalign {}\nfd {}\nevents {}\npayload {}\nFDM_TIMEOUT {FDM_TIMEOUT}\n",
        size_of::<FdmEvent>(),
        align_of::<FdmEvent>(),
        offset_of!(FdmEvent, fd),
        offset_of!(FdmEvent, events),
        offset_of!(FdmEvent, payload),
    );
    for linked in [Linked::Shared, Linked::Static] {
        let program = installation.compile("crates/fdm/tests/interface.c", linked);
        assert_eq!(installation::output(program.to_str().unwrap(), &[]), layout, "{linked:?}");
        if let Some((valgrind, arguments)) = installation::under_valgrind(&program) {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            assert_eq!(installation::output(&valgrind, &arguments), layout, "{linked:?}");
        }
    }
}

#[test]
fn shared_library_exports_header_with_versions() {
    let installation = Installation::new();
    let mut declared = installation.declared();
    declared.sort_unstable();
    assert_eq!(declared.len(), 8, "{declared:?}");
    if sys::process::find_program("nm").is_none() {
        return println!("skipped: the exported symbols cannot be listed: nm is not installed");
    }
    let library = installation.library();
    let listed = installation::output("nm", &["-D", "--defined-only", library.to_str().unwrap()]);
    // The node of the version script is a symbol of its own, of type A.
    let symbols = listed.lines().filter(|line| !line.contains(" A "));
    let mut exported: Vec<&str> = symbols.filter_map(|line| line.split_whitespace().nth(2)).collect();
    exported.sort_unstable();
    let versioned: Vec<String> = declared.iter().map(|name| format!("{name}@@FDM_1")).collect();
    assert_eq!(exported, versioned);
}

#[test]
fn the_example_serves_with_the_shared_library() {
    server::serves(&Installation::new(), Linked::Shared);
}

#[test]
fn the_example_serves_with_the_static_library() {
    server::serves(&Installation::new(), Linked::Static);
}
