//! The keys of the live view: they end a run, change its rate and explain themselves.
//!
//! They are read from the terminal as they are pressed, without the line discipline's editing and echo; it keeps its
//! signals, so that Ctrl-C ends the run as ever. Dropping [`Keys`] gives the terminal back as it was.
//!
//! Invariant: nobody but the terminal library reads the terminal, for its answers to the live view come the same way.

use std::time::Duration;

use ::load::Tempo;
use ratatui::crossterm::event::{self, Event, KeyCode};
use rustix::process::getpgrp;
use rustix::stdio::stdin;
use rustix::termios::{LocalModes, OptionalActions, Termios, isatty, tcgetattr, tcgetpgrp, tcsetattr};

/// A step up or down is this factor.
const STEP: f64 = 1.1;

/// The shares of the asked rate that can be reached.
const SHARES: std::ops::RangeInclusive<f64> = 0.1..=10.0;

/// For so long the terminal is waited for at a time: the live view may have a question meanwhile.
const TURN: Duration = Duration::from_millis(50);

/// The terminal, as it was.
pub struct Keys(Termios);

/// A key that means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pressed {
    /// The run is to end.
    End,
    /// The keys are to be explained, or no longer.
    Help,
    /// The rate has changed.
    Rate,
}

/// The rate that the keys have asked for.
struct Wanted {
    share: f64,
    paused: bool,
}

impl Keys {
    /// Has keys change a rate, where it can be changed, and tells of every key that means something. `None` where there
    /// is no terminal to press them on, or it is another's.
    pub fn listen(tempo: Option<Tempo>, tell: impl FnMut(Pressed) + Send + 'static) -> Option<Keys> {
        let terminal = stdin();
        // In the background, setting the terminal would stop us.
        if !isatty(terminal) || tcgetpgrp(terminal).ok()? != getpgrp() {
            return None;
        }
        let before = tcgetattr(terminal).ok()?;
        let mut modes = before.clone();
        modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        tcsetattr(terminal, OptionalActions::Now, &modes).ok()?;
        let keys = Keys(before);
        // It waits for keys until the process ends.
        std::thread::Builder::new().name("keys".into()).spawn(move || read(tempo.as_ref(), tell)).ok()?;
        Some(keys)
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        // There is nobody left to tell.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.0);
    }
}

fn read(tempo: Option<&Tempo>, mut tell: impl FnMut(Pressed)) {
    let mut wanted = Wanted { share: 1.0, paused: false };
    // A terminal that has gone away has no more keys.
    while let Ok(something) = event::poll(TURN) {
        if !something {
            continue;
        }
        let Ok(event) = event::read() else { return };
        let Event::Key(key) = event else { continue };
        match (key.code, tempo) {
            (KeyCode::Char('q'), _) => tell(Pressed::End),
            (KeyCode::Char('?'), _) => tell(Pressed::Help),
            (KeyCode::Char(key), Some(tempo)) if wanted.press(key) => {
                tempo.set(if wanted.paused { 0.0 } else { wanted.share });
                tell(Pressed::Rate);
            }
            _ => {}
        }
    }
}

impl Wanted {
    /// Says whether the key means something.
    fn press(&mut self, key: char) -> bool {
        match key {
            ' ' => self.paused = !self.paused,
            // The plus sign without its shift key, too.
            '+' | '=' => self.share *= STEP,
            '-' => self.share /= STEP,
            _ => return false,
        }
        self.share = self.share.clamp(*SHARES.start(), *SHARES.end());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_raise_lower_and_pause() {
        let mut wanted = Wanted { share: 1.0, paused: false };
        assert!(wanted.press('+') && wanted.press('='));
        assert!((wanted.share - 1.21).abs() < 1e-9 && !wanted.paused);
        assert!(wanted.press(' ') && wanted.paused);
        assert!(!wanted.press('x'));
        (0..100).for_each(|_| assert!(wanted.press('-')));
        assert_eq!(wanted.share, 0.1);
        (0..100).for_each(|_| assert!(wanted.press('+')));
        assert_eq!(wanted.share, 10.0);
    }
}
