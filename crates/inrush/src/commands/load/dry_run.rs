//! `inrush load --dry-run`: describes the run and its needs without sending anything.

use std::fmt::Write as _;

use ::load::{Descriptors, Outline, Plan, Rates, SourcePorts};
use base::Nanos;

use super::summary::rate;
use crate::cli::Output;
use crate::exit::Exit;
use crate::output;

/// Prints the plan of the run.
pub fn print(plan: &Plan, form: Output) -> Result<(), Exit> {
    let outline = plan.outline();
    match form {
        Output::Json => output::json("the plan", &outline),
        _ => output::text("the plan", &text(&outline)),
    }
}

fn text(outline: &Outline) -> String {
    let mut out = String::new();
    describe(&mut out, outline).expect("writing to a string");
    out
}

fn describe(out: &mut String, outline: &Outline) -> std::fmt::Result {
    let Outline { warmup_s, duration_s, .. } = outline;
    writeln!(out, "nothing was sent; this run would go to {}", outline.target)?;
    writeln!(out, "time         {warmup_s} s of warm-up, then {duration_s} s measured")?;
    match (&outline.rates, &outline.arrivals) {
        (Some(rates), Some(arrivals)) => schedule(out, outline, rates, arrivals)?,
        (None, Some(arrivals)) => writeln!(out, "arrivals     {arrivals}")?,
        _ => {
            let clients = outline.descriptors.pending_max;
            writeln!(out, "arrivals     closed loop, {clients} clients at the server's pace")?;
        }
    }
    for population in &outline.populations {
        writeln!(out, "beside it    {population}")?;
    }
    writeln!(out, "threads      {} in {} process(es)", outline.threads, outline.processes)?;
    descriptors(out, &outline.descriptors)?;
    sources(out, &outline.sources)?;
    outline.warnings.iter().try_for_each(|warning| writeln!(out, "warning: {warning}"))
}

fn schedule(out: &mut String, outline: &Outline, rates: &Rates, arrivals: &str) -> std::fmt::Result {
    let Rates { sessions_per_s_mean, sessions_per_s_peak, .. } = *rates;
    writeln!(out, "arrivals     {arrivals}")?;
    writeln!(
        out,
        "  sessions   {} on average, {} at most over a second",
        rate(sessions_per_s_mean),
        rate(sessions_per_s_peak)
    )?;
    writeln!(
        out,
        "  requests   {} on average, {} at most; about {:.0} measured, {:.0} in all",
        rate(rates.requests_per_s_mean),
        rate(rates.requests_per_s_peak),
        rates.requests_measured,
        rates.requests_in_all
    )?;
    let first: Vec<String> =
        outline.first_s.iter().map(|at| Nanos::from_secs_f64(*at).approximate()).collect();
    if first.is_empty() {
        writeln!(out, "  first      none in this time")?;
    } else {
        writeln!(out, "  first      {}, and so on", first.join(", "))?;
    }
    match &outline.hurst {
        Some(hurst) => {
            writeln!(out, "  bursts     {}", super::hurst_line(hurst.schedule, hurst.process))
        }
        None => Ok(()),
    }
}

fn descriptors(out: &mut String, needed: &Descriptors) -> std::fmt::Result {
    let limit = needed.limit.map_or("no limit".to_owned(), |limit| format!("a limit of {limit}"));
    writeln!(
        out,
        "descriptors  {} against {limit}: {} connects pending at once (D), {} clients of populations, {} others",
        needed.needed, needed.pending_max, needed.populations, needed.aside
    )?;
    match needed.unanswered_max {
        0 => Ok(()),
        most => writeln!(
            out,
            "             and up to {most} more if the server accepts everything and answers nothing"
        ),
    }
}

fn sources(out: &mut String, sources: &SourcePorts) -> std::fmt::Result {
    let SourcePorts { addresses, count, ports, ports_in_time_wait_max } = sources;
    let from = match addresses {
        Some(addresses) => format!("{count} address(es), {addresses},"),
        None => "one address, of the kernel's choice,".to_owned(),
    };
    let held = ports_in_time_wait_max.map_or(String::new(), |most| {
        format!(
            "\n             up to {most} of them held for 60 s by connections that this side closed first"
        )
    });
    writeln!(out, "sources      {from} with {ports} ports{held}")
}
