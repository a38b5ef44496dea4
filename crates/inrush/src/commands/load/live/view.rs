//! The figures of the live view and their layout, without a terminal.
//!
//! ```text
//! http://127.0.0.1:8080/  2000/s poisson                   ██████████   5 of 8 s
//!
//!                 ▇▇▇▇▇▇▇▇▇   latency p50  354 us   measured
//! offered 2004/s  █████████           p99 8.65 ms   ok                     10034
//!                 ▇▇█▇▇█▇▇█           max 11.9 ms   connect_timeout           12
//!
//! status  200 10034   503 12
//! idle:6000             6000 open         0 replies   reset 12
//! agent               state      offered    replies    errors    lateness p99
//! a1                  running     2004/s     1992/s        12          1.2 ms
//! 1.10 x the rate   q: end   ?: keys
//! ```
//!
//! The columns shrink with the terminal. Below [`WIDE`] cells the curves disappear, below [`NARROW`] the
//! latencies too. Rates and outcomes stay. On a tall terminal the curves grow, and from [`TALL`] lines on the
//! latency has a curve too. The view counts the outcomes of the warm-up while the warm-up lasts, and then those of the
//! measured time.

mod agents;

use std::collections::VecDeque;

use ::load::{AgentStanding, Snapshot, Standing, Tempo};
use base::PerSecond;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Gauge, Paragraph, Sparkline};
use record::{Latency, Outcome, Outcomes, Point, Statuses};

use crate::commands::load::summary::quantile;

/// The least lines of the curves, latencies and outcomes.
const BODY: u16 = 7;
/// The least lines of a body that also has a curve of the latency.
const TALL: u16 = 12;
/// Lines above and below the body: title, a gap, status codes, keys.
const AROUND: u16 = 4;
/// Maximum populations shown, because a terminal has little more than two dozen lines.
const POPULATIONS_MAX: u16 = 8;
/// Maximum lines that the view needs: one fewer than the smallest usual terminal has.
const LINES_MAX: u16 = 23;
/// The lines of a tall terminal that stay as they are: what the user did before.
const LINES_LEFT: u16 = 12;
/// Number of intervals in a curve.
const HISTORY: usize = 240;

/// Widths of the columns, and of the gaps between them.
const RATES: u16 = 16;
const LATENCIES: u16 = 20;
const OUTCOMES: u16 = 25;
/// Width of an outcome's name and a count of six digits.
const OUTCOMES_MIN: u16 = 22;
const GAP: u16 = 2;
/// Minimum cells of a curve.
const CURVE_MIN: u16 = 5;
/// The narrowest terminal with curves.
const WIDE: u16 = RATES + CURVE_MIN + LATENCIES + OUTCOMES + 2 * GAP;
/// The narrowest terminal with latencies.
const NARROW: u16 = RATES + LATENCIES + OUTCOMES_MIN + GAP;

/// The name and the colour of each curve: the rates, with one scale, and the latency.
const CURVES: [(&str, Color); 4] =
    [("offered", Color::Blue), ("replies", Color::Cyan), ("goodput", Color::Green), ("p99", Color::Magenta)];
/// The place of the latency among the curves.
const LATENCY: usize = 3;

/// The keys and their effects. The last lines apply only if the rate can be changed.
const HELP: [&str; 5] = [
    "q        end the run; the result so far is printed",
    "?        back to the figures",
    "space    pause, or go on",
    "+        a tenth more",
    "-        a tenth less",
];

/// The state of the view.
pub struct View {
    title: String,
    /// Lines of populations, and of a fleet's agents.
    populations: u16,
    agent_lines: u16,
    /// The agents of a fleet.
    pub agents: Vec<AgentStanding>,
    colour: bool,
    /// Events per second, and nanoseconds; more than any time for a percentile among requests without a reply.
    curves: [VecDeque<u64>; 4],
    /// The rate that the keys change; `None` if it cannot be changed.
    tempo: Option<Tempo>,
    /// True if the keys are active.
    pub has_keys: bool,
    /// True if the help replaces the figures.
    pub helps: bool,
    shown: Option<Shown>,
    outcomes: Outcomes,
    statuses: Statuses,
    in_flight: u64,
}

/// The last interval.
struct Shown {
    elapsed_s: f64,
    total_s: f64,
    warming_up: bool,
    point: Point,
    populations: Vec<Standing>,
}

impl View {
    /// An empty view.
    pub fn new(title: &str, populations: usize, agents: usize, tempo: Option<Tempo>, colour: bool) -> View {
        let populations = POPULATIONS_MAX.min(u16::try_from(populations).unwrap_or(u16::MAX));
        View {
            title: title.to_owned(),
            populations,
            agent_lines: agents::height(agents).min(LINES_MAX - AROUND - BODY - populations),
            agents: Vec::new(),
            colour,
            curves: Default::default(),
            tempo,
            has_keys: false,
            helps: false,
            shown: None,
            outcomes: Outcomes::default(),
            statuses: Statuses::default(),
            in_flight: 0,
        }
    }

    /// Height of the view in lines, on a terminal of that many.
    pub fn height(&self, terminal: u16) -> u16 {
        (self.around() + BODY).max(terminal.saturating_sub(LINES_LEFT))
    }

    /// The lines above and below the body.
    fn around(&self) -> u16 {
        AROUND + self.populations + self.agent_lines
    }

    /// Adds an interval.
    pub fn add(&mut self, snapshot: &Snapshot<'_>) {
        let point = snapshot.point;
        let per_s = |count: u64| (count as f64 / point.interval_s.max(1e-9)).round() as u64;
        let latency = &point.latency_intended_ns;
        let p99 = latency.p99.unwrap_or(if latency.all() > 0 { u64::MAX } else { 0 });
        let values = [per_s(point.offered), per_s(point.replies), per_s(point.good), p99];
        for (curve, value) in self.curves.iter_mut().zip(values) {
            curve.push_back(value);
            if curve.len() > HISTORY {
                curve.pop_front();
            }
        }
        let was_warming_up = self.shown.as_ref().is_some_and(|shown| shown.warming_up);
        if was_warming_up && !snapshot.warming_up {
            (self.outcomes, self.statuses) = Default::default();
        }
        self.outcomes.merge(&point.outcomes);
        self.statuses.merge(&point.statuses);
        self.in_flight = (self.in_flight + point.offered).saturating_sub(point.outcomes.total());
        self.shown = Some(Shown {
            elapsed_s: snapshot.elapsed.as_secs_f64(),
            total_s: snapshot.total.as_secs_f64(),
            warming_up: snapshot.warming_up,
            point: point.clone(),
            populations: snapshot.populations.to_vec(),
        });
    }

    /// Draws the view.
    pub fn render(&self, frame: &mut Frame<'_>) {
        let Some(shown) = &self.shown else { return };
        let [head, _, body, codes, others, fleet, foot] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Length(frame.area().height.saturating_sub(self.around())),
            Constraint::Length(1),
            Constraint::Length(self.populations),
            Constraint::Length(self.agent_lines),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        self.render_head(frame, head, shown);
        if self.helps {
            let keys = if self.tempo.is_some() { &HELP[..] } else { &HELP[..2] };
            frame.render_widget(
                Paragraph::new(keys.iter().copied().map(Line::from).collect::<Vec<_>>()),
                body,
            );
        } else {
            self.render_body(frame, body, shown);
        }
        frame.render_widget(Paragraph::new(self.codes()), codes);
        frame.render_widget(Paragraph::new(shown.populations.iter().map(beside).collect::<Vec<_>>()), others);
        frame.render_widget(Paragraph::new(agents::lines(&self.agents, fleet.height, self.colour)), fleet);
        frame.render_widget(Paragraph::new(self.foot()), foot);
    }

    fn style(&self, wanted: Color) -> Style {
        if self.colour { Style::new().fg(wanted) } else { Style::new() }
    }

    fn render_head(&self, frame: &mut Frame<'_>, area: Rect, shown: &Shown) {
        let gauge_width = (area.width / 2).min(40);
        let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Length(gauge_width)])
            .spacing(GAP)
            .areas(area);
        frame.render_widget(Paragraph::new(self.title.as_str().bold()), left);
        let phase = if shown.warming_up { "warming up, " } else { "" };
        let gauge = Gauge::default()
            .ratio((shown.elapsed_s / shown.total_s).clamp(0.0, 1.0))
            .gauge_style(self.style(Color::Blue))
            .label(format!("{phase}{:.0} of {:.0} s", shown.elapsed_s, shown.total_s));
        frame.render_widget(gauge, right);
    }

    fn render_body(&self, frame: &mut Frame<'_>, area: Rect, shown: &Shown) {
        let gap = if area.width >= WIDE { GAP } else { 1 };
        let middle = if area.width >= NARROW { LATENCIES } else { 0 };
        let right = area.width.saturating_sub(RATES + middle + 2 * gap).min(OUTCOMES);
        let [left, middle, right] =
            Layout::horizontal([Constraint::Fill(1), Constraint::Length(middle), Constraint::Length(right)])
                .spacing(gap)
                .areas(area);
        self.render_curves(frame, left, shown);
        frame.render_widget(Paragraph::new(self.latencies(shown)), middle);
        frame.render_widget(Paragraph::new(self.outcomes(shown, right)), right);
    }

    /// Draws the rates, and the latency on a tall terminal, with a curve beside each if there is room.
    fn render_curves(&self, frame: &mut Frame<'_>, area: Rect, shown: &Shown) {
        let curves = if area.height >= TALL { LATENCY + 1 } else { LATENCY };
        let height = area.height / curves as u16;
        let rows = Layout::vertical(vec![Constraint::Length(height); curves]).split(area);
        let top = |values: &[VecDeque<u64>]| {
            values.iter().flatten().copied().filter(|value| *value < u64::MAX).max().unwrap_or(1).max(1)
        };
        for (index, ((name, wanted), row)) in CURVES.into_iter().zip(rows.iter()).enumerate() {
            let [label, curve] =
                Layout::horizontal([Constraint::Length(RATES), Constraint::Fill(1)]).areas(*row);
            let (values, of_its_kind) =
                (&self.curves[index], if index < LATENCY { 0..LATENCY } else { index..index + 1 });
            let latency = &shown.point.latency_intended_ns;
            let last = match index {
                LATENCY => quantile(latency, latency.p99),
                _ => PerSecond(values.back().copied().unwrap_or(0) as f64).approximate(),
            };
            let text = Line::from(vec![Span::raw(format!("{name:<8}")), last.bold()]);
            let mut lines = vec![Line::default(); usize::from(row.height.saturating_sub(1))];
            lines.push(text);
            frame.render_widget(Paragraph::new(lines), label);
            if curve.width >= CURVE_MIN {
                let top = top(&self.curves[of_its_kind]);
                let data = visible(values, curve, top);
                frame.render_widget(
                    Sparkline::default().data(&data).max(top).style(self.style(wanted)),
                    curve,
                );
            }
        }
    }

    /// The figures of the last interval.
    fn latencies(&self, shown: &Shown) -> Vec<Line<'static>> {
        let point = &shown.point;
        let (latency, late) = (&point.latency_intended_ns, Latency::from(point.lateness_ns));
        let row = |name: &str, value: String| Line::from(format!("{name:<12}{value:>8}"));
        let mut rows = vec![
            row("latency p50", quantile(latency, latency.p50)),
            row("        p99", quantile(latency, latency.p99)),
            row("        max", quantile(latency, latency.max)),
            row("lateness p99", quantile(&late, late.p99)),
            row("in flight", count(self.in_flight)),
            row("sockets", count(point.sockets)),
        ];
        rows.extend((point.retries > 0).then(|| row("retries", count(point.retries))));
        rows
    }

    /// The outcomes. If there are more than lines, the most frequent come first.
    fn outcomes(&self, shown: &Shown, area: Rect) -> Vec<Line<'static>> {
        let heading = if shown.warming_up { "in the warm-up" } else { "measured" };
        let mut seen: Vec<_> =
            self.outcomes.iter().filter(|(outcome, count)| *count > 0 || *outcome == Outcome::Ok).collect();
        let room = usize::from(area.height).saturating_sub(1);
        if seen.len() > room {
            seen.sort_by_key(|(outcome, count)| (*outcome != Outcome::Ok, std::cmp::Reverse(*count)));
            seen.truncate(room);
        }
        let numbers = usize::from(area.width).saturating_sub(16).min(9);
        let line = |(outcome, number): (Outcome, u64)| {
            let wanted = match outcome {
                Outcome::Ok => Color::Green,
                outcome if outcome.is_client_limit() => Color::Yellow,
                _ => Color::Red,
            };
            Line::from(vec![
                Span::styled(format!("{:<16}", outcome.name()), self.style(wanted)),
                Span::raw(format!("{:>numbers$}", count(number))),
            ])
        };
        [Line::from(heading.dim())].into_iter().chain(seen.into_iter().map(line)).collect()
    }

    /// The replies by status code.
    fn codes(&self) -> Line<'static> {
        let codes = self.statuses.iter().map(|(code, replies)| format!("{code} {}", count(replies)));
        let codes: Vec<String> = codes.collect();
        Line::from(if codes.is_empty() { String::new() } else { format!("status  {}", codes.join("   ")) })
    }

    /// The rate that the keys have set, and the keys themselves.
    fn foot(&self) -> Line<'static> {
        if !self.has_keys {
            return Line::default();
        }
        let state = self.tempo.as_ref().map(|tempo| match tempo.share() {
            0.0 => "paused   ".to_owned(),
            share => format!("{share:.2} x the rate   "),
        });
        Line::from(vec![Span::raw(state.unwrap_or_default()).bold(), "q: end   ?: keys".dim()])
    }
}

/// The newest values of a curve that fit its area. Each value above 0 gets the least mark at least: a small rate beside a
/// large one is not nothing.
fn visible(values: &VecDeque<u64>, area: Rect, top: u64) -> Vec<u64> {
    let newest = values.len().saturating_sub(usize::from(area.width));
    // A cell has eight steps.
    let least = top.div_ceil(8 * u64::from(area.height.max(1)));
    values.iter().skip(newest).map(|value| if *value > 0 { (*value).clamp(least, top) } else { 0 }).collect()
}

/// A population: its open connections, its replies, and its other outcomes.
fn beside(population: &Standing) -> Line<'static> {
    let others = population.outcomes.iter().filter(|(outcome, count)| *count > 0 && *outcome != Outcome::Ok);
    let others: Vec<String> =
        others.map(|(outcome, number)| format!("{} {}", outcome.name(), count(number))).collect();
    Line::from(format!(
        "{:<18.18} {:>6} open {:>7} replies   {}",
        population.name,
        count(population.sockets),
        count(population.replies),
        others.join(", ")
    ))
}

/// A count in at most seven characters.
fn count(count: u64) -> String {
    match count {
        0..10_000_000 => count.to_string(),
        10_000_000..10_000_000_000 => format!("{:.1}M", count as f64 / 1e6),
        _ => format!("{:.1}G", count as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Nanos;
    use hdrhistogram::Histogram;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use record::Distribution;

    fn point(ok: u64, timeouts: u64) -> Point {
        let answered = Distribution {
            count: ok,
            p50: 354_000,
            p99: 8_650_000,
            max: 11_900_000,
            ..Distribution::default()
        };
        let mut point = Point {
            interval_s: 1.0,
            offered: ok + timeouts + 3,
            replies: ok,
            good: ok,
            latency_intended_ns: answered.into(),
            sockets: 41,
            ..Point::default()
        };
        point.outcomes.add(Outcome::Ok, ok);
        point.outcomes.add(Outcome::ResponseTimeout, timeouts);
        point.statuses.add(200, ok);
        point
    }

    fn add(view: &mut View, seconds: u64, warming_up: bool, point: &Point) {
        let nothing = Histogram::new_with_bounds(1_000, 600_000_000_000, 2).unwrap();
        let idle = Standing { name: "idle:6000".to_owned(), sockets: 6_000, ..Standing::default() };
        view.add(&Snapshot {
            elapsed: Nanos::from_secs(seconds),
            total: Nanos::from_secs(35),
            warming_up,
            point,
            latency_intended: &nothing,
            lateness: &nothing,
            outcomes: &Outcomes::default(),
            established: 0,
            populations: &[idle],
        });
    }

    /// The screen of a terminal of that width after a second of warm-up and two measured ones.
    fn shown(width: u16, helps: bool) -> Vec<String> {
        shown_on(width, 24, helps)
    }

    fn shown_on(width: u16, lines: u16, helps: bool) -> Vec<String> {
        let mut view =
            View::new("http://127.0.0.1:8080/  2000/s poisson", 1, 0, Some(Tempo::default()), false);
        view.has_keys = true;
        add(&mut view, 1, true, &point(700, 0));
        add(&mut view, 2, false, &point(2_000, 5));
        add(&mut view, 3, false, &point(1_900, 7));
        view.helps = helps;
        let mut terminal = Terminal::new(TestBackend::new(width, view.height(lines))).unwrap();
        terminal.draw(|frame| view.render(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let rows = buffer.content().chunks(usize::from(width));
        rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>()).collect()
    }

    #[track_caller]
    fn check(width: u16, expected: &[&str]) {
        let rows = shown(width, false);
        for part in expected {
            assert!(rows.iter().any(|row| row.contains(part)), "no {part:?} in:\n{}", rows.join("\n"));
        }
    }

    #[test]
    fn rates_and_outcomes_are_shown_at_any_width() {
        for width in [44, 50, 60, 80, 100, 200] {
            check(
                width,
                &["offered 1910/s", "replies 1900/s", "goodput 1900/s", "ok", "3900", "response_timeout"],
            );
        }
    }

    #[test]
    fn a_terminal_of_80_columns_has_latencies_and_curves() {
        check(
            80,
            &[
                "latency p50   354 us",
                "p99  8.65 ms",
                "in flight          9",
                "status  200 3900",
                "idle:6000",
            ],
        );
        let rows = shown(80, false);
        let curve = rows[3].chars().filter(|cell| "▁▂▃▄▅▆▇█".contains(*cell)).count();
        assert!(curve >= 3, "three intervals: {}", rows.join("\n"));
        check(60, &["latency p50   354 us", "response_timeout", "q: end   ?: keys"]);
    }

    #[test]
    fn tall_terminals_have_taller_curves_and_the_latency() {
        let marks = |rows: &[String]| {
            rows.iter().filter(|row| row.chars().any(|cell| "▁▂▃▄▅▆▇█".contains(cell))).count()
        };
        let (small, tall) = (shown_on(200, 24, false), shown_on(200, 50, false));
        assert_eq!((small.len(), tall.len()), (12, 38));
        assert!(!small.iter().any(|row| row.contains("p99     8.65 ms")), "{}", small.join("\n"));
        assert!(tall.iter().any(|row| row.contains("p99     8.65 ms")), "{}", tall.join("\n"));
        assert!(marks(&tall) > 3 * marks(&small), "{}", tall.join("\n"));
    }

    #[test]
    fn small_values_beside_large_ones_are_drawn() {
        let values = VecDeque::from([0, 1, 100_000, u64::MAX]);
        let mut terminal = Terminal::new(TestBackend::new(4, 2)).unwrap();
        let draw = |frame: &mut Frame<'_>| {
            let data = visible(&values, frame.area(), 100_000);
            frame.render_widget(Sparkline::default().data(&data).max(100_000), frame.area());
        };
        terminal.draw(draw).unwrap();
        let cells: String = terminal.backend().buffer().content().iter().map(|cell| cell.symbol()).collect();
        assert_eq!(cells, "  ██ ▁██");
    }

    #[test]
    fn what_the_warm_up_brought_is_not_in_ok() {
        let rows = shown(80, false).join("\n");
        assert!(rows.contains("measured") && !rows.contains("4600"), "{rows}");
        let mut view = View::new("", 0, 0, None, false);
        add(&mut view, 1, true, &point(700, 0));
        assert_eq!((view.outcomes.get(Outcome::Ok), view.foot().width()), (700, 0));
    }

    #[test]
    fn a_fleets_agents_stand_below_the_figures() {
        let mut view = View::new("", 1, 2, None, false);
        view.agents = ["a1", "a2"]
            .map(|name| AgentStanding { name: name.to_owned(), ..AgentStanding::default() })
            .into();
        add(&mut view, 2, false, &point(2_000, 5));
        let mut terminal = Terminal::new(TestBackend::new(80, view.height(24))).unwrap();
        terminal.draw(|frame| view.render(frame)).unwrap();
        let rows: Vec<&[_]> = terminal.backend().buffer().content().chunks(80).collect();
        let row = |index: usize| {
            rows[index].iter().map(|cell: &ratatui::buffer::Cell| cell.symbol()).collect::<String>()
        };
        assert!(
            view.height(24) == 15 && row(13).starts_with("a2 ") && row(13).contains("ready"),
            "{}",
            row(13)
        );
        assert!(row(11).starts_with("agent ") && row(10).starts_with("idle:6000"));
    }

    #[test]
    fn the_keys_are_explained_in_place_of_the_figures() {
        let rows = shown(80, true).join("\n");
        assert!(rows.contains("q        end the run") && rows.contains("+        a tenth more"), "{rows}");
        assert!(!rows.contains("latency p50") && rows.contains("3 of 35 s"), "{rows}");
    }

    #[test]
    fn counts_stay_short() {
        let shown = [0, 9_999_999, 12_345_678, 20_000_000_000].map(count);
        assert_eq!(shown, ["0", "9999999", "12.3M", "20.0G"]);
    }
}
