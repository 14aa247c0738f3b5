//! A flash-sale voucher service, and the purchase under every lock of its laboratory.
//!
//! Reading order: `domain` (rules without I/O), `store` (all SQL), `payment` (who takes the money),
//! `sale` (the purchase, and the rest of an order's life), `token`, `readiness`, `http` (routes and
//! server), `lock` (locks from addresses, and the commands about them), `letters` (dead letters),
//! `database` (a command's), `app` (how the parts are put together), `config`, `telemetry` and
//! `failpoint`. `main.rs` is the command line.

pub mod app;
pub mod config;
pub mod database;
pub mod domain;
pub mod failpoint;
pub mod http;
pub mod letters;
pub mod lock;
pub mod payment;
pub mod readiness;
pub mod sale;
pub mod store;
pub mod telemetry;
pub mod token;
