//! A fleet on this machine: a NATS server and agents as child processes.
//!
//! The server listens on a free port of 127.0.0.1 with a password of its own, and keeps nothing. Server and agents
//! end with the [`LocalFleet`]. Start it from a thread that outlives it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::Path;

use sys::process::{Child, Program, Streams};

use crate::access::Access;
use crate::error::FleetError;

/// The line of the server's log that ends with its address.
const LISTENS: &str = "Listening for client connections on ";

/// The environment variable with the agents' NATS address: other users cannot read it.
pub const ADDRESS_VARIABLE: &str = "NATS_URL";

/// A NATS server and agents.
pub struct LocalFleet {
    /// Access to the server.
    pub access: Access,
    // The agents end before the server.
    _agents: Vec<Child>,
    _server: Child,
    _folder: tempfile::TempDir,
}

impl LocalFleet {
    /// Starts the server and `agents` agents; each runs `program` with the arguments
    /// `fleet agent --name local-N`.
    ///
    /// # Errors
    /// [`FleetError::NoServer`]; [`FleetError::System`] if a process cannot be started.
    pub fn start(program: &Path, agents: u32) -> Result<LocalFleet, FleetError> {
        let folder = tempfile::tempdir().map_err(FleetError::system("making a folder"))?;
        let password = password().map_err(FleetError::system("reading /dev/urandom"))?;
        let config = folder.path().join("nats.conf");
        let text = format!(
            "host: 127.0.0.1\nport: -1\njetstream {{ store_dir: {:?} }}\nauthorization {{ user: fleet, password: \"{password}\" }}\n",
            folder.path()
        );
        fs::write(&config, text).map_err(FleetError::system("writing the server's configuration"))?;
        let started = Program::new("nats-server").arguments(["-c".into(), config.into_os_string()]).start();
        let mut server = started.map_err(|cause| match cause.kind() {
            ErrorKind::NotFound => FleetError::NoServer,
            _ => FleetError::System { operation: "starting nats-server", cause },
        })?;
        let address = address(&mut server).map_err(FleetError::system("starting nats-server"))?;
        let url = format!("nats://fleet:{password}@{address}");
        let agent = |number: u32| {
            let arguments = ["fleet".to_owned(), "agent".to_owned(), format!("--name=local-{number}")];
            let agent = Program::new(program).arguments(arguments).environment(ADDRESS_VARIABLE, &url);
            agent.with_streams(Streams::Messages).start().map_err(FleetError::system("starting an agent"))
        };
        let agents = (1..=agents).map(agent).collect::<Result<_, _>>()?;
        let access = Access { url, creds: None, tls_ca: None, tls_identity: None };
        Ok(LocalFleet { access, _agents: agents, _server: server, _folder: folder })
    }
}

/// The address in the server's log. The rest of the log is read and dropped.
fn address(server: &mut Child) -> std::io::Result<String> {
    let log = server.stderr.take().ok_or(ErrorKind::BrokenPipe)?;
    let mut lines = BufReader::new(log).lines();
    let mut said = String::new();
    for line in &mut lines {
        said = line?;
        if let Some((_, address)) = said.split_once(LISTENS) {
            let address = address.trim().to_owned();
            std::thread::Builder::new().name("nats log".into()).spawn(move || lines.for_each(drop))?;
            return Ok(address);
        }
    }
    Err(std::io::Error::other(said))
}

/// A random password of 32 hexadecimal digits.
fn password() -> std::io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
