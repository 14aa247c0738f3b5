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

/// How alike two names have to be for one to be suggested for the other, as clap has it.
const ALIKE: f64 = 0.7;

impl Error {
    /// Bad usage: a name that is none of these. The most similar one is suggested.
    pub fn unknown(what: &str, name: &str, known: &[&str]) -> Self {
        let likeness = |one: &&str| strsim::jaro(name, one);
        let best = known.iter().copied().filter(|one| likeness(one) > ALIKE);
        let best = best.max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
        let meant = best.map(|one| format!("; did you mean {one}?")).unwrap_or_default();
        let known = known.join(", ");
        Self::Usage(format!("there is no {what} {name:?}{meant} [possible values: {known}]"))
    }

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
    fn the_most_similar_of_known_names_is_suggested_if_one_is_similar() {
        let error = |name| Error::unknown("lock", name, &["reentrant", "redlock", "redisson"]);
        let meant = error("redison").to_string();
        assert!(meant.starts_with("there is no lock \"redison\"; did you mean redisson? ["));
        assert!(meant.ends_with("[possible values: reentrant, redlock, redisson]"), "{meant}");
        assert!(error("ZZZ").to_string().starts_with("there is no lock \"ZZZ\" [possible"));
    }

    #[test]
    fn a_sentence_ends_with_exactly_one_full_stop_and_keeps_a_log_tail() {
        assert_eq!(Error::Usage("no such file.".into()).sentence(), "no such file.");
        assert_eq!(Error::Setup("redis ended:\n  oom".into()).sentence(), "redis ended.\n  oom");
    }
}
