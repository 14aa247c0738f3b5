//! A load, and the history that is recorded of it.
//!
//! In reading order:
//! - who can log in ([`tokens`]), a load and its bounds ([`plan`]), which user requests what
//!   ([`mix`]) and when ([`arrival`], [`trace`]);
//! - a connection ([`client`]), how a load is carried out ([`drive`]), tickets (`follow`), what an
//!   answer means ([`outcome`]); all other calls ([`api`]), and
//!   how moments are written ([`moment`]);
//! - figures ([`live`], [`stats`], [`quantiles`], [`progress`]), what the load cost ([`cost`]);
//! - the recorded file ([`history`]), and how a load is recorded ([`history_file`]).

pub mod api;
pub mod arrival;
pub mod client;
pub mod cost;
pub mod drive;
mod follow;
pub mod history;
pub mod history_file;
pub mod hold_report;
pub mod live;
pub mod mix;
pub mod moment;
pub mod outcome;
pub mod plan;
pub mod progress;
pub mod quantiles;
pub mod request;
mod request_result;
pub mod stall_monitor;
pub mod stats;
pub mod tokens;
pub mod trace;
mod wire;
