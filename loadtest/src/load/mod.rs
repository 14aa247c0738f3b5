//! A load: who can log in, who requests what and when, how it is sent, what the answers mean.

pub mod arrival;
pub mod client;
pub mod cost;
pub mod drive;
mod follow;
pub(crate) mod hold_report;
pub mod live;
pub mod mix;
pub mod outcome;
pub mod plan;
pub mod progress;
pub mod quantiles;
mod reading;
pub mod recorded;
pub mod request;
pub mod stall_monitor;
pub mod stats;
pub mod tokens;
pub mod trace;
mod wire;
