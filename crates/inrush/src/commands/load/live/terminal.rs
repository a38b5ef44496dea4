//! The terminal of the live view. Its loss does not end the run.

use std::io::{IsTerminal, Stderr, stderr, stdout};
use std::sync::{Arc, Mutex};

use ::load::{AgentStanding, Snapshot, Stop, Tempo};
use base::lock;
use ratatui::backend::{Backend, CrosstermBackend};
use ratatui::crossterm::{cursor, execute};
use ratatui::{Terminal, TerminalOptions, Viewport};

use super::keys::{Keys, Pressed, has_foreground};
use super::view::View;

/// The view on its terminal.
struct Screen {
    terminal: Terminal<CrosstermBackend<Stderr>>,
    view: View,
    /// The view has ended and is not drawn again.
    is_over: bool,
}

/// The view, with its keys if there are any. Dropping it releases the keys.
pub struct Live {
    screen: Arc<Mutex<Screen>>,
    _keys: Option<Keys>,
}

impl Live {
    /// A view on standard error. Its keys end the run and change its rate, if that can be changed. `None` if
    /// the view cannot be drawn on the terminal.
    pub fn new(
        title: &str,
        populations: usize,
        agents: usize,
        tempo: Option<Tempo>,
        stop: &Stop,
    ) -> Option<Live> {
        // The terminal library asks for the cursor's position on standard output, and reads the answer as a key.
        if !can_move_its_cursor() || !stdout().is_terminal() || !has_foreground(stderr()) {
            return None;
        }
        let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let view = View::new(title, populations, agents, tempo.clone(), colour);
        let backend = CrosstermBackend::new(stderr());
        let height = view.height(backend.size().ok()?.height);
        let options = TerminalOptions { viewport: Viewport::Inline(height) };
        let terminal = Terminal::with_options(backend, options).ok()?;
        let screen = Arc::new(Mutex::new(Screen { terminal, view, is_over: false }));
        let (pressed_on, stop) = (Arc::clone(&screen), stop.clone());
        let keys = Keys::listen(tempo, move |pressed| {
            let mut screen = lock(&pressed_on);
            match pressed {
                Pressed::End => stop.request(),
                Pressed::Help => screen.view.helps = !screen.view.helps,
                Pressed::Rate => {}
            }
            screen.draw();
        });
        lock(&screen).view.has_keys = keys.is_some();
        Some(Live { screen, _keys: keys })
    }

    /// Shows an interval.
    pub fn show(&mut self, snapshot: &Snapshot<'_>) {
        let mut screen = lock(&self.screen);
        screen.view.add(snapshot);
        screen.draw();
    }

    /// Shows the agents of a fleet.
    pub fn show_agents(&mut self, agents: &[AgentStanding]) {
        let mut screen = lock(&self.screen);
        screen.view.agents = agents.to_vec();
        screen.draw();
    }

    /// Removes the view from the terminal.
    pub fn end(self) {
        let mut screen = lock(&self.screen);
        screen.is_over = true;
        if !has_foreground(stderr()) {
            return;
        }
        let top = screen.terminal.get_frame().area().top();
        let _ = screen.terminal.clear();
        let _ = screen.terminal.set_cursor_position((0, top));
        let _ = screen.terminal.show_cursor();
    }
}

impl Screen {
    fn draw(&mut self) {
        if !self.is_over {
            let view = &self.view;
            let _ = self.terminal.draw(|frame| view.render(frame));
        }
    }
}

/// True if the terminal has a name and is not dumb. Other terminals show control sequences as text.
fn can_move_its_cursor() -> bool {
    std::env::var_os("TERM").is_some_and(|name| !name.is_empty() && name != "dumb")
}

/// Shows the cursor of a terminal whose view ends without [`Live::end`].
pub fn show_cursor() {
    if stderr().is_terminal() {
        let _ = execute!(stderr(), cursor::Show);
    }
}
