//! The reasons why a program cannot run in this kernel, in one line each that ends with the next step.

use std::error::Error;
use std::io;

use aya::programs::ProgramError;
use rustix::io::Errno;
use thiserror::Error;

/// A failure to load, attach or configure a program.
#[derive(Debug, Error)]
pub enum BpfError {
    /// The process lacks capabilities.
    #[error(
        "{purpose} needs CAP_BPF and CAP_NET_ADMIN, and this process lacks {missing}: run it as root, or `setcap cap_bpf,cap_net_admin+ep` its program file"
    )]
    Capability {
        /// The program's purpose.
        purpose: &'static str,
        /// The missing capabilities.
        missing: &'static str,
    },
    /// The process has the capabilities, but the kernel refuses.
    #[error(
        "{purpose} needs CAP_BPF and CAP_NET_ADMIN of the initial user namespace, and the kernel refuses bpf(2) to this process: run it outside of its user namespace or container, or allow bpf(2) there"
    )]
    Refused {
        /// The program's purpose.
        purpose: &'static str,
    },
    /// The kernel is too old, or was built without a facility that the program uses.
    #[error("{purpose} needs {facility}, which this kernel lacks ({source})")]
    Kernel {
        /// The program's purpose.
        purpose: &'static str,
        /// The missing facility, with the first version of Linux that has it.
        facility: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The device has another XDP program, and it takes only one.
    #[error(
        "{device} has an XDP program already, and a device takes one: detach it first (`ip link set dev {device} xdp off`)"
    )]
    Occupied {
        /// The device.
        device: String,
    },
    /// XDP on a device whose packets have no Ethernet header.
    #[error("XDP needs a device with Ethernet headers, and {device} has none: use tc")]
    NotEthernet {
        /// The device.
        device: String,
    },
    /// A listener at an address that no device has.
    #[error(
        "no device here has the listener's address {address}: name an address of this machine, or 0.0.0.0 or [::]"
    )]
    NoDevice {
        /// The address.
        address: std::net::IpAddr,
    },
    /// A limit of one of the programs.
    #[error("{what} takes {limit} at most")]
    TooMany {
        /// The limited thing.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// Any other failure.
    #[error("cannot {operation}: {detail}")]
    System {
        /// The failed operation.
        operation: String,
        /// The kernel's answer, or the loader's.
        detail: String,
    },
}

/// The detail of a program that the two capabilities of the others do not load.
pub(crate) const NEEDS_PERFMON: &str = "it needs CAP_PERFMON too, which root has";

/// Converts an error of the loader. `purpose` is the program's, and `operation` is the failed one.
pub(crate) fn from_loader(
    purpose: &'static str,
    operation: impl Into<String>,
    error: &(dyn Error + 'static),
) -> BpfError {
    let detail = match errno(error) {
        Some(source) if source.raw_os_error() == Some(Errno::PERM.raw_os_error()) => {
            return BpfError::Refused { purpose };
        }
        Some(source) => match verifiers_reason(error) {
            // What the verifier spares a process with this capability is its measures against Spectre.
            Some(reason) if reason.ends_with("prohibited for !root") => NEEDS_PERFMON.to_owned(),
            Some(reason) => format!("{source}: {reason}"),
            None => source.to_string(),
        },
        None => one_line(error),
    };
    BpfError::System { operation: operation.into(), detail }
}

/// Returns the verifier's reason for refusing a program: the last line of its log before its statistics.
fn verifiers_reason(error: &(dyn Error + 'static)) -> Option<String> {
    let ProgramError::LoadError { verifier_log, .. } = error.downcast_ref()? else { return None };
    let log = verifier_log.to_string();
    let statistics = |line: &&str| {
        !["processed ", "verification time ", "stack depth "].iter().any(|start| line.starts_with(start))
    };
    log.lines().filter(statistics).rfind(|line| !line.trim().is_empty()).map(str::to_owned)
}

/// A failure of the operating system that has no name of its own.
pub(crate) fn system(operation: impl Into<String>) -> impl FnOnce(io::Error) -> BpfError {
    move |error| BpfError::System { operation: operation.into(), detail: error.to_string() }
}

/// Returns the kernel's error behind an error of the loader, if there is one.
pub(crate) fn errno(error: &(dyn Error + 'static)) -> Option<io::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(code) = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return Some(io::Error::from_raw_os_error(code));
        }
        next = error.source();
    }
    None
}

/// Joins an error and its causes in one line. Messages may have many lines, as the verifier's have.
fn one_line(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Error)]
    #[error("the loader failed\n  in two lines\n")]
    struct Outer(#[source] io::Error);

    #[test]
    fn the_kernels_answer_is_found_behind_the_loaders() {
        let busy = Outer(io::Error::from_raw_os_error(Errno::BUSY.raw_os_error()));
        let error = from_loader("steering", "load steer", &busy).to_string();
        assert_eq!(error, "cannot load steer: Device or resource busy (os error 16)");
    }

    #[test]
    fn a_refusal_names_what_the_kernel_wants() {
        let refused = Outer(io::Error::from_raw_os_error(Errno::PERM.raw_os_error()));
        let error = from_loader("steering", "load steer", &refused);
        assert!(matches!(error, BpfError::Refused { purpose: "steering" }), "{error}");
    }

    #[test]
    fn what_has_no_number_is_told_in_one_line() {
        let other = Outer(io::Error::other("no such map"));
        let error = from_loader("steering", "load steer", &other).to_string();
        assert_eq!(error, "cannot load steer: the loader failed; in two lines; : no such map");
    }
}
