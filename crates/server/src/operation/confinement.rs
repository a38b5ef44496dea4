//! The server's confinement: before its first connection it gives up the superuser, capabilities, files and system
//! calls.
//!
//! ```text
//!   main      begin: files ──> opens everything, starts threads ──> finish: user, capabilities, calls
//!                                     │                                  │
//!   threads                           └─ wait_until_confined ············┴──> capabilities ──> serve
//!   workers                                                                   started by a thread: inherit all
//! ```
//!
//! [`Confinement::begin`] restricts files before any other thread exists, because Landlock holds for the threads that
//! follow. [`Confinement::finish`] changes the user and restricts the system calls of all threads, once everything is
//! open. The threads that serve wait for it (`privileges`), so no client meets a privileged thread. A thread that has
//! waited starts the worker processes. They inherit the confinement, and give up some more calls (`processes`).
//!
//! The crate `confine` makes the system calls.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use confine::{Account, Calls, Facility, Files, Kept, calls_in_words, files_in_words};
use side_servers::AdminAddress;
use site::Auth;

use crate::config::hosts::open_root;
use crate::config::serve::{LogTarget, ServeConfig};
use crate::ground::choices::Switch;
use crate::ground::error::{ServeError, system};
use crate::ground::privileges::Opening;

/// The files that loading a program into the kernel reads: the kernel's types, its processors, and Ubuntu's version.
const FOR_PROGRAMS: [&str; 3] = ["/sys/kernel/btf", "/sys/devices/system/cpu", "/proc/version_signature"];

/// The idle time of the processors, by which workers are added.
pub const PROCESSORS: &str = "/proc/stat";

/// A confinement that has begun.
pub struct Confinement {
    opening: Option<Opening>,
    files: Option<io::Result<Facility>>,
    calls: Option<Calls>,
}

/// The confinement in force, as one line.
#[derive(Clone, Debug)]
pub struct Confined {
    line: String,
    warnings: Vec<String>,
}

impl Confined {
    /// Returns the files that the server cannot open again as its new user, in a line each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

impl fmt::Display for Confined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

impl Confinement {
    /// Restricts this thread, and those that it starts, to the files of the configuration. Call it before the first
    /// thread, and from the thread that calls [`Confinement::finish`].
    pub fn begin(config: &ServeConfig, starts_processes: bool) -> Confinement {
        let confines = config.confine == Switch::On;
        let opening = (confines || config.account.is_some()).then(Opening::begin);
        Confinement {
            opening,
            files: confines.then(|| files(config, starts_processes).restrict()),
            calls: confines.then(|| config.kept_calls(starts_processes)),
        }
    }

    /// Changes the user, restricts the system calls, and releases the waiting threads. Returns `None` if nothing is
    /// confined.
    ///
    /// # Errors
    /// [`ServeError::System`]: the user cannot be changed. [`ServeError::Root`]: the new user cannot open a
    /// directory. Facilities that the kernel lacks are no error.
    pub fn finish(self, config: &ServeConfig) -> Result<Option<Confined>, ServeError> {
        let Confinement { opening, files, calls } = self;
        let Some(opening) = opening else { return Ok(None) };
        let mut warnings = Vec::new();
        if let Some(account) = &config.account {
            warnings = become_account(config, account)?;
        }
        let without_capabilities = !confine::is_root();
        let calls = calls.map(|calls| (calls, calls.restrict()));
        let line = describe(config.account.as_ref(), without_capabilities, files, calls);
        opening.end(without_capabilities).map_err(system("drop capabilities"))?;
        Ok(Some(Confined { line, warnings }))
    }
}

/// Changes the user of this process for good. Returns a line for each file that the new user may not open again.
///
/// # Errors
/// [`ServeError::System`]: the user cannot be changed. [`ServeError::Root`]: the new user cannot open a directory.
pub fn become_account(config: &ServeConfig, account: &Account) -> Result<Vec<String>, ServeError> {
    account.become_it().map_err(system("change to the user of --user"))?;
    config.hosts.iter().try_for_each(|host| open_root(host).map(drop))?;
    Ok(unusable(config, account))
}

fn describe(
    account: Option<&Account>,
    no_capabilities: bool,
    files: Option<io::Result<Facility>>,
    calls: Option<(Calls, io::Result<()>)>,
) -> String {
    let mut parts = vec![match account {
        Some(account) => format!("user {}", account.name()),
        None if confine::is_root() => "still root (--user NAME changes to a user)".to_owned(),
        None => "user unchanged".to_owned(),
    }];
    parts.extend(no_capabilities.then(|| "no capabilities".to_owned()));
    parts.extend(files.map(|files| files_in_words(&files)));
    parts.extend(calls.map(|(kept, calls)| {
        let exceptions = if calls.is_ok() { exceptions(kept) } else { String::new() };
        calls_in_words(&calls) + &exceptions
    }));
    parts.join(", ")
}

/// Names the calls that settings need besides those of every server.
fn exceptions(kept: Calls) -> String {
    let all = [
        (kept.processes, "execve for workers"),
        (kept.kernel_programs, "bpf for programs in the kernel"),
        (kept.rings, "io_uring, which the filter does not see into"),
    ];
    let named: Vec<&str> = all.into_iter().filter(|(kept, _)| *kept).map(|(_, name)| name).collect();
    if named.is_empty() { String::new() } else { format!(" (with {})", named.join("; ")) }
}

/// Tries the files that the server opens again while it runs. Returns a line for each that its user may not open.
fn unusable(config: &ServeConfig, account: &Account) -> Vec<String> {
    let denied = |tried: io::Result<File>| {
        tried.err().is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    };
    let name = account.name();
    let passwords = password_files(config);
    let read_again = read_again(config).chain(passwords.iter().map(AsRef::as_ref));
    let unreadable = read_again.filter(|file| denied(File::open(file))).map(|file| {
        let file = file.display();
        format!(
            "user {name} may not read {file}, so that a changed file needs a restart; give it read permission"
        )
    });
    let unwritable = log_files(config).filter(|path| denied(OpenOptions::new().append(true).open(path))).map(|path| {
        let path = path.display();
        format!("user {name} may not append to {path}, so that a rotated log needs a restart; give it write permission")
    });
    unreadable.chain(unwritable).collect()
}

/// Returns certificates, keys, OCSP responses, and the other files that are read again while the server runs.
fn read_again(config: &ServeConfig) -> impl Iterator<Item = &Path> {
    let certificates = config.tls.iter().flat_map(tls::Files::paths);
    certificates.chain(config.reads_again.iter().map(AsRef::as_ref))
}

/// Returns the files with passwords, which are read again while the server runs.
fn password_files(config: &ServeConfig) -> Vec<PathBuf> {
    let rules = config.hosts.iter().map(|host| host.site.rules.current());
    rules
        .flat_map(|rules| rules.auths.iter().filter_map(Auth::file).map(Path::to_owned).collect::<Vec<_>>())
        .collect()
}

/// Returns the access logs that are files.
fn log_files(config: &ServeConfig) -> impl Iterator<Item = &Path> {
    config.logs().into_iter().filter_map(|log| match log {
        LogTarget::File(path) => Some(path.as_path()),
        LogTarget::Stdout => None,
    })
}

fn files(config: &ServeConfig, starts_processes: bool) -> Files {
    let mut files = Files::default();
    for root in config.hosts.iter().filter_map(|host| host.root.as_ref()) {
        files.keep_deployed(root, Kept::Read);
    }
    for file in password_files(config) {
        files.keep_replaceable(&file, Kept::Read);
    }
    files.keep("/dev/null", Kept::Device);
    if starts_processes {
        files.keep_this_program();
        files.keep(PROCESSORS, Kept::Read);
    }
    if config.loads_programs() {
        for source in FOR_PROGRAMS {
            files.keep(source, Kept::Read);
        }
    }
    for file in read_again(config) {
        files.keep_replaceable(file, Kept::Read);
    }
    for path in log_files(config) {
        keep_log(&mut files, path);
    }
    if let Some(AdminAddress::File(path)) = config.admin.as_ref().map(|admin| &admin.address) {
        files.keep(
            path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new(".")),
            Kept::Sockets,
        );
    }
    files
}

/// Keeps a log for its later openings: a regular file may be rotated, a device or a FIFO stays where it is.
fn keep_log(files: &mut Files, path: &Path) {
    // If the folder is not kept, a rule needs an existing file. Opening the log reports a failure.
    let _ = path.exists() || OpenOptions::new().append(true).create(true).open(path).is_ok();
    if path.is_file() {
        files.keep_replaceable(path, Kept::Write);
    } else {
        files.keep(path, Kept::Write);
    }
}
