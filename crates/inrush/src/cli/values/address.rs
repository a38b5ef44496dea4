//! Addresses to listen on, in the usual spellings.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use server::AdminAddress;

const ACCEPTED: &str = "expected ADDR:PORT such as 127.0.0.1:8090 or [::1]:8090; for short 8090 or localhost:8090 \
                        (this machine only) and :8090 (every IPv4 address)";

/// Parses an address to listen on. A port alone stands for 127.0.0.1, which only this machine reaches. An
/// empty host or `*` before the colon stands for every IPv4 address.
pub fn listen_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let (host, port) = text.rsplit_once(':').unwrap_or(("localhost", text));
    let address = match host {
        "localhost" => Ipv4Addr::LOCALHOST,
        "" | "*" => Ipv4Addr::UNSPECIFIED,
        _ => return Err(ACCEPTED.to_owned()),
    };
    let port = port.parse().map_err(|_| ACCEPTED.to_owned())?;
    Ok(SocketAddr::from((address, port)))
}

/// Parses an address of the admin interface: an address to listen on, or `unix:` and the path of a socket
/// file.
pub fn admin_address(text: &str) -> Result<AdminAddress, String> {
    match text.strip_prefix("unix:") {
        Some("") => Err("expected unix:PATH, such as unix:/run/inrush.sock".to_owned()),
        Some(path) => Ok(AdminAddress::File(PathBuf::from(path))),
        None => match listen_address(text) {
            Ok(address) => Ok(AdminAddress::Internet(address)),
            Err(accepted) => Err(format!("{accepted}; and unix:PATH")),
        },
    }
}

/// Parses a host name that clients of the admin interface may use.
pub fn host_name(text: &str) -> Result<String, String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if text.is_empty() || !text.bytes().all(fits) {
        return Err("expected a name such as admin.example.org, without scheme and port".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_accepted_in_the_usual_spellings() {
        for (text, address) in [
            ("127.0.0.1:8090", "127.0.0.1:8090"),
            ("0.0.0.0:0", "0.0.0.0:0"),
            ("[::1]:8090", "[::1]:8090"),
            ("8090", "127.0.0.1:8090"),
            ("0", "127.0.0.1:0"),
            ("localhost:8090", "127.0.0.1:8090"),
            (":8090", "0.0.0.0:8090"),
            ("*:8090", "0.0.0.0:8090"),
        ] {
            assert_eq!(listen_address(text), Ok(address.parse().unwrap()), "{text}");
        }
        for text in [
            "",
            ":",
            "localhost",
            "localhost:",
            "127.0.0.1",
            "::1:80",
            "[::1]",
            "example.org:80",
            "80900",
            "-1",
            "80:90",
        ] {
            assert_eq!(listen_address(text), Err(ACCEPTED.to_owned()), "{text}");
        }
    }

    #[test]
    fn the_admin_interface_may_be_a_socket_file() {
        assert_eq!(admin_address("unix:/run/x.sock"), Ok(AdminAddress::File("/run/x.sock".into())));
        assert_eq!(admin_address("unix:x:1"), Ok(AdminAddress::File("x:1".into())));
        assert_eq!(admin_address("9090"), Ok(AdminAddress::Internet("127.0.0.1:9090".parse().unwrap())));
        assert!(admin_address("unix:").unwrap_err().contains("unix:PATH"));
        assert!(admin_address("/run/x.sock").unwrap_err().ends_with("; and unix:PATH"));
    }

    #[test]
    fn a_host_is_a_name_and_nothing_else() {
        assert_eq!(host_name("admin.example.org"), Ok("admin.example.org".to_owned()));
        for text in ["", "http://a", "a:80", "a/b", "*.a"] {
            assert!(host_name(text).is_err(), "{text}");
        }
    }
}
