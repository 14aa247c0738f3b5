//! Tests of the `mysql` kinds on a real database.
#![cfg(feature = "mysql")]

mod guarded_transaction;
mod inspection_mysql;
mod mysql_failover;
mod mysql_named;
mod mysql_row;
mod mysql_table;
mod mysql_tokens;
#[path = "../support/mod.rs"]
mod support;
