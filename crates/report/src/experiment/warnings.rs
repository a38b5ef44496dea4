//! Warnings about an experiment's figures, one sentence each.

use std::collections::BTreeMap;

use analysis::Analysed;
use record::experiment::Flaw;

use crate::format::plural;

/// The warnings, the gravest first.
pub fn warnings(analysed: &Analysed) -> Vec<String> {
    let run = &analysed.run.run;
    let mut warnings = Vec::new();
    let done = analysed.run.trials.len();
    if !run.finished {
        warnings.push(format!(
            "The run was broken off: {done} of {} trials were made. The same command carries it on.",
            run.planned
        ));
    }
    warnings.extend(earlier_stage(analysed));
    warnings.extend(run.topology.warnings.iter().cloned());
    warnings.extend(run.warnings.iter().cloned());
    for server in &run.servers {
        if let Some(reason) = &server.excluded {
            warnings.push(format!("{} was not measured: {reason}.", server.name));
        }
    }
    warnings.extend(flaws(analysed));
    warnings.extend(in_flight(analysed));
    warnings
}

/// Names kernel settings of earlier versions, which turned SYN cookies off for every server: dropped final ACKs then fill
/// the SYN queue, and servers stand idle while they refuse.
fn earlier_stage(analysed: &Analysed) -> Option<String> {
    const COOKIES: &str = "net.ipv4.tcp_syncookies";
    let asked = analysed.experiment.topology.sysctls.contains_key(COOKIES);
    let off = analysed.run.run.manifest.sysctls.get(COOKIES).is_some_and(|value| value == "0");
    (off && !asked).then(|| {
        "Measured with SYN cookies off, which is not the kernel's own setting: what it says of loads past a server's \
         capacity must be measured again."
            .to_owned()
    })
}

/// Says how many requests had not ended when their trial did, where they are a hundredth or more.
fn in_flight(analysed: &Analysed) -> Option<String> {
    let valid = analysed.run.trials.iter().filter(|trial| trial.is_valid());
    let shares = valid.filter_map(|trial| Some((trial, *trial.metrics.get("in_flight_share")?)));
    let (trial, share) = shares.max_by(|(_, one), (_, other)| one.total_cmp(other))?;
    let (percent, server) = (share * 100.0, &trial.server);
    (percent >= 1.0).then(|| {
        format!("When a trial ended, up to {percent:.0} % of its due requests were in flight ({server}).")
    })
}

/// Counts the trials that have a flaw after all attempts.
fn flaws(analysed: &Analysed) -> Option<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for trial in &analysed.run.trials {
        for one in &trial.flaws {
            *counts.entry(one.name()).or_default() += 1;
        }
    }
    let flawed = analysed.run.trials.iter().filter(|trial| !trial.is_valid()).count();
    if flawed == 0 {
        return None;
    }
    let kinds: Vec<String> = counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    let verb = if flawed == 1 { "has" } else { "have" };
    let dies = analysed.run.trials.iter().any(|trial| trial.flaws.contains(&Flaw::ServerDied));
    let hint = if dies { " A server that dies under load is a result of its own." } else { "" };
    Some(format!(
        "{} of {} {verb} a flaw after all attempts and count for nothing ({}); they are drawn hollow.{hint}",
        flawed,
        plural(analysed.run.trials.len(), "trial", "trials"),
        kinds.join(", "),
    ))
}
