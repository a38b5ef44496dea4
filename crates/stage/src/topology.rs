//! The topology: the two sides on which server and client run, each paying for its own packets.
//!
//! Owns the choice between two network namespaces and the loopback interface, their addresses and
//! kernel settings, and the CPUs of each side. Starts no process itself.
//!
//! On loopback and on a plain veth pair, the *sender's* CPU does the receiver's packet work. A flood of SYNs then
//! costs the server nothing, and its overload does not show. The cost of refused connections is what makes
//! throughput fall (Banga 1997, section 2.2). In two namespaces with receive packet steering, each side pays for
//! the packets it is sent.
//!
//! For a distant client, `inrush wan` makes the two namespaces and the path between them.
//!
//! Invariant: all changes are made inside our own namespaces, which vanish with this process. The machine's own
//! network never changes.

use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use base::Nanos;
use experiment::Stack;
use record::{Topology as TopologyRecord, TopologyKind};
use sys::network::netlink::Route;
use sys::network::netns::NetworkNamespace;
use sys::process::{Child, Program};

/// The link's name on both sides.
pub const LINK: &str = "inrush0";
/// The source net of TCP in user space on the client's end of the link. The server's side has a route to it.
pub const CLIENT_NET: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 95, 0, 0), 16);
const PREFIX_LENGTH: u8 = 24;
const SERVER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const FIRST_CLIENT_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// The number of the client's addresses, with 64,000 ports each. A port is busy for a minute after its connection
/// (TIME-WAIT), and a minute of one-request connections at 8000/s uses up half a million.
const CLIENT_ADDRESSES: u8 = 8;
/// The name of `inrush wan`'s links, which its documentation promises together with the addresses.
const WAN_LINK: &str = "wan0";
const WAN_SERVER: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 1);
const WAN_FIRST_CLIENT: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 2);
/// The time between two checks whether a program has ended.
const LOOK_EVERY: Nanos = Nanos::from_millis(5);

/// Settings of both namespaces that differ from a new namespace's, which are the kernel's own. Saved metrics would make
/// a run depend on the one before it.
const SYSCTLS: [(&str, &str); 1] = [("net.ipv4.tcp_no_metrics_save", "1")];
/// Further settings of the client's namespace, in which one machine stands for many clients: it must not run out of
/// ports while connections are in TIME-WAIT. The server never sees these settings.
const CLIENT_SYSCTLS: [(&str, &str); 2] =
    [("net.ipv4.ip_local_port_range", "1024 65535"), ("net.ipv4.tcp_tw_reuse", "1")];

/// The warning of a topology whose sides do each other's packet work.
const UNSTEERED: &str = "Only root may steer packets on this link: the sender pays for their arrival.";

/// One of the two sides.
#[derive(Debug)]
pub struct Side {
    /// Its network namespace; `None` for the machine's own.
    namespace: Option<NetworkNamespace>,
    /// The CPUs it runs on, and the only ones that do its packet work.
    pub cpus: Vec<usize>,
    /// Its addresses, at least one, ascending without a gap.
    pub addresses: Vec<Ipv4Addr>,
}

impl Side {
    /// Returns a program that will run on this side.
    pub fn program(&self, path: impl Into<PathBuf>) -> Program<'_> {
        Program::new(path)
            .in_namespace(self.namespace.as_ref().map(NetworkNamespace::as_fd))
            .on_cpus(&self.cpus)
    }

    /// Runs `work` in this side's network, in a thread of its own if needed.
    ///
    /// # Errors
    /// The errors of entering the namespace, and of `work`.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        match &self.namespace {
            Some(namespace) => namespace.enter(work)?,
            None => work(),
        }
    }

    /// Returns a TCP port of this side without a listener.
    ///
    /// # Errors
    /// The errors of bind(2).
    pub fn free_port(&self) -> io::Result<SocketAddr> {
        let address = IpAddr::from(self.addresses[0]);
        self.enter(|| TcpListener::bind((address, 0))?.local_addr())
    }
}

/// The options of a topology. The default is the best topology of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopologyOptions {
    /// The CPUs of both sides; by default those that the calling thread may use. A thread that is pinned to one
    /// side's CPUs must give them.
    pub cpus: Option<Vec<usize>>,
    /// Selects loopback even if namespaces are available.
    pub loopback: bool,
    /// The server's CPUs; by default the first one.
    pub server_cpus: Option<Vec<usize>>,
    /// The client's CPUs; by default all but the server's.
    pub client_cpus: Option<Vec<usize>>,
    /// Kernel settings of both namespaces, which add to our own and override them.
    pub sysctls: Vec<(String, String)>,
    /// Flags of `inrush wan run` for a path between the two sides.
    pub path: Option<Vec<String>>,
}

/// The two sides and how they are joined.
#[derive(Debug)]
pub struct Topology {
    /// The separation of the two sides.
    pub kind: TopologyKind,
    /// The missing abilities of this machine, one sentence each. The report explains the effects of loopback.
    pub warnings: Vec<String>,
    /// The side of the servers.
    pub server: Side,
    /// The side of the load generator.
    pub client: Side,
    /// The process of the path between them. It ends with this value.
    path: Option<Child>,
}

impl Topology {
    /// Returns the load generator's program. If the client's side has its own CPUs, the generator runs before
    /// everything else there. Otherwise the kernel threads that do the client's packet work take turns with it,
    /// and sessions begin late by milliseconds.
    ///
    /// Over TUN it runs in the server's namespace, because the TUN device leads there.
    pub fn generator(&self, path: impl Into<PathBuf>, asked: Stack) -> Program<'_> {
        let side = if self.stack(asked) == Stack::User { &self.server } else { &self.client };
        let program = side.program(path).on_cpus(&self.client.cpus);
        if self.sides_have_own_cpus() { program.real_time() } else { program }
    }

    /// Returns the TCP that the generator can have here in place of the one that the load asks for. AF_XDP is root's
    /// alone. Without namespaces, or without the right to open the TUN device, connections are kernel sockets.
    pub fn stack(&self, asked: Stack) -> Stack {
        let has_namespaces = self.kind == TopologyKind::Namespaces;
        match asked {
            Stack::AfXdp if has_namespaces && rustix::process::geteuid().is_root() => Stack::AfXdp,
            Stack::AfXdp | Stack::User if has_namespaces && sys::network::tun::may_open() => Stack::User,
            _ => Stack::Kernel,
        }
    }

    /// The flags that give the generator's connections their place.
    pub fn place_of_connections(&self, asked: Stack) -> Vec<String> {
        let ((net, length), cpus) = (CLIENT_NET, list(&self.server.cpus));
        let flags = match self.stack(asked) {
            Stack::User => format!("--stack=user --server-cpus={cpus}"),
            Stack::AfXdp => {
                format!("--stack=user --link=af-xdp:{LINK} --source-net={net}/{length} --i-own-this-server")
            }
            Stack::Kernel => format!("--source-ip={}", source_range(&self.client.addresses)),
        };
        flags.split(' ').map(str::to_owned).collect()
    }

    /// Tells whether each side has its own CPUs, so that their busy time is its cost.
    pub fn sides_have_own_cpus(&self) -> bool {
        self.client.cpus.iter().all(|cpu| !self.server.cpus.contains(cpu))
    }

    /// Makes two namespaces with receive steering, or loopback with a warning if this machine does not allow
    /// namespaces.
    ///
    /// # Errors
    /// The CPUs of this thread cannot be read.
    pub fn best() -> io::Result<Topology> {
        Topology::with(&TopologyOptions::default())
    }

    /// Makes the topology of some options as far as this machine allows it, with warnings about the rest.
    ///
    /// # Errors
    /// `InvalidInput` for CPUs that are not ours, and for settings that this kernel lacks or refuses.
    pub fn with(options: &TopologyOptions) -> io::Result<Topology> {
        let cpus = options.cpus.clone().map_or_else(sys::cpu::allowed, Ok)?;
        let sides = sides(&cpus, options)?;
        let one_cpu = cpus.len() < 2;
        let mut topology = match &options.path {
            Some(flags) => Topology::far_away(sides, flags)?.with_settings(options)?,
            None if options.loopback || one_cpu => Topology::loopback(sides).without_settings(options),
            None => Topology::nearby(sides, options)?,
        };
        if one_cpu {
            topology.warnings.push(
                "There is only one CPU: the load generator takes its time from the server, so capacities are low and \
                 what happens past them is a mixture of both."
                    .to_owned(),
            );
        }
        Ok(topology)
    }

    /// Two namespaces, or loopback with a warning where there are none.
    fn nearby(sides: (Vec<usize>, Vec<usize>), options: &TopologyOptions) -> io::Result<Topology> {
        match Topology::namespaces(sides.clone()) {
            Ok(topology) => topology.with_settings(options),
            Err(error) => {
                let mut topology = Topology::loopback(sides);
                topology.warnings.push(format!(
                    "There are no network namespaces here ({error}): they need root or user namespaces."
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

    /// Warns that loopback has no settings to change.
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
        for (namespace, cpus) in [(&server, &server_cpus), (&client, &client_cpus)] {
            // Before Linux 6.3 root steers the link later, and nobody else can.
            let _ = namespace.set_receive_cpus_of_new_devices(cpus);
        }
        server.enter(Route::open)??.create_veth(LINK, client.as_fd(), LINK)?;
        apply(&client, &CLIENT_SYSCTLS)?;
        let server = set_up(server, server_cpus, vec![SERVER_ADDRESS])?;
        let client = set_up(client, client_cpus, client_addresses(FIRST_CLIENT_ADDRESS))?;
        server.enter(|| {
            let (mut route, (net, length)) = (Route::open()?, CLIENT_NET);
            let link = route.link_index(LINK)?;
            route.add_route(net.into(), length, link, Some(FIRST_CLIENT_ADDRESS.into()))
        })?;
        Topology::joined(server, client, None, LINK)
    }

    /// The topology of two namespaces. Each side's CPUs do its packet work, or a warning says that this is root's alone.
    fn joined(server: Side, client: Side, path: Option<Child>, link: &str) -> io::Result<Topology> {
        let (mut warnings, root_alone) = (Vec::new(), io::ErrorKind::PermissionDenied);
        for side in [&server, &client] {
            let steer = |namespace: &NetworkNamespace| namespace.set_receive_cpus(link, &side.cpus);
            match side.namespace.as_ref().map_or(Ok(()), steer) {
                Err(error) if error.kind() == root_alone => warnings = vec![UNSTEERED.to_owned()],
                steered => steered?,
            }
        }
        Ok(Topology { kind: TopologyKind::Namespaces, warnings, server, client, path })
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
        let side = |place: &Path, cpus, addresses| {
            let namespace = NetworkNamespace::of_another(place)?;
            apply(&namespace, &SYSCTLS)?;
            Ok::<_, io::Error>(Side { namespace: Some(namespace), cpus, addresses })
        };
        let server = side(&server, server_cpus, vec![WAN_SERVER])?;
        let client = side(&client, client_cpus, client_addresses(WAN_FIRST_CLIENT))?;
        client.namespace.as_ref().map_or(Ok(()), |namespace| apply(namespace, &CLIENT_SYSCTLS))?;
        Topology::joined(server, client, Some(path), WAN_LINK)
    }

    /// Tells whether the path between the two sides still runs.
    ///
    /// # Errors
    /// None in practice.
    pub fn is_whole(&mut self) -> io::Result<bool> {
        Ok(match &mut self.path {
            Some(path) => path.wait(Nanos::ZERO)?.is_none(),
            None => true,
        })
    }

    /// Returns the topology's record.
    pub fn record(&self) -> TopologyRecord {
        TopologyRecord { kind: self.kind, warnings: self.warnings.clone() }
    }
}

/// Ends what a server left behind, such as the workers of a killed parent.
impl Drop for Topology {
    fn drop(&mut self) {
        // A path's namespaces end with the process that made them.
        if let (None, Some(namespace)) = (&self.path, &self.server.namespace) {
            let _ = namespace.kill_processes();
        }
    }
}

/// Returns the first line of a child's output; `None` if it ends without one.
fn first_line(child: &mut Child) -> Option<String> {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut()?).read_line(&mut line).ok()?;
    let line = line.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

/// Returns the network namespace that a process holds by a descriptor. It is neither ours nor `other`.
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

/// Sets what this kernel has of some settings.
fn apply(namespace: &NetworkNamespace, settings: &[(&str, &str)]) -> io::Result<()> {
    settings.iter().try_for_each(|(name, value)| match namespace.set_sysctl(name, value) {
        // A kernel may lack the setting.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    })
}

/// Writes CPUs as flags take them: `0,2`.
pub fn list(cpus: &[usize]) -> String {
    cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

/// Writes addresses without a gap as a range: `10.77.0.2-9`.
fn source_range(addresses: &[Ipv4Addr]) -> String {
    match addresses {
        [first, .., last] => format!("{first}-{}", last.octets()[3]),
        one => one.iter().map(Ipv4Addr::to_string).collect(),
    }
}

fn client_addresses(first: Ipv4Addr) -> Vec<Ipv4Addr> {
    (0..CLIENT_ADDRESSES).map(|next| Ipv4Addr::from_bits(first.to_bits() + u32::from(next))).collect()
}

/// Gives the first CPU to the server and the others to the client. A single CPU does both.
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

/// Settings, addresses and links of one namespace.
fn set_up(namespace: NetworkNamespace, cpus: Vec<usize>, addresses: Vec<Ipv4Addr>) -> io::Result<Side> {
    apply(&namespace, &SYSCTLS)?;
    let mut route = namespace.enter(Route::open)??;
    let (loopback, link) = (route.link_index("lo")?, route.link_index(LINK)?);
    for address in &addresses {
        route.add_address(link, *address, PREFIX_LENGTH)?;
    }
    route.set_up(loopback)?;
    route.set_up(link)?;
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

    /// Reads settings in the calling thread's namespace; `None` for one that this kernel lacks.
    fn read(names: &[&str]) -> Vec<Option<String>> {
        let read =
            |name: &&str| std::fs::read_to_string(format!("/proc/sys/{}", name.replace('.', "/"))).ok();
        names.iter().map(|name| Some(read(name)?.trim().to_owned())).collect()
    }

    #[test]
    fn the_stage_has_the_kernels_own_settings() {
        let names = [
            "net.ipv4.tcp_syncookies",
            "net.core.somaxconn",
            "net.ipv4.tcp_syn_linear_timeouts",
            "net.ipv4.tcp_max_syn_backlog",
            "net.ipv4.tcp_abort_on_overflow",
            "net.ipv4.tcp_timestamps",
        ];
        let topology = Topology::best().unwrap();
        if topology.kind == TopologyKind::Loopback {
            return println!("skipped: {:?}", topology.warnings);
        }
        let fresh = NetworkNamespace::create().unwrap().enter(|| read(&names)).unwrap();
        assert_eq!(fresh[0].as_deref(), Some("1"), "the kernel answers a full SYN queue with cookies");
        for side in [&topology.server, &topology.client] {
            assert_eq!(side.enter(|| Ok(read(&names))).unwrap(), fresh);
        }
        let server = topology.server.enter(|| Ok(read(&["net.ipv4.ip_local_port_range"]))).unwrap();
        assert_ne!(server[0].as_deref(), Some("1024\t65535"), "the server's ports are the kernel's");
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
    fn client_reaches_server_over_the_best_topology() {
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

    /// The packets that the network stack has received on each CPU. `/proc/net/softnet_stat` has a line for each
    /// CPU: the first column is the count, the thirteenth the CPU's number.
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
    fn packets_for_the_server_run_on_its_own_cpu() {
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
