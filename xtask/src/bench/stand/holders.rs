//! Idle connections: opened, asked over once, and held.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Connections that are opened before the replies of the first of them are read: a server whose wait costs
/// by the connection hears of many at once.
const AT_ONCE: usize = 200;
/// A server that takes longer for a reply will not give it.
const REPLY_WITHIN: Duration = Duration::from_secs(10);

/// Opens connections that have each had one reply. Blocks.
///
/// # Errors
/// No descriptor or port, or a server that does not answer with 200.
pub fn hold(address: SocketAddr, file: &str, count: u32) -> io::Result<Vec<TcpStream>> {
    let request = format!("GET /{file} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    let mut held = Vec::with_capacity(count as usize);
    while held.len() < count as usize {
        let first = held.len();
        for _ in first..(first + AT_ONCE).min(count as usize) {
            let mut stream = TcpStream::connect(address)?;
            stream.write_all(request.as_bytes())?;
            held.push(stream);
        }
        held[first..].iter_mut().try_for_each(read_reply)?;
    }
    Ok(held)
}

/// Reads the beginning of the reply; the rest of it stays in our buffer and nobody misses it.
fn read_reply(stream: &mut TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(REPLY_WITHIN))?;
    let mut status = [0; 12];
    stream.read_exact(&mut status)?;
    if &status != b"HTTP/1.1 200" {
        return Err(io::Error::other(format!("a reply begins {:?}", String::from_utf8_lossy(&status))));
    }
    Ok(())
}
