//! The memory of processes that run.

use std::fs;

use anyhow::Context;
use base::Bytes;

use super::proc;

/// The anonymous memory of a process that is in RAM (RssAnon): heap and stacks, not mapped files.
///
/// # Errors
/// There is no such process.
pub fn anonymous_memory(pid: u32) -> anyhow::Result<Bytes> {
    status_field(pid, "RssAnon")
}

/// The anonymous memory of a process and all its descendants.
///
/// # Errors
/// There is no such process.
pub fn anonymous_memory_of_all(pid: u32) -> anyhow::Result<Bytes> {
    let mut sum = anonymous_memory(pid)?;
    // A child that has ended since the list was read has no memory.
    for child in proc::children(pid).with_context(|| format!("cannot read the children of process {pid}"))? {
        sum.0 += anonymous_memory_of_all(child).map_or(0, |memory| memory.0);
    }
    Ok(sum)
}

/// The most memory a process has had in RAM so far (VmHWM). Unlike `ru_maxrss`, it leaves out the time before the
/// process executed its program, when it was a copy of this process.
///
/// # Errors
/// There is no such process, or it has ended.
pub fn peak_memory(pid: u32) -> anyhow::Result<Bytes> {
    status_field(pid, "VmHWM")
}

/// The address space of a process (VmSize).
///
/// # Errors
/// There is no such process, or it has ended.
pub fn address_space(pid: u32) -> anyhow::Result<Bytes> {
    status_field(pid, "VmSize")
}

fn status_field(pid: u32, name: &str) -> anyhow::Result<Bytes> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    proc::memory(&text, name).with_context(|| format!("{path} has no {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_have_memory() {
        let own = std::process::id();
        assert!(peak_memory(own).unwrap() > Bytes(0));
        assert!(anonymous_memory(own).unwrap() <= peak_memory(own).unwrap());
    }
}
