//! What goes out.

use std::io::{self, Write};

use conformance::clock::now_ns;
use conformance::protocol::{Line, Response};

/// Prints one line on stdout; lines of concurrent tasks do not mix.
pub(crate) fn say(id: Option<u64>, response: Response) {
    let line = Line { id, at_ns: now_ns(), response };
    let written = serde_json::to_string(&line)
        .map_err(io::Error::from)
        .and_then(|text| writeln!(io::stdout().lock(), "{text}"));
    if let Err(error) = written {
        eprintln!("contender: stdout is closed: {error}");
    }
}
