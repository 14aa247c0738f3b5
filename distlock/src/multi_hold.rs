//! The hold of a `multi`: all members together, their combined validity, renewal and release.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::task::JoinSet;

use crate::{Hold, LockError, Release, Renewal, RenewalTarget, Renewer, Request, Validity};

pub(crate) struct MultiHold {
    /// With the outcome of a release that was answered.
    members: Vec<(Box<dyn Hold>, Option<Release>)>,
    validities: MemberValidities,
    renewal_target: Option<RenewalTarget>,
}

/// Combines the validities of the members.
#[derive(Clone, Copy)]
struct MemberValidities {
    /// The number of members that may be lost.
    spare: usize,
}

impl MemberValidities {
    /// The whole is lost with the first member beyond those that may be.
    fn combined(self, mut members: Vec<Validity>) -> Validity {
        members.sort_by_key(|validity| (validity.deadline().is_none(), validity.deadline()));
        members.get(self.spare).copied().unwrap_or(Validity::UNBOUNDED)
    }
}

impl MultiHold {
    pub(crate) fn new(members: Vec<Box<dyn Hold>>, spare: usize, request: Option<Request>) -> Self {
        let validities = MemberValidities { spare };
        let member_targets: Vec<_> =
            members.iter().map(|member| (member.validity(), member.renewal_target())).collect();
        // By the rhythm of the member that has to be renewed most often: a session has its own.
        let leases =
            member_targets.iter().filter_map(|(_, renewal_target)| renewal_target.as_ref());
        let lease = leases.map(|renewal_target| renewal_target.request.lease).min();
        let renewer = MultiRenewer { members: member_targets, validities };
        let renewal_target = request.zip(lease).map(|(request, lease)| RenewalTarget {
            renewer: Arc::new(renewer),
            request: Request { lease, ..request },
        });
        let members = members.into_iter().map(|member| (member, None)).collect();
        Self { members, validities, renewal_target }
    }
}

impl Hold for MultiHold {
    fn validity(&self) -> Validity {
        self.validities.combined(self.members.iter().map(|(member, _)| member.validity()).collect())
    }

    fn renewal_target(&self) -> Option<RenewalTarget> {
        self.renewal_target.clone()
    }

    /// The worst that happened to a member; an error only after all have been asked.
    fn release(&mut self) -> BoxFuture<'_, Result<Release, LockError>> {
        Box::pin(async move {
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
            if failures.is_empty() {
                Ok(worst)
            } else {
                Err(LockError::Backend(failures.join("; ")))
            }
        })
    }
}

/// Renews the members of one hold, all at once.
struct MultiRenewer {
    members: Vec<(Validity, Option<RenewalTarget>)>,
    validities: MemberValidities,
}

impl Renewer for MultiRenewer {
    fn renew<'a>(&'a self, holds: &'a [Request]) -> BoxFuture<'a, Vec<Renewal>> {
        Box::pin(async move {
            let least = holds.iter().map(|hold| hold.lease).max().unwrap_or_default();
            let mut renewals = JoinSet::new();
            let mut members = Vec::new();
            for (validity, renewal_target) in &self.members {
                match renewal_target.clone() {
                    None => members.push(Renewal::Renewed(*validity)),
                    Some(RenewalTarget { renewer, mut request }) => {
                        // Longer than the member's own if the hold is left to its servers.
                        request.lease = request.lease.max(least);
                        renewals.spawn(async move { renewer.renew(&[request]).await });
                    }
                }
            }
            while let Some(renewal) = renewals.join_next().await {
                let answer = renewal.ok().and_then(|answers| answers.first().copied());
                members.push(answer.unwrap_or(Renewal::Unknown));
            }
            vec![self.together(&members); holds.len()]
        })
    }

    fn batch(&self) -> usize {
        1
    }
}

impl MultiRenewer {
    fn together(&self, members: &[Renewal]) -> Renewal {
        let lost = members.iter().filter(|renewal| **renewal == Renewal::Lost).count();
        if lost > self.validities.spare {
            return Renewal::Lost;
        }
        let renewed: Vec<_> = members
            .iter()
            .filter_map(|renewal| match renewal {
                Renewal::Renewed(validity) => Some(*validity),
                Renewal::Lost | Renewal::Unknown => None,
            })
            .collect();
        let missing = members.len() - renewed.len();
        match self.validities.spare.checked_sub(missing) {
            Some(spare) => Renewal::Renewed(MemberValidities { spare }.combined(renewed)),
            None => Renewal::Unknown,
        }
    }
}
