//! The directives that need no setting here, the reasons why others have no equal, and nginx's units.

use super::directives::Directive;

/// Directives that need no setting: what they ask for is always so, or chosen by the server itself.
const NEEDS_NOTHING: &[&str] = &[
    "aio",
    "charset",
    "daemon",
    "default_type",
    "directio",
    "etag",
    "events",
    "gzip_buffers",
    "gzip_comp_level",
    "gzip_disable",
    "gzip_http_version",
    "gzip_min_length",
    "gzip_proxied",
    "gzip_static",
    "gzip_types",
    "gzip_vary",
    "http2",
    "include",
    "keepalive_requests",
    "log_format",
    "log_not_found",
    "master_process",
    "pcre_jit",
    "pid",
    "reset_timedout_connection",
    "sendfile",
    "server_name_in_redirect",
    "server_names_hash_bucket_size",
    "server_names_hash_max_size",
    "server_tokens",
    "ssl_ciphers",
    "ssl_dhparam",
    "ssl_ecdh_curve",
    "ssl_prefer_server_ciphers",
    "ssl_protocols",
    "ssl_session_cache",
    "ssl_session_tickets",
    "ssl_session_timeout",
    "tcp_nodelay",
    "tcp_nopush",
    "types",
    "types_hash_bucket_size",
    "types_hash_max_size",
    "worker_processes",
    "worker_rlimit_nofile",
];

/// Tells whether a directive needs no setting.
pub(super) fn needs_nothing(directive: &Directive) -> bool {
    NEEDS_NOTHING.contains(&directive.name())
        || directive.name().starts_with("open_file_cache")
        || directive.name().ends_with("_temp_path")
}

/// The line about a directive that has no equal.
pub(super) fn note(directive: &Directive) -> String {
    note_because(directive, reason(directive.name()))
}

/// The line about a directive that has no equal for this reason.
pub(super) fn note_because(directive: &Directive, reason: &str) -> String {
    format!("{}: {}: {reason}", directive.place, shown(directive))
}

/// The name and the parameters, on one line.
fn shown(directive: &Directive) -> String {
    match directive.parameters()[..] {
        [] => directive.name().to_owned(),
        ref parameters => {
            format!("{}: {}", directive.name(), parameters.join(" ")).replace(['\n', '\r'], " ")
        }
    }
}

fn reason(name: &str) -> &'static str {
    match name {
        "proxy_pass" | "fastcgi_pass" | "uwsgi_pass" | "scgi_pass" | "grpc_pass" => {
            "Inrush serves files alone, and refuses these paths; keep nginx for them, behind `inrush guard`"
        }
        "upstream" => "Inrush serves files alone; it belongs to proxy_pass",
        name if ["proxy_", "fastcgi_", "uwsgi_", "scgi_", "grpc_"]
            .iter()
            .any(|start| name.starts_with(start)) =>
        {
            "it belongs to a proxy, which Inrush is not"
        }
        "limit_rate" | "limit_rate_after" => "a rate is fixed text here, without variables",
        "limit_req" | "limit_req_status" | "limit_req_zone" => {
            "see --client-rate, which limits the connections and requests of each client"
        }
        "limit_conn" | "limit_conn_status" | "limit_conn_zone" => {
            "see --client-connections, which limits the connections of each client"
        }
        "root" | "alias" => {
            "a host has one folder; make this a host of its own, or a symbolic link within the folder"
        }
        "rewrite" => "only `^/path(.*)$ target redirect|permanent` has an equal, as --redirect",
        "try_files" => "a host has one fallback: that of its location for everything",
        "return" => "its status or its variables have no equal; the answer is 403",
        "add_header" => "the value of a field is fixed text here",
        "error_page" => "only 400, 403, 404 and 500 have pages, which keep the status",
        "location" => {
            "only paths, and endings such as ~ \\.(css|js)$, have an equal, and none within another location"
        }
        "listen" => "Inrush listens on TCP ports of IPv4 and IPv6 alone",
        "error_log" => "messages go to standard error",
        "if" | "map" | "geo" | "set" | "split_clients" => {
            "rules are fixed text here, without conditions and variables"
        }
        "ssl_stapling" | "ssl_stapling_file" | "ssl_stapling_verify" | "ssl_trusted_certificate" => {
            "see --tls-ocsp, which staples a response from a file"
        }
        "ssl_client_certificate" | "ssl_verify_client" => "Inrush does not ask clients for certificates",
        "internal" => "Inrush refuses these paths",
        "satisfy" => "the networks and the passwords must both allow a request",
        "stream" | "mail" => "Inrush serves HTTP alone",
        "stub_status" => "see --admin, which has /metrics and /status",
        _ => "it has no equal",
    }
}

/// nginx's time in ours. A number without a unit is in seconds, and several parts add up.
pub(super) fn time(text: &str) -> String {
    match seconds(text) {
        Some(seconds) => format!("{seconds}s"),
        None => text.to_owned(),
    }
}

/// The whole seconds of nginx's time.
pub(super) fn seconds(text: &str) -> Option<u64> {
    let (mut total, mut number) = (0_u64, None::<u64>);
    for letter in text.chars() {
        if let Some(digit) = letter.to_digit(10) {
            number = Some(number.unwrap_or(0).checked_mul(10)?.checked_add(u64::from(digit))?);
            continue;
        }
        let unit = match letter {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            'w' => 7 * 86_400,
            'M' => 30 * 86_400,
            'y' => 365 * 86_400,
            _ => return None,
        };
        total = total.checked_add(number.take()?.checked_mul(unit)?)?;
    }
    total.checked_add(number.unwrap_or(0))
}

/// nginx's size in ours.
pub(super) fn size(text: &str) -> String {
    let (number, unit) = text.split_at(text.trim_end_matches(char::is_alphabetic).len());
    match unit.to_ascii_lowercase().as_str() {
        "k" => format!("{number}KiB"),
        "m" => format!("{number}MiB"),
        "g" => format!("{number}GiB"),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_have_our_units() {
        for (text, ours) in
            [("75", "75s"), ("1m", "60s"), ("1h30m", "5400s"), ("1y", "31536000s"), ("max", "max")]
        {
            assert_eq!(time(text), ours);
        }
        for (text, ours) in [("8m", "8MiB"), ("16K", "16KiB"), ("1g", "1GiB"), ("0", "0")] {
            assert_eq!(size(text), ours);
        }
    }
}
