//! Which checks are asked of which kinds, and which ran to their ends.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use distlock::LockKind;

use crate::arena::{Applicability, Check, Subject};
use crate::clients;
use crate::floor::of;

pub(crate) struct Matrix {
    subjects: Vec<Subject>,
    checks: Vec<Check>,
    ran: Mutex<BTreeSet<(&'static str, &'static str)>>,
}

impl Matrix {
    pub(crate) fn new(subjects: Vec<Subject>, checks: Vec<Check>) -> Self {
        Self { subjects, checks, ran: Mutex::default() }
    }

    /// All that is asked.
    pub(crate) fn asked(&self) -> impl Iterator<Item = (Subject, Check)> {
        let all = self.subjects.iter().flat_map(|subject| {
            let checks = self.checks.iter();
            checks.map(|check| (*subject, *check))
        });
        all.filter(|(subject, check)| subject.is_asked(check) == Applicability::Yes)
    }

    /// Remembers that a check has run to its end.
    pub(crate) fn ran(&self, subject: &'static str, check: &'static str) {
        self.runs().insert((subject, check));
    }

    /// What is asked and did not run to its end, checks that are asked of no kind at all, and kinds
    /// of which fewer ran than is written down.
    pub(crate) fn gaps(&self) -> Vec<String> {
        let runs = self.runs().clone();
        let mut gaps: Vec<String> = self
            .asked()
            .filter(|(subject, check)| !runs.contains(&(subject.name, check.name)))
            .map(|(subject, check)| format!("{}::{}", subject.name, check.name))
            .collect();
        for Check { name, .. } in &self.checks {
            if !runs.iter().any(|run| run.1 == *name) {
                gaps.push(format!("{name}, of any kind"));
            }
        }
        for kind in LockKind::ALL {
            let (ran, floor) = (runs.iter().filter(|run| run.0 == kind.as_str()).count(), of(kind));
            if ran < floor {
                gaps.push(format!("{kind}: {ran} checks of {floor} at least"));
            }
        }
        gaps.extend(self.client_gaps());
        gaps
    }

    /// The clients of other languages of which fewer ran than is written down.
    pub(crate) fn client_gaps(&self) -> Vec<String> {
        let (runs, mut gaps) = (self.runs().clone(), Vec::new());
        for Subject { name, .. } in clients::subjects() {
            let ran = runs.iter().filter(|run| run.0 == name).count();
            if ran < clients::ASKED {
                gaps.push(format!("{name}: {ran} checks of {} at least", clients::ASKED));
            }
        }
        gaps
    }

    fn runs(&self) -> MutexGuard<'_, BTreeSet<(&'static str, &'static str)>> {
        self.ran.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A row for each kind and a column for each check, then the checks, and of whom each is not asked.
impl fmt::Display for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.runs().clone();
        write!(f, "{:18}", "+ ran  . not asked")?;
        for number in 1..=self.checks.len() {
            write!(f, "{number:>3}")?;
        }
        writeln!(f)?;
        for subject in &self.subjects {
            let name = subject.name;
            write!(f, "{name:18}")?;
            for check in &self.checks {
                let sign = match subject.is_asked(check) {
                    Applicability::No(_) => ".",
                    Applicability::Yes if runs.contains(&(name, check.name)) => "+",
                    Applicability::Yes => "?",
                };
                write!(f, "{sign:>3}")?;
            }
            writeln!(f)?;
        }
        for (check, number) in self.checks.iter().zip(1..) {
            writeln!(f, "{number:>3}  {}", check.name.replace('_', " "))?;
            let mut reasons = BTreeMap::<&str, Vec<&str>>::new();
            for subject in &self.subjects {
                if let Applicability::No(reason) = subject.is_asked(check) {
                    reasons.entry(reason).or_default().push(subject.name);
                }
            }
            for (reason, kinds) in reasons {
                writeln!(f, "       {reason}: {}", kinds.join(", "))?;
            }
        }
        Ok(())
    }
}
