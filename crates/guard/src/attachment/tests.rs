//! Every hook refuses the SYNs of a listener in another process, and is gone with its own process.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use base::{Clock, Nanos, PerSecond, RealClock};
use bpf::admission::Limits;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use sys::network::netlink::{Route, SocketDiagnostics};
use sys::network::netns::NetworkNamespace;
use sys::process::Program;

use super::*;
use crate::parts::Parts;
use crate::search::owner::holders;

/// The hook and the address, in the environment of a child that the test kills.
const HOLD: &str = "INRUSH_TEST_GUARD";
/// Limits that nothing ends but the end of the program.
pub(crate) const FOR_EVER: Limits =
    Limits { interval: Nanos::from_secs(1000), burst: Nanos::ZERO, new_are_free: false, until: None };
/// The time after which the child gives up.
const PATIENCE: Nanos = Nanos::from_secs(60);

pub(crate) fn choice(name: &str) -> HookChoice {
    match name {
        "cgroup" => HookChoice::Cgroup,
        "tc" => HookChoice::Tc,
        "xdp" => HookChoice::Xdp,
        _ => HookChoice::Sink,
    }
}

/// An attachment, and the parts that the law uses.
struct Held {
    parts: Parts,
    attachment: Attachment,
}

/// Attaches to the listeners at an address of this namespace.
fn attach(hook: HookChoice, address: SocketAddr) -> Result<Held, GuardError> {
    let signal = if hook == HookChoice::Sink { SignalChoice::Queue } else { SignalChoice::Auto };
    attach_as(&Wanted { signal, hook: Some(hook), ..Wanted::default() }, address)
}

fn attach_as(wanted: &Wanted, address: SocketAddr) -> Result<Held, GuardError> {
    let place = Place { address: address.to_string().parse().unwrap(), namespace: None };
    let listeners = SocketDiagnostics::open()?.listeners(address.port())?;
    let inodes: Vec<u32> = listeners.iter().map(|listener| listener.inode).collect();
    let holdings: Vec<Holding> = holders(&inodes).into_values().flatten().collect();
    let found = Found { place: &place, listeners: &listeners, holdings: &holdings };
    let mut attachment = Attachment::make(wanted, found)?;
    let (description, descriptors) = attachment.hand_over()?;
    Ok(Held { parts: Parts::open(description, descriptors, wanted.salt, &wanted.exempt)?, attachment })
}

/// Admits nearly nothing.
pub(crate) fn refuse(parts: &mut Parts) {
    let (rate, all) = (PerSecond(0.001), overload::Admission::ALL);
    let nothing = overload::Admission { rate, share: 1e-9, new_are_free: false, ..all };
    parts.hook().unwrap().admit(&nothing).unwrap();
}

/// Makes limits last for ever, so that only the end of the attachment ends them.
fn last_for_ever(held: &Held) {
    match &held.attachment.hook {
        Some(Refuser::Cgroup) => {
            held.attachment.programs.as_ref().unwrap().memory().table().limit(0, &FOR_EVER);
        }
        Some(Refuser::Devices(_, admission, _)) => admission.table().limit(0, &FOR_EVER),
        _ => {}
    }
}

/// Refuses nearly everything and waits for its end. Prints a line when it has begun, and when it has refused.
fn hold(order: &str) {
    let [end, hook, address] = order.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let mut held = match attach(choice(hook), address.parse().unwrap()) {
        Ok(held) => held,
        Err(error) => return println!("skipped: {error}"),
    };
    refuse(&mut held.parts);
    println!("attached");
    let clock = RealClock::new();
    let until = clock.now() + PATIENCE;
    while held.parts.syns().1 == 0 && clock.now() < until {
        refuse(&mut held.parts);
        sys::readiness::poll::wait(&mut [], Some(Nanos::MILLISECOND)).unwrap();
    }
    if end == "kill" {
        last_for_ever(&held);
    }
    println!("refused {}", held.parts.syns().1);
    std::io::stdout().flush().unwrap();
    loop {
        std::thread::park();
    }
}

/// Begins connections whose SYNs meet the hook before this returns.
pub(crate) fn knock(address: SocketAddr) -> Vec<std::os::fd::OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let connect = |_| {
        let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
        let _ = rustix::net::connect(&socket, &address);
        socket
    };
    (0..4).map(connect).collect()
}

/// A network namespace with loopback; `None` where this user may not make one.
pub(crate) fn namespace() -> Option<NetworkNamespace> {
    match NetworkNamespace::create() {
        Ok(here) => {
            here.enter(|| Route::open().and_then(|mut route| route.set_up(1))).unwrap().unwrap();
            Some(here)
        }
        Err(error) => {
            println!("skipped: no network namespaces here: {error}");
            None
        }
    }
}

/// A guard in a process of its own refuses, and ends so. Everybody must be admitted then.
fn check_end(test: &str, end: &str, hooks: &[&str]) {
    if let Ok(order) = std::env::var(HOLD) {
        return hold(&order);
    }
    let Some(here) = namespace() else { return };
    for hook in hooks {
        let listener = here.enter(|| TcpListener::bind("127.0.0.1:0")).unwrap().unwrap();
        let address = listener.local_addr().unwrap();
        let mut child = Program::new(sys::process::this_program().unwrap())
            .arguments(["--exact", &format!("attachment::tests::{test}"), "--nocapture"])
            .environment(HOLD, format!("{end} {hook} {address}"))
            .in_namespace(Some(here.as_fd()))
            .start()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let said =
            lines.find(|line| line.contains("attached") || line.contains("skipped")).unwrap_or_default();
        if said.contains("skipped") {
            println!("{hook}: {said}");
            continue;
        }
        assert!(said.ends_with("attached"), "{hook}: it ended by itself: {said}");
        let waiting = here.enter(|| knock(address)).unwrap();
        let refused = lines.find(|line| line.contains("refused")).unwrap_or_default();
        assert!(refused.starts_with("refused ") && refused != "refused 0", "{hook}: {refused}");
        if end == "kill" {
            child.kill().unwrap();
            while child.wait(Nanos::SECOND).unwrap().is_none() {}
        } else {
            child.signal(rustix::process::Signal::STOP).unwrap();
        }
        drop(waiting);
        let connect = || TcpStream::connect_timeout(&address, Duration::from_secs(30)).unwrap();
        here.enter(|| (0..16).for_each(|_| drop(connect()))).unwrap();
        let _ = child.kill();
    }
}

#[test]
fn killed_guards_leave_every_hook_open() {
    check_end("killed_guards_leave_every_hook_open", "kill", &["cgroup", "tc", "xdp", "sink"]);
}

#[test]
fn limits_of_stopped_guards_run_out() {
    // The program of a sink has no clock.
    check_end("limits_of_stopped_guards_run_out", "stop", &["cgroup", "tc", "xdp"]);
}

#[test]
fn refused_clients_are_reset_on_request() {
    let Some(here) = namespace() else { return };
    let enter = |work: &mut (dyn FnMut() + Send)| here.enter(work).unwrap();
    enter(&mut || {
        for bind in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(bind) else {
                println!("skipped: no address for {bind}");
                continue;
            };
            let address = listener.local_addr().unwrap();
            let wanted =
                Wanted { hook: Some(HookChoice::Auto), refusal: Refusal::Reset, ..Wanted::default() };
            let mut held = match attach_as(&wanted, address) {
                Ok(held) => held,
                Err(error) => return println!("skipped: {error}"),
            };
            assert_eq!(held.parts.hook_name(), "tc");
            let connect = || TcpStream::connect_timeout(&address, Duration::from_secs(30));
            connect().unwrap();
            refuse(&mut held.parts);
            last_for_ever(&held);
            let refused = (0..20).find_map(|_| connect().err()).expect("the bucket has few tokens");
            assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused, "{bind}: {refused}");
            held.parts.hook().unwrap().admit(&overload::Admission::ALL).unwrap();
            connect().unwrap();
        }
    });
}

#[test]
fn other_hooks_cannot_reset() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    for hook in [HookChoice::Cgroup, HookChoice::Xdp, HookChoice::Sink] {
        let signal = SignalChoice::Queue;
        let wanted = Wanted { signal, hook: Some(hook), refusal: Refusal::Reset, ..Wanted::default() };
        let error = attach_as(&wanted, listener.local_addr().unwrap()).err().unwrap().to_string();
        assert!(error.starts_with("--refuse rst needs the hook tc"), "{error}");
    }
}

#[test]
fn sink_leaves_the_address_to_its_server() {
    // An address of its own: a client of a test beside this one may get the port while nobody listens there.
    let listener = TcpListener::bind("127.0.9.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut held = match attach(HookChoice::Sink, address) {
        Ok(held) => held,
        Err(error) => return println!("skipped: {error}"),
    };
    assert!(rustix::net::sockopt::socket_reuseport(&listener).unwrap(), "for the sink");
    TcpStream::connect(address).unwrap();
    drop(held.parts);
    held.attachment.release();
    assert!(!rustix::net::sockopt::socket_reuseport(&listener).unwrap(), "as before");
    TcpStream::connect(address).unwrap();
    drop(listener);
    // A child of a test beside this one has copies of all descriptors until it executes its program.
    let mut diagnostics = SocketDiagnostics::open().unwrap();
    let clock = RealClock::new();
    let until = clock.now() + PATIENCE;
    while !diagnostics.listeners(address.port()).unwrap().is_empty() && clock.now() < until {
        sys::readiness::poll::wait(&mut [], Some(Nanos::MILLISECOND)).unwrap();
    }
    TcpListener::bind(address).unwrap();
}

#[test]
fn sink_refuses_none_of_the_exempt() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let exempt = Exempt::new(vec!["127.0.0.0/8".parse().unwrap()]).unwrap().with_steady_sources(true);
    let (signal, hook) = (SignalChoice::Queue, Some(HookChoice::Sink));
    let mut held = match attach_as(&Wanted { signal, hook, exempt, ..Wanted::default() }, address) {
        Ok(held) => held,
        Err(error) => return println!("skipped: {error}"),
    };
    let text = held.attachment.to_string();
    assert!(text.ends_with("sink, which does not know steady clients from others"), "{text}");
    refuse(&mut held.parts);
    for _ in 0..20 {
        let client = TcpStream::connect(address).unwrap();
        assert_eq!(sys::socket::sent_again(client.as_fd()).unwrap(), 0, "the sink refused its SYN");
    }
}

#[test]
fn sink_beside_a_group_names_other_hooks() {
    use rustix::net::sockopt::set_socket_reuseport;
    let mut address = "127.0.0.1:0".parse::<SocketAddr>().unwrap();
    let _group = [(); 2].map(|()| {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        set_socket_reuseport(&socket, true).unwrap();
        rustix::net::bind(&socket, &address).unwrap();
        rustix::net::listen(&socket, 8).unwrap();
        address = rustix::net::getsockname(&socket).unwrap().try_into().unwrap();
        socket
    });
    let error = attach(HookChoice::Sink, address).map(drop).unwrap_err().to_string();
    assert!(error.contains("there are 2") && error.contains("--hook cgroup"), "{error}");
}

#[test]
fn programs_are_attached_to_the_outermost_cgroups() {
    let all = ["/a", "/a/b", "/ab", "/c/d"].map(PathBuf::from);
    let inside: Vec<&PathBuf> = all.iter().filter(|folder| is_inside_another(folder, &all)).collect();
    assert_eq!(inside, [Path::new("/a/b")]);
}
