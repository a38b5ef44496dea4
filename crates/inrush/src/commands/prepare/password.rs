//! `inrush password`: a line for the file that `serve --auth` names.

use std::io::{self, BufRead, IsTerminal};

use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use sys::say;

use crate::cli::PasswordFlags;
use crate::exit::Exit;
use crate::output::out;

/// Reads a password from standard input, and prints the name with the password's hash.
pub fn run(flags: &PasswordFlags) -> Result<(), Exit> {
    let password = read().map_err(|cause| Exit::Failed(format!("cannot read the password: {cause}")))?;
    if password.is_empty() {
        return Err(Exit::Usage("the password is empty; expected one line on standard input".to_owned()));
    }
    let hash = site::auth::new_hash(password.as_bytes()).map_err(Exit::Usage)?;
    out!("{}:{hash}", flags.name)
}

/// Reads a line, which a terminal does not show.
fn read() -> io::Result<String> {
    let stdin = io::stdin();
    let mut line = String::new();
    if stdin.is_terminal() {
        say!("Password: ");
        let shown = tcgetattr(&stdin)?;
        let mut hidden = shown.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        tcsetattr(&stdin, OptionalActions::Now, &hidden)?;
        let read = stdin.lock().read_line(&mut line);
        tcsetattr(&stdin, OptionalActions::Now, &shown)?;
        read?;
    } else {
        stdin.lock().read_line(&mut line)?;
    }
    line.truncate(line.trim_end_matches(['\r', '\n']).len());
    Ok(line)
}
