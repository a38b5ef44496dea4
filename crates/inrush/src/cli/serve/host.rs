//! The settings of a host: the keys of `[[host]]` in a config file.

use std::path::PathBuf;

use base::Bytes;
use clap::Parser;
use site::HostName;

use super::site::SiteFlags;

/// The settings of one of several hosts, as flags of a command of its own.
#[derive(Debug, Parser)]
#[command(name = "host", disable_help_flag = true)]
pub struct HostFlags {
    /// Names of the host; *.example.org stands for all names that end with .example.org
    #[arg(long, value_name = "NAME")]
    pub names: Vec<HostName>,

    /// Directory to serve
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,

    /// PEM file with a certificate and those that vouch for it
    #[arg(long, value_name = "FILE")]
    pub tls_cert: Vec<PathBuf>,

    /// PEM file with the private key of the --tls-cert in the same place
    #[arg(long, value_name = "FILE")]
    pub tls_key: Vec<PathBuf>,

    /// DER file with an OCSP response about the --tls-cert in the same place, to staple; - is none
    #[arg(long, value_name = "FILE|-")]
    pub tls_ocsp: Vec<PathBuf>,

    /// File to append a line to for each response of this host, in place of the server's log; - is stdout
    #[arg(long, value_name = "FILE|-")]
    pub access_log: Option<PathBuf>,

    /// Memory for cached files, per event loop
    #[arg(long, value_name = "SIZE")]
    pub cache_memory: Option<Bytes>,

    /// Maximum cached descriptors of larger files, per event loop
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub cache_open_files: Option<u16>,

    /// The rules of the site.
    #[command(flatten)]
    pub site: SiteFlags,
}
