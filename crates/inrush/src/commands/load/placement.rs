//! The CPUs of a generator with TCP in user space.
//!
//! Over TUN the kernel does the server's receive work on the sender's CPU, so an overload costs the server too little.
//! Without `--server-cpus` the generator therefore keeps as many CPUs as it has threads, and has the receive work done on
//! the others.

use ::load::Link;

use crate::cli::{CpuList, LoadFlags, Stack};
use crate::exit::Exit;

/// Ties this process to CPUs of its own and names the others as the server's. Returns a sentence that says so, or warns
/// where no CPU is left; `None` if there is nothing to choose.
///
/// # Errors
/// [`Exit::Failed`] if the kernel refuses the CPUs.
pub fn place(flags: &mut LoadFlags) -> Result<Option<String>, Exit> {
    let is_over_tun = matches!(flags.link, None | Some(Link::Tun));
    if flags.stack != Stack::User || !is_over_tun || flags.server_cpus.is_some() {
        return Ok(None);
    }
    let failed = |error| Exit::Failed(format!("cannot choose CPUs: {error}; choose them with --server-cpus"));
    let allowed = sys::cpu::allowed().map_err(failed)?;
    let threads = flags.threads.get() as usize;
    if allowed.len() <= threads {
        return Ok(Some(format!(
            "no CPU is left for the server's receive work ({} for {threads} threads): the generator does it, and an \
             overload costs the server too little; use fewer --threads, or a machine with more CPUs",
            allowed.len()
        )));
    }
    let (server, own) = allowed.split_at(allowed.len() - threads);
    sys::cpu::pin(own).map_err(failed)?;
    let (own, server) = (CpuList(own.to_vec()), CpuList(server.to_vec()));
    let remark = format!(
        "the generator has CPU {own}, and the kernel does the server's receive work on CPU {server}; --server-cpus \
         chooses others"
    );
    (flags.has_chosen_cpus, flags.server_cpus) = (true, Some(server));
    Ok(Some(remark))
}
