//! The address of a guarded listener, as users write it.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use sys::network::netlink::Listener;

/// A port, and the address if only the listeners that take connections to it are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// `None` for every address.
    pub ip: Option<IpAddr>,
    /// From 1 up.
    pub port: u16,
}

impl Address {
    /// Returns true if a listener takes connections to this address. A listener at another address of the same port does
    /// not.
    pub fn is_taken_by(&self, listener: &Listener) -> bool {
        let bound = listener.address.ip().to_canonical();
        let covers = |ip: IpAddr| match bound.is_unspecified() {
            true => listener.dual || bound.is_ipv4() == ip.is_ipv4(),
            false => bound == ip,
        };
        listener.address.port() == self.port && self.ip.is_none_or(covers)
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let unknown =
            || format!("'{text}' is not a listener's address: expected :PORT or ADDR:PORT, such as :8080");
        let address = match text.strip_prefix(':') {
            Some(port) => Address { ip: None, port: port.parse().map_err(|_| unknown())? },
            None => {
                let address: SocketAddr = text.parse().map_err(|_| unknown())?;
                let ip = address.ip().to_canonical();
                Address { ip: (!ip.is_unspecified()).then_some(ip), port: address.port() }
            }
        };
        if address.port == 0 { Err(unknown()) } else { Ok(address) }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ip {
            Some(ip) => write!(f, "{}", SocketAddr::new(ip, self.port)),
            None => write!(f, ":{}", self.port),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A listener without a queue.
    pub(crate) fn listener(address: &str, dual: bool) -> Listener {
        let address = address.parse().unwrap();
        Listener { address, dual, inode: 1, cookie: 1, cgroup: 1, uid: 0, depth: 0, limit: 1, drops: 0 }
    }

    #[test]
    fn addresses_are_read_as_they_are_shown() {
        for text in [":80", "127.0.0.1:8080", "[::1]:443"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        assert_eq!("0.0.0.0:80".parse::<Address>().unwrap().to_string(), ":80");
        for text in ["", "80", ":0", ":99999", "localhost:80", "1.2.3.4"] {
            let error = text.parse::<Address>().unwrap_err();
            assert!(error.contains("expected :PORT or ADDR:PORT"), "{text}: {error}");
        }
    }

    #[test]
    fn listener_takes_what_it_is_bound_to() {
        let taken = |wanted: &str, bound: &str, dual| {
            wanted.parse::<Address>().unwrap().is_taken_by(&listener(bound, dual))
        };
        assert!(taken(":80", "10.0.0.1:80", false));
        assert!(!taken(":80", "10.0.0.1:81", false));
        assert!(taken("10.0.0.1:80", "0.0.0.0:80", false));
        assert!(taken("10.0.0.1:80", "[::]:80", true));
        assert!(!taken("10.0.0.1:80", "[::]:80", false));
        assert!(!taken("10.0.0.1:80", "10.0.0.2:80", false));
    }
}
