//! What a program says to whoever reads along. One who has gone (`| head`) ends nothing: the work
//! goes on, reports are written, and servers are taken down.

use std::fmt::Display;
use std::io::{Write, stderr, stdout};

/// A line of what was asked for.
pub fn say(line: impl Display) {
    let _nobody_reads = writeln!(stdout(), "{line}");
}

/// A line about the work.
pub fn tell(line: impl Display) {
    let _nobody_reads = writeln!(stderr(), "{line}");
}
