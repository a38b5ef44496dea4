//! The servers: inrush, others as their operators would tune them for static files, and the readiness
//! limit.
//!
//! Each runs on one CPU with one event loop, no access log, the same backlog and room for
//! [`CONNECTIONS`]. Each is one process that we start ourselves, so that none is left behind when we
//! are killed: nginx without its supervisor (`master_process off`) and Apache in one process (`-X`), which
//! is the same loop in both.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, bail};
use base::{Clock, Nanos};
use sys::process::{Child, find_program, this_program};
use tempfile::TempDir;

use super::CommandLine;
use crate::bench::{BACKLOG, Ground};
use crate::responder::AfterReply;

/// Connections that every server has room for.
pub const CONNECTIONS: u32 = 15_000;
/// A server has this long to be ready.
const READY_WITHIN: Nanos = Nanos::from_secs(5);
const LOOK_EVERY: Nanos = Nanos::from_millis(5);
const ANSWER_WITHIN: Nanos = Nanos::from_millis(500);
/// A server that is asked to stop has nobody left to serve.
const STOP_WITHIN: Nanos = Nanos::from_millis(300);

/// What a server is to do.
pub struct Task<'a> {
    /// The folder to serve.
    pub root: &'a Path,
    /// Where to listen.
    pub address: SocketAddr,
    /// The CPUs of the server's side.
    pub cpus: &'a [usize],
    /// The inrush program.
    pub inrush: &'a Path,
    /// Whether clients keep their connections; only the readiness limit, which cannot read, needs to know.
    pub after_reply: AfterReply,
    /// An empty folder for its configuration and whatever it writes.
    pub folder: &'a Path,
}

/// A server and how to start it; no command line where it is not installed.
pub struct Server {
    /// Short, for a table.
    pub name: &'static str,
    prepare: fn(&Task<'_>) -> io::Result<Option<CommandLine>>,
}

/// Ours in comparisons with others that are one process on one CPU.
const ONE_LOOP: [(&str, &str); 2] = [("--arch", "sped"), ("--workers", "1")];

/// The server that ratios are to.
pub const REFERENCE: &str = "nginx";
/// Us.
pub const INRUSH: &str = "inrush";
/// The server that does nothing but answer.
pub const LIMIT: &str = "readiness limit";

/// All servers, in the order they are shown.
pub const ALL: [Server; 7] = [
    Server { name: INRUSH, prepare: |task| Ok(Some(inrush(task, CONNECTIONS, &ONE_LOOP))) },
    Server { name: REFERENCE, prepare: |task| nginx(task, "sendfile on; tcp_nopush on;") },
    Server { name: "nginx, no sendfile", prepare: |task| nginx(task, "sendfile off;") },
    Server { name: "lighttpd", prepare: lighttpd },
    Server { name: "h2o", prepare: h2o },
    Server { name: "apache2", prepare: apache2 },
    Server { name: LIMIT, prepare: readiness_limit },
];

/// A server that is ready. Dropping it kills it.
pub struct Running {
    /// Short, for a table.
    pub name: &'static str,
    /// Where it serves.
    pub address: SocketAddr,
    child: Child,
    _folder: TempDir,
}

impl Server {
    /// Starts it on the server's side and waits until it answers; nothing where it is not
    /// installed. Blocks.
    ///
    /// # Errors
    /// When it does not start, with what it said.
    pub fn start(
        &self,
        ground: &Ground,
        root: &Path,
        after_reply: AfterReply,
    ) -> anyhow::Result<Option<Running>> {
        start(self.name, ground, root, after_reply, self.prepare)
    }
}

/// Starts our own server as one event loop, with more settings than it has in a comparison: flags and their
/// values. `connections` is what it has room for. Waits until it answers; blocks.
///
/// # Errors
/// When it does not start, with what it said.
pub fn start_inrush(
    ground: &Ground,
    root: &Path,
    connections: u32,
    more: &[(&str, &str)],
) -> anyhow::Result<Running> {
    start_architecture(ground, root, connections, &[&ONE_LOOP, more].concat())
}

/// As [`start_inrush`], on an architecture that is among the settings.
///
/// # Errors
/// When it does not start, with what it said.
pub fn start_architecture(
    ground: &Ground,
    root: &Path,
    connections: u32,
    settings: &[(&str, &str)],
) -> anyhow::Result<Running> {
    let prepare = |task: &Task<'_>| Ok(Some(inrush(task, connections, settings)));
    start(INRUSH, ground, root, AfterReply::Keep, prepare)?.context("inrush has gone")
}

fn start(
    name: &'static str,
    ground: &Ground,
    root: &Path,
    after_reply: AfterReply,
    prepare: impl FnOnce(&Task<'_>) -> io::Result<Option<CommandLine>>,
) -> anyhow::Result<Option<Running>> {
    let folder = open_folder()?;
    let address = ground.topology.server.free_port().context("cannot find a free port")?;
    let task = Task {
        root,
        address,
        cpus: &ground.topology.server.cpus,
        inrush: &ground.inrush,
        after_reply,
        folder: folder.path(),
    };
    let prepared = prepare(&task).with_context(|| format!("cannot prepare {name}"))?;
    let Some(CommandLine { program, arguments }) = prepared else { return Ok(None) };
    let program = ground.topology.server.program(program).arguments(arguments);
    let mut child = program.start().with_context(|| format!("cannot start {name}"))?;
    let deadline = ground.clock.now() + READY_WITHIN;
    while ground.topology.client.enter(|| ask(address)).is_err() {
        if child.wait(LOOK_EVERY)?.is_some() || ground.clock.now() > deadline {
            let output = child.output(LOOK_EVERY, || false)?;
            bail!("{name} does not start: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
    }
    Ok(Some(Running { name, address, child, _folder: folder }))
}

impl Running {
    /// Its process number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to stop, and makes it. Blocks for a moment.
    ///
    /// # Errors
    /// None in practice.
    pub fn stop(mut self) -> io::Result<()> {
        self.child.terminate(STOP_WITHIN).map(|_| ())
    }
}

/// Whether it answers. Some listen before they have read their whole configuration.
fn ask(address: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_WITHIN.into())?;
    stream.set_read_timeout(Some(ANSWER_WITHIN.into()))?;
    write!(stream, "GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    stream.read_exact(&mut [0])
}

/// A temporary folder that every user may use: Apache does not serve as root.
pub fn open_folder() -> io::Result<TempDir> {
    let folder = tempfile::tempdir()?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777))?;
    Ok(folder)
}

fn inrush(task: &Task<'_>, connections: u32, more: &[(&str, &str)]) -> CommandLine {
    let cpus: Vec<String> = task.cpus.iter().map(usize::to_string).collect();
    let mut line = CommandLine::new(task.inrush, ["serve".as_ref(), task.root.as_os_str()]);
    let settings = [
        ("--listen", task.address.to_string()),
        ("--cpus", cpus.join(",")),
        ("--backlog", BACKLOG.to_string()),
        ("--max-connections", connections.to_string()),
    ];
    for (flag, value) in settings {
        line.arguments.extend([flag.into(), value.into()]);
    }
    line.arguments.extend(more.iter().flat_map(|(flag, value)| [flag.into(), value.into()]));
    line
}

/// As its operators set it up for files of all sizes, and, for small files alone, without sendfile: then
/// head and content leave in one call.
fn nginx(task: &Task<'_>, sending: &str) -> io::Result<Option<CommandLine>> {
    let Some(program) = find_program("nginx") else { return Ok(None) };
    let (folder, root, address) = (task.folder.display(), task.root.display(), task.address);
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("    {kind}_temp_path {folder}/{kind};\n"))
        .concat();
    let text = format!(
        "daemon off;
master_process off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr crit;
events {{
    use epoll;
    worker_connections {CONNECTIONS};
}}
http {{
    access_log off;
    {sending}
    keepalive_timeout 60s;
    keepalive_requests 1000000000;
    open_file_cache max=10000 inactive=60s;
    open_file_cache_valid 60s;
    types {{ text/html html; }}
{temporary}    server {{
        listen {address} backlog={BACKLOG};
        root {root};
    }}
}}
"
    );
    let conf = task.folder.join("nginx.conf");
    fs::write(&conf, text)?;
    let arguments = ["-p".as_ref(), task.folder.as_os_str(), "-c".as_ref(), conf.as_os_str()];
    let mut line = CommandLine::new(program, arguments);
    line.arguments.extend(["-e", "stderr"].map(Into::into));
    Ok(Some(line))
}

fn lighttpd(task: &Task<'_>) -> io::Result<Option<CommandLine>> {
    let Some(program) = find_program("lighttpd") else { return Ok(None) };
    // Its counter of requests on a connection has 16 bits, and it keeps a descriptor for a file beside
    // each connection.
    let text = format!(
        "server.document-root = \"{root}\"
server.bind = \"{ip}\"
server.port = {port}
server.listen-backlog = {BACKLOG}
server.max-connections = {CONNECTIONS}
server.max-fds = {fds}
server.max-keep-alive-requests = 65535
server.max-keep-alive-idle = 60
server.event-handler = \"linux-sysepoll\"
server.network-backend = \"sendfile\"
mimetype.assign = ( \".html\" => \"text/html\" )
",
        root = task.root.display(),
        ip = task.address.ip(),
        port = task.address.port(),
        fds = 2 * CONNECTIONS,
    );
    let conf = task.folder.join("lighttpd.conf");
    fs::write(&conf, text)?;
    Ok(Some(CommandLine::new(program, ["-D".as_ref(), "-f".as_ref(), conf.as_os_str()])))
}

fn h2o(task: &Task<'_>) -> io::Result<Option<CommandLine>> {
    let Some(program) = find_program("h2o") else { return Ok(None) };
    let user = if is_root() { "user: root\n" } else { "" };
    let text = format!(
        "{user}num-threads: 1
max-connections: {CONNECTIONS}
http1-request-timeout: 60
listen:
  host: {ip}
  port: {port}
hosts:
  default:
    paths:
      /:
        file.dir: {root}
",
        ip = task.address.ip(),
        port = task.address.port(),
        root = task.root.display(),
    );
    let conf = task.folder.join("h2o.conf");
    fs::write(&conf, text)?;
    Ok(Some(CommandLine::new(program, ["-c".as_ref(), conf.as_os_str()])))
}

/// Apache refuses to serve as root, so there it is started as nobody, and told once more to end with us.
fn apache2(task: &Task<'_>) -> io::Result<Option<CommandLine>> {
    let modules = Path::new("/usr/lib/apache2/modules");
    let Some(program) = find_program("apache2").filter(|_| modules.is_dir()) else { return Ok(None) };
    let load = |name: &str| format!("LoadModule {name}_module {}/mod_{name}.so\n", modules.display());
    let text = format!(
        "{modules}ServerRoot {folder}
ServerName localhost
PidFile {folder}/apache.pid
DefaultRuntimeDir {folder}
ErrorLog {folder}/error.log
Listen {address}
ListenBacklog {BACKLOG}
ServerLimit 1
StartServers 1
ThreadLimit 128
ThreadsPerChild 128
MaxRequestWorkers 128
AsyncRequestWorkerFactor 256
KeepAlive On
MaxKeepAliveRequests 0
KeepAliveTimeout 60
EnableSendfile On
TypesConfig /dev/null
AddType text/html .html
DocumentRoot {root}
<Directory {root}>
    Require all granted
    AllowOverride None
</Directory>
",
        modules = ["mpm_event", "authz_core", "mime"].map(load).concat(),
        folder = task.folder.display(),
        address = task.address,
        root = task.root.display(),
    );
    let conf = task.folder.join("apache.conf");
    fs::write(&conf, text)?;
    let mut words = Vec::new();
    if is_root() {
        let Some(setpriv) = find_program("setpriv") else { return Ok(None) };
        words.push(setpriv.into_os_string());
        let flags = ["--reuid=65534", "--regid=65534", "--clear-groups", "--pdeathsig=KILL"];
        words.extend(flags.map(Into::into));
    }
    words.extend([program.into_os_string(), "-X".into(), "-f".into(), conf.into_os_string()]);
    Ok(Some(CommandLine::new(words.remove(0), words)))
}

fn readiness_limit(task: &Task<'_>) -> io::Result<Option<CommandLine>> {
    let after_reply = match task.after_reply {
        AfterReply::Keep => "keep",
        AfterReply::Close => "close",
    };
    let arguments = ["responder", &task.address.to_string(), "--after-reply", after_reply];
    Ok(Some(CommandLine::new(this_program()?, arguments)))
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
