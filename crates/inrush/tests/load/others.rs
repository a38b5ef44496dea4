//! Servers of others, as their users start them: nginx, h2o, Apache and HAProxy. A server that is not installed is a
//! printed skip. The tests here ask them over TCP in user space.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use sys::process::{Child, Program, find_program};

use super::common::{Files, Server};
use super::listening::listening;
use super::stacks::{in_namespace, result};

/// A server of others, ended with the test.
pub struct Other {
    _child: Child,
    pub port: u16,
}

impl Other {
    /// Starts a server that is told its port by a config file; `None` if it is not installed.
    pub fn start(name: &str, files: &Files, config: impl Fn(u16) -> String, flags: &[&str]) -> Option<Other> {
        let Some(program) = find_program(name) else {
            println!("skipped: {name} is not installed");
            return None;
        };
        // The port is free again when the listener is dropped.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let path = files.beside("config");
        fs::write(&path, config(port)).unwrap();
        let arguments = flags.iter().map(Path::new).chain([path.as_path()]);
        let program = Program::new(program).arguments(arguments);
        let child = listening(name, program, || TcpStream::connect(("127.0.0.1", port)));
        Some(Other { _child: child, port })
    }

    /// Checks that it answers small and large requests of connections that are kept, that end with a request, and
    /// that the client resets.
    fn check_over_user_tcp(&self) {
        // All sessions begin long before the run ends, so that the run's end interrupts none.
        let many = ["--arrivals=steps:200x200ms,0x1h", "--duration=500ms", "--requests-per-connection=1..9"];
        let few = ["--arrivals=steps:10x200ms,0x1h", "--duration=500ms", "--requests-per-connection=2"];
        for (file, flags) in [
            (Files::SMALL, &many[..]),
            (Files::SMALL, &[&many[..], &["--close=rst", "--threads=2"]].concat()),
            (Files::SMALL, &[&many[..2], &["--requests-per-connection=1"]].concat()),
            (Files::LARGE, &few),
        ] {
            let address = SocketAddr::from(([127, 0, 0, 1], self.port));
            let (url, length) =
                (format!("http://{address}{}", file.0), format!("--expect-length={}", file.1));
            let Some(result) = result(&url, &[&["--stack=user", &length], flags].concat()) else { return };
            assert!(result["offered"].as_u64() > Some(0));
            assert_eq!(result["outcomes"]["ok"], result["offered"], "{flags:?}: {result:#}");
            assert_eq!(result["in_flight_at_end"], 0, "{flags:?}: {result:#}");
        }
    }
}

fn check(name: &str, flags: &[&str], config: fn(&Files, u16) -> String) {
    in_namespace(|| {
        let files = Files::new();
        if let Some(other) = Other::start(name, &files, |port| config(&files, port), flags) {
            other.check_over_user_tcp();
        }
    });
}

#[test]
fn nginx_answers_tcp_in_user_space() {
    check("nginx", &["-c"], |files, port| {
        let (root, pid) = (files.root(), files.beside("pid"));
        format!(
            "daemon off; user root; pid {}; error_log stderr; events {{}} http {{ access_log off; server {{ \
             listen 127.0.0.1:{port}; root {}; }} }}",
            pid.display(),
            root.display()
        )
    });
}

#[test]
fn h2o_answers_tcp_in_user_space() {
    check("h2o", &["-c"], |files, port| {
        format!(
            "user: root\nhosts:\n  default:\n    listen:\n      host: 127.0.0.1\n      port: {port}\n    paths:\n      \
             /:\n        file.dir: {}\n",
            files.root().display()
        )
    });
}

#[test]
fn apache_answers_tcp_in_user_space() {
    check("apache2", &["-X", "-f"], |files, port| {
        // Apache serves as another user.
        let folder = files.beside("");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        let module = |name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n");
        format!(
            "{}ServerRoot {folder}\nServerName localhost\nUser nobody\nGroup nogroup\nPidFile {folder}/pid\n\
             DefaultRuntimeDir {folder}\nErrorLog {folder}/error.log\nListen 127.0.0.1:{port}\nMaxKeepAliveRequests 0\n\
             DocumentRoot {root}\n<Directory {root}>\nRequire all granted\n</Directory>\n",
            ["mpm_event", "authz_core"].map(module).concat(),
            folder = folder.display(),
            root = files.root().display()
        )
    });
}

/// HAProxy has no files: it passes the requests on to our server, over kernel sockets.
#[test]
fn haproxy_answers_tcp_in_user_space() {
    in_namespace(|| {
        let files = Files::new();
        let server = Server::start(&files.root(), &[]);
        let config = |port| {
            let address = server.address;
            format!(
                "defaults\n  mode http\n  timeout client 30s\n  timeout connect 30s\n  timeout server 30s\n\
                 listen all\n  bind 127.0.0.1:{port}\n  server ours {address}\n"
            )
        };
        if let Some(haproxy) = Other::start("haproxy", &files, config, &["-db", "-f"]) {
            haproxy.check_over_user_tcp();
        }
    });
}
