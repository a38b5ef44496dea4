//! `--idle-sessions`: the idle connections of a busy pool, while others wait.

use base::setting::{Declaration, Setting};

use super::named;

named! {
    /// The fate of an idle connection that keeps a member of a pool from others.
    #[derive(Default)]
    IdleSessions {
        /// It is closed, so that a waiting connection is served.
        #[default]
        GiveWay = "give-way",
        /// It keeps its member to its end, as in the papers (SMPED, section 2; Brecht 2004, 3.2). Others wait, however long.
        Stay = "stay",
    }
}

/// The setting.
pub static IDLE_SESSIONS: Setting<IdleSessions> = Setting::new(Declaration {
    flag: "--idle-sessions",
    value: "HOW",
    help: "idle connections of a busy pool give-way to waiting ones (default), or stay to their ends",
    more: Some(
        "stay is the pool of the papers. It ends no session for another one's sake, whether that waits in the accept queue \
         or in the batch of an accept phase, and turns nobody away.",
    ),
    without: "has no pool whose members serve one connection each",
    in_kernel: None,
});
