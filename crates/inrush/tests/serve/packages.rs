//! The files of `packaging/`, without building a package: units, config file, lists, what apt runs after an upgrade, and the
//! page that refers to them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use assert_cmd::Command;

use super::stand_ins::stand_ins;
use super::tls::{Identity, installed};
use crate::common::{Files, PROGRAM};

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(source(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Replaces a text that must be there.
fn replace(text: &mut String, from: &str, to: &Path) {
    assert!(text.contains(from), "no {from} in {text}");
    *text = text.replace(from, &to.display().to_string());
}

/// Runs `serve --check` with a config file, and returns what it shows.
fn check(files: &Files, config: &str) -> String {
    let path = files.beside("inrush.toml");
    std::fs::write(&path, config).unwrap();
    let checked = Command::new(PROGRAM).args(["serve", "--check", "--config"]).arg(path).assert().success();
    String::from_utf8(checked.get_output().stdout.clone()).unwrap()
}

/// The units in a folder of their own, with our program in place of the installed one.
fn units(files: &Files) -> Vec<PathBuf> {
    ["inrush@.service", "inrush@.socket", "inrush-guard@.service"]
        .map(|name| {
            let mut unit = read(&format!("packaging/{name}"));
            if name.ends_with("service") {
                replace(&mut unit, "ExecStart=/usr/bin/inrush ", Path::new(&format!("ExecStart={PROGRAM} ")));
            }
            let path = files.beside(name);
            std::fs::write(&path, unit).unwrap();
            path
        })
        .into()
}

#[test]
fn every_file_of_the_debian_package_exists() {
    let manifest: toml::Table = read("crates/inrush/Cargo.toml").parse().unwrap();
    let package = &manifest["package"]["metadata"]["deb"];
    let mut found = 0;
    for asset in package["assets"].as_array().unwrap() {
        let path = asset[0].as_str().unwrap();
        // These are made from the program.
        if !path.starts_with("target/release/") {
            assert!(source("crates/inrush").join(path).is_file(), "{path}");
            found += 1;
        }
    }
    assert!(found > 5);
    for key in ["changelog", "maintainer-scripts"] {
        assert!(source("crates/inrush").join(package[key].as_str().unwrap()).exists(), "{key}");
    }
    let version = format!("inrush ({}-1) ", env!("CARGO_PKG_VERSION"));
    assert!(
        read("packaging/deb/changelog").starts_with(&version),
        "the changelog does not begin with {version}"
    );
}

#[test]
fn packaged_config_is_valid_also_uncommented() {
    let files = Files::new();
    let identity = Identity::new(&files, "site", &["example.org"]);
    let mut config = read("packaging/site.toml");
    replace(&mut config, "/usr/share/inrush/site", &source("packaging/site"));
    replace(&mut config, "/var/log/inrush/access.log", &files.beside("access.log"));
    assert!(check(&files, &config).contains("http://"));
    replace(&mut config, "/etc/letsencrypt/live/example.org/fullchain.pem", &identity.certificate);
    replace(&mut config, "/etc/letsencrypt/live/example.org/privkey.pem", &identity.key);
    for setting in ["tls-cert", "tls-key", "admin", "upgrade"] {
        replace(&mut config, &format!("# {setting} = "), Path::new(&format!("{setting} = ")));
    }
    assert!(check(&files, &config).contains("https://"));
}

#[test]
fn the_config_files_of_the_page_are_valid() {
    let files = Files::new();
    let identity = Identity::new(&files, "site", &["example.org"]);
    let page = read("docs/tasks/internet.md");
    let mut blocks: Vec<String> =
        page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect();
    let [plain, site] = &mut blocks[..] else { panic!("{blocks:?}") };
    replace(plain, "/srv/example.org/plain", &files.root());
    check(&files, plain);
    replace(site, "/srv/example.org/site", &files.root());
    replace(site, "/var/log/inrush/access.log", &files.beside("access.log"));
    replace(site, "/etc/letsencrypt/live/example.org/fullchain.pem", &identity.certificate);
    replace(site, "/etc/letsencrypt/live/example.org/privkey.pem", &identity.key);
    assert!(check(&files, site).contains("https://"));
}

#[test]
fn systemd_accepts_the_units_and_finds_them_hardened() {
    if !installed("systemd-analyze") {
        return;
    }
    let files = Files::new();
    let units = units(&files);
    Command::new("systemd-analyze").args(["verify", "--man=no"]).args(&units).assert().success().stderr("");
    let judged = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--threshold=20"])
        .arg(&units[0])
        .assert();
    // It fails above the threshold of 2.0 out of 10.
    judged.success();
}

/// The system calls behind a name of systemd's filters: a call, or a set of names.
fn calls(sets: &BTreeMap<String, Vec<String>>, name: &str) -> Vec<String> {
    match sets.get(name) {
        Some(members) => members.iter().flat_map(|member| calls(sets, member)).collect(),
        None => vec![name.to_owned()],
    }
}

/// The system calls that a unit allows, with the lines of a drop-in behind its own. `None` without systemd.
fn allowed_calls(unit: &str, drop_in: &str) -> Option<BTreeSet<String>> {
    if !installed("systemd-analyze") {
        return None;
    }
    let known = Command::new("systemd-analyze").arg("syscall-filter").output().unwrap();
    let known = String::from_utf8(known.stdout).unwrap();
    let (mut sets, mut set) = (BTreeMap::<String, Vec<String>>::new(), "");
    for line in known.lines().filter(|line| !line.trim_start().starts_with('#')) {
        if line.starts_with('@') {
            set = line;
        } else if !line.trim().is_empty() {
            sets.entry(set.to_owned()).or_default().push(line.trim().to_owned());
        }
    }
    let lines = unit.lines().chain(drop_in.lines());
    let mut allowed = BTreeSet::new();
    for list in lines.filter_map(|line| line.strip_prefix("SystemCallFilter=")) {
        let removed = list.strip_prefix('~');
        for call in removed.unwrap_or(list).split(' ').flat_map(|name| calls(&sets, name)) {
            match removed {
                Some(_) => allowed.remove(&call),
                None => allowed.insert(call),
            };
        }
    }
    Some(allowed)
}

#[test]
fn server_unit_allows_the_calls_of_our_own_filter() {
    let Some(allowed) = allowed_calls(&read("packaging/inrush@.service"), "") else { return };
    let filter = read("crates/confine/src/calls.rs");
    let is_end = |character: char| !character.is_ascii_alphanumeric() && character != '_';
    let ours = filter.split("libc::SYS_").skip(1).filter_map(|rest| rest.split(is_end).next());
    // Settings that need `bpf` have a drop-in on the page. Nothing calls `mincore`.
    let refused: Vec<&str> =
        ours.filter(|call| !allowed.contains(*call) && !["bpf", "mincore"].contains(call)).collect();
    assert!(refused.is_empty(), "{refused:?}");
}

#[test]
fn documented_drop_in_lets_a_guard_have_a_sink() {
    let page = read("docs/packages.md");
    let drop_in = page.split("```ini\n").nth(1).unwrap().split("```").next().unwrap();
    for key in ["AmbientCapabilities", "CapabilityBoundingSet"] {
        assert!(drop_in.contains(&format!("{key}=CAP_SETUID CAP_NET_BIND_SERVICE\n")), "{drop_in}");
    }
    let Some(allowed) = allowed_calls(&read("packaging/inrush-guard@.service"), drop_in) else { return };
    for call in ["pidfd_open", "pidfd_getfd", "setfsuid", "bpf"] {
        assert!(allowed.contains(call), "{call}");
    }
}

#[test]
fn guard_unit_awaits_a_slow_server_without_limit() {
    let unit = read("packaging/inrush-guard@.service");
    let (section, service) = unit.split_once("[Service]\n").unwrap();
    assert!(section.lines().any(|line| line == "StartLimitIntervalSec=0"), "{section}");
    assert!(service.lines().any(|line| line == "Restart=on-failure"), "{service}");
}

#[test]
fn log_rotation_passes_over_stopped_servers() {
    let settings = read("packaging/logrotate");
    assert!(settings.contains(" systemctl try-reload-or-restart 'inrush@*.service'\n"), "{settings}");
}

#[test]
fn page_stops_the_server_before_its_socket_opens() {
    let page = read("docs/packages.md");
    let at =
        |command: &str| page.find(&format!("\nsystemctl {command}\n")).unwrap_or_else(|| panic!("{command}"));
    assert!(at("disable --now inrush@site") < at("enable --now inrush@site.socket"));
}

#[test]
fn image_archive_has_a_form_that_docker_loads() {
    assert!(read("packaging/build").contains("\"docker-archive:$archive:localhost/inrush:latest\""));
    assert!(read("docs/packages.md").contains(" localhost/inrush\n"));
}

#[test]
fn documented_builds_use_the_lock_file() {
    let mut builds = 0;
    for name in ["README.md", "docs/install.md", "docs/packages.md"] {
        for line in
            read(name).lines().filter(|line| line.contains("cargo install ") && line.contains("--path"))
        {
            assert!(line.contains("cargo install --locked "), "{name}: {line}");
            builds += 1;
        }
    }
    assert_eq!(builds, 4);
}

/// Runs what apt runs after an upgrade, beside a running server with this setting of `upgrade`, and a guard. `at_signal` is a
/// script for the server's answer to SIGUSR2: the file `process` is its main process. Returns the restarts.
fn restarts(upgrade: &str, at_signal: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    for name in ["etc/inrush", "run/systemd/system"] {
        std::fs::create_dir_all(root.join(name)).unwrap();
    }
    for (name, text) in [("etc/inrush/site.toml", ""), ("process", "10\n"), ("restarts", "")] {
        std::fs::write(root.join(name), text).unwrap();
    }
    let guards = "inrush-guard@nginx.service loaded active running Inrush guard of nginx";
    let systemctl = format!(
        "case \"$*\" in\n\
         *MainPID*inrush@site.service) cat process ;;\n\
         *--signal=USR2*inrush@site.service) {at_signal} ;;\n\
         list-units*) echo '{guards}' ;;\n\
         esac"
    );
    let inrush = format!("echo 'upgrade = \"{upgrade}\"'");
    let programs = [
        ("systemctl", &*systemctl),
        ("deb-systemd-invoke", "echo \"$2\" >> restarts"),
        ("inrush", &inrush),
        ("systemd-sysusers", ""),
    ];
    let path = format!("{}:/usr/bin:/bin", stand_ins(root, &programs).display());
    let mut script = Command::new("sh");
    script.arg(source("packaging/deb/postinst")).args(["configure", "0.0.1-1"]).current_dir(root);
    script.env("PATH", path).env("DPKG_ROOT", root).env("INRUSH_PATIENCE", "0").assert().success();
    std::fs::read_to_string(root.join("restarts")).unwrap()
}

#[test]
fn upgrade_restarts_what_cannot_hand_over() {
    let (server, guard) = ("inrush@site.service\n", "inrush-guard@nginx.service\n");
    assert_eq!(restarts("on", "echo 11 > process"), guard);
    assert_eq!(restarts("off", "echo 11 > process"), format!("{server}{guard}"));
    // The new program did not start, the server died, and the signal was not sent.
    for at_signal in ["true", "echo 0 > process", "exit 1"] {
        assert_eq!(restarts("on", at_signal), format!("{server}{guard}"), "{at_signal}");
    }
}
