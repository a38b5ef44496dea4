//! The next step after a failure to start: the process that has the address, the right that is missing, or the folder that
//! was probably meant.
//!
//! The kernel names a listener's socket in `/proc/net/tcp`, and a process's sockets in `/proc/PID/fd`. Other users'
//! processes can be read by root only, so the process is not always known. A server gives up its view of `/proc` before it
//! listens, so it has to look before.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use base::nearest;
use server::{AdminAddress, ServeError};
use side_servers::ListenError;

/// Most names that are looked at for a likely folder.
const MOST_NAMES: usize = 1000;
/// The state of a listener in `/proc/net/tcp`.
const LISTENS: &str = "0A";

/// Returns the message of an error, with the next step if it is known. `occupants` are those of the addresses.
pub fn with_next_step(error: &ServeError, occupants: &Occupants) -> String {
    let (address, cause) = match error {
        ServeError::Listen { address, cause } => (*address, cause),
        ServeError::ListenAside(ListenError { address: AdminAddress::Internet(address), cause }) => {
            (*address, cause)
        }
        ServeError::Root { cause: site::RootError::Open { path, source }, .. }
            if source.kind() == ErrorKind::NotFound =>
        {
            let meant = folder_like(path).map_or(String::new(), |name| format!("; did you mean {name}?"));
            return format!("{error}{meant}");
        }
        _ => return error.to_string(),
    };
    match cause.kind() {
        ErrorKind::AddrInUse => match occupants.of(address) {
            Some(Occupant { pid, name }) => {
                format!("{error}: process {pid} ({name}) listens there; end it, or choose another port")
            }
            None => format!("{error}: ss -ltnp, as root, names the process; end it, or choose another port"),
        },
        ErrorKind::PermissionDenied => {
            format!("{error}: {}", right_to(address.port()))
        }
        _ => error.to_string(),
    }
}

/// Returns the folder beside a missing one whose name is most like its name.
fn folder_like(missing: &Path) -> Option<String> {
    let beside = missing.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
    let entries = fs::read_dir(beside).ok()?.flatten().take(MOST_NAMES);
    let folders = entries.filter(|entry| entry.path().is_dir());
    let names: Vec<String> = folders.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let name = nearest(missing.file_name()?.to_str()?, names.iter().map(String::as_str))?;
    Some(missing.with_file_name(name).display().to_string().escape_debug().to_string())
}

fn right_to(port: u16) -> String {
    let program = std::env::current_exe().map_or("inrush".to_owned(), |path| path.display().to_string());
    format!(
        "port {port} needs a right; start as root with --user, pass the socket by a systemd socket unit, run setcap \
         cap_net_bind_service=+ep {program}, or choose a higher port such as 8080"
    )
}

/// A process that listens.
#[derive(Debug, PartialEq, Eq)]
struct Occupant {
    pid: u32,
    name: String,
}

/// The processes that listen at some addresses, as far as they can be read.
#[derive(Debug, Default)]
pub struct Occupants(Vec<(SocketAddr, Occupant)>);

impl Occupants {
    /// Looks who listens at these addresses now. An address without a listener costs the read of a table.
    pub fn find(addresses: impl IntoIterator<Item = SocketAddr>) -> Occupants {
        let found = |address: SocketAddr| Some((address, occupant(address)?));
        Occupants(addresses.into_iter().filter(|address| address.port() != 0).filter_map(found).collect())
    }

    fn of(&self, address: SocketAddr) -> Option<&Occupant> {
        self.0.iter().find(|(known, _)| *known == address).map(|(_, occupant)| occupant)
    }
}

/// Finds the process that listens at an address or at all addresses of its port.
fn occupant(address: SocketAddr) -> Option<Occupant> {
    let inode = ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().find_map(|path| {
        // The kernel lists listeners first; a table of connections may be long.
        let lines = BufReader::new(File::open(path).ok()?).lines().skip(1).map_while(Result::ok);
        let mut listeners = lines.take_while(|line| line.split_whitespace().nth(3) == Some(LISTENS));
        listeners.find_map(|line| listener(&line, address))
    })?;
    let socket = format!("socket:[{inode}]");
    let holds = |pid: &u32| {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        descriptors
            .filter_map(|entry| fs::read_link(entry.path()).ok())
            .any(|target| target.as_os_str() == socket.as_str())
    };
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let pid = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(holds)?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    // A process chooses its name freely.
    Some(Occupant { pid, name: name.trim_end().escape_debug().to_string() })
}

/// Returns the inode of a line's socket if that listens in the way of `address`.
fn listener(line: &str, address: SocketAddr) -> Option<u64> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [_, local, _, LISTENS, _, _, _, _, _, inode, ..] = fields[..] else { return None };
    let (ip, port) = local.split_once(':')?;
    let ip = words(ip)?;
    let is_same = ip == address.ip() || ip.is_unspecified() || address.ip().is_unspecified();
    let is_same = is_same && u16::from_str_radix(port, 16).ok()? == address.port();
    inode.parse().ok().filter(|_| is_same)
}

/// Parses an address, whose words the kernel prints as numbers of this machine.
fn words(text: &str) -> Option<IpAddr> {
    let word =
        |place: usize| Some(u32::from_str_radix(text.get(place * 8..place * 8 + 8)?, 16).ok()?.to_ne_bytes());
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let bytes = [word(0)?, word(1)?, word(2)?, word(3)?].concat();
            Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn own_listener_is_found() {
        for ip in ["127.0.0.1", "0.0.0.0", "[::1]"] {
            let Ok(listener) = TcpListener::bind(format!("{ip}:0")) else {
                println!("skipped: {ip} is missing");
                continue;
            };
            let address = listener.local_addr().unwrap();
            let found = occupant(address).map(|found| found.pid);
            assert_eq!(found, Some(std::process::id()), "{address}");
            drop(listener);
            assert_eq!(occupant(address), None, "{address}");
        }
    }

    #[test]
    fn another_address_of_the_port_is_no_occupant() {
        let line = "1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4711 1";
        let found = |address: &str| listener(line, address.parse().unwrap());
        if cfg!(target_endian = "little") {
            assert_eq!(found("127.0.0.1:8080"), Some(4711));
            assert_eq!(found("0.0.0.0:8080"), Some(4711));
        }
        assert_eq!((found("127.0.0.2:8080"), found("127.0.0.1:8081")), (None, None));
    }

    #[test]
    fn missing_right_names_the_next_step() {
        let cause = std::io::Error::from(ErrorKind::PermissionDenied);
        let error = ServeError::Listen { address: "0.0.0.0:81".parse().unwrap(), cause };
        let said = with_next_step(&error, &Occupants::default());
        for part in ["cannot listen on 0.0.0.0:81: ", "port 81 needs a right", "setcap", "systemd", "8080"] {
            assert!(said.contains(part), "{said}");
        }
    }
}
