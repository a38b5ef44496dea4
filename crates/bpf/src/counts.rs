//! Counts of packets that the kernel has no counter for. The programs decide nothing.

mod final_acks;
mod syns;

pub use final_acks::FinalAcks;
pub use syns::Syns;
