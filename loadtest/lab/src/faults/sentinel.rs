//! Failovers by sentinels, which replicas of the service ask for the master.
//!
//! Half of the masters are killed, half stand still: their connections stay open.

use std::sync::Arc;

use loadtest_measure::error::Result;
use testbed::{Redis, RedisSentinel};

use super::database_failover::bring_back;
use super::{FaultContext, no_witness, wait_until, witness};
use crate::cluster::blocking;

/// What happens to the master.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SentinelFault {
    /// It dies or stands still, and a replica is promoted.
    MasterLost,
    /// It returns after that, and claims to be the master.
    OldMasterReturns,
}

impl SentinelFault {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::MasterLost => "sentinel-failover",
            Self::OldMasterReturns => "old-master-returns",
        }
    }

    pub(super) fn description(self) -> &'static str {
        match self {
            Self::MasterLost => "the master of Redis is lost, and sentinels promote a replica",
            Self::OldMasterReturns => {
                "the old master of Redis returns after a failover and claims to be the master"
            }
        }
    }

    /// Witness: which server the sentinels name, and that it is a master; of an old master what it
    /// says of itself.
    pub(super) async fn inject(self, context: &FaultContext<'_>) -> Result<String> {
        let Some(group) = context.deployment.sentinel().cloned() else {
            return Err(no_witness("there are no sentinels".to_owned()));
        };
        let is_killed = context.schedule.variation.is_multiple_of(2);
        if tokio::task::block_in_place(|| group.master()) != Some(0) {
            return Err(no_witness("the sentinels had promoted a replica before".to_owned()));
        }
        let (old, lost) = (group.nodes()[0].clone(), if is_killed { "killed" } else { "frozen" });
        let promoted = fail_over(group.clone(), old.clone(), is_killed).await?;
        let text = format!("the master was {lost}, and the sentinels name {promoted}");
        if self == Self::MasterLost {
            return Ok(text);
        }
        let role = blocking(move || {
            bring_back(&old, !is_killed)?;
            old.command(&["ROLE"])
        })
        .await?;
        let role = role.lines().next().unwrap_or_default().to_owned();
        witness(role == "master", format!("{text}; it returned and said that it is a {role}"))
    }
}

/// The name of the server that most sentinels name then.
async fn fail_over(group: Arc<RedisSentinel>, old: Arc<Redis>, is_killed: bool) -> Result<String> {
    let (asked, name) = (group.clone(), |node: usize| group.nodes()[node].name().to_owned());
    let (promoted, _) = blocking(move || {
        if is_killed {
            old.kill()?;
        } else {
            old.freeze()?;
        }
        let promoted = asked.await_promotion(0);
        if promoted.is_err() {
            bring_back(&old, !is_killed)?;
        }
        promoted
    })
    .await?;
    let is_named = || tokio::task::block_in_place(|| group.master()) == Some(promoted);
    wait_until("most sentinels name the new master", is_named).await?;
    Ok(name(promoted))
}
