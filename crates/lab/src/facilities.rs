//! The facilities of this machine for experiments, as findings of `inrush doctor`.
//!
//! Makes the namespaces of an experiment to try them out. They vanish at once.

use doctor::{Finding, finding};
use record::TopologyKind;
use stage::topology::Topology;

/// Programs that a comparison can use: servers first, then generators.
const PEERS: [&str; 9] =
    ["nginx", "apache2", "lighttpd", "h2o", "haproxy", "wrk", "h2load", "httperf", "chromium"];

/// The networks that servers and clients can have, and the programs that can be compared.
pub fn findings() -> Vec<Finding> {
    vec![topology(), peers()]
}

fn topology() -> Finding {
    match Topology::best() {
        Ok(topology) => {
            let warnings = Some(topology.warnings.join(" ")).filter(|warnings| !warnings.is_empty());
            let found = match topology.kind {
                TopologyKind::Namespaces => "server and client can have networks of their own",
                TopologyKind::Loopback => "loopback only",
            };
            finding("namespaces", found, warnings)
        }
        Err(error) => finding("namespaces", "unknown", Some(error.to_string())),
    }
}

fn peers() -> Finding {
    let (here, missing): (Vec<&str>, Vec<&str>) =
        PEERS.into_iter().partition(|name| sys::process::find_program(name).is_some());
    let list = |names: Vec<&str>| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    finding("programs to compare", format!("{}; not here: {}", list(here), list(missing)), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_name_the_networks_and_every_peer() {
        let [networks, peers] = findings().try_into().unwrap();
        assert_eq!([networks.what, peers.what], ["namespaces", "programs to compare"]);
        assert!(!networks.found.is_empty());
        let mut named: Vec<&str> = peers.found.split([',', ';', ':', ' ']).collect();
        named.retain(|name| PEERS.contains(name));
        named.sort_unstable();
        let mut all = PEERS;
        all.sort_unstable();
        assert_eq!(named, all, "{}", peers.found);
    }
}
