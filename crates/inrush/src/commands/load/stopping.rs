//! The signals that end a run: the first one asks for the result so far, the second one ends the program.

use std::io::{self, stdin};

use ::load::Stop;
use base::{Clock, Nanos, RealClock};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use sys::say;
use sys::thread::signal;

use super::live::show_cursor;
use crate::exit::Exit;

/// Signals within this time are one request: timeout(1) signals the process, and then its group with it.
const TOGETHER: Nanos = Nanos::from_millis(500);

/// Makes Ctrl-C and SIGTERM end the command early, and SIGHUP too unless nohup(1) ignores it. The result until then is
/// complete. A second signal ends the program at once, whatever the command is doing.
///
/// # Errors
/// [`Exit::Failed`] without resources for a thread.
pub fn stop_at_signal() -> Result<Stop, Exit> {
    let failed = |error: io::Error| Exit::Failed(format!("cannot wait for signals: {error}"));
    signal::block().map_err(failed)?;
    let stop = Stop::new();
    let (stopper, terminal) = (stop.clone(), tcgetattr(stdin()).ok());
    let listen = move || {
        let (clock, mut first) = (RealClock::new(), None);
        while let Ok(signal) = signal::wait_heeding_nohup(None) {
            let now = clock.now();
            match (signal, first) {
                (Some(_), Some(first)) if now > TOGETHER + first => end_at_once(terminal.as_ref()),
                (Some(_), _) => {
                    stopper.request();
                    first = first.or(Some(now));
                }
                (None, _) => {}
            }
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(listen).map_err(failed)?;
    Ok(stop)
}

/// Ends the program. The kernel ends its children with it. The live view may have changed the terminal.
fn end_at_once(terminal: Option<&Termios>) {
    if let Some(before) = terminal {
        // No code is left to handle an error.
        let _ = tcsetattr(stdin(), OptionalActions::Now, before);
    }
    show_cursor();
    say!("inrush: ended by a second signal, without a result");
    std::process::exit(1);
}
