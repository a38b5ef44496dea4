//! The servers: inrush, others as the lab sets them up for static files, and the readiness limit.
//!
//! Each runs on one CPU with one event loop, no access log, the same backlog and room for [`CONNECTIONS`].

use std::path::Path;

use anyhow::Context;
use stage::identity::Identity;
use stage::server_under_test::read_back::Asked;
use stage::server_under_test::recipe::{self, Readiness, Recipe};
use stage::server_under_test::{RunningServer, Settings, StartError, start};
use sys::process::this_program;

use crate::responder::AfterReply;
use crate::test_bed::{BACKLOG, FILE, TestBed};

/// Connections that every server has room for.
pub const CONNECTIONS: u32 = 15_000;

/// A server, with its set-up for both fates of a connection.
pub struct Server {
    /// Short, for a table.
    pub name: &'static str,
    prepare: fn(&TestBed, &Settings, AfterReply) -> Result<Recipe, StartError>,
}

/// Our server, in comparisons with others that are one process on one CPU.
const ONE_LOOP: [(&str, &str); 2] = [("--arch", "sped"), ("--workers", "1")];

/// The base of ratios.
pub const REFERENCE: &str = "nginx";
/// The other server with HTTP/2 of its own.
pub const H2O: &str = "h2o";
/// The name of our server, on the driver that it chooses.
pub const INRUSH: &str = "inrush";
/// The same on the readiness driver.
pub const READINESS: &str = "inrush, readiness";
/// The server that only answers.
pub const LIMIT: Server = Server { name: "readiness limit", prepare: readiness_limit };

const OURS: Server = Server { name: INRUSH, prepare: |bed, settings, _| inrush(bed, settings, &ONE_LOOP) };
const NGINX: Server =
    Server { name: REFERENCE, prepare: |bed, settings, _| recipe::nginx(&bed.topology, settings) };
const H2O_SERVER: Server =
    Server { name: H2O, prepare: |bed, settings, _| recipe::h2o(&bed.topology, settings) };

/// All servers, in the order they are shown.
pub const ALL: [Server; 9] = [
    OURS,
    Server {
        name: READINESS,
        prepare: |bed, settings, _| inrush(bed, settings, &[("--arch", "sped"), ("--driver", "readiness")]),
    },
    Server {
        name: "inrush, kernel cache",
        prepare: |bed, settings, _| inrush(bed, settings, &[("--arch", "tux"), ("--kernel-cache", "on")]),
    },
    NGINX,
    Server {
        name: "nginx, no sendfile",
        prepare: |bed, settings, _| recipe::nginx_with("sendfile off;", "", &bed.topology, settings),
    },
    Server { name: "lighttpd", prepare: |bed, settings, _| recipe::lighttpd(&bed.topology, settings) },
    H2O_SERVER,
    Server {
        name: "apache2",
        prepare: |bed, settings, _| recipe::apache_event(&bed.topology, settings, None),
    },
    LIMIT,
];

/// Another build of our server.
pub const BEFORE: Server = Server {
    name: "inrush before",
    prepare: |bed, settings, _| {
        let program = bed.before.clone().ok_or_else(|| StartError::NotInstalled(INRUSH.to_owned()))?;
        Ok(Recipe { program, ..inrush(bed, settings, &ONE_LOOP)? })
    },
};

/// The servers under TLS.
pub const UNDER_TLS: [Server; 2] = [OURS, NGINX];

/// The servers whose full handshakes are compared. HAProxy has no files, so it answers with one from its memory.
pub const FULL_HANDSHAKES: [Server; 4] = [
    OURS,
    NGINX,
    Server { name: "haproxy", prepare: |bed, settings, _| recipe::haproxy(&bed.topology, settings, FILE) },
    Server { name: "caddy", prepare: |bed, settings, _| recipe::caddy(&bed.topology, settings) },
];

/// The servers over HTTP/2, in cleartext.
pub const OVER_HTTP2: [Server; 3] =
    [OURS, Server { name: REFERENCE, prepare: |bed, settings, _| nginx_http2(bed, settings) }, H2O_SERVER];

impl Server {
    /// Starts it on the server's side and waits until it answers; `None` if it is not installed. Blocks.
    ///
    /// # Errors
    /// The server does not start; the error holds its output.
    pub fn start(
        &self,
        bed: &TestBed,
        root: &Path,
        tls: Option<&Identity>,
        after_reply: AfterReply,
    ) -> anyhow::Result<Option<RunningServer>> {
        let settings = Settings { tls: tls.cloned(), ..settings(root, CONNECTIONS) };
        match (self.prepare)(bed, &settings, after_reply) {
            Err(StartError::NotInstalled(_)) => Ok(None),
            recipe => started(self.name, bed, recipe).map(Some),
        }
    }
}

/// Starts our server as one event loop, with additional flags and their values. `connections` is its connection
/// limit. Waits until it answers; blocks.
///
/// # Errors
/// The server does not start; the error holds its output.
pub fn start_inrush(
    bed: &TestBed,
    root: &Path,
    connections: u32,
    more: &[(&str, &str)],
) -> anyhow::Result<RunningServer> {
    start_architecture(bed, root, connections, &[&ONE_LOOP, more].concat())
}

/// As [`start_inrush`], on an architecture that is among the settings.
///
/// # Errors
/// The server does not start; the error holds its output.
pub fn start_architecture(
    bed: &TestBed,
    root: &Path,
    connections: u32,
    more: &[(&str, &str)],
) -> anyhow::Result<RunningServer> {
    started(INRUSH, bed, inrush(bed, &settings(root, connections), more))
}

fn settings(root: &Path, connections: u32) -> Settings {
    Settings { root: root.to_owned(), backlog: BACKLOG, connections, tls: None, apps: None }
}

fn started(name: &str, bed: &TestBed, recipe: Result<Recipe, StartError>) -> anyhow::Result<RunningServer> {
    let running = recipe.and_then(|recipe| start(&bed.topology, recipe, Vec::new(), &bed.clock));
    running.with_context(|| format!("{name} does not start"))
}

/// nginx over HTTP/2 in cleartext, for clients with prior knowledge.
fn nginx_http2(bed: &TestBed, settings: &Settings) -> Result<Recipe, StartError> {
    let recipe = recipe::nginx_with("sendfile on; tcp_nopush on;", "http2", &bed.topology, settings)?;
    // nginx does not answer the HTTP/1.1 request that shows the others' readiness.
    let readiness = match recipe.readiness {
        Readiness::Replies(address) => Readiness::Connects(address),
        other => other,
    };
    Ok(Recipe { readiness, ..recipe })
}

/// The program that was built for this, with flags and their values.
fn inrush(bed: &TestBed, settings: &Settings, more: &[(&str, &str)]) -> Result<Recipe, StartError> {
    let flags: Vec<String> =
        more.iter().flat_map(|(flag, value)| [*flag, *value]).map(str::to_owned).collect();
    let recipe = recipe::inrush(&bed.topology, settings, &flags)?;
    Ok(Recipe { program: bed.inrush.clone(), ..recipe })
}

fn readiness_limit(
    bed: &TestBed,
    _settings: &Settings,
    after_reply: AfterReply,
) -> Result<Recipe, StartError> {
    let address = bed.topology.server.free_port().map_err(|error| StartError::Io("find it a port", error))?;
    let after_reply = match after_reply {
        AfterReply::Keep => "keep",
        AfterReply::Close => "close",
    };
    let arguments = ["responder", &address.to_string(), "--after-reply", after_reply];
    Ok(Recipe {
        asked: Asked::default(),
        program: this_program().map_err(|error| StartError::Io("find this program", error))?,
        arguments: arguments.map(Into::into).to_vec(),
        environment: Vec::new(),
        readiness: Readiness::Connects(address),
        folder: None,
    })
}
