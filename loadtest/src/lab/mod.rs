//! The laboratory: private servers, cells, and what each is to show.

pub mod cell;
pub mod cluster;
pub mod compare;
pub mod lock;
pub mod machine;
pub mod metrics;
pub mod place;
pub mod predict;
