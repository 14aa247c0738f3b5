//! A load: who can log in, who requests what, how it is sent, what the answers mean.

pub mod client;
pub mod drive;
pub mod outcome;
pub mod plan;
pub mod progress;
pub mod stats;
pub mod tokens;
