//! `inrush serve` end to end: the real program, real sockets, faults included.

#[path = "../common/mod.rs"]
mod common;

mod accepting;
mod admin;
mod agent;
mod amped;
mod architectures;
mod balancers;
mod caddy_page;
mod clients;
mod completion;
mod confinement;
mod conversations;
mod descriptors;
mod faults;
mod handoff;
mod host_logs;
mod hosts;
mod http2;
mod import;
mod kernel_cache;
mod lego_page;
#[path = "../common/listening.rs"]
mod listening;
mod logging;
mod mistakes;
mod nginx_move;
mod overload;
mod paced;
mod packages;
mod page;
mod protocol;
mod rereading;
#[path = "../common/schema.rs"]
mod schema;
mod serving;
mod shutdown;
mod sites;
mod smped;
mod stages;
#[path = "../common/stand_ins.rs"]
mod stand_ins;
mod staples;
mod starting;
mod tls;
mod tls_peers;
mod upgrade;
mod workers;
