//! The load before a cell is measured. Rust replicas need a second of it. A JVM compiles its code
//! under the load, so it is loaded until its compilers rest.

use std::time::Duration;

use loadtest_load::stats::Figures;
use loadtest_load::tokens::User;
use loadtest_measure::error::Result;
use loadtest_measure::processes::ThreadTimes;

use super::service::{Round, load};

/// Seconds between two looks at the compilers.
const SLICE_S: u64 = 10;
/// Looks at most: then the cell says that it is not warm.
const SLICES: usize = 36;
/// Compilers rest when they take no more than this share of one processor.
const RESTING_SHARE: f64 = 0.1;
/// In the name of each thread that compiles, of which the kernel keeps 15 bytes.
const COMPILER_THREAD: &str = "CompilerThre";

/// What a warm-up was.
pub(super) struct WarmUp {
    /// Its loads, whose orders are in the database as well.
    pub(super) loads: Vec<Figures>,
    /// What a reader of a JVM's figures must know.
    pub(super) remark: Option<String>,
    /// Why the figures after it would be of a replica that is not warm.
    pub(super) invalid: Option<String>,
}

impl Round<'_> {
    /// Sells to these users before what is measured.
    pub(super) async fn warm_up(&self, users: &[User], seed: u64) -> Result<WarmUp> {
        if !self.has_jvms() {
            let loads = vec![self.load_for(self.stage.warm_up, users, seed).await?];
            return Ok(WarmUp { loads, remark: None, invalid: None });
        }
        let mut loads = Vec::with_capacity(SLICES);
        let mut elapsed_s = 0.0;
        let mut share = 1.0;
        for users in users.chunks_exact(users.len() / SLICES) {
            let before = self.compilers();
            let figures = self.load_for(SLICE_S, users, seed).await?;
            let replicas = self.compilers().into_iter().zip(&before);
            let compiled_s: f64 = replicas.map(|(now, before)| now.seconds_since(before)).sum();
            share = compiled_s / figures.elapsed_s.max(f64::MIN_POSITIVE);
            elapsed_s += figures.elapsed_s;
            loads.push(figures);
            if share <= RESTING_SHARE {
                break;
            }
        }
        let compilers = format!("compilers of the JVM took {share:.2} of a processor");
        Ok(WarmUp {
            loads,
            remark: Some(format!("warmed up for {elapsed_s:.0} s; at its end {compilers}")),
            invalid: (share > RESTING_SHARE)
                .then(|| format!("after {elapsed_s:.0} s of load {compilers}: not warm")),
        })
    }

    async fn load_for(&self, seconds: u64, users: &[User], seed: u64) -> Result<Figures> {
        let mut plan = self.plan(users.into(), seed);
        plan.duration = Some(Duration::from_secs(seconds));
        load(&plan).await
    }

    /// The compilers of each replica. One without work ends its thread.
    fn compilers(&self) -> Vec<ThreadTimes> {
        let replicas = self.deployment.replicas().iter();
        replicas.map(|replica| ThreadTimes::of(replica.pid(), COMPILER_THREAD)).collect()
    }
}
