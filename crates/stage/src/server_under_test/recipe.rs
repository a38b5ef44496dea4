//! The command line and configuration of each server under test.
//!
//! Other servers are tuned for static files: one event loop, sendfile, files kept open,
//! keep-alive without a bound, no access log. No server outlives the laboratory. nginx runs with `master_process
//! off`: the same loop without a supervisor. Apache runs in the foreground in our process group. It refuses to
//! serve as root, so it runs as another user. Servers as their packages install them are [`super::installed`].

use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::read_back::Asked;
use super::{Settings, StartError};
use crate::identity::Identity;
use crate::owner;
use crate::topology::Topology;

/// The number of Apache's processes (prefork), as in the SMPED paper.
const PREFORK_PROCESSES: u32 = 150;
/// Apache's threads (event).
const EVENT_THREADS: u32 = 128;

/// The sign by which a server is known to be ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// The server is ours and announces its addresses.
    Announces,
    /// It takes connections.
    Connects(SocketAddr),
    /// It answers a request with any reply. Some servers listen before they have read their whole configuration.
    Replies(SocketAddr),
    /// It answers a GET of a path so many times in a row with a status below 400.
    Answers(SocketAddr, String, u32),
    /// It writes a line with a text in it.
    Says(SocketAddr, String),
}

/// The command line, environment and files of a server.
#[derive(Debug)]
pub struct Recipe {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Variables beside those of our own environment.
    pub environment: Vec<(String, String)>,
    /// The sign that it is ready.
    pub readiness: Readiness,
    /// The folder of its configuration and output.
    pub folder: Option<TempDir>,
    /// The conditions that the command line or the configuration asks for.
    pub asked: Asked,
}

/// `inrush serve` with more flags, which override the common ones.
///
/// # Errors
/// This program's own file is gone.
pub fn inrush(topology: &Topology, settings: &Settings, flags: &[String]) -> Result<Recipe, StartError> {
    let program = sys::process::this_program().map_err(|error| StartError::Io("find this program", error))?;
    let any_port = format!("{}:0", topology.server.addresses[0]);
    let cpus: Vec<String> = topology.server.cpus.iter().map(usize::to_string).collect();
    let common = [
        ("--listen", any_port.clone()),
        ("--admin", any_port),
        ("--cpus", cpus.join(",")),
        ("--backlog", settings.backlog.to_string()),
        ("--max-connections", settings.connections.to_string()),
    ];
    let mut arguments: Vec<OsString> = vec!["serve".into(), settings.root.clone().into()];
    let given = |flag: &str| flags.iter().any(|given| given.split('=').next() == Some(flag));
    let tls = settings.tls.iter().flat_map(|Identity { certificate, key }| {
        [("--tls-cert", certificate), ("--tls-key", key)]
            .map(|(flag, path)| (flag, path.display().to_string()))
    });
    let common = common.into_iter().chain(tls).filter(|(flag, _)| !given(flag));
    arguments.extend(common.flat_map(|(flag, value)| [flag.into(), value.into()]));
    arguments.extend(flags.iter().map(OsString::from));
    let value = |flag: &str| value_of(flags, flag);
    let backlog = value("--backlog").map_or(Some(settings.backlog), |given| given.parse().ok());
    let asked =
        Asked { backlog, processes: None, architecture: value("--arch"), dispatch: value("--dispatch") };
    let (environment, readiness) = (Vec::new(), Readiness::Announces);
    Ok(Recipe { program, arguments, environment, readiness, folder: None, asked })
}

/// The last value of a flag that takes one, as a word of its own or behind `=`.
fn value_of(flags: &[String], flag: &str) -> Option<String> {
    let behind = |(place, given): (usize, &String)| match given.strip_prefix(flag)? {
        "" => flags.get(place + 1).cloned(),
        rest => rest.strip_prefix('=').map(str::to_owned),
    };
    flags.iter().enumerate().filter_map(behind).next_back()
}

/// `inrush guard` with flags, beside the server at an address.
///
/// # Errors
/// This program's own file is gone.
pub fn guard(server: SocketAddr, flags: &[String]) -> Result<Recipe, StartError> {
    let program = sys::process::this_program().map_err(|error| StartError::Io("find this program", error))?;
    let own = ["guard".to_owned(), server.to_string()];
    let observes = flags.iter().any(|flag| flag == "--observe");
    let says = if observes { "observing " } else { "guarding " };
    Ok(Recipe {
        program,
        arguments: own.iter().chain(flags).map(OsString::from).collect(),
        environment: Vec::new(),
        readiness: Readiness::Says(server, says.to_owned()),
        folder: None,
        asked: Asked::default(),
    })
}

/// The common start of the recipes for other servers.
pub(super) struct Kitchen {
    pub program: PathBuf,
    pub address: SocketAddr,
    pub folder: TempDir,
}

impl Kitchen {
    pub fn of(name: &str, topology: &Topology) -> Result<Kitchen, StartError> {
        let program =
            sys::process::find_program(name).ok_or_else(|| StartError::NotInstalled(name.to_owned()))?;
        let address = topology.server.free_port().map_err(|error| StartError::Io("find it a port", error))?;
        let folder = owner::temporary_folder().map_err(|error| StartError::Io("make it a folder", error))?;
        Ok(Kitchen { program, address, folder })
    }

    /// Writes the configuration, in which `~F`, `~A`, `~I`, `~P` and `~R` stand for folder, address, IP, port and root.
    fn recipe(
        self,
        text: &str,
        settings: &Settings,
        processes: u32,
        arguments: &[&str],
    ) -> Result<Recipe, StartError> {
        let (folder, conf) = (self.folder.path(), self.folder.path().join("server.conf"));
        let text = text
            .replace("~F", &folder.display().to_string())
            .replace("~A", &self.address.to_string())
            .replace("~I", &self.address.ip().to_string())
            .replace("~P", &self.address.port().to_string())
            .replace("~R", &settings.root.display().to_string().replace('\\', "\\\\").replace('"', "\\\""));
        fs::write(&conf, text).map_err(|error| StartError::Io("write its configuration", error))?;
        let place = |argument: &&str| match *argument {
            "~F" => folder.as_os_str().to_owned(),
            "~C" => conf.as_os_str().to_owned(),
            other => other.into(),
        };
        Ok(Recipe {
            program: self.program,
            arguments: arguments.iter().map(place).collect(),
            environment: Vec::new(),
            readiness: Readiness::Replies(self.address),
            folder: Some(self.folder),
            asked: Asked { backlog: Some(settings.backlog), processes: Some(processes), ..Asked::default() },
        })
    }
}

/// nginx, one event loop, as its operators set it up for files of all sizes.
///
/// # Errors
/// [`StartError`] where it is not installed or its configuration not written.
pub fn nginx(topology: &Topology, settings: &Settings) -> Result<Recipe, StartError> {
    let how = "sendfile on; tcp_nopush on;";
    let Some(Identity { certificate, key }) = &settings.tls else {
        return nginx_with(how, "", topology, settings);
    };
    let how = format!(
        "{how} ssl_protocols TLSv1.2 TLSv1.3; ssl_certificate {certificate:?}; ssl_certificate_key {key:?};"
    );
    nginx_with(&how, "ssl", topology, settings)
}

/// nginx with directives of its own, and parameters of its `listen`.
///
/// # Errors
/// As [`nginx`]'s.
pub fn nginx_with(
    how: &str,
    transport: &str,
    topology: &Topology,
    settings: &Settings,
) -> Result<Recipe, StartError> {
    let kitchen = Kitchen::of("nginx", topology)?;
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("    {kind}_temp_path \"~F/{kind}\";\n"))
        .concat();
    let text = format!(
        "daemon off;
master_process off;
worker_processes 1;
worker_rlimit_nofile {descriptors};
pid \"~F/nginx.pid\";
error_log stderr crit;
events {{
    use epoll;
    worker_connections {connections};
}}
http {{
    access_log off;
    {how}
    keepalive_timeout 60s;
    keepalive_requests 1000000000;
    open_file_cache max=10000 inactive=60s;
    open_file_cache_valid 60s;
    types {{ text/html html; }}
    default_type application/octet-stream;
{temporary}    server {{
        listen ~A {transport} backlog={backlog};
        root \"~R\";
    }}
}}
",
        connections = settings.connections,
        descriptors = settings.connections + 1000,
        backlog = settings.backlog,
    );
    kitchen.recipe(&text, settings, 1, &["-p", "~F", "-c", "~C", "-e", "stderr"])
}

/// lighttpd, one event loop. Its counter of requests on a connection has 16 bits, and it keeps a
/// descriptor for a file beside each connection.
///
/// # Errors
/// As [`nginx`]'s.
pub fn lighttpd(topology: &Topology, settings: &Settings) -> Result<Recipe, StartError> {
    let kitchen = Kitchen::of("lighttpd", topology)?;
    let text = format!(
        "server.document-root = \"~R\"
server.bind = \"~I\"
server.port = ~P
server.listen-backlog = {backlog}
server.max-connections = {connections}
server.max-fds = {descriptors}
server.max-keep-alive-requests = 65535
server.max-keep-alive-idle = 60
server.event-handler = \"linux-sysepoll\"
server.network-backend = \"sendfile\"
mimetype.assign = ( \".html\" => \"text/html\" )
",
        backlog = settings.backlog,
        connections = settings.connections,
        descriptors = 2 * settings.connections,
    );
    kitchen.recipe(&text, settings, 1, &["-D", "-f", "~C"])
}

/// h2o, one event loop. It has no setting for its backlog, which net.core.somaxconn bounds.
///
/// # Errors
/// As [`nginx`]'s.
pub fn h2o(topology: &Topology, settings: &Settings) -> Result<Recipe, StartError> {
    let kitchen = Kitchen::of("h2o", topology)?;
    let user = if is_root() { "user: root\n" } else { "" };
    let text = format!(
        "{user}num-threads: 1
max-connections: {connections}
http1-request-timeout: 60
listen:
  host: ~I
  port: ~P
hosts:
  default:
    paths:
      /:
        file.dir: \"~R\"
",
        connections = settings.connections,
    );
    kitchen.recipe(&text, settings, 1, &["-c", "~C"])
}

/// HAProxy over TLS, one event loop, which answers every request with one file of the root from its memory.
///
/// # Errors
/// As [`nginx`]'s; without a certificate it cannot be prepared.
pub fn haproxy(topology: &Topology, settings: &Settings, file: &str) -> Result<Recipe, StartError> {
    let kitchen = Kitchen::of("haproxy", topology)?;
    let Identity { certificate, key } = identity(settings)?;
    // HAProxy reads the certificate and its key from one file.
    let both = fs::read(certificate).and_then(|certificate| Ok([certificate, fs::read(key)?].concat()));
    let written = both.and_then(|both| fs::write(kitchen.folder.path().join("server.pem"), both));
    written.map_err(|error| StartError::Io("write its certificate", error))?;
    let text = format!(
        "global
    nbthread 1
    maxconn {connections}
    no strict-limits
defaults
    mode http
    timeout connect 60s
    timeout client 60s
    timeout server 60s
frontend site
    bind ~A backlog {backlog} ssl crt \"~F/server.pem\" alpn http/1.1
    http-request return status 200 content-type text/html file \"~R/{file}\"
",
        connections = settings.connections,
        backlog = settings.backlog,
    );
    let address = kitchen.address;
    let recipe = kitchen.recipe(&text, settings, 1, &["-db", "-f", "~C"])?;
    // It closes connections in cleartext without a reply.
    Ok(Recipe { readiness: Readiness::Connects(address), ..recipe })
}

/// Caddy over TLS, on one CPU. It has no setting for its backlog, which net.core.somaxconn bounds.
///
/// # Errors
/// As [`haproxy`]'s.
pub fn caddy(topology: &Topology, settings: &Settings) -> Result<Recipe, StartError> {
    let kitchen = Kitchen::of("caddy", topology)?;
    let Identity { certificate, key } = identity(settings)?;
    // A client by address sends no server name.
    let text = format!(
        "{{
    admin off
    auto_https off
    persist_config off
    default_sni localhost
    log default {{
        level ERROR
    }}
    servers {{
        protocols h1
    }}
}}
:~P {{
    bind ~I
    tls {certificate:?} {key:?}
    root * \"~R\"
    file_server
}}
"
    );
    let here = kitchen.folder.path().display().to_string();
    let arguments = ["run", "--adapter", "caddyfile", "--config", "~C"];
    let recipe = kitchen.recipe(&text, settings, 1, &arguments)?;
    let homes = ["HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"].map(|home| (home.to_owned(), here.clone()));
    let one_cpu = ("GOMAXPROCS".to_owned(), "1".to_owned());
    let environment = homes.into_iter().chain([one_cpu]).collect();
    Ok(Recipe { environment, asked: Asked { processes: Some(1), ..Asked::default() }, ..recipe })
}

/// The certificate of a server that speaks TLS alone.
fn identity(settings: &Settings) -> Result<&Identity, StartError> {
    let missing = || StartError::Io("prepare it", io::Error::other("it has no certificate"));
    settings.tls.as_ref().ok_or_else(missing)
}

/// Apache with a process for each connection.
///
/// # Errors
/// As [`nginx`]'s.
pub fn apache_prefork(
    topology: &Topology,
    settings: &Settings,
    workers: Option<u32>,
) -> Result<Recipe, StartError> {
    let processes = workers.unwrap_or(PREFORK_PROCESSES);
    let pool = format!(
        "ServerLimit {processes}
StartServers {processes}
MinSpareServers {processes}
MaxSpareServers {processes}
MaxRequestWorkers {processes}
"
    );
    let pool = Pool { mpm: "mpm_prefork", text: &pool, mode: "-DFOREGROUND", processes: processes + 1 };
    apache(topology, settings, &pool)
}

/// Apache with one event loop and a thread for each request.
///
/// # Errors
/// As [`nginx`]'s.
pub fn apache_event(
    topology: &Topology,
    settings: &Settings,
    workers: Option<u32>,
) -> Result<Recipe, StartError> {
    let threads = workers.unwrap_or(EVENT_THREADS);
    let pool = format!(
        "ServerLimit 1
StartServers 1
ThreadLimit {threads}
ThreadsPerChild {threads}
MaxRequestWorkers {threads}
AsyncRequestWorkerFactor 256
"
    );
    apache(topology, settings, &Pool { mpm: "mpm_event", text: &pool, mode: "-X", processes: 1 })
}

/// The processes and threads of an Apache.
struct Pool<'a> {
    /// The module that has them.
    mpm: &'a str,
    /// Its directives.
    text: &'a str,
    /// The flag of the mode in which Apache stays in the foreground.
    mode: &'a str,
    /// All processes, the parent among them.
    processes: u32,
}

/// Returns the recipe of Apache. Apache refuses to serve as root, so root starts it as the user nobody. The change
/// of user clears the request to die with the parent, which the recipe repeats.
fn apache(topology: &Topology, settings: &Settings, pool: &Pool<'_>) -> Result<Recipe, StartError> {
    let Pool { mpm, text: pool, mode, processes } = *pool;
    let kitchen = Kitchen::of("apache2", topology)?;
    let modules = Path::new("/usr/lib/apache2/modules");
    let missing =
        [mpm, "authz_core", "mime"].into_iter().find(|name| !modules.join(format!("mod_{name}.so")).exists());
    if let Some(missing) = missing {
        return Err(StartError::NotInstalled(format!("apache2's mod_{missing}")));
    }
    let load = |name: &str| format!("LoadModule {name}_module {}/mod_{name}.so\n", modules.display());
    let text = format!(
        "{modules}ServerRoot \"~F\"
ServerName localhost
PidFile \"~F/apache.pid\"
DefaultRuntimeDir \"~F\"
ErrorLog \"~F/error.log\"
Listen ~A
ListenBacklog {backlog}
{pool}KeepAlive On
MaxKeepAliveRequests 0
KeepAliveTimeout 60
EnableSendfile On
TypesConfig /dev/null
AddType text/html .html
DocumentRoot \"~R\"
<Directory \"~R\">
    Require all granted
    AllowOverride None
</Directory>
",
        modules = [mpm, "authz_core", "mime"].map(load).concat(),
        backlog = settings.backlog,
    );
    let mut recipe = kitchen.recipe(&text, settings, processes, &[mode, "-f", "~C"])?;
    if is_root() {
        let setpriv = sys::process::find_program("setpriv");
        let setpriv = setpriv.ok_or_else(|| StartError::NotInstalled("setpriv".to_owned()))?;
        let flags = ["--reuid=65534", "--regid=65534", "--clear-groups", "--pdeathsig=KILL"];
        let apache = std::mem::replace(&mut recipe.program, setpriv).into_os_string();
        let arguments = flags.map(OsString::from).into_iter().chain([apache]);
        recipe.arguments.splice(0..0, arguments);
    }
    Ok(recipe)
}

/// Any command. Names in braces in its arguments stand for chosen values, and for those of `more`.
///
/// # Errors
/// [`StartError`] if there is no free port or folder.
pub fn command(
    topology: &Topology,
    settings: &Settings,
    more: &[(String, String)],
    arguments: &[String],
    ready: impl FnOnce(SocketAddr) -> Readiness,
) -> Result<Recipe, StartError> {
    let address = topology.server.free_port().map_err(|error| StartError::Io("find it a port", error))?;
    let make = |error: io::Error| StartError::Io("make it a folder", error);
    let folder = owner::temporary_folder().map_err(make)?;
    let cpus: Vec<String> = topology.server.cpus.iter().map(usize::to_string).collect();
    let value_of = |name: &str| match name {
        "address" => Some(address.to_string()),
        "ip" => Some(address.ip().to_string()),
        "port" => Some(address.port().to_string()),
        "root" => Some(settings.root.display().to_string()),
        "apps" => settings.apps.as_ref().map(|folder| folder.display().to_string()),
        "folder" => Some(folder.path().display().to_string()),
        "backlog" => Some(settings.backlog.to_string()),
        "connections" => Some(settings.connections.to_string()),
        "cpus" => Some(cpus.join(",")),
        other => more.iter().find(|(name, _)| name == other).map(|(_, value)| value.clone()),
    };
    let names_backlog = arguments.iter().any(|argument| argument.contains("{backlog}"));
    let asked = Asked { backlog: names_backlog.then_some(settings.backlog), ..Asked::default() };
    let mut arguments = arguments.iter().map(|argument| experiment::fill(argument, value_of));
    let program = arguments.next().ok_or_else(|| StartError::NotInstalled("an empty command".to_owned()))?;
    Ok(Recipe {
        program: program.into(),
        arguments: arguments.map(OsString::from).collect(),
        environment: Vec::new(),
        readiness: ready(address),
        folder: Some(folder),
        asked,
    })
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_of_a_flag_counts() {
        let flags = ["--arch", "sped", "--backlog=64", "--backlog", "128", "--arches=2"].map(str::to_owned);
        let of = |flag| value_of(&flags, flag);
        assert_eq!(of("--arch").as_deref(), Some("sped"));
        assert_eq!(of("--backlog").as_deref(), Some("128"));
        assert_eq!(of("--dispatch"), None);
    }
}
