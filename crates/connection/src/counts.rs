//! What peers did, whether they are served or refused.

base::counts! {
    /// Totals of what peers did.
    pub struct PeerCounts {
        /// Connections that the peer or the network broke off.
        broken,
        /// Times that the kernel had no memory for a connection's bytes (ENOBUFS, ENOMEM). The bytes waited for the
        /// next turn.
        no_memory,
        /// Connections refused because their client had --client-connections open connections.
        limit_client_connections,
        /// Connections refused because their client made more than --client-rate new ones per second.
        limit_client_rate,
        /// Connections of clients at a limit that were closed or reset, and not answered 429.
        client_refusals_unanswered,
        /// Headers of the PROXY protocol, version 2.
        proxy_headers,
        /// Connections ended because a proxy sent a header of the PROXY protocol of version 1.
        proxy_version_1,
        /// Connections ended because a proxy sent no header of the PROXY protocol, a malformed one or one of over 2064 bytes.
        proxy_malformed,
        /// TLS handshakes begun. The difference to the other totals of handshakes is under way.
        tls_handshakes_begun,
        /// TLS handshakes completed with a certificate and a signature.
        tls_handshakes_full,
        /// TLS handshakes that resumed a session by its ticket.
        tls_handshakes_resumed,
        /// TLS handshakes that failed: refused, not understood, or given up by the client.
        tls_handshakes_failed,
        /// TLS handshakes that timed out.
        tls_handshakes_timed_out,
        /// TLS connections ended for an invalid record.
        tls_broken,
        /// TLS connections that clients ended without close_notify, so that data may be missing.
        tls_truncated,
        /// Connections without TLS to a port that requires it.
        tls_plain_http,
    }
}
