//! Limits that HTTP/2 has beside those of HTTP/1.1, with their reasons.

use base::Nanos;

/// Requests of one connection that may be under way; a further one is refused with REFUSED_STREAM. RFC 9113, 6.5.2,
/// advises at least 100; nginx allows 128.
pub const STREAMS: u32 = 128;
/// Heads of the greatest length that requests may keep together while they wait for their content. A further request is
/// refused with REFUSED_STREAM. 128 usual heads of a kilobyte fit.
pub const KEPT_HEADS: usize = 8;
/// Bytes of a frame's payload: the least that a peer must be allowed (RFC 9113, 4.2).
pub const FRAME_BYTES: usize = 16 * 1024;
/// Bytes of the table that the client's fields are compressed with: the initial value (RFC 9113, 6.5.2).
pub const TABLE_BYTES: usize = 4096;
/// Bytes that a client may send on a connection, or on one stream, before it gets more credit: the initial value
/// (RFC 9113, 6.9.2). Content is dropped as it arrives, so nothing is gained by more.
pub const WINDOW_BYTES: u32 = 65_535;
/// Minimum bytes of content in a DATA frame of ours that does not end its response. The server lets smaller windows
/// grow first (RFC 813; RFC 1122, 4.2.3.4). A client that grants each frame as it comes would otherwise split its
/// windows into ever smaller pieces.
pub const LEAST_DATA_BYTES: u64 = 4096;
/// Time after which the server sends smaller frames nevertheless, as TCP does (RFC 1122, 4.2.3.4). The client may
/// grant nothing before its window is used up.
pub const SMALL_DATA_AFTER: Nanos = Nanos::from_millis(100);
/// Time after which a connection whose responses all wait for the client's windows counts as idle, so that it gives way
/// to a newcomer at the connection limit. It is the time for one retransmission (RFC 6298, 2.4).
pub const HELD_IS_IDLE_AFTER: Nanos = Nanos::SECOND;
/// Time between the GOAWAY that asks for no further request and the one that names the last: some round trips, in which
/// requests that cross the first are still served (RFC 9113, 6.8).
pub const FAREWELL: Nanos = Nanos::SECOND;
/// CONTINUATION frames of one header block. A block of 16 KiB, the default limit, needs two. A larger limit allows as
/// many as its blocks need.
pub const CONTINUATIONS: u32 = 8;
/// Ended streams that are remembered, so that late frames can be told from mistakes.
pub const REMEMBERED_STREAMS: usize = 64;
/// Priorities that are kept for requests that have not arrived.
pub const EARLY_PRIORITIES: usize = 16;
/// Bytes that a server may send to our client before it gets more credit, on a connection and on one stream. The client
/// drops content as it arrives, so it leaves the pace to the server and to TCP, as h2load does.
pub const CLIENT_WINDOW_BYTES: u32 = (1 << 30) - 1;
/// Streams that our client opens before it knows the server's limit: the least that RFC 9113, 6.5.2, advises.
pub const STREAMS_BEFORE_SETTINGS: u32 = 100;
/// Bytes of a response's header list that our client takes: the same as of HTTP/1.1.
pub const RESPONSE_HEAD_BYTES: usize = 64 * 1024;
/// Bytes of output that wait in our client. It opens no stream and queues no content above half of it. If answers to
/// the server's frames make the output exceed the whole, the client ends the connection.
pub const CLIENT_OUTPUT_BYTES: usize = 128 * 1024;
