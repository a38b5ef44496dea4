//! One client machine beside two with the same sockets, as the paper finds the most that one can offer.
//!
//! A client that keeps D connects pending offers D a connect timeout, however many machines share the D, until one machine
//! becomes the limit: there the two curves part.
//!
//! Source: Banga and Druschel, Measuring the Capacity of a Web Server, USITS 1997.
//!
//! Deviations: the client machines are network namespaces, so they share the CPUs. The server is a listener that accepts
//! nobody, because it costs the least; the kernel counts what arrives there. A connect is abandoned after 50 ms in place
//! of 500, so that a tenth of the sockets offers as much.

use std::net::TcpListener;
use std::os::fd::AsFd;
use std::path::Path;

use anyhow::Context;
use report::columns::aligned;

use super::machines::{Machines, SERVER};
use crate::test_bed::build_inrush;

/// The sockets of the clients together.
const SOCKETS: [u32; 8] = [125, 250, 500, 1_000, 2_000, 4_000, 8_000, 16_000];
/// Time after which a connect is abandoned and followed by another, in milliseconds.
const CONNECT_TIMEOUT_MS: u32 = 50;
/// Time of a run, in seconds. There is no warm-up, so that every arrival counts.
const SECONDS: u32 = 3;
/// Runs of each point. Their median counts.
const RUNS: usize = 3;
/// The curves have parted where one machine offers less than this part of what two offer.
const TOGETHER: f64 = 0.95;

/// Carries out the runs, with more and more sockets until the curves part. Blocks.
///
/// # Errors
/// The errors of [`Machines::start`], or a run without a result.
pub fn run() -> anyhow::Result<()> {
    let inrush = build_inrush()?;
    let machines = Machines::start(&inrush, 2)?;
    let listener = machines.server().enter(|| {
        let listener = TcpListener::bind((SERVER, 0))?;
        rustix::net::listen(&listener, 1)?;
        Ok::<_, std::io::Error>(listener)
    })??;
    let offer = |agents: u32, sockets: u32| -> anyhow::Result<f64> {
        let mut arrived = (0..RUNS)
            .map(|_| arrived_per_s(&machines, &inrush, &listener, agents, sockets))
            .collect::<anyhow::Result<Vec<f64>>>()?;
        arrived.sort_by(f64::total_cmp);
        Ok(arrived[RUNS / 2])
    };
    let mut rows = vec![["sockets", "asked", "one machine", "two machines", ""].map(str::to_owned)];
    let mut together = None;
    for sockets in SOCKETS {
        let (one, two) = (offer(1, sockets)?, offer(2, sockets)?);
        let parted = one < TOGETHER * two;
        let asked = sockets * 1_000 / CONNECT_TIMEOUT_MS;
        let remark = if parted { "parted" } else { "" };
        rows.push([
            sockets.to_string(),
            asked.to_string(),
            format!("{one:.0}"),
            format!("{two:.0}"),
            remark.to_owned(),
        ]);
        eprintln!("{sockets} sockets: one machine {one:.0}/s, two {two:.0}/s");
        if parted {
            break;
        }
        together = Some((sockets, one));
    }
    println!("connects a second that arrive:\n{}", aligned(&rows, &[]));
    match together {
        Some((sockets, one)) => {
            println!("one machine offers as much as two up to {sockets} sockets: {one:.0} connects a second")
        }
        None => println!("one machine never offers as much as two"),
    }
    Ok(())
}

/// Offers from this many agents, and counts the arrivals.
fn arrived_per_s(
    machines: &Machines,
    inrush: &Path,
    listener: &TcpListener,
    agents: u32,
    sockets: u32,
) -> anyhow::Result<f64> {
    let url = format!("http://{}/", listener.local_addr()?);
    let (sockets, timeout) = (sockets.to_string(), format!("{CONNECT_TIMEOUT_MS}ms"));
    let duration = format!("{SECONDS}s");
    let flags = [
        url.as_str(),
        "--sockets",
        &sockets,
        "--connect-timeout",
        &timeout,
        "--warmup",
        "0s",
        "--duration",
        &duration,
    ];
    let dropped = || sys::socket::accept_queue(listener.as_fd()).map(|queue| queue.drops);
    let before = dropped().context("cannot ask for the accept queue")?;
    machines.offer(inrush, agents, &flags)?;
    let arrived = dropped()?.wrapping_sub(before);
    Ok(f64::from(arrived) / f64::from(SECONDS))
}
