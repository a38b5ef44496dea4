//! The live view of a run: a few lines on the terminal, redrawn each interval, gone when the run ends.
//!
//! ```text
//! http://127.0.0.1:8080/  2000/s poisson                        ██████████   5 of 8 s
//!
//!                  ▇▇▇▇▇▇▇▇       latency p50     354 us    ok                 10034
//! offered 2004/s   ████████               p99    8.65 ms    connect_timeout       12
//!                  ▇▇█▇▇█▇▇               max    11.9 ms
//!
//! idle:6000        6000 open         0 replies   reset 12
//!
//! 1.10 x the rate   space: pause or go on   + or -: a tenth more or less
//! ```

use std::collections::VecDeque;
use std::io::{Stderr, stderr};

use ::load::{Snapshot, Standing, Tempo};
use ratatui::Terminal;
use ratatui::TerminalOptions;
use ratatui::Viewport;
use ratatui::backend::CrosstermBackend;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Gauge, Paragraph, Sparkline};
use record::{Latency, Outcome};

use super::keys::{self, Keys};
use super::summary::{quantile, rate};

/// Lines that the view takes, without populations.
const HEIGHT: u16 = 10;
/// Populations that are shown; a terminal has little more than two dozen lines.
const POPULATIONS_MAX: u16 = 8;
/// Intervals that the curves remember.
const HISTORY: usize = 240;

/// The view.
pub struct Live {
    terminal: Terminal<CrosstermBackend<Stderr>>,
    title: String,
    /// Lines of populations.
    populations: u16,
    colour: bool,
    curves: [VecDeque<u64>; 3],
    /// What the keys change, where there are keys; they are let go of with the view.
    tempo: Option<(Tempo, Keys)>,
}

/// The curves: what is drawn for each.
const CURVES: [(&str, Color); 3] =
    [("offered", Color::Blue), ("replies", Color::Cyan), ("goodput", Color::Green)];

impl Live {
    /// A view on stderr, and keys for a rate that can be changed; `None` where the terminal does not let itself be
    /// drawn on.
    pub fn new(title: &str, populations: usize, tempo: Option<Tempo>) -> Option<Live> {
        let populations = POPULATIONS_MAX.min(u16::try_from(populations).unwrap_or(u16::MAX));
        let tempo = tempo.and_then(|tempo| Some((tempo.clone(), Keys::listen(tempo)?)));
        let lines = HEIGHT + populations + 2 * u16::from(tempo.is_some());
        let options = TerminalOptions { viewport: Viewport::Inline(lines) };
        let terminal = Terminal::with_options(CrosstermBackend::new(stderr()), options).ok()?;
        let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Some(Live {
            terminal,
            title: title.to_owned(),
            populations,
            colour,
            curves: Default::default(),
            tempo,
        })
    }

    /// Shows an interval.
    pub fn show(&mut self, snapshot: &Snapshot<'_>) {
        let point = snapshot.point;
        let per_s = |count: u64| count as f64 / point.interval_s.max(1e-9);
        let rates = [per_s(point.offered), per_s(point.replies), per_s(point.good)];
        for (curve, value) in self.curves.iter_mut().zip(rates) {
            curve.push_back(value.round() as u64);
            if curve.len() > HISTORY {
                curve.pop_front();
            }
        }
        let (title, colour, curves, populations) = (&self.title, self.colour, &self.curves, self.populations);
        let share = self.tempo.as_ref().map(|(tempo, _)| tempo.share());
        // A terminal that has gone away must not end the run.
        let _ = self.terminal.draw(|frame| {
            let [head, _, body, others, _, foot] = Layout::vertical([
                Constraint::Length(1),
                Constraint::Length(1),
                Constraint::Min(0),
                Constraint::Length(populations),
                Constraint::Length(u16::from(share.is_some())),
                Constraint::Length(u16::from(share.is_some())),
            ])
            .areas(frame.area());
            frame.render_widget(Paragraph::new(beside(snapshot)), others);
            frame.render_widget(Paragraph::new(share.map(by_hand).unwrap_or_default()), foot);
            draw_head(frame, head, title, snapshot, colour);
            let [left, middle, right] =
                Layout::horizontal([Constraint::Fill(1), Constraint::Length(26), Constraint::Length(30)])
                    .spacing(2)
                    .areas(body);
            draw_curves(frame, left, curves, &rates, colour);
            frame.render_widget(Paragraph::new(latency(snapshot)), middle);
            frame.render_widget(Paragraph::new(outcomes(snapshot, colour)), right);
        });
    }

    /// Takes the view off the terminal.
    pub fn end(mut self) {
        let top = self.terminal.get_frame().area().top();
        let _ = self.terminal.clear();
        let _ = self.terminal.set_cursor_position((0, top));
        let _ = self.terminal.show_cursor();
    }
}

fn style(colour: bool, wanted: Color) -> Style {
    if colour { Style::new().fg(wanted) } else { Style::new() }
}

fn draw_head(frame: &mut ratatui::Frame<'_>, area: Rect, title: &str, snapshot: &Snapshot<'_>, colour: bool) {
    let [left, right] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Length(40)]).spacing(2).areas(area);
    frame.render_widget(Paragraph::new(title.bold()), left);
    let (elapsed, total) = (snapshot.elapsed.as_secs_f64(), snapshot.total.as_secs_f64());
    let phase = if snapshot.warming_up { "warming up, " } else { "" };
    let gauge = Gauge::default()
        .ratio((elapsed / total).clamp(0.0, 1.0))
        .gauge_style(style(colour, Color::Blue))
        .label(format!("{phase}{elapsed:.0} of {total:.0} s"));
    frame.render_widget(gauge, right);
}

fn draw_curves(
    frame: &mut ratatui::Frame<'_>,
    area: Rect,
    curves: &[VecDeque<u64>; 3],
    rates: &[f64; 3],
    colour: bool,
) {
    let top = curves.iter().flatten().copied().max().unwrap_or(1).max(1);
    let rows: [Rect; 3] = Layout::vertical([Constraint::Length(2); 3]).areas(area);
    for (index, (name, wanted)) in CURVES.into_iter().enumerate() {
        let [label, curve] =
            Layout::horizontal([Constraint::Length(19), Constraint::Fill(1)]).areas(rows[index]);
        let text = Line::from(vec![Span::raw(format!("{name:<9}")), rate(rates[index]).bold()]);
        frame.render_widget(Paragraph::new(vec![Line::default(), text]), label);
        let shown = usize::from(curve.width).min(curves[index].len());
        let data: Vec<u64> = curves[index].iter().skip(curves[index].len() - shown).copied().collect();
        frame.render_widget(Sparkline::default().data(&data).max(top).style(style(colour, wanted)), curve);
    }
}

fn latency(snapshot: &Snapshot<'_>) -> Vec<Line<'static>> {
    let point = snapshot.point;
    let (latency, late) = (&point.latency_intended_ns, Latency::from(point.lateness_ns));
    let row = |name: &str, value: String| Line::from(format!("{name:<14}{value:>11}"));
    vec![
        row("latency p50", quantile(latency, latency.p50)),
        row("        p99", quantile(latency, latency.p99)),
        row("        max", quantile(latency, latency.max)),
        Line::default(),
        row("lateness p99", quantile(&late, late.p99)),
        row("sockets", point.sockets.to_string()),
        match point.retries {
            0 => Line::default(),
            retries => row("retries", retries.to_string()),
        },
    ]
}

/// What the keys have made of the rate, and what they do.
fn by_hand(share: f64) -> Line<'static> {
    let state = if share == 0.0 { "paused".to_owned() } else { format!("{share:.2} x the rate") };
    Line::from(vec![Span::raw(format!("{state:<18}")).bold(), Span::raw(keys::HELP).dim()])
}

/// A line for each population: what is open, what was answered, what else became of it.
fn beside(snapshot: &Snapshot<'_>) -> Vec<Line<'static>> {
    let line = |population: &Standing| {
        let others: Vec<String> = population
            .outcomes
            .iter()
            .filter(|(outcome, count)| *count > 0 && *outcome != Outcome::Ok)
            .map(|(outcome, count)| format!("{} {count}", outcome.name()))
            .collect();
        Line::from(format!(
            "{:<24} {:>7} open {:>9} replies   {}",
            population.name,
            population.sockets,
            population.replies,
            others.join(", ")
        ))
    };
    snapshot.populations.iter().map(line).collect()
}

fn outcomes(snapshot: &Snapshot<'_>, colour: bool) -> Vec<Line<'static>> {
    let seen = snapshot.outcomes.iter().filter(|(outcome, count)| *count > 0 || *outcome == Outcome::Ok);
    seen.map(|(outcome, count)| {
        let wanted = match outcome {
            Outcome::Ok => Color::Green,
            outcome if outcome.is_client_limit() => Color::Yellow,
            _ => Color::Red,
        };
        Line::from(vec![
            Span::styled(format!("{:<17}", outcome.name()), style(colour, wanted)),
            Span::raw(format!("{count:>12}")),
        ])
    })
    .collect()
}
