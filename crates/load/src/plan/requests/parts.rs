//! The parts of one request of a file, completed from the run's URL and flags.

use crate::plan::choices::workload::{Address, Content, Definition, Field};
use crate::plan::config::Config;

/// The parts of a request, as texts.
pub(super) struct Parts<'a> {
    pub definition: &'a Definition,
    pub method: &'a str,
    pub target: String,
    pub host: String,
    /// Header lines beside Host and Content-Length, each with its CRLF.
    pub fields: String,
    pub content: Option<&'a Content>,
}

impl<'a> Parts<'a> {
    /// Completes a request. A field of the request replaces that of the flags.
    ///
    /// # Errors
    /// One sentence: a URL of another server, or a target that cannot stand in a request line.
    pub fn of(definition: &'a Definition, config: &'a Config) -> Result<Parts<'a>, String> {
        let url = &config.urls[0];
        let target = match &definition.target {
            Address::Path(path) => format!("{}{path}", url.path().trim_end_matches('/')),
            Address::Url(other) if other.has_server_of(url) => other.path().to_owned(),
            Address::Url(other) => {
                return Err(format!("{other} is of another server than {url}; one run measures one"));
            }
        };
        check_target(&target)?;
        let is_own = |field: &&Field| {
            !definition.fields.iter().any(|own| own.name().eq_ignore_ascii_case(field.name()))
        };
        let all = || definition.fields.iter().chain(config.form.fields.iter().filter(is_own));
        let host = all()
            .find(|field| field.is_host())
            .map_or_else(|| url.authority(), |field| field.value().to_owned());
        let fields = all().filter(|field| !field.is_host()).map(|field| format!("{field}\r\n")).collect();
        let method = definition.method.as_ref().or(config.form.method.as_ref());
        let default = if definition.body.is_some() { "POST" } else { "GET" };
        Ok(Parts {
            definition,
            method: method.map_or(default, |method| method.name()),
            target,
            host,
            fields,
            content: definition.body.as_ref(),
        })
    }

    /// The bytes of the content, if it has no values to fill in.
    pub fn plain_content(&self) -> &'a [u8] {
        match self.content {
            None => &[],
            Some(Content::Text(text)) => text.as_bytes(),
            Some(Content::Bytes(bytes)) => bytes,
        }
    }
}

/// Refuses a target with characters that a request line cannot contain, outside of braces.
fn check_target(target: &str) -> Result<(), String> {
    let mut rest = target;
    loop {
        let (plain, behind) = rest.split_once("{{").unwrap_or((rest, ""));
        if let Some(odd) = plain.chars().find(|character| !character.is_ascii_graphic()) {
            return Err(format!("the path '{target}' has {odd:?}; percent-encode it"));
        }
        match behind.split_once("}}") {
            Some((_, after)) => rest = after,
            None => return Ok(()),
        }
    }
}
