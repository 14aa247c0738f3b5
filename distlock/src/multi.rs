//! `multi`: all of several locks, of any mechanism.
//!
//! How it works: the members are taken one after the other, in the order of their names, so two
//! waiters for the same members cannot deadlock. It is all or nothing, under one deadline. If a
//! member is busy, the members that were taken are released first; then the acquisition waits for
//! the busy one. So it stands in no other queue meanwhile. Release goes through all members,
//! whatever happens to one of them.
//!
//! With [`Multi::tolerating`] fewer than half of the members may be missing, so two holders always
//! meet at a member; losing one more loses the lock. A missing member is busy or has failed. If
//! more have failed than may be missing, so does the attempt; else the lock is held by another
//! owner, and the caller waits.
//!
//! A member that was released is taken again under a new request id, because servers remember
//! released ids. A member whose attempt failed is left out of the rest of the acquisition: its late
//! cleanup could undo a later attempt. A member whose release has no answer ends the acquisition;
//! the waiter retries with a fresh owner id.
//!
//! Guarantees what its weakest member does. With one name on several independent servers it
//! survives a failover that forgets a lock. Flaw: one member that is away keeps all callers out.
//! Source: Redisson's `MultiLock`, Curator's `InterProcessMultiLock`. Tests: `tests/multi.rs`,
//! `tests/multi_again.rs`, and `composites` in the crate conformance.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::task::JoinSet;

use crate::composite_inspector::CompositeInspector;
use crate::multi_acquisition::{MultiAcquisition, MultiMember};
use crate::{
    Acquisition, Fencing, Guarantees, HoldKind, LockError, LockInspector, LockKind, LockName,
    Locker, OwnerCheck, RenewalKind, Request, Support, WakeKind, guarantees,
};

/// A lock made of locks.
pub struct Multi {
    members: Vec<(Arc<dyn Locker>, Option<LockName>)>,
    tolerated: usize,
}

impl Multi {
    /// Makes a lock of one name by each of these mechanisms: one per server, say. Fails with
    /// [`LockError::BadRequest`] without any.
    pub fn same_name(lockers: Vec<Arc<dyn Locker>>) -> Result<Self, LockError> {
        Self::made_of(lockers.into_iter().map(|locker| (locker, None)).collect())
    }

    /// Makes a lock of these locks. The name under which it is taken then only queues in the
    /// process. Fails with [`LockError::BadRequest`] without any.
    pub fn of(mut members: Vec<(Arc<dyn Locker>, LockName)>) -> Result<Self, LockError> {
        members.sort_by(|(_, one), (_, other)| one.as_str().cmp(other.as_str()));
        Self::made_of(members.into_iter().map(|(locker, name)| (locker, Some(name))).collect())
    }

    fn made_of(members: Vec<(Arc<dyn Locker>, Option<LockName>)>) -> Result<Self, LockError> {
        if members.is_empty() {
            let limit = "must be at least one".into();
            return Err(LockError::BadRequest { field: "members", limit });
        }
        Ok(Self { members, tolerated: 0 })
    }

    /// Tolerates this number of missing members (Redisson's `failedLocksLimit`). Fails with
    /// [`LockError::BadRequest`] for half of them or more: then two owners could hold the lock,
    /// each with members that the other misses.
    pub fn tolerating(self, members: usize) -> Result<Self, LockError> {
        let all = self.members.len();
        if members >= all.div_ceil(2) {
            let limit = format!("must be fewer than half of {all}, is {members}");
            return Err(LockError::BadRequest { field: "tolerated members", limit });
        }
        Ok(Self { tolerated: members, ..self })
    }

    /// `None` if a member has no server.
    fn composite_inspector(&self) -> Option<CompositeInspector> {
        let member = |(locker, name): &(Arc<dyn Locker>, Option<LockName>)| {
            Some((locker.inspector()?, name.clone()))
        };
        Some(CompositeInspector {
            kind: LockKind::Multi.as_str(),
            renewal: self.guarantees().renewal,
            members: self.members.iter().map(member).collect::<Option<_>>()?,
            needed: self.members.len() - self.tolerated,
            mixes_owners: true,
        })
    }
}

impl Locker for Multi {
    fn name(&self) -> &'static str {
        LockKind::Multi.as_str()
    }

    /// What the weakest member promises. Where one lives with its session, so does the whole.
    fn guarantees(&self) -> Guarantees {
        let members: Vec<_> = self.members.iter().map(|(locker, _)| locker.guarantees()).collect();
        let any = |test: fn(&Guarantees) -> bool| members.iter().any(test);
        let all = |test: fn(&Guarantees) -> bool| members.iter().all(test);
        let yes_if = |yes| if yes { Support::Yes } else { Support::No };
        let renewals = [RenewalKind::No, RenewalKind::Heartbeat];
        let renewal = renewals
            .into_iter()
            .find(|renewal| members.iter().any(|member| member.renewal == *renewal));
        let fences = |member: &Guarantees| {
            matches!(member.fencing, Fencing::Optional | Fencing::Yes | Fencing::NotNeeded)
        };
        let checks = [OwnerCheck::NotApplicable, OwnerCheck::No, OwnerCheck::Racy];
        let weakest = checks
            .into_iter()
            .find(|check| members.iter().any(|member| member.owner_checked == *check));
        Guarantees {
            hold: HoldKind::WeakestMember,
            renewal: renewal.unwrap_or(RenewalKind::Yes),
            wake: if any(|member| member.wake == WakeKind::Poll) {
                WakeKind::Poll
            } else {
                WakeKind::Message
            },
            owner_checked: weakest.unwrap_or(OwnerCheck::Atomic),
            idempotent: yes_if(all(|member| member.idempotent.is_yes())),
            reentrant: yes_if(all(|member| member.reentrant.is_yes())),
            fair: Support::No,
            fencing: if all(fences) { Fencing::Optional } else { Fencing::No },
            flaws: guarantees(LockKind::Multi).flaws,
        }
    }

    fn has_renewable_lease(&self) -> bool {
        self.members.iter().all(|(locker, _)| locker.has_renewable_lease())
    }

    /// Checks all members at once; as many may fail as may be missing.
    fn check_servers(&self) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(async move {
            let mut looks = JoinSet::new();
            for (locker, _) in &self.members {
                let locker = Arc::clone(locker);
                looks.spawn(async move { locker.check_servers().await });
            }
            let failures: Vec<_> =
                looks.join_all().await.into_iter().filter_map(Result::err).collect();
            match failures.first() {
                Some(failure) if failures.len() > self.tolerated => {
                    let (failed, all) = (failures.len(), self.members.len());
                    Err(LockError::Backend(format!("{failed} of {all} members fail: {failure}")))
                }
                _ => Ok(()),
            }
        })
    }

    fn flush(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            for (locker, _) in &self.members {
                locker.flush().await;
            }
        })
    }

    fn inspector(&self) -> Option<Arc<dyn LockInspector>> {
        Some(Arc::new(self.composite_inspector()?))
    }

    fn begin(&self, request: Request) -> Box<dyn Acquisition> {
        let place = |(locker, name): &(Arc<dyn Locker>, Option<LockName>)| {
            let name = name.as_ref().unwrap_or(&request.name).clone();
            let request = Request { name, ..request.clone() };
            let locker = Arc::clone(locker);
            MultiMember::new(locker, request)
        };
        let members = self.members.iter().map(place).collect();
        Box::new(MultiAcquisition::new(members, self.tolerated))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use uuid::Uuid;

    use super::*;
    use crate::{Owner, local::Local, none::NoLock};

    /// Grants every request and records it.
    struct RecordingLocker {
        reentrant: Support,
        asked: Mutex<Vec<Request>>,
    }

    impl Locker for RecordingLocker {
        fn name(&self) -> &'static str {
            "noting"
        }

        fn guarantees(&self) -> Guarantees {
            Guarantees { reentrant: self.reentrant, ..NoLock.guarantees() }
        }

        fn begin(&self, request: Request) -> Box<dyn Acquisition> {
            self.asked.lock().unwrap().push(request.clone());
            NoLock.begin(request)
        }
    }

    fn request(name: LockName) -> Request {
        let (owner, lease) = (Owner::fresh(), Duration::from_secs(1));
        Request { name, owner, may_hold: false, id: Uuid::new_v4(), lease }
    }

    #[tokio::test]
    async fn a_repeated_attempt_has_a_new_id_and_keeps_its_owner_if_the_kind_is_reentrant() {
        for reentrant in [Support::Yes, Support::No] {
            let [a, b] = ["a", "b"].map(|name| LockName::new(name).unwrap());
            let noting = Arc::new(RecordingLocker { reentrant, asked: Mutex::default() });
            let busy = Arc::new(Local::new());
            let _held = busy.begin(request(b.clone())).attempt().await.unwrap().unwrap();
            let multi = Multi::of(vec![(Arc::clone(&noting) as _, a.clone()), (busy, b)]).unwrap();
            let mut acquisition = multi.begin(request(a));
            for _ in 0..2 {
                assert!(acquisition.attempt().await.unwrap().is_none());
            }
            let asked = std::mem::take(&mut *noting.asked.lock().unwrap());
            let [first, again] = &asked[..] else { panic!("{asked:?}") };
            assert_ne!(first.id, again.id);
            assert_eq!(first.owner == again.owner, reentrant.is_yes());
        }
    }
}
