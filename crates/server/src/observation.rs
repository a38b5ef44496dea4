//! Reports for others about requests and load: the access log (`access_log`), the weight for a load balancer
//! (`agent_check`), and the header with the load that Envoy reads (`load_report`).
//!
//! Owns texts and their destinations. Does not count: `ground::counters` does.

pub mod access_log;
pub mod agent_check;
pub mod load_report;
