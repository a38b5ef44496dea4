//! The flags of `inrush serve` about its site: the rules.

use clap::Args;
use site::{ErrorPage, HeaderRule, PageFile, Redirect, Rules};

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

    /// File to serve for every path without a file, with status 200, for single-page apps
    #[arg(long, value_name = "PATH", hide_short_help = true)]
    pub fallback: Option<PageFile>,

    /// Redirect, such as '/old/* /new/* 301'; repeatable: the first that matches decides
    ///
    /// One * in the path stands for any characters, which replace the * of the target. The target is a path or a URL.
    /// The status is 301, 302 (default), 303, 307 or 308. The query is kept unless the target has one. The target - excepts
    /// paths from the redirects behind it.
    #[arg(long, value_name = "PATH TARGET [STATUS]", hide_short_help = true)]
    pub redirect: Vec<Redirect>,

    /// Header field of some paths, such as '/* X-Frame-Options: DENY'; repeatable: the last for a name decides
    ///
    /// One * in the path stands for any characters. Cache-Control and Expires are sent with files alone, other fields also
    /// with errors and redirects.
    #[arg(long, value_name = "PATH NAME: VALUE", hide_short_help = true)]
    pub header: Vec<HeaderRule>,

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
            headers: self.header.clone(),
            error_pages: self.error_page.clone(),
            fallback: self.fallback.clone(),
            index: self.index.clone(),
            listing: self.listing,
        }
    }
}
