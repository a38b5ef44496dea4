//! The flags of `inrush serve` about its clients: their limits, and the proxies that tell who they are.

use base::Network;
use clap::Args;
use server::{ClientSettings, Exempt};

/// The limits of each client, and the proxies in front of the server.
#[derive(Args, Debug)]
#[command(next_help_heading = "Clients")]
pub struct ClientFlags {
    /// Maximum open connections of one client
    ///
    /// A client is an IPv4 address, or the first 64 bits of an IPv6 address. Further connections are answered 429, or reset
    /// under TLS. The tables have a fixed size: rarely, a client is refused early. The documentation states how rarely.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000), hide_short_help = true)]
    pub client_connections: Option<u32>,

    /// Maximum new connections of one client, per second; as many may come at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000), hide_short_help = true)]
    pub client_rate: Option<u32>,

    /// Address or network that neither these limits nor overload control refuses, such as that of health checks; repeatable
    #[arg(long, value_name = "ADDR|CIDR", hide_short_help = true)]
    pub client_exempt: Vec<Network>,

    /// Address or network of proxies whose connections begin with a PROXY protocol header, version 2; repeatable
    ///
    /// From these addresses the header is required. The client that it names goes to the access log and has the limits. The
    /// header comes before TLS. The proxies themselves have no limits.
    #[arg(long, value_name = "ADDR|CIDR", hide_short_help = true)]
    pub proxy_protocol_from: Vec<Network>,
}

impl ClientFlags {
    /// The checked settings.
    ///
    /// # Errors
    /// A line about too many networks.
    pub fn settings(self) -> Result<ClientSettings, String> {
        let exempt = Exempt::new(self.client_exempt).map_err(|error| format!("--client-exempt: {error}"))?;
        Ok(ClientSettings {
            connections: self.client_connections,
            rate_per_s: self.client_rate,
            exempt,
            proxies: self.proxy_protocol_from,
        })
    }
}
