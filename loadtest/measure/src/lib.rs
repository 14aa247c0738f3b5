//! What every measurement needs: errors, printing, report files, the machine and its servers, and
//! bars for figures.
//!
//! The lowest layer of the laboratory, and all of it that the benches of other packages use.
//!
//! - [`error`]: what stops a command; [`mod@print`]: lines for people; [`files`]: report files.
//! - [`machine`], [`server_settings`], [`database_settings`]: where figures come from; [`host`]:
//!   how steady the host is; [`processes`]: processor time and memory.
//! - [`bars`]: medians and verdicts; [`table`]: how they are printed; [`bench_flags`]: the flags of
//!   every bench.

pub mod bars;
pub mod bench_flags;
pub mod database_settings;
pub mod error;
pub mod files;
pub mod host;
pub mod machine;
pub mod print;
pub mod processes;
pub mod server_settings;
pub mod table;
