//! Misbehaving clients.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::Context;

/// Timeout of a misbehaving client's connects, reads and writes.
const PATIENCE: Duration = Duration::from_secs(5);

/// Opens a connection and sends nothing.
///
/// # Errors
/// The errors of connecting.
pub fn silent(address: SocketAddr) -> anyhow::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE).context("cannot connect")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Opens a connection, requests a file, and does not read.
///
/// # Errors
/// The errors of connecting and sending.
pub fn asking(address: SocketAddr, file: &str) -> anyhow::Result<TcpStream> {
    let mut stream = silent(address)?;
    write!(stream, "GET /{file} HTTP/1.1\r\nHost: campaign\r\n\r\n")?;
    Ok(stream)
}

/// Opens a keep-alive connection, reads its first reply, and sends nothing more. The server may refuse it.
///
/// # Errors
/// The errors of connecting and sending.
pub fn idle(address: SocketAddr, file: &str) -> anyhow::Result<TcpStream> {
    let mut stream = asking(address, file)?;
    // The reply is short: one read has all of it or its head, and either will do.
    let _ = stream.read(&mut [0; 4096]);
    Ok(stream)
}

/// Sends bytes that are no request. The server may have closed the connection already.
///
/// # Errors
/// The errors of connecting.
pub fn garbage(address: SocketAddr, bytes: &[u8]) -> anyhow::Result<()> {
    let mut stream = silent(address)?;
    let _ = stream.write_all(bytes);
    Ok(())
}
