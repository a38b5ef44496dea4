//! A user namespace of one's own: how an ordinary user makes network namespaces, links and devices.
//!
//! Owns entering it. The user keeps number, groups and rights to files. Capabilities count for what is made inside, such
//! as a network namespace, and for nothing else on the machine. Receive packet steering and cgroups stay root's.

use std::fs;
use std::io;

use rustix::process::{Uid, getegid, geteuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, UnshareFlags, capabilities, configure_capability_in_ambient_set,
    set_capabilities, unshare_unsafe,
};

/// The capabilities that programs started inside keep: for namespaces, for links and devices, for packet sockets.
const PASSED_ON: [CapabilitySet; 3] =
    [CapabilitySet::SYS_ADMIN, CapabilitySet::NET_ADMIN, CapabilitySet::NET_RAW];

/// Gives an ordinary user a user namespace, for the rest of this process and for the programs that it starts. Does nothing
/// for root and for those who may make namespaces already. Call it before the first thread.
///
/// # Errors
/// EPERM, ENOSPC or EUSERS where the machine forbids user namespaces or has no more of them; EINVAL in a process with several
/// threads. Nothing has changed then. After an error of what follows, the process is in its namespace without capabilities to
/// pass on.
pub fn enter_unless_privileged() -> io::Result<()> {
    let (user, group) = (geteuid(), getegid());
    if user == Uid::ROOT || capabilities(None)?.effective.contains(CapabilitySet::SYS_ADMIN) {
        return Ok(());
    }
    // SAFETY: unshare(2) is unsafe because of the effect of CLONE_FILES on descriptors, which this call does not have.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }?;
    // The kernel takes a group from an ordinary user only if no group can be dropped.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{0} {0} 1", user.as_raw()))?;
    fs::write("/proc/self/gid_map", format!("{0} {0} 1", group.as_raw()))?;
    let CapabilitySets { effective, permitted, .. } = capabilities(None)?;
    let inheritable = PASSED_ON.into_iter().collect();
    set_capabilities(None, CapabilitySets { effective, permitted, inheritable })?;
    for capability in PASSED_ON {
        configure_capability_in_ambient_set(capability, true)?;
    }
    Ok(())
}
