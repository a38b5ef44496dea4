//! The properties of files of requests and of data, and of orders, which the tests and the fuzz targets share, by path.

use std::fs;
use std::net::IpAddr;
use std::str::FromStr;

use base::PerSecond;
use load::{Client, Config, DataFile, Process, RequestFile, Sockets};

/// The first byte chooses JSON Lines (or an access log), an archive of a browser, or values for a fixed request. Whatever the
/// others say, the file is refused in one line, or the load of it is prepared or refused in one line, over HTTP/1.1 and
/// over HTTP/2. Files that name further files are left out: those could be any device. Returns true if the load of one is
/// prepared.
///
/// # Panics
/// The reader or the preparation breaks the property.
pub fn requests_file_property(data: &[u8]) -> bool {
    let Some((kind, contents)) = data.split_first().filter(|_| !data.contains(&b'@')) else { return false };
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, contents: &[u8]| {
        let path = folder.path().join(name).display().to_string();
        fs::write(&path, contents).unwrap();
        path
    };
    let (requests, values) = match kind % 3 {
        0 => (write("requests.jsonl", contents), None),
        1 => (write("requests.har", contents), None),
        _ => (write("requests.jsonl", br#"{"path": "/{{a}}"}"#), Some(write("values.csv", contents))),
    };
    let Some(requests) = read::<RequestFile>(&requests) else { return false };
    let values = match values.map(|path| read::<DataFile>(&path)) {
        Some(None) => return false,
        Some(values) => values,
        None => None,
    };
    let mut is_prepared = false;
    for streams in [None, Some(10)] {
        let mut config = config(requests.clone());
        (config.data, config.streams) = (values.clone(), streams.map(|most| most.try_into().unwrap()));
        is_prepared |= prepares(config);
    }
    is_prepared
}

/// Whatever the settings of an order are, an agent refuses them in one line, or prepares a run whose settings travel on
/// as they came. Names of hosts are left out: those ask a server of names. Returns true if the run is prepared.
///
/// # Panics
/// The reader or the preparation breaks the property.
pub fn fleet_order_property(data: &[u8]) -> bool {
    let config = match serde_json::from_slice::<Config>(data) {
        Ok(config) => config,
        // JSON's parser quotes what it was given; agents escape it when they print it.
        Err(_) => return false,
    };
    let again: Config = serde_json::from_str(&serde_json::to_string(&config).unwrap()).unwrap();
    assert_eq!(again.describe(), config.describe());
    let has_names = config.urls.iter().any(|url| url.host().parse::<IpAddr>().is_err());
    !has_names && config.addressing == Default::default() && prepares(config)
}

/// Tells whether a run can be prepared. A refusal is one line.
fn prepares(config: Config) -> bool {
    load::prepare(config).map_err(|error| is_one_line(&error.to_string())).is_ok()
}

/// Two hundred requests a second to a server that is not asked.
fn config(requests: RequestFile) -> Config {
    let client =
        Client::SClient { rate: PerSecond(200.0), arrivals: Process::constant(), sockets: Sockets::Auto };
    let mut config = Config::new(vec!["http://127.0.0.1:9/".parse().unwrap()], client);
    config.requests = Some(requests);
    config
}

fn read<T: FromStr<Err: ToString>>(path: &str) -> Option<T> {
    path.parse().map_err(|error: T::Err| is_one_line(&error.to_string())).ok()
}

fn is_one_line(message: &str) {
    assert!(!message.is_empty() && !message.contains(char::is_control), "{message:?}");
}
