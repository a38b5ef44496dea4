//! Servers as their packages install them: the configuration of the package, with the address and the root of the lab.
//!
//! Owns a copy of the package's folder in `/etc` with these places filled in. Beside them only the paths of files that the
//! server writes lead into the lab's folder, so that a machine's own server is left alone. A place that the package does
//! not have is an error: the configuration is then another one than these lines were written for (Debian 12).
//!
//! Such a server has a parent with workers. They outlive a killed parent, so it needs a namespace, whose processes end
//! with it.

use std::fs;
use std::io;
use std::path::Path;

use experiment::Package;
use record::TopologyKind;

use super::read_back::Asked;
use super::recipe::{Kitchen, Readiness, Recipe};
use super::{Settings, StartError};
use crate::identity::Identity;
use crate::topology::Topology;

/// A package's files and the places in them. `~F`, `~C`, `~A`, `~I`, `~P`, `~R` and `~B` stand for the lab's folder, the
/// copy of the configuration, address, IP, port and root of the server, and the address of the server behind it.
struct Installed {
    program: &'static str,
    etc: &'static str,
    arguments: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
    /// Texts of the package, each with its replacement.
    places: &'static [(&'static str, &'static str)],
    /// A file and the lines that are appended to it.
    added: Option<(&'static str, &'static str)>,
}

const NGINX: Installed = Installed {
    program: "nginx",
    etc: "/etc/nginx",
    arguments: &["-c", "~C/nginx.conf", "-e", "stderr", "-g", "daemon off;"],
    environment: &[],
    places: &[
        ("/etc/nginx/", "~C/"),
        ("/run/nginx.pid", "~F/nginx.pid"),
        ("/var/log/nginx/", "~F/"),
        ("listen 80 default_server;", "listen ~A~T"),
        ("listen [::]:80 default_server;", ""),
        ("/var/www/html", "~R"),
    ],
    added: None,
};

const APACHE: Installed = Installed {
    program: "apache2",
    etc: "/etc/apache2",
    arguments: &["-D", "FOREGROUND", "-d", "~C", "-f", "apache2.conf"],
    environment: &[
        ("APACHE_RUN_USER", "www-data"),
        ("APACHE_RUN_GROUP", "www-data"),
        ("APACHE_PID_FILE", "~F/apache2.pid"),
        ("APACHE_RUN_DIR", "~F"),
        ("APACHE_LOCK_DIR", "~F"),
        ("APACHE_LOG_DIR", "~F"),
        ("LANG", "C"),
    ],
    places: &[
        ("Listen 80\n", "Listen ~A\n"),
        ("<VirtualHost *:80>", "<VirtualHost *:~P>"),
        ("DocumentRoot /var/www/html", "DocumentRoot ~R"),
        ("<Directory /var/www/>", "<Directory ~R/>"),
    ],
    added: None,
};

const LIGHTTPD: Installed = Installed {
    program: "lighttpd",
    etc: "/etc/lighttpd",
    arguments: &["-D", "-f", "~C/lighttpd.conf"],
    environment: &[],
    places: &[
        ("\"/etc/lighttpd/", "\"~C/"),
        ("= \"/var/www/html\"", "= \"~R\""),
        ("/var/log/lighttpd/", "~F/"),
        ("/run/lighttpd.pid", "~F/lighttpd.pid"),
        ("server.port                 = 80", "server.bind = \"~I\"\nserver.port = ~P"),
    ],
    added: None,
};

const H2O: Installed = Installed {
    program: "h2o",
    etc: "/etc/h2o",
    arguments: &["-c", "~C/h2o.conf"],
    environment: &[],
    places: &[
        ("/var/log/h2o/", "~F/"),
        ("/run/h2o.pid", "~F/h2o.pid"),
        ("  port: 80", "  host: ~I\n  port: ~P"),
        ("file.dir: /var/www", "file.dir: ~R"),
    ],
    added: None,
};

/// The package has no site of its own: the lines of its manual for one server behind it are added.
const HAPROXY: Installed = Installed {
    program: "haproxy",
    etc: "/etc/haproxy",
    arguments: &["-db", "-f", "~C/haproxy.cfg"],
    environment: &[],
    places: &[("/run/haproxy/admin.sock", "~F/admin.sock")],
    added: Some((
        "haproxy.cfg",
        "\nfrontend site\n\tbind ~A\n\tdefault_backend servers\n\nbackend servers\n\tserver s1 ~B\n",
    )),
};

/// The recipe of a package's server. `behind` are the addresses of servers behind a proxy, by name.
///
/// # Errors
/// [`StartError`] if the package is not installed, has another configuration, or there are no namespaces.
pub fn installed(
    package: Package,
    topology: &Topology,
    settings: &Settings,
    behind: &[(String, String)],
) -> Result<Recipe, StartError> {
    if topology.kind == TopologyKind::Loopback {
        let needs = io::Error::other("a packaged server needs network namespaces");
        return Err(StartError::Io("confine its workers", needs));
    }
    let how = match package {
        Package::Nginx => NGINX,
        Package::Apache2 => APACHE,
        Package::Lighttpd => LIGHTTPD,
        Package::H2o => H2O,
        Package::Haproxy => HAPROXY,
    };
    let kitchen = Kitchen::of(how.program, topology)?;
    let copy = kitchen.folder.path().join("etc");
    let values = [
        ("~F", kitchen.folder.path().display().to_string()),
        ("~C", copy.display().to_string()),
        ("~A", kitchen.address.to_string()),
        ("~I", kitchen.address.ip().to_string()),
        ("~P", kitchen.address.port().to_string()),
        ("~R", settings.root.display().to_string()),
        ("~T", transport(settings)),
        ("~B", behind.first().map(|(_, address)| address.clone()).unwrap_or_default()),
    ];
    let filled =
        |text: &str| values.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value));
    let places: Vec<(&str, String)> = how.places.iter().map(|(from, to)| (*from, filled(to))).collect();
    let mut found = vec![false; places.len()];
    let prepare = |error| StartError::Io("copy the package's configuration", error);
    copy_filled(Path::new(how.etc), &copy, &places, &mut found).map_err(prepare)?;
    if let Some((place, _)) =
        how.places.iter().zip(&found).find(|(_, found)| !**found).map(|(place, _)| place)
    {
        let other = io::Error::other(format!("{} has no '{}'", how.etc, place.trim()));
        return Err(prepare(other));
    }
    if let Some((file, lines)) = how.added {
        let path = copy.join(file);
        let text = fs::read_to_string(&path).map_err(prepare)?;
        fs::write(&path, text + &filled(lines)).map_err(prepare)?;
    }
    Ok(Recipe {
        program: kitchen.program,
        arguments: how.arguments.iter().map(|text| filled(text).into()).collect(),
        environment: how
            .environment
            .iter()
            .map(|(name, value)| ((*name).to_owned(), filled(value)))
            .collect(),
        readiness: Readiness::Replies(kitchen.address),
        folder: Some(kitchen.folder),
        asked: Asked::default(),
    })
}

/// The rest of nginx's `listen`, with the two lines of TLS that the package has as a comment.
fn transport(settings: &Settings) -> String {
    match &settings.tls {
        None => " default_server;".to_owned(),
        Some(Identity { certificate, key }) => {
            format!(" ssl default_server; ssl_certificate {certificate:?}; ssl_certificate_key {key:?};")
        }
    }
}

/// Copies a folder, with links as the files they lead to, and fills the places in its texts. Notes which places were found.
fn copy_filled(from: &Path, to: &Path, places: &[(&str, String)], found: &mut [bool]) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, copy) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy_filled(&path, &copy, places, found)?;
            continue;
        }
        // A link may lead nowhere, and a key may be root's alone: the server says so if it needs the file.
        let Ok(bytes) = fs::read(&path) else { continue };
        let Ok(mut text) = String::from_utf8(bytes.clone()) else {
            fs::write(&copy, bytes)?;
            continue;
        };
        for ((from, to), found) in places.iter().zip(found.iter_mut()) {
            *found |= text.contains(from);
            text = text.replace(from, to);
        }
        fs::write(&copy, text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_filled_in_copies_of_files_and_links() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(from.path().join("sites")).unwrap();
        fs::write(from.path().join("sites/default"), "listen 80;\nroot /var/www;\n").unwrap();
        std::os::unix::fs::symlink("default", from.path().join("sites/enabled")).unwrap();
        std::os::unix::fs::symlink("nowhere", from.path().join("sites/broken")).unwrap();
        let places = [("listen 80;", "listen 10.77.0.1:99;".to_owned()), ("pid /run", String::new())];
        let mut found = [false; 2];
        let copy = to.path().join("etc");
        copy_filled(from.path(), &copy, &places, &mut found).unwrap();
        let text = fs::read_to_string(copy.join("sites/enabled")).unwrap();
        assert_eq!(text, "listen 10.77.0.1:99;\nroot /var/www;\n");
        assert_eq!(found, [true, false]);
    }
}
