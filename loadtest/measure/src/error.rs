//! The one error of this crate: what stops a command before it can judge anything.
//!
//! A rule of the sale that is broken is not an error; it is a finding, printed and put into the
//! report.

/// Why a command could not be carried out. Its text is one sentence for the person at the terminal.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line, a file or a target named by the caller is wrong: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// Something that must run does not: a server, a replica or the target: exit code 2.
    #[error("{0}")]
    Setup(String),
    /// The target of a load does not answer before it: exit code 2.
    #[error("{0}")]
    Unanswered(String),
    /// A round's load was not healthy before its fault: exit code 2.
    #[error("not healthy before the fault: {0}")]
    Unhealthy(String),
    /// A replica ended that was not stopped: exit code 2.
    #[error("replica {0} died")]
    Died(String),
    /// Ctrl-C or SIGTERM came before the end: exit code 1, since nothing was shown.
    #[error("interrupted before the end")]
    Interrupted,
}

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The exit code that belongs to this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_)
            | Self::Setup(_)
            | Self::Unanswered(_)
            | Self::Unhealthy(_)
            | Self::Died(_) => 2,
            Self::Interrupted => 1,
        }
    }

    /// The text as a sentence: one full stop at the end of its first line.
    pub fn sentence(&self) -> String {
        let text = self.to_string();
        let (first, rest) = text.split_once('\n').map_or((text.as_str(), ""), |(a, b)| (a, b));
        let first = first.trim_end_matches(['.', ':', ' ']);
        if rest.is_empty() { format!("{first}.") } else { format!("{first}.\n{rest}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_ends_with_exactly_one_full_stop_and_keeps_a_log_tail() {
        assert_eq!(Error::Usage("no such file.".into()).sentence(), "no such file.");
        assert_eq!(Error::Setup("redis ended:\n  oom".into()).sentence(), "redis ended.\n  oom");
    }
}
