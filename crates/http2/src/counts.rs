//! The counters of HTTP/2 alone; requests, responses and refusals are counted as HTTP/1.1's.

base::counts! {
    /// Totals over all connections that shared this value. They only grow.
    pub struct Counts {
        /// HTTP/2 connections begun.
        http2_connections,
        /// HTTP/2 connections that ended because the client broke the protocol.
        http2_connection_errors,
        /// HTTP/2 streams reset because the client broke the protocol on them; malformed requests among them.
        http2_stream_errors,
        /// HTTP/2 streams that clients reset.
        http2_resets,
        /// HTTP/2 streams refused because the connection had its number of streams, or waiting requests with too long heads.
        http2_limit_streams,
        /// HTTP/2 connections ended for a header block that was too long, or had too many frames.
        http2_limit_header_block,
        /// HTTP/2 connections ended for too many resets, of either side.
        http2_limit_resets,
        /// HTTP/2 connections ended for too many PING frames.
        http2_limit_pings,
        /// HTTP/2 connections ended for too many SETTINGS frames.
        http2_limit_settings,
        /// HTTP/2 connections ended for too many frames that carry nothing.
        http2_limit_empty_frames,
        /// HTTP/2 connections ended for too many WINDOW_UPDATE frames.
        http2_limit_window_updates,
        /// HTTP/2 connections ended for too many changes of priority.
        http2_limit_priorities,
    }
}
