//! Is the checker itself right? Legal histories of thousands of requests are changed in one place,
//! and exactly the rule that this breaks must say so, with the right request; legal changes must
//! be passed over.

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
