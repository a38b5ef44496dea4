//! The topology: the two sides on which server and client run, each paying for its own packets.
//!
//! Owns the choice between two network namespaces and the loopback interface, their addresses and
//! kernel settings, and the CPUs of each side. Starts no process itself.
//!
//! Why it matters: on loopback and on a plain veth pair the *sender's* CPU runs the receiver's packet
//! work, so a flood of SYNs costs the server nothing and the overload result is a fiction (Banga 1997,
//! section 2.2: the cost of a refused connection is what makes throughput fall). In two namespaces
//! with receive packet steering, each side pays for the packets it is sent.
//!
//! A far-away client is one behind `inrush wan`, which makes the two namespaces then, and the path between them.
//!
//! Invariant: whatever is changed is changed inside namespaces of our own, which vanish with this
//! process. The machine's own network is never touched.

use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use base::Nanos;
use experiment::Stack;
use record::{Topology as TopologyRecord, TopologyKind};
use sys::netlink::Route;
use sys::netns::NetworkNamespace;
use sys::process::{Child, Program};

/// The link's name on both sides.
const LINK: &str = "inrush0";
const PREFIX_LENGTH: u8 = 24;
const SERVER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const FIRST_CLIENT_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// The client has this many addresses: 64,000 ports each. A port is busy for a minute after its
/// connection (TIME-WAIT), and a minute of one-request connections at 8000/s uses up half a million.
const CLIENT_ADDRESSES: u8 = 8;
/// What `inrush wan` calls its links and which addresses it gives, part of what it promises.
const WAN_LINK: &str = "wan0";
const WAN_SERVER: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 1);
const WAN_FIRST_CLIENT: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 2);
/// How often a program that is ending is looked at.
const LOOK_EVERY: Nanos = Nanos::from_millis(5);

/// Settings of both namespaces. Cookies would let the SYN queue overflow without a drop; saved metrics
/// and linear SYN time-outs would make a run depend on the one before and on the kernel's age.
const SYSCTLS: [(&str, &str); 9] = [
    ("net.ipv4.tcp_syncookies", "0"),
    ("net.ipv4.tcp_no_metrics_save", "1"),
    ("net.ipv4.tcp_syn_linear_timeouts", "0"),
    // The server's own backlog is to be what bounds its queues.
    ("net.core.somaxconn", "65535"),
    ("net.ipv4.tcp_max_syn_backlog", "65535"),
    ("net.ipv4.ip_local_port_range", "1024 65535"),
    ("net.ipv4.tcp_tw_reuse", "1"),
    ("net.ipv4.tcp_abort_on_overflow", "0"),
    ("net.ipv4.tcp_timestamps", "1"),
];

/// One of the two sides.
#[derive(Debug)]
pub struct Side {
    /// Its network namespace; the machine's own where it has none.
    namespace: Option<NetworkNamespace>,
    /// The CPUs it runs on, and the only ones that do its packet work.
    pub cpus: Vec<usize>,
    /// Its addresses, at least one, ascending without a gap.
    pub addresses: Vec<Ipv4Addr>,
}

impl Side {
    /// A program that will run on this side.
    pub fn program(&self, path: impl Into<PathBuf>) -> Program<'_> {
        Program::new(path)
            .in_namespace(self.namespace.as_ref().map(NetworkNamespace::as_fd))
            .on_cpus(&self.cpus)
    }

    /// Does something in this side's network. May start a thread for it.
    ///
    /// # Errors
    /// Those of entering the namespace, and of `work`.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        match &self.namespace {
            Some(namespace) => namespace.enter(work)?,
            None => work(),
        }
    }

    /// A TCP port of this side where nobody listens at the moment.
    ///
    /// # Errors
    /// Those of bind(2).
    pub fn free_port(&self) -> io::Result<SocketAddr> {
        let address = IpAddr::from(self.addresses[0]);
        self.enter(|| TcpListener::bind((address, 0))?.local_addr())
    }
}

/// What may be asked for. The default is the best there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopologyOptions {
    /// The CPUs that there are for both; those that the calling thread may use if not said. A thread that has
    /// moved to one side's CPUs says so.
    pub cpus: Option<Vec<usize>>,
    /// Loopback, though namespaces could be had.
    pub loopback: bool,
    /// The server's CPUs; the first one if not said.
    pub server_cpus: Option<Vec<usize>>,
    /// The client's; all but the server's if not said.
    pub client_cpus: Option<Vec<usize>>,
    /// Kernel settings of both namespaces beside, and over, our own.
    pub sysctls: Vec<(String, String)>,
    /// Flags of `inrush wan run`, which then lies between the two sides.
    pub path: Option<Vec<String>>,
}

/// The two sides and how they are joined.
#[derive(Debug)]
pub struct Topology {
    /// How they are kept apart.
    pub kind: TopologyKind,
    /// What this machine cannot do, one sentence each. What loopback changes is for the report to say.
    pub warnings: Vec<String>,
    /// Where servers run.
    pub server: Side,
    /// Where load comes from.
    pub client: Side,
    /// What lies between them, gone with this.
    path: Option<Child>,
}

impl Topology {
    /// The load generator. Where the client's side has its CPUs to itself, the generator runs before everything else
    /// there. Otherwise the kernel threads that do the client's packet work take turns with it, and sessions begin
    /// late by milliseconds.
    ///
    /// TCP in user space runs in the server's namespace, because its TUN device leads there.
    pub fn generator(&self, path: impl Into<PathBuf>, stack: Stack) -> Program<'_> {
        let side = if self.carries(stack) { &self.server } else { &self.client };
        let program = side.program(path).on_cpus(&self.client.cpus);
        if self.sides_have_own_cpus() { program.real_time() } else { program }
    }

    /// The flags that give the generator's connections their place.
    pub fn place_of_connections(&self, stack: Stack) -> Vec<String> {
        if self.carries(stack) {
            ["--stack", "user", "--server-cpus", &list(&self.server.cpus)].map(str::to_owned).to_vec()
        } else {
            vec!["--source-ip".to_owned(), source_range(&self.client.addresses)]
        }
    }

    /// Whether it carries packets of TCP in user space. On loopback kernel sockets replace it.
    fn carries(&self, stack: Stack) -> bool {
        stack == Stack::User && self.kind == TopologyKind::Namespaces
    }

    /// Whether each side has CPUs of its own, so that their busy time is its cost.
    pub fn sides_have_own_cpus(&self) -> bool {
        self.client.cpus.iter().all(|cpu| !self.server.cpus.contains(cpu))
    }

    /// Two namespaces with steered packets where the machine allows it, else loopback with a warning.
    ///
    /// # Errors
    /// When not even our own CPUs can be asked for.
    pub fn best() -> io::Result<Topology> {
        Topology::with(&TopologyOptions::default())
    }

    /// What was asked for, as far as the machine allows it, with warnings for the rest.
    ///
    /// # Errors
    /// `InvalidInput` for CPUs that are not ours, and for settings that this kernel does not have or not take.
    pub fn with(options: &TopologyOptions) -> io::Result<Topology> {
        let cpus = options.cpus.clone().map_or_else(sys::cpu::allowed, Ok)?;
        let sides = sides(&cpus, options)?;
        if cpus.len() < 2 {
            let mut topology = Topology::loopback(sides);
            topology.warnings.push(
                "There is only one CPU: the load generator takes its time from the server, so capacities \
                 are low and what happens past them is a mixture of both."
                    .to_owned(),
            );
            return Ok(topology.without_settings(options));
        }
        if let Some(flags) = &options.path {
            return Topology::far_away(sides, flags)?.with_settings(options);
        }
        if options.loopback {
            return Ok(Topology::loopback(sides).without_settings(options));
        }
        match Topology::namespaces(sides.clone()) {
            Ok(topology) => topology.with_settings(options),
            Err(error) => {
                let mut topology = Topology::loopback(sides);
                topology.warnings.push(format!(
                    "There are no network namespaces for server and client ({error}): they need root."
                ));
                Ok(topology.without_settings(options))
            }
        }
    }

    /// Settings of both namespaces.
    fn with_settings(self, options: &TopologyOptions) -> io::Result<Topology> {
        let namespaces = [&self.server, &self.client].map(|side| side.namespace.as_ref());
        for namespace in namespaces.into_iter().flatten() {
            for (name, value) in &options.sysctls {
                namespace.set_sysctl(name, value)?;
            }
        }
        Ok(self)
    }

    /// Says that there is nothing that settings could be changed in.
    fn without_settings(mut self, options: &TopologyOptions) -> Topology {
        if !options.sysctls.is_empty() {
            let names: Vec<&str> = options.sysctls.iter().map(|(name, _)| name.as_str()).collect();
            self.warnings.push(format!(
                "Without network namespaces these settings stay as the machine has them: {}.",
                names.join(", ")
            ));
        }
        self
    }

    /// Server and client on 127.0.0.1, with the machine's settings, on CPUs of their own if there are two.
    fn loopback((server, client): (Vec<usize>, Vec<usize>)) -> Topology {
        let side = |cpus, addresses| Side { namespace: None, cpus, addresses };
        Topology {
            kind: TopologyKind::Loopback,
            warnings: Vec::new(),
            server: side(server, vec![Ipv4Addr::LOCALHOST]),
            // All of 127/8 is this machine.
            client: side(client, client_addresses(Ipv4Addr::new(127, 0, 0, 2))),
            path: None,
        }
    }

    /// Two namespaces joined by a veth pair.
    fn namespaces((server_cpus, client_cpus): (Vec<usize>, Vec<usize>)) -> io::Result<Topology> {
        let (server, client) = (NetworkNamespace::create()?, NetworkNamespace::create()?);
        server.enter(Route::open)??.create_veth(LINK, client.as_fd(), LINK)?;
        let server = set_up(server, server_cpus, vec![SERVER_ADDRESS])?;
        let client = set_up(client, client_cpus, client_addresses(FIRST_CLIENT_ADDRESS))?;
        Ok(Topology { kind: TopologyKind::Namespaces, warnings: Vec::new(), server, client, path: None })
    }

    /// Two namespaces and a path between them, made by `inrush wan` on the client's CPUs.
    fn far_away(
        (server_cpus, client_cpus): (Vec<usize>, Vec<usize>),
        flags: &[String],
    ) -> io::Result<Topology> {
        // The command on the client's side says which process it is, and stays until it is killed.
        let command = ["--", "sh", "-c", "echo $$; exec sleep infinity"].map(str::to_owned);
        let mut path = Program::new(sys::process::this_program()?)
            .arguments(["wan", "run"])
            .arguments(flags)
            .arguments(command)
            .on_cpus(&client_cpus)
            .start()?;
        let Some(process) = first_line(&mut path) else {
            let output = path.output(LOOK_EVERY, || true)?;
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(io::Error::other(format!("inrush wan: {said}")));
        };
        let client = PathBuf::from(format!("/proc/{process}/ns/net"));
        let server = held_by(path.id(), &client)?;
        let sides = [(server, &server_cpus), (client, &client_cpus)].map(|(place, cpus)| {
            let namespace = NetworkNamespace::of_another(&place)?;
            apply_settings(&namespace)?;
            namespace.set_receive_cpus(WAN_LINK, cpus)?;
            Ok::<_, io::Error>(namespace)
        });
        let [server, client] = sides;
        Ok(Topology {
            kind: TopologyKind::Namespaces,
            warnings: Vec::new(),
            server: Side { namespace: Some(server?), cpus: server_cpus, addresses: vec![WAN_SERVER] },
            client: Side {
                namespace: Some(client?),
                cpus: client_cpus,
                addresses: client_addresses(WAN_FIRST_CLIENT),
            },
            path: Some(path),
        })
    }

    /// Whether what lies between the two sides still works.
    ///
    /// # Errors
    /// None in practice.
    pub fn is_whole(&mut self) -> io::Result<bool> {
        Ok(match &mut self.path {
            Some(path) => path.wait(Nanos::ZERO)?.is_none(),
            None => true,
        })
    }

    /// What a report says about it.
    pub fn record(&self) -> TopologyRecord {
        TopologyRecord { kind: self.kind, warnings: self.warnings.clone() }
    }
}

/// The first line that a child writes; nothing when it ends without one.
fn first_line(child: &mut Child) -> Option<String> {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut()?).read_line(&mut line).ok()?;
    let line = line.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

/// The network namespace that a process holds by a descriptor, and that is neither ours nor this other one.
fn held_by(process: u32, other: &Path) -> io::Result<PathBuf> {
    let known = [std::fs::read_link(other)?, std::fs::read_link("/proc/self/ns/net")?];
    for entry in std::fs::read_dir(format!("/proc/{process}/fd"))? {
        let place = entry?.path();
        let is_new =
            |target: &PathBuf| target.to_string_lossy().starts_with("net:[") && !known.contains(target);
        if std::fs::read_link(&place).is_ok_and(|target| is_new(&target)) {
            return Ok(place);
        }
    }
    Err(io::Error::new(io::ErrorKind::NotFound, "the path has no namespace for the server"))
}

/// Our settings, as far as this kernel has them.
fn apply_settings(namespace: &NetworkNamespace) -> io::Result<()> {
    for (name, value) in SYSCTLS {
        match namespace.set_sysctl(name, value) {
            // An older or newer kernel without the setting has nothing to be set.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
    }
    Ok(())
}

/// `0,2`, as flags have lists of CPUs.
pub fn list(cpus: &[usize]) -> String {
    cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

/// `10.77.0.2-9`, for addresses without a gap.
fn source_range(addresses: &[Ipv4Addr]) -> String {
    match addresses {
        [first, .., last] => format!("{first}-{}", last.octets()[3]),
        one => one.iter().map(Ipv4Addr::to_string).collect(),
    }
}

fn client_addresses(first: Ipv4Addr) -> Vec<Ipv4Addr> {
    (0..CLIENT_ADDRESSES).map(|next| Ipv4Addr::from_bits(first.to_bits() + u32::from(next))).collect()
}

/// The first CPU serves, the others offer load; a single one does both.
fn split_cpus(cpus: &[usize]) -> (Vec<usize>, Vec<usize>) {
    match cpus {
        [server, client @ ..] if !client.is_empty() => (vec![*server], client.to_vec()),
        _ => (cpus.to_vec(), cpus.to_vec()),
    }
}

/// The CPUs of both sides.
fn sides(allowed: &[usize], options: &TopologyOptions) -> io::Result<(Vec<usize>, Vec<usize>)> {
    for cpu in options.server_cpus.iter().chain(&options.client_cpus).flatten() {
        if !allowed.contains(cpu) {
            let wrong = format!("CPU {cpu} is not ours; there are {allowed:?}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, wrong));
        }
    }
    let (first, others) = split_cpus(allowed);
    let server = options.server_cpus.clone().unwrap_or(first);
    let rest: Vec<usize> = allowed.iter().copied().filter(|cpu| !server.contains(cpu)).collect();
    let client = options.client_cpus.clone().unwrap_or(if rest.is_empty() { others } else { rest });
    Ok((server, client))
}

/// Settings, addresses, links and packet steering of one namespace.
fn set_up(namespace: NetworkNamespace, cpus: Vec<usize>, addresses: Vec<Ipv4Addr>) -> io::Result<Side> {
    apply_settings(&namespace)?;
    let mut route = namespace.enter(Route::open)??;
    let (loopback, link) = (route.link_index("lo")?, route.link_index(LINK)?);
    for address in &addresses {
        route.add_address(link, *address, PREFIX_LENGTH)?;
    }
    route.set_up(loopback)?;
    route.set_up(link)?;
    namespace.set_receive_cpus(LINK, &cpus)?;
    Ok(Side { namespace: Some(namespace), cpus, addresses })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    #[test]
    fn the_sides_share_no_cpu_where_there_are_two() {
        assert_eq!(split_cpus(&[3]), (vec![3], vec![3]));
        assert_eq!(split_cpus(&[0, 1]), (vec![0], vec![1]));
        assert_eq!(split_cpus(&[0, 1, 2, 3]), (vec![0], vec![1, 2, 3]));
    }

    #[test]
    fn the_cpus_of_a_side_can_be_chosen_among_ours() {
        let options =
            |server: Option<Vec<usize>>| TopologyOptions { server_cpus: server, ..Default::default() };
        assert_eq!(sides(&[0, 1, 2], &options(Some(vec![1]))).unwrap(), (vec![1], vec![0, 2]));
        assert_eq!(sides(&[0, 1], &options(Some(vec![0, 1]))).unwrap(), (vec![0, 1], vec![1]));
        assert_eq!(sides(&[0, 1], &options(None)).unwrap(), (vec![0], vec![1]));
        let error = sides(&[0, 1], &options(Some(vec![7]))).unwrap_err().to_string();
        assert_eq!(error, "CPU 7 is not ours; there are [0, 1]");
    }

    #[test]
    fn a_setting_that_the_kernel_does_not_have_is_named() {
        let setting = ("net.ipv4.no_such_setting".to_owned(), "1".to_owned());
        match Topology::with(&TopologyOptions { sysctls: vec![setting], ..Default::default() }) {
            Ok(topology) => assert!(topology.warnings.last().unwrap().contains("no_such_setting")),
            Err(error) => {
                assert!(error.to_string().starts_with("set net.ipv4.no_such_setting to 1"), "{error}")
            }
        }
    }

    #[test]
    fn the_client_reaches_the_server_over_the_best_topology_there_is() {
        let topology = Topology::best().unwrap();
        println!("{:?}: {:?}", topology.kind, topology.warnings);
        let address = IpAddr::from(topology.server.addresses[0]);
        let listener = topology.server.enter(|| TcpListener::bind((address, 0))).unwrap();
        let bound = listener.local_addr().unwrap();
        let mut client = topology.client.enter(|| TcpStream::connect(bound)).unwrap();
        listener.accept().unwrap().0.write_all(b"through").unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        assert_eq!(text, "through");
        assert_eq!(topology.kind == TopologyKind::Loopback, !topology.warnings.is_empty());
    }

    #[test]
    fn programs_run_on_the_cpus_of_their_side() {
        let topology = Topology::best().unwrap();
        for side in [&topology.server, &topology.client] {
            let program = side.program("sh").arguments(["-c", "grep Cpus_allowed: /proc/self/status"]);
            let output = program.start().unwrap().output(base::Nanos::MILLISECOND, || true).unwrap();
            let mask = String::from_utf8_lossy(&output.stdout).replace(',', "");
            let mask = u128::from_str_radix(mask.split_whitespace().last().unwrap(), 16).unwrap();
            assert_eq!(mask, side.cpus.iter().map(|cpu| 1_u128 << cpu).sum::<u128>());
        }
    }

    /// Packets that each CPU's share of the network stack has taken in (`/proc/net/softnet_stat`: a line
    /// a CPU, its first column; the thirteenth is the CPU's number).
    fn packets_of(cpu: usize) -> u64 {
        let text = std::fs::read_to_string("/proc/net/softnet_stat").unwrap();
        let number = |word: Option<&str>| u64::from_str_radix(word.unwrap(), 16).unwrap();
        let mut lines = text.lines().map(|line| line.split_whitespace());
        let line = lines.find(|line| number(line.clone().nth(12)) == cpu as u64).unwrap();
        number(line.clone().next())
    }

    #[test]
    fn source_addresses_are_written_as_a_range() {
        let addresses = [2, 3, 9].map(|last| Ipv4Addr::new(10, 77, 0, last));
        assert_eq!(source_range(&addresses), "10.77.0.2-9");
        assert_eq!(source_range(&addresses[..1]), "10.77.0.2");
    }

    #[test]
    fn packets_for_the_server_are_worked_on_by_its_own_cpu() {
        const ATTEMPTS: u64 = 500;
        let topology = Topology::best().unwrap();
        if topology.kind == TopologyKind::Loopback {
            return println!("skipped: {:?}", topology.warnings);
        }
        let closed = topology.server.free_port().unwrap();
        let before = packets_of(topology.server.cpus[0]);
        let attempt = || {
            sys::cpu::pin(&topology.client.cpus)?;
            (0..ATTEMPTS).for_each(|_| assert!(TcpStream::connect(closed).is_err()));
            Ok(())
        };
        topology.client.enter(attempt).unwrap();
        assert!(packets_of(topology.server.cpus[0]) >= before + ATTEMPTS);
    }
}
