//! The flags of the way to a server: addresses and TLS, as curl spells them.

use std::path::PathBuf;

use ::load::{
    Addressing, ClientIdentity, ConnectTo, Family, KeyExchange, Resolve, TlsOptions, TlsVersion, Trust,
};
use clap::{Args, ValueEnum};

/// The heading of the help text.
pub const REACH: &str = "Way to the server";

/// Versions of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Version {
    /// TLS 1.2
    #[value(name = "1.2")]
    V1_2,
    /// TLS 1.3
    #[value(name = "1.3")]
    V1_3,
}

/// Kinds of TLS handshakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HandshakeKind {
    /// As browsers do: the first full, later ones resumed
    Resumed,
    /// Every handshake full, as of new visitors
    Full,
}

/// Groups of the TLS key exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Groups {
    /// As browsers do: X25519MLKEM768 first, the classical groups for a server without it
    Hybrid,
    /// X25519, secp256r1 and secp384r1
    Classical,
}

/// The addresses that connections go to.
#[derive(Args, Clone, Debug)]
pub struct ReachFlags {
    /// Connect to another host and port in place of the URL's: HOST:PORT:HOST2:PORT2; repeatable, the first that fits
    ///
    /// Requests, the Host field and the server name in TLS stay those of the URL. Empty parts stand for any, or no change.
    #[arg(long, value_name = "H:P:H2:P2", help_heading = REACH, hide_short_help = true)]
    pub connect_to: Vec<ConnectTo>,

    /// Addresses of a host in place of the resolver's: HOST:PORT:ADDRESS[,ADDRESS]; repeatable, * for any host
    #[arg(long, value_name = "H:P:ADDRESS", help_heading = REACH, hide_short_help = true)]
    pub resolve: Vec<Resolve>,

    /// Connect to IPv4 addresses only
    #[arg(long, short = '4', conflicts_with = "ipv6", help_heading = REACH, hide_short_help = true)]
    pub ipv4: bool,

    /// Connect to IPv6 addresses only
    #[arg(long, short = '6', help_heading = REACH, hide_short_help = true)]
    pub ipv6: bool,
}

/// TLS to the server.
#[derive(Args, Clone, Debug)]
pub struct TlsFlags {
    /// PEM file of trusted certificates for https: of roots, or the server's own [default: the system's]
    #[arg(long, value_name = "FILE", conflicts_with = "insecure", help_heading = REACH, hide_short_help = true)]
    pub ca: Option<PathBuf>,

    /// Accept any certificate
    #[arg(long, short = 'k', help_heading = REACH, hide_short_help = true)]
    pub insecure: bool,

    /// Server name in the TLS handshake, which the certificate must have [default: the URL's host]
    #[arg(long, value_name = "NAME", help_heading = REACH, hide_short_help = true)]
    pub sni: Option<String>,

    /// PEM file of the client's certificate, and of its key unless --key has it
    #[arg(long, value_name = "FILE", help_heading = REACH, hide_short_help = true)]
    pub cert: Option<PathBuf>,

    /// PEM file of the private key for --cert
    #[arg(long, value_name = "FILE", requires = "cert", help_heading = REACH, hide_short_help = true)]
    pub key: Option<PathBuf>,

    /// Only version of TLS to speak [default: 1.3, or 1.2 if the server has no other]
    #[arg(long, value_name = "VERSION", help_heading = REACH, hide_short_help = true)]
    pub tls_version: Option<Version>,

    /// TLS handshakes: resumed with the server's tickets, or always full
    #[arg(long, value_name = "KIND", default_value = "resumed", help_heading = REACH, hide_short_help = true)]
    pub handshakes: HandshakeKind,

    /// Groups that the client offers for the TLS key exchange; the server chooses one, which the result names
    #[arg(long, value_name = "GROUPS", default_value = "hybrid", help_heading = REACH, hide_short_help = true)]
    pub key_exchange: Groups,
}

impl ReachFlags {
    /// The settings of a run.
    pub fn addressing(&self) -> Addressing {
        let family = match (self.ipv4, self.ipv6) {
            (true, _) => Some(Family::V4),
            (_, true) => Some(Family::V6),
            _ => None,
        };
        Addressing { connect_to: self.connect_to.clone(), resolve: self.resolve.clone(), family }
    }
}

impl TlsFlags {
    /// The settings of a run.
    pub fn options(&self) -> TlsOptions {
        TlsOptions {
            trust: match (&self.ca, self.insecure) {
                (Some(path), _) => Trust::Roots(path.clone()),
                (None, true) => Trust::Anybody,
                (None, false) => Trust::System,
            },
            server_name: self.sni.clone(),
            version: self.tls_version.map(|version| match version {
                Version::V1_2 => TlsVersion::V1_2,
                Version::V1_3 => TlsVersion::V1_3,
            }),
            identity: self
                .cert
                .clone()
                .map(|certificate| ClientIdentity { certificate, key: self.key.clone() }),
            key_exchange: match self.key_exchange {
                Groups::Hybrid => KeyExchange::Hybrid,
                Groups::Classical => KeyExchange::Classical,
            },
            resume: self.handshakes == HandshakeKind::Resumed,
        }
    }

    /// The first setting that is given.
    pub fn first_setting(&self) -> Option<&'static str> {
        let given = [
            ("--insecure", self.insecure),
            ("--ca", self.ca.is_some()),
            ("--sni", self.sni.is_some()),
            ("--cert", self.cert.is_some()),
            ("--tls-version", self.tls_version.is_some()),
            ("--key-exchange classical", self.key_exchange == Groups::Classical),
            ("--handshakes full", self.handshakes == HandshakeKind::Full),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(flag, _)| flag)
    }
}
