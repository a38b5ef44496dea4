//! The action that the server's side of a connection wants next.

/// The action that a connection wants from its driver. The methods are those of each version's `Connection`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// Receive bytes from the peer.
    Receive,
    /// Send the bytes of `transmit`.
    Transmit,
    /// Wait until the responder can answer, then call `resume`.
    Resume,
    /// Neither send nor receive before `deadline`, because the pace holds back all output. Then call `expire`.
    Pause,
    /// Shut down the sending side once and call `shut_down`. From then on the connection drops all received
    /// bytes.
    ShutdownThenReceive,
    /// Close the socket.
    Close,
}
