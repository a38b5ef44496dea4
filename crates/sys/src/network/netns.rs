//! Network namespaces without the `ip` tool.
//!
//! Owns creating a namespace, running code in it, its sysctls, the CPUs of its receive work, and ending its
//! processes. `netlink` owns links and addresses; `process` starts processes in a namespace.
//!
//! A namespace is anonymous: it has no name in the file system. It exists while a process holds a descriptor
//! of it or runs in it. It vanishes with this process, however that ends, with its links, addresses and
//! settings. Nothing needs cleaning up.
//!
//! Invariant: only a thread made for the purpose changes its namespace. A socket stays in the namespace that
//! it was opened in, so any thread may use a socket that was opened inside [`NetworkNamespace::enter`].

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags, RawDir, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

/// The steering of devices to come, of the reader's namespace.
const RECEIVE_CPUS_OF_NEW_DEVICES: &str = "/proc/sys/net/core/rps_default_mask";

/// A network namespace of this process.
#[derive(Debug)]
pub struct NetworkNamespace {
    fd: OwnedFd,
}

impl NetworkNamespace {
    /// A new namespace with only a loopback link, which is down.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_SYS_ADMIN; `OutOfMemory` or `ENOSPC` if the machine allows no more
    /// namespaces.
    pub fn create() -> io::Result<NetworkNamespace> {
        let helper = thread::spawn(|| {
            // SAFETY: unshare(2) is unsafe because of the effect of CLONE_FILES on descriptors. CLONE_NEWNET
            // changes only the network namespace of this thread, which ends right after.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
            File::open("/proc/thread-self/ns/net")
        });
        let file = helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(NetworkNamespace { fd: file.into() })
    }

    /// The namespace of another process, by its path under `/proc`: `/proc/1234/ns/net`, or the path of a
    /// descriptor of the namespace that the process holds, `/proc/1234/fd/5`.
    ///
    /// # Errors
    /// `NotFound` if the process or its descriptor is gone; `PermissionDenied` if this user may not open it.
    pub fn of_another(place: &Path) -> io::Result<NetworkNamespace> {
        Ok(NetworkNamespace { fd: File::open(place)?.into() })
    }

    /// Runs `work` on a thread of its own inside the namespace and waits for it.
    ///
    /// # Errors
    /// The errors of setns(2). The caller handles the value that `work` returns.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        thread::scope(|scope| {
            let helper = scope.spawn(|| {
                move_into_link_name_space(self.fd.as_fd(), Some(LinkNameSpaceType::Network))?;
                Ok(work())
            });
            helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// A path to the namespace for other programs, such as nsenter(1), valid while this value exists.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", rustix::process::getpid(), self.fd.as_raw_fd()).into()
    }

    /// Every visible process in the namespace, by the namespace of its first thread.
    ///
    /// # Errors
    /// The errors of reading /proc.
    pub fn processes(&self) -> io::Result<Vec<Pid>> {
        let wanted = rustix::fs::fstat(&self.fd)?;
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw) else {
                continue;
            };
            // The process may have ended, or this user may not see its namespace.
            let Ok(network) = rustix::fs::stat(format!("/proc/{pid}/ns/net")) else { continue };
            if (network.st_dev, network.st_ino) == (wanted.st_dev, wanted.st_ino) {
                found.push(pid);
            }
        }
        Ok(found)
    }

    /// Kills every process in the namespace until there is none, including new ones. Returns
    /// the number of killed processes. Blocks until they are gone.
    ///
    /// # Errors
    /// The errors of [`processes`](Self::processes); EPERM for a process that this user may see and not kill.
    pub fn kill_processes(&self) -> io::Result<usize> {
        let mut killed = 0;
        loop {
            let mut dying = Vec::new();
            for pid in self.processes()? {
                let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
                // Another process may have the number by now. The descriptor now holds it, so check
                // again.
                if !self.processes()?.contains(&pid) {
                    continue;
                }
                match pidfd_send_signal(&pidfd, Signal::KILL) {
                    Ok(()) => dying.push(pidfd),
                    Err(rustix::io::Errno::SRCH) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
            if dying.is_empty() {
                return Ok(killed);
            }
            killed += dying.len();
            for pidfd in &dying {
                rustix::io::retry_on_intr(|| poll(&mut [PollFd::new(pidfd, PollFlags::IN)], None))?;
            }
        }
    }

    /// Sets a sysctl under `net.`, such as `net.ipv4.tcp_syncookies`, for this namespace alone.
    ///
    /// # Errors
    /// `NotFound` if this kernel has no such setting, or none for each namespace; `InvalidInput` if it
    /// refuses the value. The error names the setting.
    pub fn set_sysctl(&self, name: &str, value: &str) -> io::Result<()> {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        self.enter(|| fs::write(&path, value))?
            .map_err(|error| io::Error::new(error.kind(), format!("set {name} to {value}: {error}")))
    }

    /// Assigns the packets of devices that are made in this namespace from now on to these CPUs. Unlike
    /// [`set_receive_cpus`](Self::set_receive_cpus), whoever made the namespace may do so.
    ///
    /// # Errors
    /// `NotFound` before Linux 6.3.
    pub fn set_receive_cpus_of_new_devices(&self, cpus: &[usize]) -> io::Result<()> {
        self.enter(|| fs::write(RECEIVE_CPUS_OF_NEW_DEVICES, cpu_mask(cpus)))?
    }

    /// Calls [`steer_receive`] for a device of this namespace.
    ///
    /// # Errors
    /// The errors of [`steer_receive`].
    pub fn set_receive_cpus(&self, device: &str, cpus: &[usize]) -> io::Result<()> {
        self.enter(|| steer_receive(device, cpus))?
    }
}

/// Assigns the packets that arrive at a device of the calling thread's namespace to these CPUs. Without it
/// the CPU that sent a packet works on it. This is receive packet steering (the kernel's
/// Documentation/networking/scaling.rst).
///
/// A sysfs shows the network namespace that it was mounted in, so this function mounts one. The mount is
/// detached, invisible to other processes, and gone when the function returns.
///
/// Without the right to steer a device, it is enough that the namespace steers new devices in this way.
///
/// # Errors
/// `PermissionDenied` without CAP_SYS_ADMIN; `NotFound` if there is no such device or the kernel has no RPS;
/// `ENOSYS` before Linux 5.2.
pub fn steer_receive(device: &str, cpus: &[usize]) -> io::Result<()> {
    match write_receive_mask(device, &cpu_mask(cpus)) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && new_devices_have(cpus) => Ok(()),
        steered => steered
            .map_err(|error| io::Error::new(error.kind(), format!("steer packets of {device}: {error}"))),
    }
}

/// Runs `make`, and assigns the packets of the devices that `make` adds to the calling thread's namespace to these CPUs.
/// That takes CAP_NET_ADMIN in the namespace, where [`steer_receive`] takes root of the machine.
///
/// # Errors
/// `NotFound` before Linux 6.3; `PermissionDenied` without the capability.
pub fn steering_new_devices<T>(cpus: &[usize], make: impl FnOnce() -> T) -> io::Result<T> {
    let before = fs::read_to_string(RECEIVE_CPUS_OF_NEW_DEVICES)?;
    fs::write(RECEIVE_CPUS_OF_NEW_DEVICES, cpu_mask(cpus))?;
    let made = make();
    fs::write(RECEIVE_CPUS_OF_NEW_DEVICES, before)?;
    Ok(made)
}

impl AsFd for NetworkNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Writes `mask` to every receive queue of a device of the calling thread's namespace.
fn write_receive_mask(device: &str, mask: &str) -> io::Result<()> {
    let sysfs = sysfs()?;
    let folder = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let queues = openat(&sysfs, format!("class/net/{device}/queues"), folder, Mode::empty())?;
    let mut buffer = Vec::with_capacity(4096);
    let mut names = RawDir::new(&queues, buffer.spare_capacity_mut());
    while let Some(entry) = names.next() {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !name.starts_with("rx-") {
            continue;
        }
        let path = format!("{name}/rps_cpus");
        let file = openat(&queues, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        File::from(file).write_all(mask.as_bytes())?;
    }
    Ok(())
}

/// The devices of the calling thread's namespace, as files.
fn sysfs() -> io::Result<OwnedFd> {
    let filesystem = fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&filesystem)?;
    Ok(fsmount(&filesystem, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}

/// A set of CPUs in the kernel's form: 32-bit words in hexadecimal, the highest first.
fn cpu_mask(cpus: &[usize]) -> String {
    let words = cpus.iter().max().map_or(1, |highest| highest / 32 + 1);
    let mut mask = vec![0_u32; words];
    for cpu in cpus {
        mask[words - 1 - cpu / 32] |= 1 << (cpu % 32);
    }
    mask.iter().map(|word| format!("{word:08x}")).collect::<Vec<_>>().join(",")
}

/// Tells whether new devices of the calling thread's namespace are steered to these CPUs.
fn new_devices_have(cpus: &[usize]) -> bool {
    fs::read_to_string(RECEIVE_CPUS_OF_NEW_DEVICES).is_ok_and(|mask| is_mask_of(&mask, cpus))
}

/// Tells whether a mask that the kernel wrote names these CPUs. The kernel leaves out zeros at the beginning.
fn is_mask_of(mask: &str, cpus: &[usize]) -> bool {
    let significant = |mask: &str| mask.trim().replace(',', "").trim_start_matches('0').to_owned();
    significant(mask) == significant(&cpu_mask(cpus))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::netlink::Route;
    use crate::process::Program;
    use std::io::Read;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    /// A namespace, or the printed reason why there is none.
    fn namespace() -> Option<NetworkNamespace> {
        NetworkNamespace::create()
            .inspect_err(|error| println!("skipped: no network namespaces here: {error}"))
            .ok()
    }

    fn give_address(namespace: &NetworkNamespace, device: &str, address: Ipv4Addr) {
        let mut route = namespace.enter(Route::open).unwrap().unwrap();
        let index = route.link_index(device).unwrap();
        route.add_address(index, address, 24).unwrap();
        route.set_up(index).unwrap();
    }

    #[test]
    fn a_mask_names_its_cpus() {
        assert_eq!(cpu_mask(&[]), "00000000");
        assert_eq!(cpu_mask(&[0, 1]), "00000003");
        assert_eq!(cpu_mask(&[1, 33]), "00000002,00000002");
    }

    #[test]
    fn a_mask_of_the_kernel_may_be_shorter() {
        assert!(
            is_mask_of("1\n", &[0]) && is_mask_of("00000002,00000002\n", &[1, 33]) && is_mask_of("0\n", &[])
        );
        assert!(!is_mask_of("3\n", &[0]) && !is_mask_of("", &[0]));
    }

    #[test]
    fn data_flows_between_two_namespaces_and_nowhere_else() {
        let (Some(here), Some(there)) = (namespace(), namespace()) else { return };
        let mut route = here.enter(Route::open).unwrap().unwrap();
        route.create_veth("left", there.as_fd(), "right").unwrap();
        let again = route.create_veth("left", there.as_fd(), "other").unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists, "{again}");
        let address = Ipv4Addr::new(10, 77, 0, 1);
        give_address(&here, "left", address);
        give_address(&there, "right", Ipv4Addr::new(10, 77, 0, 2));

        let listener = here.enter(|| TcpListener::bind((address, 0))).unwrap().unwrap();
        let at = listener.local_addr().unwrap();
        let mut client = there.enter(|| TcpStream::connect(at)).unwrap().unwrap();
        let (mut accepted, from) = listener.accept().unwrap();
        assert_eq!(from.ip(), Ipv4Addr::new(10, 77, 0, 2));
        accepted.write_all(b"through the veth").unwrap();
        drop(accepted);
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        assert_eq!(text, "through the veth");
        assert!(Route::open().unwrap().link_index("left").is_err(), "the link is in no other namespace");
    }

    #[test]
    fn settings_belong_to_the_namespace_alone() {
        let Some(namespace) = namespace() else { return };
        let read = || fs::read_to_string("/proc/sys/net/ipv4/tcp_fin_timeout");
        let outside = read().unwrap();
        namespace.set_sysctl("net.ipv4.tcp_fin_timeout", "7").unwrap();
        assert_eq!(namespace.enter(read).unwrap().unwrap().trim(), "7");
        assert_eq!(read().unwrap(), outside);
        let error = namespace.set_sysctl("net.ipv4.no_such_setting", "1").unwrap_err().to_string();
        assert!(error.starts_with("set net.ipv4.no_such_setting to 1: "), "{error}");
    }

    #[test]
    fn packets_are_steered_or_the_device_is_named() {
        let Some(namespace) = namespace() else { return };
        match namespace.set_receive_cpus("lo", &[0]) {
            Ok(()) => {}
            Err(error) => println!("skipped: no receive packet steering here: {error}"),
        }
        let error = namespace.set_receive_cpus("absent", &[0]).unwrap_err().to_string();
        assert!(error.starts_with("steer packets of absent: "), "{error}");
    }

    #[test]
    fn new_devices_are_steered_as_their_namespace_says() {
        let Some(namespace) = namespace() else { return };
        match namespace.set_receive_cpus_of_new_devices(&[0]) {
            Ok(()) => {}
            Err(error) => return println!("skipped: no steering of new devices here: {error}"),
        }
        let mut route = namespace.enter(Route::open).unwrap().unwrap();
        let mut make = |one: &str, other: &str| route.create_veth(one, namespace.as_fd(), other).unwrap();
        make("left", "right");
        namespace.enter(|| steering_new_devices(&[1], || make("third", "fourth"))).unwrap().unwrap();
        make("fifth", "sixth");
        for (device, mask) in [("left", "1"), ("right", "1"), ("third", "2"), ("fourth", "2"), ("fifth", "1")]
        {
            assert_eq!(namespace.enter(|| receive_mask(device)).unwrap().unwrap().trim(), mask, "{device}");
        }
    }

    /// The mask of a device's first receive queue.
    fn receive_mask(device: &str) -> io::Result<String> {
        let file = openat(
            &sysfs()?,
            format!("class/net/{device}/queues/rx-0/rps_cpus"),
            OFlags::RDONLY,
            Mode::empty(),
        )?;
        io::read_to_string(File::from(file))
    }

    #[test]
    fn what_was_left_behind_is_killed() {
        let Some(namespace) = namespace() else { return };
        let script = "sleep 1000 & sleep 1000 & echo $!";
        // The processes get a session of their own, because processes in the program's group end with it.
        let program = Program::new("setsid").arguments(["--wait", "sh", "-c", script]);
        let program = program.in_namespace(Some(namespace.as_fd()));
        let output = program.start().unwrap().output(base::Nanos::MILLISECOND, || true).unwrap();
        let left: i32 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
        let found = namespace.processes().unwrap();
        assert_eq!(found.len(), 2);
        assert!(found.contains(&Pid::from_raw(left).unwrap()));
        assert_eq!(namespace.kill_processes().unwrap(), 2);
        assert_eq!(namespace.kill_processes().unwrap(), 0);
    }
}
