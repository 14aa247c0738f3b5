//! The laboratory: private servers, cells, and what each is to show.

pub mod cell;
pub mod cluster;
mod command;
pub mod compare;
pub mod deployment;
mod dice;
pub mod faults;
pub mod histories;
pub mod lock;
pub mod machine;
pub mod matrix;
pub mod metrics;
mod pace;
pub mod place;
pub mod planting;
pub mod plants;
pub mod predict;
pub mod presets;
mod rest;
pub mod round;
pub mod runner;
mod sale;
pub mod staged;
mod state;
pub mod trial;
mod whole;
