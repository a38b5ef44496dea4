//! The same conditions by the kernel's network emulator, through the program `tc`.
//!
//! Owns the arguments of `tc` and the parsing of its counters. Netem acts where packets leave a link, so each
//! side's link gets the conditions of the direction that begins there.
//!
//! Netem differs from the router in five ways. Its jitter reorders packets that follow each other closely. It
//! draws from its own generator. Its queue is counted in packets and includes delayed ones. It does not
//! report its lateness. See tc-netem(8).

use std::io;
use std::os::fd::AsFd;

use base::Nanos;
use serde_json::Value;
use sys::network::netns::NetworkNamespace;
use sys::process::{Output, Program, find_program};

use crate::conditions::{Bottleneck, Conditions, MTU};
use crate::error::WanError;
use crate::impairment::MOST_ON_THEIR_WAY;
use crate::network::{LINK, Side};
use crate::report::Direction;
use crate::units::Share;

/// The most jitter that the kernel keeps, in whole milliseconds: a signed 32-bit number of nanoseconds.
const JITTER_MOST: Nanos = Nanos::from_millis(2147);
/// The interval between two checks of a running `tc`.
const TICK: Nanos = Nanos::from_millis(1);

/// Checks that the kernel has netem, in a namespace that vanishes at once.
///
/// # Errors
/// `NoNetem` with the reason; `NoNetwork` without namespaces.
pub fn available() -> Result<(), WanError> {
    let namespace = NetworkNamespace::create().map_err(WanError::NoNetwork)?;
    tc(&namespace, &["qdisc", "replace", "dev", "lo", "root", "netem", "delay", "1ms"]).map(drop)
}

/// Gives a side's link the conditions of the direction that begins there.
///
/// # Errors
/// `NoNetem` with the message of `tc`.
pub fn apply(side: &Side, conditions: &Conditions) -> Result<(), WanError> {
    if conditions.jitter > JITTER_MOST {
        return Err(WanError::NoNetem(format!("its jitter is at most {JITTER_MOST}")));
    }
    let conditions = arguments(conditions);
    let mut command = vec!["qdisc", "replace", "dev", LINK, "root", "netem"];
    command.extend(conditions.iter().map(String::as_str));
    tc(&side.namespace, &command).map(drop)
}

/// The packets that left a side, by their fate.
///
/// # Errors
/// `NoNetem` if `tc` shows no counters of netem.
pub fn passed(side: &Side, conditions: Conditions) -> Result<Direction, WanError> {
    let output = tc(&side.namespace, &["-s", "-j", "qdisc", "show", "dev", LINK])?;
    let text = String::from_utf8_lossy(&output.stdout);
    let counted = counters(&output.stdout)
        .ok_or_else(|| WanError::NoNetem(format!("tc gives no counters of netem: {}", text.trim())))?;
    Ok(Direction {
        conditions,
        packets: [
            ("forwarded", counted.packets),
            ("dropped", counted.drops),
            ("on_their_way", counted.waiting),
        ]
        .into(),
        bytes_forwarded: counted.bytes,
        lateness_ns: None,
    })
}

/// The conditions as arguments of netem.
fn arguments(conditions: &Conditions) -> Vec<String> {
    let Conditions { delay, jitter, loss, reorder, bottleneck } = conditions;
    let per_cent = |share: Share| format!("{}%", share.probability() * 100.0);
    let mut arguments = vec!["limit".to_owned(), limit(conditions).to_string()];
    arguments.extend(["delay".to_owned(), format!("{}ns", delay.0)]);
    if *jitter > Nanos::ZERO {
        arguments.push(format!("{}ns", jitter.0));
    }
    if *loss > Share::NONE {
        arguments.extend(["loss".to_owned(), "random".to_owned(), per_cent(*loss)]);
    }
    if *reorder > Share::NONE {
        arguments.extend(["reorder".to_owned(), per_cent(*reorder)]);
    }
    if let Some(Bottleneck { rate, .. }) = bottleneck {
        arguments.extend(["rate".to_owned(), format!("{}bit", rate.bits_per_second())]);
    }
    arguments
}

/// The most packets that netem may hold: the bottleneck's queue and the packets sent during the delay, in
/// packets of full length. Without a bottleneck it is the router's limit.
fn limit(conditions: &Conditions) -> u64 {
    let Some(Bottleneck { rate, queue }) = conditions.bottleneck else { return MOST_ON_THEIR_WAY as u64 };
    let delayed = rate.bits_per_second() as f64 / 8.0 * (conditions.delay + conditions.jitter).as_secs_f64();
    (queue.0 + delayed as u64).div_ceil(u64::from(MTU)).clamp(1, MOST_ON_THEIR_WAY as u64)
}

struct Counters {
    packets: u64,
    bytes: u64,
    drops: u64,
    waiting: u64,
}

/// Parses the output of `tc -s -j qdisc show`: an array with an object for each queueing discipline.
fn counters(json: &[u8]) -> Option<Counters> {
    let disciplines: Vec<Value> = serde_json::from_slice(json).ok()?;
    let netem = disciplines.iter().find(|discipline| discipline["kind"] == "netem")?;
    let number = |name: &str| netem[name].as_u64();
    Some(Counters {
        packets: number("packets")?,
        bytes: number("bytes")?,
        drops: number("drops")?,
        waiting: number("qlen")?,
    })
}

fn tc(namespace: &NetworkNamespace, arguments: &[&str]) -> Result<Output, WanError> {
    let refuse = |why: String| WanError::NoNetem(why);
    let Some(path) = find_program("tc") else {
        return Err(refuse("there is no program tc (it comes with iproute2)".to_owned()));
    };
    let program =
        Program::new(path).arguments(arguments.iter().copied()).in_namespace(Some(namespace.as_fd()));
    let run = || -> io::Result<Output> { program.start()?.output(TICK, || true) };
    let output = run().map_err(|error| refuse(format!("cannot run tc: {error}")))?;
    if output.exit.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim().trim_start_matches("Error: ").replace('\n', "; ");
    if said.contains("kind is unknown") {
        return Err(refuse("this kernel is built without it (CONFIG_NET_SCH_NETEM, sch_netem)".to_owned()));
    }
    Err(refuse(format!("{} says: {said}", program.command_line().join(" "))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditions::Changes;

    fn said(text: &str) -> String {
        arguments(&text.parse::<Changes>().unwrap().check().unwrap()).join(" ")
    }

    #[test]
    fn conditions_are_said_in_netems_words() {
        assert_eq!(said("delay=50ms"), "limit 100000 delay 50000000ns");
        assert_eq!(
            said("delay=50ms,jitter=5ms,loss=0.5%,reorder=2%,rate=12Mbit,queue=15000"),
            "limit 65 delay 50000000ns 5000000ns loss random 0.5% reorder 2% rate 12000000bit"
        );
    }

    #[test]
    fn counters_are_read() {
        let json = br#"[{"kind":"netem","handle":"8001:","root":true,"options":{"limit":1000},
            "bytes":840,"packets":10,"drops":2,"overlimits":0,"requeues":0,"backlog":98,"qlen":1}]"#;
        let counted = counters(json).unwrap();
        assert_eq!((counted.packets, counted.bytes, counted.drops, counted.waiting), (10, 840, 2, 1));
        assert!(counters(b"[]").is_none() && counters(b"Error").is_none());
    }

    #[test]
    fn netem_is_there_or_the_reason_is_told() {
        match available() {
            Ok(()) => println!("this kernel has netem"),
            Err(WanError::NoNetwork(error)) => println!("skipped: no network namespaces here: {error}"),
            Err(error) => {
                let said = error.to_string();
                assert!(said.starts_with("netem cannot be used here: "), "{said}");
                println!("skipped: {said}");
            }
        }
    }
}
