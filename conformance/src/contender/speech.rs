//! What goes out.

use std::io::{self, Write};

use conformance::clock::now_ns;
use conformance::protocol::{Line, Word};

/// One line on stdout, whoever else talks.
pub(crate) fn say(id: Option<u64>, word: Word) {
    let line = Line { id, at_ns: now_ns(), word };
    let written = serde_json::to_string(&line)
        .map_err(io::Error::from)
        .and_then(|text| writeln!(io::stdout().lock(), "{text}"));
    if let Err(error) = written {
        eprintln!("contender: nobody listens: {error}");
    }
}
