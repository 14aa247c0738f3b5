//! A flash-sale voucher service, and the purchase under every lock of its laboratory.
//!
//! Reading order:
//!
//! 1. `domain`: rules without I/O; `store`: all SQL; `payment`: the payment provider.
//! 2. `sale`: the purchase, and the later life of an order.
//! 3. `token`, `revocation`: access tokens, and which of them are revoked; `outbox`: login codes.
//! 4. `readiness`, `fitness`: whether a replica should get requests.
//! 5. `http`: routes and server; `open_files`: the limit of its connections.
//! 6. `lock`: locks from addresses, and the commands about them; `dead_letters`, `database`,
//!    `load_users`: other commands.
//! 7. `app`: the composition root; `config`, `telemetry`, `failpoint`.
//!
//! `main.rs` is the command line.

pub mod app;
pub mod config;
pub mod database;
pub mod dead_letters;
pub mod domain;
pub mod failpoint;
pub mod fitness;
pub mod http;
pub mod load_users;
pub mod lock;
pub mod open_files;
pub mod outbox;
pub mod payment;
pub mod readiness;
pub mod revocation;
pub mod sale;
pub mod store;
pub mod telemetry;
pub mod token;
