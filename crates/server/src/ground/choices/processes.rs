//! `--processes`: the origin of the processes that serve.

use base::setting::{Declaration, Setting};

use super::named;

named! {
    /// The origin of processes.
    #[derive(Default)]
    Processes {
        /// Started before the first connection, or as the load needs them.
        #[default]
        Pool = "pool",
        /// A process for each connection, forked when it is accepted.
        PerConnection = "per-connection",
    }
}

/// The setting.
pub static PROCESSES: Setting<Processes> = Setting::new(Declaration {
    flag: "--processes",
    value: "SOURCE",
    help: "use a pool of processes or fork one per connection: pool (default) or per-connection",
    more: None,
    without: "does not serve a connection by a process of its own",
    in_kernel: None,
});
