//! No live view: this build has no library for terminals.

use ::load::{AgentStanding, Snapshot, Stop, Tempo};

/// A view that no value is of.
pub enum Live {}

impl Live {
    /// `None`, on every terminal.
    pub fn new(_: &str, _: usize, _: usize, _: Option<Tempo>, _: &Stop) -> Option<Live> {
        None
    }

    /// Shows an interval.
    pub fn show(&mut self, _: &Snapshot<'_>) {
        match *self {}
    }

    /// Shows the agents of a fleet.
    pub fn show_agents(&mut self, _: &[AgentStanding]) {
        match *self {}
    }

    /// Removes the view from the terminal.
    pub fn end(self) {
        match self {}
    }
}

/// Does nothing: no view hides the cursor.
pub fn show_cursor() {}
