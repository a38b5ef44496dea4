//! The readiness limit: a server on epoll that does no work for its replies.
//!
//! One loop on the project's own dispatcher answers each read with the same bytes: no files, no parsing, no
//! deadlines, no limits. It is an upper bound for any server on readiness events on this machine. It is good for
//! nothing else, because a request that comes in two pieces gets two replies.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;

use anyhow::Context;
use base::{Key, Slab};
use clap::ValueEnum;
use dispatch::mechanism::Epoll;
use dispatch::{Dispatcher, Event, Interest, Token};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags};

/// The size of the file that the other servers serve.
const BODY_LENGTH: usize = crate::test_bed::FILE_LENGTH;
/// The queue that all servers of the benchmark have.
const BACKLOG: i32 = crate::test_bed::BACKLOG as i32;
/// Generation 0, which no key of a slab has.
const LISTENER: Token = Token(0);

/// The fate of a connection that has its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AfterReply {
    /// It stays open for the next request.
    Keep,
    /// It is closed, and the reply has said so.
    Close,
}

/// Serves for ever.
///
/// # Errors
/// The address cannot be listened on, or epoll fails.
pub fn run(listen: SocketAddr, after_reply: AfterReply) -> anyhow::Result<()> {
    let listener = TcpListener::bind(listen).with_context(|| format!("cannot listen on {listen}"))?;
    // Once more, for a longer queue than the standard library's.
    rustix::net::listen(&listener, BACKLOG)?;
    listener.set_nonblocking(true)?;
    rustix::net::sockopt::set_tcp_nodelay(&listener, true)?;
    let mut dispatcher = Dispatcher::<Epoll>::new()?;
    dispatcher.register(listener.as_fd(), LISTENER, Interest::Read);
    let mut responder =
        Responder { dispatcher, connections: Slab::new(), reply: reply(after_reply), after_reply };
    let mut events: Vec<Event> = Vec::new();
    loop {
        events.clear();
        responder.dispatcher.wait(&mut events, None)?;
        for event in &events {
            match event.token {
                LISTENER => responder.accept(&listener),
                token => responder.respond(token),
            }
        }
    }
}

struct Responder {
    dispatcher: Dispatcher<Epoll>,
    connections: Slab<TcpStream>,
    reply: Vec<u8>,
    after_reply: AfterReply,
}

impl Responder {
    /// Takes all waiting connections.
    fn accept(&mut self, listener: &TcpListener) {
        while let Ok(socket) =
            rustix::net::accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)
        {
            let key = self.connections.insert(TcpStream::from(socket));
            let socket = self.connections.get(key).expect("it was put there just now");
            self.dispatcher.register(socket.as_fd(), Token::from(key), Interest::Read);
        }
    }

    /// Reads once and answers. A reply fits a socket's buffer, so it is never sent in part.
    fn respond(&mut self, token: Token) {
        let Some(socket) = self.connections.get(Key::from(token)) else { return };
        let mut request = [0_u8; 4096];
        let open = match rustix::net::recv(socket, &mut request, RecvFlags::empty()) {
            Ok((_, 0)) => false,
            Ok(_) => {
                let sent = rustix::net::send(socket, &self.reply, SendFlags::NOSIGNAL);
                sent.is_ok() && self.after_reply == AfterReply::Keep
            }
            Err(error) => error == Errno::WOULDBLOCK,
        };
        if !open {
            self.dispatcher.closing(socket.as_fd());
            self.connections.remove(Key::from(token));
        }
    }
}

/// A head like that of a static file, and a body.
fn reply(after_reply: AfterReply) -> Vec<u8> {
    let connection = if after_reply == AfterReply::Close { "Connection: close\r\n" } else { "" };
    let mut reply = format!(
        "HTTP/1.1 200 OK\r\nDate: Sat, 01 Jan 2000 00:00:00 GMT\r\nContent-Type: text/html; charset=utf-8\r\n\
         Last-Modified: Sat, 01 Jan 2000 00:00:00 GMT\r\nETag: \"0123456789abcdef-400\"\r\n\
         Accept-Ranges: bytes\r\n{connection}Content-Length: {BODY_LENGTH}\r\n\r\n"
    )
    .into_bytes();
    reply.resize(reply.len() + BODY_LENGTH, b'x');
    reply
}
