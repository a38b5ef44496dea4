//! The settings of a run as texts with names, for the manifest of its result.
//!
//! Each structure is taken apart field by field, so that the compiler names a new setting that has no text.
//! Leaves out the texts themselves: a setting prints as the user wrote it.

use std::collections::BTreeMap;

use crate::plan::choices::expected::Expected;
use crate::plan::choices::tls::TlsOptions;
use crate::plan::choices::workload::Form;
use crate::plan::config::{Client, Config, Processes, Stack};
use crate::plan::terms::target::Url;
use crate::plan::terms::target::addressing::Addressing;

/// The name of a setting with its text.
type Named = (&'static str, String);

/// The texts of a structure's fields, in the order of the fields; a later name replaces an earlier one. Fields in brackets
/// have none.
macro_rules! texts_of {
    ($whole:expr, $kind:ident { $($field:ident => $texts:expr,)* }, [$($silent:ident),*]) => {{
        let $kind { $($field,)* $($silent: _),* } = $whole;
        let texts: Vec<Vec<Named>> = vec![$($texts),*];
        texts.into_iter().flatten()
    }};
}

impl Config {
    /// Every setting as text. A setting that is not given, and has no default, is left out.
    pub fn describe(&self) -> BTreeMap<String, String> {
        let order = &self.data_order;
        let speaks_tls = self.urls.iter().any(Url::is_secure);
        let texts = texts_of!(self, Config {
            urls => list("urls", urls, " "),
            client => of_client(client),
            threads => always("threads", threads),
            // A pair is a client of another name.
            processes => of_processes(*processes),
            duration => always("duration", duration),
            warmup => always("warmup", warmup),
            connect_timeout => always("connect_timeout", connect_timeout),
            request_timeout => always("request_timeout", request_timeout),
            workload => always("workload", workload),
            requests => given("requests", &requests.as_ref().map(|file| file.path().display())),
            data => given("data", &data.as_ref().map(|file| format!("{} ({order})", file.path().display()))),
            requests_per_connection => given("requests_per_connection", requests_per_connection),
            connections => given("connections", connections),
            streams => [given("protocol", &streams.map(|_| "HTTP/2")), given("streams", streams)].concat(),
            think => given("think", think),
            form => of_form(form),
            follow => given("follow", &follow.then_some(true)),
            retry => always("retry", retry),
            expected => of_expected(expected),
            populations => list("populations", populations, " "),
            addressing => of_addressing(addressing),
            tls => if speaks_tls { of_tls(tls) } else { Vec::new() },
            seed => always("seed", seed),
            source => given("source_ip", source),
            stack => of_stack(stack),
            close => always("close", close),
            interval => always("interval", interval),
        }, [data_order, clean_rate, own_this_server]);
        texts.map(|(name, text)| (name.to_owned(), text)).collect()
    }
}

fn of_client(client: &Client) -> Vec<Named> {
    match client {
        Client::SClient { rate, arrivals, sockets } => [
            always("client", "s-client"),
            always("arrivals", arrivals),
            always("sockets", sockets),
            given("rate", &(!arrivals.has_own_rate()).then_some(rate)),
        ]
        .concat(),
        Client::Pending { connects } => [always("client", "s-client"), always("sockets", connects)].concat(),
        Client::Closed { clients } => [always("client", "closed"), always("sockets", clients)].concat(),
    }
}

fn of_processes(processes: Processes) -> Vec<Named> {
    let pair = (processes == Processes::Pair).then_some("s-client-pair");
    [always("processes", processes), given("client", &pair)].concat()
}

fn of_form(form: &Form) -> Vec<Named> {
    let chosen = form.method().to_owned();
    let texts = texts_of!(form, Form {
        fields => list("headers", fields, "; "),
        body => given("body", body),
    }, [method]);
    texts.chain([("method", chosen)]).collect()
}

fn of_expected(expected: &Expected) -> Vec<Named> {
    let texts = texts_of!(expected, Expected {
        status => always("expect_status", status),
        length => given("expect_length", length),
        digest => given("expect_digest", digest),
        deadline => given("deadline", deadline),
    }, []);
    texts.collect()
}

fn of_addressing(addressing: &Addressing) -> Vec<Named> {
    let texts = texts_of!(addressing, Addressing {
        connect_to => list("connect_to", connect_to, " "),
        resolve => list("resolve", resolve, " "),
        family => given("family", family),
    }, []);
    texts.collect()
}

fn of_tls(tls: &TlsOptions) -> Vec<Named> {
    let texts = texts_of!(tls, TlsOptions {
        trust => always("tls_trust", trust.name()),
        resume => always("tls_resume", resume),
        server_name => given("tls_server_name", server_name),
        version => given("tls_version", version),
        key_exchange => always("tls_key_exchange", key_exchange),
        identity => given("tls_certificate", &identity.as_ref().map(|own| own.certificate.display())),
    }, []);
    texts.collect()
}

fn of_stack(stack: &Stack) -> Vec<Named> {
    let Stack::User { link, net, server_cpus, must_steer: _ } = stack else { return Vec::new() };
    [
        always("stack", "user"),
        always("link", link),
        given("source_net", net),
        list("server_cpus", server_cpus, ","),
    ]
    .concat()
}

fn always(name: &'static str, value: impl ToString) -> Vec<Named> {
    vec![(name, value.to_string())]
}

fn given(name: &'static str, value: &Option<impl ToString>) -> Vec<Named> {
    value.iter().map(|value| (name, value.to_string())).collect()
}

/// The texts of a list, if it has any.
fn list(name: &'static str, values: &[impl ToString], between: &str) -> Vec<Named> {
    let texts: Vec<String> = values.iter().map(ToString::to_string).collect();
    if texts.is_empty() { Vec::new() } else { vec![(name, texts.join(between))] }
}
