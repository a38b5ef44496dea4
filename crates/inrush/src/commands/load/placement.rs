//! The CPUs of a generator with TCP in user space.
//!
//! Over TUN the kernel does the server's receive work on the sender's CPU, so an overload costs the server too little.
//! Without `--server-cpus` the generator therefore keeps as many CPUs as it has threads, and has the receive work done on
//! the others.

use std::num::NonZeroU32;

use crate::cli::CpuList;
use crate::exit::Exit;

/// What became of the choice.
pub struct Placed {
    /// The CPUs that are left to the server, if any are.
    pub server: Option<CpuList>,
    /// Names the CPUs of both, or warns that the server has none.
    pub remark: String,
}

/// Ties this process to as many CPUs as it has threads, unless these are all.
///
/// # Errors
/// [`Exit::Failed`] if the kernel refuses the CPUs.
pub fn place(threads: NonZeroU32) -> Result<Placed, Exit> {
    let failed = |error| Exit::Failed(format!("cannot choose CPUs: {error}; choose them with --server-cpus"));
    let allowed = sys::cpu::allowed().map_err(failed)?;
    let threads = threads.get() as usize;
    if allowed.len() <= threads {
        let remark = format!(
            "no CPU is left for the server's receive work ({} for {threads} threads): the generator does it, and an \
             overload costs the server too little; use fewer --threads, or a machine with more CPUs",
            allowed.len()
        );
        return Ok(Placed { server: None, remark });
    }
    let (server, own) = allowed.split_at(allowed.len() - threads);
    sys::cpu::pin(own).map_err(failed)?;
    let (own, server) = (CpuList(own.to_vec()), CpuList(server.to_vec()));
    let remark = format!(
        "the generator has CPU {own}, and the kernel does the server's receive work on CPU {server}; --server-cpus \
         chooses others"
    );
    Ok(Placed { server: Some(server), remark })
}
