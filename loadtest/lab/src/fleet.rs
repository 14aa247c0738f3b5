//! Which programs the replicas of a deployment are: this project's own, the textbook replica in
//! Java (`jvm/`), or both behind one proxy.
//!
//! A JVM replica gets the flags and variables of `seckill serve`, and refuses those that it does
//! not have. What only it knows (its kind of local lock, its own bugs) is added here.

use std::path::{Path, PathBuf};

use loadtest_measure::error::Result;
use serde::{Deserialize, Serialize};

use crate::java::{Java, jar};

/// What the replicas of a deployment are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ReplicasOf {
    /// This project's own program
    #[default]
    Rust,
    /// The textbook replica in Java
    Jvm,
    /// Both in turn, `r1` in Rust
    Mixed,
}

impl ReplicasOf {
    /// The name on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::Jvm => "jvm",
            Self::Mixed => "mixed",
        }
    }

    /// Whether the replica of that number (from 1) is a JVM.
    fn is_jvm(self, number: u16) -> bool {
        match self {
            Self::Rust => false,
            Self::Jvm => true,
            Self::Mixed => number.is_multiple_of(2),
        }
    }
}

/// What `--lock local` is in a JVM replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum JvmLocalLock {
    /// `synchronized` on the interned name of the lock
    #[default]
    Synchronized,
    /// A map of `ReentrantLock`
    ReentrantLock,
}

impl JvmLocalLock {
    /// The name on command lines.
    fn name(self) -> &'static str {
        match self {
            Self::Synchronized => "synchronized",
            Self::ReentrantLock => "reentrant-lock",
        }
    }
}

/// What a JVM is tuned for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JvmTuning {
    /// A sale of a few seconds: a small heap, and the compiler that starts quickly.
    #[default]
    QuickStart,
    /// A long run, with the collector G1.
    G1,
    /// The same with ZGC.
    Zgc,
    /// The same with G1 and a virtual thread for each request. It needs Java 21.
    VirtualThreads,
}

impl JvmTuning {
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::QuickStart => &["-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
            Self::G1 => &["-Xmx512m", "-XX:+UseG1GC"],
            Self::Zgc => &["-Xmx512m", "-XX:+UseZGC"],
            Self::VirtualThreads => {
                &["-Xmx512m", "-XX:+UseG1GC", "-Dspring.threads.virtual.enabled=true"]
            }
        }
    }
}

/// A bug that JVM replicas can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum JvmBug {
    /// The transactional method is called on `this`, so no transaction begins
    SelfInvocation,
    /// A unit is taken even if none is left
    NoStockCondition,
    /// The audit does not say what is in the database
    LyingAudit,
}

impl JvmBug {
    /// The name on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::SelfInvocation => "self-invocation",
            Self::NoStockCondition => "no-stock-condition",
            Self::LyingAudit => "lying-audit",
        }
    }
}

/// The replicas of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Fleet {
    /// What they are.
    pub replicas_of: ReplicasOf,
    /// What the local lock of JVM replicas is.
    pub jvm_local_lock: JvmLocalLock,
    /// A bug of every JVM replica.
    pub jvm_bug: Option<JvmBug>,
    /// What JVMs are tuned for.
    pub jvm_tuning: JvmTuning,
}

/// A program with its first arguments.
#[derive(Debug)]
pub struct ReplicaProgram {
    /// The program.
    pub program: PathBuf,
    /// Those before its address and its flags.
    pub args: Vec<String>,
}

impl Fleet {
    /// This project's own program.
    pub const RUST: Self = Self {
        replicas_of: ReplicasOf::Rust,
        jvm_local_lock: JvmLocalLock::Synchronized,
        jvm_bug: None,
        jvm_tuning: JvmTuning::QuickStart,
    };

    /// Whether some of its replicas are JVMs.
    pub fn has_jvms(self) -> bool {
        self.replicas_of != ReplicasOf::Rust
    }

    /// The numbers of replicas of a comparison that names none.
    pub fn default_replicas(self) -> Vec<u16> {
        match self.replicas_of {
            ReplicasOf::Rust | ReplicasOf::Jvm => vec![1, 3],
            ReplicasOf::Mixed => vec![4],
        }
    }

    /// The flags that choose it, each with its value, if they are not the usual ones.
    pub fn chosen(self) -> Vec<(&'static str, String)> {
        let Self { replicas_of, jvm_local_lock, jvm_bug, jvm_tuning: _ } = self;
        let mut flags = Vec::new();
        if replicas_of != ReplicasOf::Rust {
            flags.push(("--replicas-of", replicas_of.name().to_owned()));
        }
        if jvm_local_lock != JvmLocalLock::Synchronized {
            flags.push(("--jvm-local-lock", jvm_local_lock.name().to_owned()));
        }
        flags.extend(jvm_bug.map(|bug| ("--inject-jvm-bug", bug.name().to_owned())));
        flags
    }

    /// The program of the replica of that number (from 1), and its arguments before its address.
    pub fn program(self, number: u16, seckill: &Path) -> Result<ReplicaProgram> {
        if !self.replicas_of.is_jvm(number) {
            let args = ["serve", "--no-migrate"].map(str::to_owned).to_vec();
            return Ok(ReplicaProgram { program: seckill.to_owned(), args });
        }
        let jar = ["-jar".to_owned(), jar()?.display().to_string()];
        let options = self.jvm_tuning.options().iter().map(|option| (*option).to_owned());
        let args = options.chain(jar).collect();
        Ok(ReplicaProgram { program: Java::find()?.program, args })
    }

    /// The flags of the replica of that number, made of those of `seckill serve`.
    pub(crate) fn flags(self, number: u16, flags: &[String]) -> Vec<String> {
        let mut flags = flags.to_vec();
        if !self.replicas_of.is_jvm(number) {
            return flags;
        }
        if let Some(at) = flags.iter().position(|flag| flag == "--inject-bug") {
            flags.drain(at..(at + 2).min(flags.len()));
        }
        let local_lock = self.jvm_local_lock.name();
        flags.extend(["--local-lock", local_lock].map(str::to_owned));
        if let Some(bug) = self.jvm_bug {
            flags.extend(["--inject-bug", bug.name()].map(str::to_owned));
        }
        flags
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_a_mixed_fleet_each_side_gets_its_own_bug() {
        let mixed = Fleet {
            replicas_of: ReplicasOf::Mixed,
            jvm_bug: Some(JvmBug::SelfInvocation),
            ..Fleet::RUST
        };
        let flags = ["--lab", "--inject-bug", "lying-audit", "--lock", "none"].map(str::to_owned);
        assert_eq!(mixed.flags(1, &flags), flags);
        let java = mixed.flags(2, &flags).join(" ");
        let own = "--local-lock synchronized --inject-bug self-invocation";
        assert_eq!(java, format!("--lab --lock none {own}"));
    }
}
