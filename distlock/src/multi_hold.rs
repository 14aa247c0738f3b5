//! The hold of a `multi`: all members together, how long they may be believed in, and how they are
//! renewed and released.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::task::JoinSet;

use crate::{Belief, Hold, LockError, Release, Renewal, Renewer, Request, Upkeep};

pub(crate) struct MultiHold {
    /// With the outcome of a release that was answered.
    members: Vec<(Box<dyn Hold>, Option<Release>)>,
    beliefs: Beliefs,
    upkeep: Option<Upkeep>,
}

/// How the beliefs in the members make the belief in the whole.
#[derive(Clone, Copy)]
struct Beliefs {
    /// So many members may be lost.
    spare: usize,
}

impl Beliefs {
    /// The whole is lost with the first member beyond those that may be.
    fn whole(self, mut members: Vec<Belief>) -> Belief {
        members.sort_by_key(|belief| (belief.deadline().is_none(), belief.deadline()));
        members.get(self.spare).copied().unwrap_or(Belief::FOREVER)
    }
}

impl MultiHold {
    pub(crate) fn new(members: Vec<Box<dyn Hold>>, spare: usize, request: Option<Request>) -> Self {
        let beliefs = Beliefs { spare };
        let members_upkeep: Vec<_> =
            members.iter().map(|member| (member.belief(), member.upkeep())).collect();
        // By the rhythm of the member that has to be renewed most often: a session has its own.
        let leases = members_upkeep.iter().filter_map(|(_, upkeep)| upkeep.as_ref());
        let lease = leases.map(|upkeep| upkeep.request.lease).min();
        let renewer = MultiRenewer { members: members_upkeep, beliefs };
        let upkeep = request.zip(lease).map(|(request, lease)| Upkeep {
            renewer: Arc::new(renewer),
            request: Request { lease, ..request },
        });
        let members = members.into_iter().map(|member| (member, None)).collect();
        Self { members, beliefs, upkeep }
    }
}

#[async_trait]
impl Hold for MultiHold {
    fn belief(&self) -> Belief {
        self.beliefs.whole(self.members.iter().map(|(member, _)| member.belief()).collect())
    }

    fn upkeep(&self) -> Option<Upkeep> {
        self.upkeep.clone()
    }

    /// The worst that happened to a member; an error only after all have been asked.
    async fn release(&mut self) -> Result<Release, LockError> {
        let (mut worst, mut failures) = (Release::Released, Vec::new());
        for (member, outcome) in self.members.iter_mut().rev() {
            if outcome.is_none() {
                match member.release().await {
                    Ok(release) => *outcome = Some(release),
                    Err(error) => failures.push(error.to_string()),
                }
            }
            match outcome {
                Some(Release::HeldByOther) => worst = Release::HeldByOther,
                Some(Release::Gone) if worst == Release::Released => worst = Release::Gone,
                _ => {}
            }
        }
        if failures.is_empty() { Ok(worst) } else { Err(LockError::Backend(failures.join("; "))) }
    }
}

/// Renews the members of one hold, all at once.
struct MultiRenewer {
    members: Vec<(Belief, Option<Upkeep>)>,
    beliefs: Beliefs,
}

#[async_trait]
impl Renewer for MultiRenewer {
    async fn renew(&self, holds: &[Request]) -> Vec<Renewal> {
        let mut renewals = JoinSet::new();
        let mut members = Vec::new();
        for (belief, upkeep) in &self.members {
            match upkeep.clone() {
                None => members.push(Renewal::Renewed(*belief)),
                Some(Upkeep { renewer, request }) => {
                    renewals.spawn(async move { renewer.renew(&[request]).await });
                }
            }
        }
        while let Some(renewal) = renewals.join_next().await {
            let answer = renewal.ok().and_then(|answers| answers.first().copied());
            members.push(answer.unwrap_or(Renewal::Unknown));
        }
        vec![self.together(&members); holds.len()]
    }

    fn batch(&self) -> usize {
        1
    }
}

impl MultiRenewer {
    fn together(&self, members: &[Renewal]) -> Renewal {
        let lost = members.iter().filter(|renewal| **renewal == Renewal::Lost).count();
        if lost > self.beliefs.spare {
            return Renewal::Lost;
        }
        let renewed: Vec<_> = members
            .iter()
            .filter_map(|renewal| match renewal {
                Renewal::Renewed(belief) => Some(*belief),
                Renewal::Lost | Renewal::Unknown => None,
            })
            .collect();
        let missing = members.len() - renewed.len();
        match self.beliefs.spare.checked_sub(missing) {
            Some(spare) => Renewal::Renewed(Beliefs { spare }.whole(renewed)),
            None => Renewal::Unknown,
        }
    }
}
