//! Addresses to listen on, in the spellings that people use.

use std::net::{Ipv4Addr, SocketAddr};

const ACCEPTED: &str = "accepted are ADDR:PORT such as 127.0.0.1:8090 or [::1]:8090; for short 8090 or localhost:8090 \
                        (this machine only) and :8090 (every IPv4 address)";

/// An address to listen on. The port alone stands for 127.0.0.1, which only this machine reaches; nothing or `*` before
/// the colon stands for every IPv4 address.
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
}
