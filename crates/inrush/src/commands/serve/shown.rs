//! The lines about the site: its URLs, its rules, and the files that visitors would miss.
//!
//! A hint comes from the site's own answer to a request, so it is always true.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use base::{Clock, RealClock};
use http_semantics::{Method, Request, Service, Status};
use server::{Checked, HostConfig, LogTarget, ServeConfig};
use site::{LiveRules, Options, Root, Rules, Site};

/// Most names of the folder that are looked at for an example.
const MOST_NAMES: usize = 4096;

/// Returns the URLs of addresses, for a browser on this machine.
pub fn urls(is_plain: impl Fn(SocketAddr) -> bool, addresses: &[SocketAddr]) -> Vec<String> {
    let url = |address: &SocketAddr| {
        let scheme = if is_plain(*address) { "http" } else { "https" };
        let mut address = *address;
        match address.ip() {
            ip if !ip.is_unspecified() => {}
            IpAddr::V4(_) => address.set_ip(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(_) => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        }
        format!("{scheme}://{address}/")
    };
    addresses.iter().map(url).collect()
}

/// Returns the absolute path of the folder of a host, or the words for a host without one.
pub fn folder(root: Option<&Path>) -> String {
    let Some(root) = root else { return "rules alone".to_owned() };
    std::fs::canonicalize(root).unwrap_or_else(|_| root.to_owned()).display().to_string()
}

/// Returns the line about certificates.
pub fn certificates(names: &[String]) -> String {
    let names = if names.is_empty() { "no host name".to_owned() } else { names.join(" ") };
    format!("TLS 1.2 and 1.3, with certificates for {names}")
}

/// Returns a line for each host that has names.
pub fn hosts(hosts: &[HostConfig]) -> Vec<String> {
    hosts.iter().filter(|host| !host.names.is_empty()).map(named).collect()
}

/// Returns the line about a host that has names.
fn named(host: &HostConfig) -> String {
    let names: Vec<String> = host.names.iter().map(ToString::to_string).collect();
    format!("host {}: {}", names.join(" "), folder(host.root.as_deref()))
}

/// Returns a line for each missing file: the page at `/` of each host, and the files that rules name.
pub fn hints(hosts: &[HostConfig], urls: &[String]) -> Vec<String> {
    hosts.iter().flat_map(|host| hints_about(host, urls)).collect()
}

fn hints_about(host: &HostConfig, urls: &[String]) -> Vec<String> {
    let Some(root) = &host.root else { return Vec::new() };
    let Ok(opened) = Root::open(root) else { return Vec::new() };
    let options = &host.site;
    let trial = Trial { root: Arc::new(opened), rules: options.rules.current() };
    // The addresses alone lead to the default host.
    let (title, urls) = match host.names.is_empty() {
        true => (String::new(), urls),
        false => (format!("{}: ", host.title()), &[][..]),
    };
    let start = trial.without_start(root, options, urls);
    start.into_iter().chain(trial.absent_pages()).map(|hint| format!("{title}{hint}")).collect()
}

/// A site that answers requests of our own.
struct Trial {
    root: Arc<Root>,
    rules: Arc<Rules>,
}

impl Trial {
    fn status(&self, rules: LiveRules, target: &str) -> Status {
        let clock = RealClock::new();
        let options = Options { rules, fetches_only: true, ..Options::default() };
        let request = Request { method: Method::Head, ..Request::get(target) };
        Site::new(Arc::clone(&self.root), options, clock).respond(&request, clock.now()).status
    }

    fn without_start(&self, root: &Path, options: &Options, urls: &[String]) -> Option<String> {
        if self.status(options.rules.clone(), "/") != Status::NOT_FOUND {
            return None;
        }
        let names = self.rules.index.join(" or ");
        let served = |path: &String| self.status(options.rules.clone(), path) == Status::OK;
        let example = first_file(root).filter(served).zip(urls.first());
        let example = example.map_or(String::new(), |(path, url)| format!(", such as {url}{}", &path[1..]));
        Some(format!(
            "there is no {names} in {}, so / is answered 404: ask for files by name{example}, list folders with \
             --listing, or choose another start file with --index NAME",
            folder(Some(root))
        ))
    }

    fn absent_pages(&self) -> impl Iterator<Item = String> {
        let fallback = self.rules.fallback.iter().map(|file| ("--fallback".to_owned(), file));
        let pages = self.rules.error_pages.iter();
        let pages = pages.map(|page| (format!("--error-page {}", page.status().0), page.file()));
        let named = fallback.chain(pages).map(|(flag, file)| (flag, &file.path().canonical));
        // No rule applies to the file of a rule.
        let absent = named.filter(|(_, path)| self.status(LiveRules::default(), path) != Status::OK);
        absent.map(|(flag, path)| format!("{flag}: there is no file {path} in the folder"))
    }
}

/// Returns the path of the first file, by name, that is not a dot-file.
fn first_file(root: &Path) -> Option<String> {
    let entries = std::fs::read_dir(root).ok()?.take(MOST_NAMES).filter_map(Result::ok);
    let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    let names = files.map(|entry| entry.file_name()).filter(|name| !name.as_bytes().starts_with(b"."));
    let name = names.min()?;
    let mut path = "/".to_owned();
    site::path::encode(name.as_bytes(), &mut path);
    Some(path)
}

/// Returns the lines about the rules of a host.
fn rules(rules: &Rules) -> [String; 2] {
    let listing = match (rules.listing, &rules.listed[..]) {
        (true, _) => "listed",
        (false, []) => "not listed",
        (false, _) => "listed by rules",
    };
    let counts = [
        (rules.redirects.len(), "redirects"),
        (rules.fixed.len(), "fixed responses"),
        (rules.access.len(), "about networks"),
        (rules.auths.len(), "about passwords"),
        (rules.headers.len(), "header fields"),
        (rules.error_pages.len(), "error pages"),
    ];
    let some = counts.iter().filter(|(count, _)| *count > 0);
    let mut kinds: Vec<String> = some.map(|(count, kind)| format!("{count} {kind}")).collect();
    kinds.extend(rules.fallback.as_ref().map(|file| format!("fallback {}", file.path().canonical)));
    let kinds = if kinds.is_empty() { "none".to_owned() } else { kinds.join(", ") };
    [
        format!("start files: {}; other folders are {listing}", rules.index.join(", ")),
        format!("rules: {kinds}"),
    ]
}

/// Returns the line about a log that is a file.
fn log(target: Option<&LogTarget>) -> Option<String> {
    match target {
        Some(LogTarget::File(path)) => Some(format!("access log: {}", path.display())),
        _ => None,
    }
}

/// Returns the result of a check: what would be served.
pub fn checked(config: &ServeConfig, checked: &Checked) -> String {
    let is_plain = |address| checked.certificates.is_none() || config.listen_http.contains(&address);
    let urls = urls(is_plain, &config.addresses().collect::<Vec<_>>());
    let mut lines =
        vec![format!("would serve {} at {}", folder(config.hosts[0].root.as_deref()), urls.join(" "))];
    lines.extend(checked.certificates.as_deref().map(certificates));
    for host in &config.hosts {
        lines.extend((!host.names.is_empty()).then(|| named(host)));
        lines.extend(rules(&host.site.rules.current()));
        lines.extend(log(host.access_log.as_ref()));
    }
    lines.extend(log(config.access_log.as_ref()));
    if let Some(account) = &config.account {
        lines.push(format!("user: {}", account.name()));
    }
    let hints = hints(&config.hosts, &urls);
    lines.extend(checked.warnings.iter().chain(&hints).map(|line| format!("warning: {line}")));
    lines.push("the configuration has no mistakes\n".to_owned());
    lines.join("\n")
}
