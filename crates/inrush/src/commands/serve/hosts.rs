//! From the flags of `serve` to its hosts and certificates.
//!
//! The directory, rules and certificates outside `[[host]]` are those of the default host. Without a directory there
//! the first host is the default. Certificates outside are for all hosts. Hosts without a cache of their own share the
//! server's cache limits in equal parts.

use std::path::{Path, PathBuf};

use server::{CertificateFiles, HostConfig, LogTarget};
use site::auth::Logins;
use site::compress::Compressor;
use site::hosts::{MOST_HOSTS, Names};
use site::{Auth, CacheLimits, LiveRules, Options, Rules};

use crate::cli::{HostFlags, ServeFlags};
use crate::config_file;
use crate::exit::Exit;

/// The hosts of a server, the default first, and its certificates.
type Hosts = (Vec<HostConfig>, Vec<CertificateFiles>);

/// Returns the hosts and certificates of these flags. Reads no file.
///
/// # Errors
/// [`Exit::Usage`]: a mistake in a host, rules without an end, or settings that do not go together.
pub fn of(flags: &ServeFlags) -> Result<Hosts, Exit> {
    let texts = flags.host.iter().zip(1..);
    let parsed = texts.map(|(text, place)| config_file::hosts::parse(place, text).map_err(Exit::Usage));
    let others = parsed.collect::<Result<Vec<_>, _>>()?;
    if others.len() > MOST_HOSTS {
        return Err(wrong(format!("--host is given {} times; expected at most {MOST_HOSTS}", others.len())));
    }
    let mut certificates = pairs("", [&flags.tls_cert, &flags.tls_key, &flags.tls_ocsp], None)?;
    let shared = Share::of(flags, &others);
    let mut hosts = Vec::from_iter(default_host(flags, &shared, !others.is_empty())?);
    for host in others {
        let title = title(&host)?;
        let number = Some(hosts.len() as u16);
        let lists = [&host.tls_cert, &host.tls_key, &host.tls_ocsp];
        certificates.extend(pairs(&format!("{title}: "), lists, number)?);
        let rules = checked(&format!("{title}: "), host.site.rules())?;
        let cache = shared.with_own(&host);
        if host.root.is_none() && !rules.answer_alone() {
            return Err(wrong(format!(
                "{title}: root is missing; expected the directory to serve, or rules that answer without it, such as redirect = \
                 \"/* https://example.org/* 301\""
            )));
        }
        let root = host.root;
        let (site, access_log) = (shared.options(rules, cache), host.access_log.map(log_target));
        hosts.push(HostConfig { names: host.names, root, site, access_log });
    }
    match Names::new(hosts.iter().map(|host| &host.names[..])) {
        Ok(_) => Ok((hosts, certificates)),
        Err(name) => Err(wrong(format!(
            "host {name}: the name is given twice; expected a name that no other host has"
        ))),
    }
}

fn wrong(said: String) -> Exit {
    Exit::Usage(said)
}

/// The host outside `[[host]]`; `None` if the first of the others is the default.
fn default_host(flags: &ServeFlags, shared: &Share, has_others: bool) -> Result<Option<HostConfig>, Exit> {
    let rules = checked("", flags.live.site.rules())?;
    let root = match &flags.root {
        Some(root) => root.clone(),
        None if !has_others => PathBuf::from("."),
        None if rules == Rules::default() => return Ok(None),
        None => {
            return Err(wrong(
                "rules outside [[host]] are those of ROOT, which is missing; expected a root outside [[host]], or rules in \
                 each host"
                    .to_owned(),
            ));
        }
    };
    let site = shared.options(rules, shared.cache);
    Ok(Some(HostConfig { names: Vec::new(), root: Some(root), site, access_log: None }))
}

/// Returns the destination of an access log.
pub fn log_target(given: PathBuf) -> LogTarget {
    if given == Path::new("-") { LogTarget::Stdout } else { LogTarget::File(given) }
}

/// Returns the words for a host in messages.
fn title(host: &HostFlags) -> Result<String, Exit> {
    let name = host.names.first().ok_or_else(|| {
        let root = host.root.as_ref().map_or(String::new(), |root| format!(" of {}", root.display()));
        wrong(format!(
            "the host{root} has no names; expected a list such as names = [\"example.org\", \"*.example.org\"]"
        ))
    })?;
    Ok(format!("host {name}"))
}

/// Refuses more rules than each path can be compared with, and redirects without an end.
fn checked(title: &str, rules: Rules) -> Result<Rules, Exit> {
    match rules.check() {
        Ok(()) => Ok(rules),
        Err(said) => Err(wrong(format!("{title}{said}"))),
    }
}

/// Refuses hosts whose password files cannot be read, or have a line that is not understood.
///
/// # Errors
/// [`Exit::Usage`], which names the host and the file.
pub fn check_password_files(hosts: &[HostConfig]) -> Result<(), Exit> {
    for host in hosts {
        let title = host.names.first().map_or_else(String::new, |name| format!("host {name}: "));
        let rules = host.site.rules.current();
        let mut files = rules.auths.iter().filter_map(Auth::file);
        files.try_for_each(site::auth::check_file).map_err(|said| wrong(format!("{title}{said}")))?;
    }
    Ok(())
}

/// Brings certificates, keys and OCSP responses together. Refuses a certificate without a key, and the other way round.
fn pairs(
    title: &str,
    [certificates, keys, responses]: [&Vec<PathBuf>; 3],
    host: Option<u16>,
) -> Result<Vec<CertificateFiles>, Exit> {
    if certificates.len() != keys.len() {
        return Err(wrong(format!(
            "{title}--tls-cert is given {} times and --tls-key {} times; expected one key for each certificate, in the same \
             order",
            certificates.len(),
            keys.len()
        )));
    }
    if !responses.is_empty() && responses.len() != certificates.len() {
        return Err(wrong(format!(
            "{title}--tls-cert is given {} times and --tls-ocsp {} times; expected one response for each certificate, in the same \
             order, and - for a certificate without one",
            certificates.len(),
            responses.len()
        )));
    }
    let responses = responses.iter().map(|path| Some(path.clone()).filter(|path| path != Path::new("-")));
    let responses = responses.chain(std::iter::repeat(None));
    let pair = |((certificate, key), ocsp): ((&PathBuf, &PathBuf), _)| CertificateFiles {
        certificate: certificate.clone(),
        key: key.clone(),
        ocsp,
        host,
    };
    Ok(certificates.iter().zip(keys).zip(responses).map(pair).collect())
}

/// The settings outside `[[host]]` that apply to the hosts.
struct Share {
    show_dot_files: bool,
    small_file: base::Bytes,
    /// The wrong passwords of clients, at all hosts together.
    logins: Logins,
    /// Compresses the files of all hosts.
    compressor: Compressor,
    /// The cache limits of a host without its own.
    cache: CacheLimits,
}

impl Share {
    fn of(flags: &ServeFlags, others: &[HostFlags]) -> Share {
        let all = others.len() + usize::from(flags.root.is_some() || others.is_empty());
        let own = |is_own: fn(&HostFlags) -> bool| others.iter().filter(|host| is_own(host)).count();
        let whole = CacheLimits {
            bytes: flags.cache_memory,
            open_files: usize::from(flags.cache_open_files),
            ..CacheLimits::default()
        };
        let cache = CacheLimits {
            bytes: whole.part((all - own(|host| host.cache_memory.is_some())).max(1)).bytes,
            open_files: whole.part((all - own(|host| host.cache_open_files.is_some())).max(1)).open_files,
            ..whole.part(all)
        };
        let (logins, compressor) = (Logins::default(), Compressor::default());
        let (show_dot_files, small_file) = (flags.show_dot_files, flags.small_file);
        Share { show_dot_files, small_file, logins, compressor, cache }
    }

    fn with_own(&self, host: &HostFlags) -> CacheLimits {
        CacheLimits {
            bytes: host.cache_memory.unwrap_or(self.cache.bytes),
            open_files: host.cache_open_files.map_or(self.cache.open_files, usize::from),
            ..self.cache
        }
    }

    fn options(&self, rules: Rules, cache: CacheLimits) -> Options {
        Options {
            rules: LiveRules::new(rules),
            show_dot_files: self.show_dot_files,
            small_file: self.small_file,
            fetches_only: false,
            skips_redirects: false,
            compressor: self.compressor.clone(),
            logins: self.logins.clone(),
            cache,
        }
    }
}
