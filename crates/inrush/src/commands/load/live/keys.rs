//! The keys of the live view: they end a run, change its rate, and show the help.
//!
//! The keys are read from the terminal as they are pressed, without the line discipline's editing and echo.
//! The line discipline keeps its signals, so that Ctrl-C still ends the run. Dropping [`Keys`] restores the
//! terminal.
//!
//! Invariant: only the terminal library reads the terminal, because the terminal's answers to the live view
//! arrive there too.

use std::os::fd::AsFd;
use std::time::Duration;

use ::load::Tempo;
use ratatui::crossterm::event::{self, Event, KeyCode};
use rustix::process::getpgrp;
use rustix::stdio::stdin;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};

/// Factor of a step up or down.
const STEP: f64 = 1.1;

/// The shares of the requested rate that the keys can reach.
const SHARES: std::ops::RangeInclusive<f64> = 0.1..=10.0;

/// Maximum wait for a key. The live view may ask the terminal something between two waits.
const TURN: Duration = Duration::from_millis(50);

/// The terminal's settings before the keys.
pub struct Keys(Termios);

/// A key with a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pressed {
    /// The user ends the run.
    End,
    /// The user switches the help on or off.
    Help,
    /// The rate has changed.
    Rate,
}

/// The rate that the user has chosen with the keys.
struct Wanted {
    share: f64,
    paused: bool,
}

impl Keys {
    /// Lets keys change the rate, if it can be changed, and reports every key with a meaning to `tell`.
    /// Returns `None` without a terminal, or if another process group has the terminal.
    pub fn listen(tempo: Option<Tempo>, tell: impl FnMut(Pressed) + Send + 'static) -> Option<Keys> {
        let terminal = stdin();
        if !has_foreground(terminal) {
            return None;
        }
        let before = tcgetattr(terminal).ok()?;
        let mut modes = before.clone();
        modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        tcsetattr(terminal, OptionalActions::Now, &modes).ok()?;
        let keys = Keys(before);
        // The thread waits for keys until the process ends.
        std::thread::Builder::new().name("keys".into()).spawn(move || read(tempo.as_ref(), tell)).ok()?;
        Some(keys)
    }
}

/// True for a terminal whose settings this process may change. In the background, the kernel would stop it for that.
pub(super) fn has_foreground(terminal: impl AsFd) -> bool {
    tcgetpgrp(terminal).is_ok_and(|group| group == getpgrp())
}

impl Drop for Keys {
    fn drop(&mut self) {
        // No code is left to handle an error.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.0);
    }
}

fn read(tempo: Option<&Tempo>, mut tell: impl FnMut(Pressed)) {
    let mut wanted = Wanted { share: 1.0, paused: false };
    // A terminal that is gone has no more keys.
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
    /// Applies a key. Returns true if it has a meaning.
    fn press(&mut self, key: char) -> bool {
        match key {
            ' ' => self.paused = !self.paused,
            // Without the shift key, the plus sign is an equals sign on most keyboards.
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
