//! The flags of `inrush serve` about its site: the rules.

use clap::Args;
use site::rules::Pattern;
use site::{Access, Auth, ErrorPage, Fixed, HeaderRule, PaceRule, PageFile, Redirect, Rules, Slashes};

/// The rules of the site, which SIGHUP re-reads from the config file.
#[derive(Args, Debug)]
#[command(next_help_heading = "The site, re-read from --config at SIGHUP")]
pub struct SiteFlags {
    /// File to serve for a folder; repeatable: the first that exists is served
    #[arg(long, value_name = "NAME", default_value = "index.html", value_parser = site::rules::index_name, hide_short_help = true)]
    pub index: Vec<String>,

    /// List the files of a folder without an index
    #[arg(long)]
    pub listing: bool,

    /// Folders to list if they have no index, such as '/downloads/*'; repeatable
    #[arg(long, value_name = "PATH", hide_short_help = true)]
    pub list: Vec<Pattern>,

    /// Compress text that has no precompressed file beside it: brotli, zstd or gzip, as the client asks
    ///
    /// A thread with the lowest priority compresses. Until it has, the file is sent as it is. inrush precompress makes the
    /// files once and smaller.
    #[arg(long, hide_short_help = true)]
    pub compress: bool,

    /// File to serve for every path without a file, with status 200, for single-page apps
    #[arg(long, value_name = "PATH", hide_short_help = true)]
    pub fallback: Option<PageFile>,

    /// Paths that --fallback does not answer, such as '/downloads/*'; repeatable
    #[arg(long, value_name = "PATH", hide_short_help = true)]
    pub no_fallback: Vec<Pattern>,

    /// Ending that addresses leave out, such as .html: /about is answered with about.html; repeatable
    #[arg(long, value_name = "ENDING", value_parser = site::rules::ending, hide_short_help = true)]
    pub try_ending: Vec<String>,

    /// Slash at the end of a folder's address: add (default) or remove; the other spelling is redirected
    ///
    /// With remove, /folder is answered with the folder's index, and /about/ is redirected to /about. Links in such an index
    /// count from the folder above. A folder that is listed keeps its slash.
    #[arg(long, value_name = "add|remove", default_value_t, hide_short_help = true)]
    pub trailing_slash: Slashes,

    /// Redirect, such as '/old/* /new/* 301'; repeatable: the first that matches decides
    ///
    /// One * in the path stands for any characters, which replace the * of the target. The target is a path or a URL.
    /// The status is 301, 302 (default), 303, 307 or 308. The query is kept unless the target has one; a target that ends
    /// with ? drops it. $host in the target is the host of the request. The target - excepts paths from the redirects
    /// behind it. http: before the path leaves requests over TLS alone; https by itself stands for
    /// 'http:/* https://$host/* 301'.
    #[arg(long, value_name = "PATH TARGET [STATUS]", hide_short_help = true)]
    pub redirect: Vec<Redirect>,

    /// Answer some paths from memory, such as '/healthz 200 ok' or '/gone/* 410'; repeatable
    #[arg(long, value_name = "PATH STATUS [TEXT]", hide_short_help = true)]
    pub respond: Vec<Fixed>,

    /// Allow or deny clients some paths, such as '/intranet/* allow 10.0.0.0/8'; repeatable: the first that matches decides
    ///
    /// Networks are in CIDR notation; all stands for every client. A client that no rule matches is allowed; a denied one
    /// gets 403.
    #[arg(long, value_name = "PATH allow|deny NET", hide_short_help = true)]
    pub access: Vec<Access>,

    /// Ask for a name and a password, such as '/private/* /etc/inrush/passwords Staff'; repeatable: the last that matches decides
    ///
    /// The file has lines NAME:HASH, as inrush password and htpasswd print them. The server looks at it once a second.
    /// The words behind it are the realm, which browsers show. - in place of the file opens paths again. After 10 wrong
    /// passwords in a minute a client gets 429.
    #[arg(long, value_name = "PATH FILE [REALM]", hide_short_help = true)]
    pub auth: Vec<Auth>,

    /// Header field of some paths, such as '/* X-Frame-Options: DENY'; repeatable: the last for a name decides
    ///
    /// One * in the path stands for any characters. Cache-Control and Expires are sent with files alone, other fields also
    /// with errors and redirects. Strict-Transport-Security is sent over TLS alone.
    #[arg(long, value_name = "PATH NAME: VALUE", hide_short_help = true)]
    pub header: Vec<HeaderRule>,

    /// Most bytes per second of a response, such as '/downloads/* 500KiB after 10MiB'; repeatable: the last that matches decides
    ///
    /// The limit holds for each response, under HTTP/2 for each stream. The bytes behind after, and the first second of the
    /// rate, leave at once. off in place of the rate takes the limit from paths again. Headers do not count; compressed
    /// content counts as it is sent.
    #[arg(long, value_name = "PATH SIZE [after SIZE]", hide_short_help = true)]
    pub limit_rate: Vec<PaceRule>,

    /// Page of an error, such as '404 /404.html'; repeatable
    ///
    /// The statuses are 400, 403, 404 and 500. The path is that of a file in the folder.
    #[arg(long, value_name = "STATUS PATH", hide_short_help = true)]
    pub error_page: Vec<ErrorPage>,
}

impl SiteFlags {
    /// Returns the rules.
    pub fn rules(&self) -> Rules {
        Rules {
            redirects: self.redirect.clone(),
            fixed: self.respond.clone(),
            access: self.access.clone(),
            auths: self.auth.clone(),
            headers: self.header.clone(),
            paces: self.limit_rate.clone(),
            error_pages: self.error_page.clone(),
            fallback: self.fallback.clone(),
            without_fallback: self.no_fallback.clone(),
            index: self.index.clone(),
            endings: self.try_ending.clone(),
            slashes: self.trailing_slash,
            listing: self.listing,
            listed: self.list.clone(),
            compress: self.compress,
        }
    }
}
