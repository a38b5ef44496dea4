//! The rows of a fleet's agents in the live view.
//!
//! ```text
//! agent               state      offered    replies    errors    lateness p99
//! a1                  running      500/s      498/s        12          1.2 ms
//! a2                  lost           0/s        0/s       310           48 us
//! ```
//!
//! If there are more agents than lines, those that are lost come first, then those with the most errors; the last line
//! counts the others.

use ::load::{AgentPhase, AgentStanding};
use base::PerSecond;
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};

use super::count;

/// Maximum lines of agents.
const ROWS_MAX: usize = 8;

/// Lines for this number of agents, the heading included.
pub fn height(agents: usize) -> u16 {
    if agents == 0 { 0 } else { 1 + agents.min(ROWS_MAX) as u16 }
}

/// The heading and the rows, at most `room` lines.
pub fn lines(agents: &[AgentStanding], room: u16, colour: bool) -> Vec<Line<'static>> {
    let rows = usize::from(room).saturating_sub(1);
    if agents.is_empty() || rows == 0 {
        return Vec::new();
    }
    let mut order: Vec<&AgentStanding> = agents.iter().collect();
    let shown = if agents.len() > rows { rows - 1 } else { agents.len() };
    if shown < agents.len() {
        let needs_eyes =
            |agent: &&AgentStanding| (agent.phase != AgentPhase::Lost, std::cmp::Reverse(agent.errors));
        order.sort_by_key(needs_eyes);
    }
    let heading = format!(
        "{:<18}  {:<8}{:>9}{:>11}{:>10}{:>16}",
        "agent", "state", "offered", "replies", "errors", "lateness p99"
    );
    let mut lines = vec![Line::from(heading.dim())];
    lines.extend(order.iter().take(shown).map(|agent| row(agent, colour)));
    if shown < agents.len() {
        lines.push(Line::from(format!("and {} more", agents.len() - shown).dim()));
    }
    lines
}

fn row(agent: &AgentStanding, colour: bool) -> Line<'static> {
    let (state, wanted) = match agent.phase {
        AgentPhase::Ready => ("ready", Color::Reset),
        AgentPhase::Running => ("running", Color::Green),
        AgentPhase::Done => ("done", Color::Reset),
        AgentPhase::Lost => ("lost", Color::Red),
    };
    let style = if colour { Style::new().fg(wanted) } else { Style::new() };
    let rate = |per_s: f64| PerSecond(per_s.round()).approximate().to_string();
    Line::from(vec![
        Span::raw(format!("{:<18.18}  ", agent.name)),
        Span::styled(format!("{state:<8}"), style),
        Span::raw(format!(
            "{:>9}{:>11}{:>10}{:>16}",
            rate(agent.offered_per_s),
            rate(agent.replies_per_s),
            count(agent.errors),
            agent.lateness_p99.approximate()
        )),
    ])
}

#[cfg(test)]
mod tests {
    use base::Nanos;

    use super::*;

    fn agents(count: usize) -> Vec<AgentStanding> {
        let agent = |number: usize| AgentStanding {
            name: format!("agent-{number}"),
            phase: if number == 9 { AgentPhase::Lost } else { AgentPhase::Running },
            offered_per_s: 12_345.0,
            replies_per_s: 500.0,
            errors: number as u64,
            lateness_p99: Nanos::from_micros(1_200),
        };
        (1..=count).map(agent).collect()
    }

    fn text(lines: &[Line<'_>]) -> Vec<String> {
        lines.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_agent_has_a_row_that_fits_80_columns() {
        let rows = text(&lines(&agents(3), height(3), true));
        assert_eq!(rows.len(), 4);
        assert!(
            rows.iter().all(|row| row.chars().count() == rows[0].chars().count() && row.len() <= 80),
            "{rows:#?}"
        );
        assert!(
            rows[1].starts_with("agent-1 ") && rows[1].contains("running") && rows[1].contains("500/s"),
            "{rows:#?}"
        );
        assert!(lines(&[], 9, true).is_empty() && lines(&agents(3), 0, true).is_empty());
    }

    #[test]
    fn of_many_agents_the_lost_and_the_failing_are_shown() {
        let rows = text(&lines(&agents(20), height(20), false));
        assert_eq!(rows.len(), 9);
        assert!(rows[1].starts_with("agent-9 ") && rows[1].contains("lost"), "{rows:#?}");
        assert!(rows[2].starts_with("agent-20 ") && rows[8] == "and 13 more", "{rows:#?}");
    }
}
