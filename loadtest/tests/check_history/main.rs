//! Tests of the checker itself. Legal histories of thousands of requests are changed in one place,
//! and exactly the rule that this breaks must say so, with the right request. Legal changes must
//! pass.

mod database;
mod delays;
mod files;
mod holds;
mod keys;
mod legal;
mod mutations;
mod synthetic;
mod tape;
mod tokens;
