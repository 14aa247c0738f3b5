//! `multi`: all of several locks, of any mechanism.
//!
//! The members are taken one after the other in the order of their names, so that two who want the
//! same ones never wait for each other in a circle; all or nothing, under the one deadline of the
//! caller. If one is busy, those that were taken are given back before the wait, which is the busy
//! member's own: nobody stands in any other queue meanwhile, where its turn might come. Release
//! goes through all members, whatever happens to one of them. With [`Multi::tolerating`] so many
//! members may be missing, fewer than half, so that two holders always meet at a member; losing one
//! more is losing all. A missing member is busy or fails: if more fail than may be missing, so does
//! the attempt; else the lock is somebody else's, and is waited for.
//!
//! A member that was given back is taken again by a request of its own, because servers remember
//! those that were released. One whose attempt has failed is left out for the rest of the
//! acquisition, because what was given up may still arrive and undo what came later; one that did
//! not answer when it was to be given back ends the acquisition, and the waiter goes on as somebody
//! else.
//!
//! With the same name on several independent servers it is an answer to the failover that forgets
//! a lock. It is as strong as its weakest member, and its flaw is that one member that is away
//! keeps everybody out. Source: Redisson's `MultiLock`, Curator's `InterProcessMultiLock`. Tests:
//! `tests/multi.rs`, `tests/multi_again.rs`, and `composites` in the crate conformance.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::multi_hold::MultiHold;
use crate::{
    Acquisition, Answer, Fencing, Guarantees, Hold, HoldKind, LockError, LockKind, LockName,
    Locker, OwnerCheck, RenewalKind, Request, Wake, WakeKind, Woken, guarantees,
};

/// A lock made of locks.
pub struct Multi {
    members: Vec<(Arc<dyn Locker>, Option<LockName>)>,
    tolerated: usize,
}

impl Multi {
    /// The same name by each of these mechanisms: one per server, say. Fails with
    /// [`LockError::BadRequest`] without any.
    pub fn same_name(lockers: Vec<Arc<dyn Locker>>) -> Result<Self, LockError> {
        Self::made_of(lockers.into_iter().map(|locker| (locker, None)).collect())
    }

    /// These locks. The name under which the whole is asked for then only queues in the process.
    /// Fails with [`LockError::BadRequest`] without any.
    pub fn of(mut members: Vec<(Arc<dyn Locker>, LockName)>) -> Result<Self, LockError> {
        members.sort_by(|(_, one), (_, other)| one.as_str().cmp(other.as_str()));
        Self::made_of(members.into_iter().map(|(locker, name)| (locker, Some(name))).collect())
    }

    fn made_of(members: Vec<(Arc<dyn Locker>, Option<LockName>)>) -> Result<Self, LockError> {
        if members.is_empty() {
            let limit = "must be one at least: a lock of none keeps nobody out".into();
            return Err(LockError::BadRequest { field: "members", limit });
        }
        Ok(Self { members, tolerated: 0 })
    }

    /// So many members may be missing (Redisson's `failedLocksLimit`). Fails with
    /// [`LockError::BadRequest`] if that is half of them or more: then two could hold the lock,
    /// each with members that the other misses.
    pub fn tolerating(self, members: usize) -> Result<Self, LockError> {
        let all = self.members.len();
        if members >= all.div_ceil(2) {
            let limit = format!("must be fewer than half of {all}, is {members}");
            return Err(LockError::BadRequest { field: "tolerated members", limit });
        }
        Ok(Self { tolerated: members, ..self })
    }
}

#[async_trait]
impl Locker for Multi {
    fn name(&self) -> &'static str {
        LockKind::Multi.as_str()
    }

    /// What the weakest member promises. Where one lives with its session, so does the whole.
    fn guarantees(&self) -> Guarantees {
        let members: Vec<_> = self.members.iter().map(|(locker, _)| locker.guarantees()).collect();
        let any = |test: fn(&Guarantees) -> bool| members.iter().any(test);
        let all = |test: fn(&Guarantees) -> bool| members.iter().all(test);
        let yes_if = |yes| if yes { Answer::Yes } else { Answer::No };
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
            fair: Answer::No,
            fencing: if all(fences) { Fencing::Optional } else { Fencing::No },
            flaws: guarantees(LockKind::Multi).flaws,
        }
    }

    /// All at once; so many members as may be missing may fail.
    async fn check_servers(&self) -> Result<(), LockError> {
        let mut looks = JoinSet::new();
        for (locker, _) in &self.members {
            let locker = Arc::clone(locker);
            looks.spawn(async move { locker.check_servers().await });
        }
        let failures: Vec<_> = looks.join_all().await.into_iter().filter_map(Result::err).collect();
        match failures.first() {
            Some(failure) if failures.len() > self.tolerated => {
                let (failed, all) = (failures.len(), self.members.len());
                Err(LockError::Backend(format!("{failed} of {all} members fail: {failure}")))
            }
            _ => Ok(()),
        }
    }

    async fn flush(&self) {
        for (locker, _) in &self.members {
            locker.flush().await;
        }
    }

    fn begin(&self, request: Request) -> Box<dyn Acquisition> {
        let place = |(locker, name): &(Arc<dyn Locker>, Option<LockName>)| {
            let name = name.as_ref().unwrap_or(&request.name).clone();
            let request = Request { name, ..request.clone() };
            let locker = Arc::clone(locker);
            Place { locker, request, acquisition: None, hold: None, failed: false }
        };
        let places = self.members.iter().map(place).collect();
        Box::new(MultiAcquisition { places, tolerated: self.tolerated, busy: 0 })
    }
}

/// One member of an acquisition.
struct Place {
    locker: Arc<dyn Locker>,
    request: Request,
    acquisition: Option<Box<dyn Acquisition>>,
    hold: Option<Box<dyn Hold>>,
    /// It is not asked again.
    failed: bool,
}

impl Place {
    /// Whether it is held now.
    async fn attempt(&mut self) -> Result<bool, LockError> {
        if self.hold.is_none() {
            let begin = || self.locker.begin(self.request.clone());
            self.hold = self.acquisition.get_or_insert_with(begin).attempt().await?;
        }
        Ok(self.hold.is_some())
    }

    /// Gives back what was taken, or leaves the queue. Whatever is asked for next is another
    /// request: servers remember the ones for which that was done.
    async fn abandon(&mut self) -> Result<(), LockError> {
        let Guarantees { idempotent, reentrant, .. } = self.locker.guarantees();
        if let Some(hold) = &mut self.hold {
            let outcome = hold.release().await;
            // Without an answer it is kept, to be released once more if that counts once.
            if outcome.is_ok() || !idempotent.is_yes() {
                self.hold = None;
            }
            outcome?;
        } else if let Some(acquisition) = &mut self.acquisition {
            acquisition.abandon().await?;
        }
        self.acquisition = None;
        self.request.id = Uuid::new_v4();
        // Some of the servers of a member may carry a release out later. Who may want to enter
        // again is known by the owner.
        if !reentrant.is_yes() {
            self.request.owner = self.locker.fresh_owner();
        }
        Ok(())
    }

    /// The same where a failure changes nothing.
    async fn leave(&mut self) {
        if let Err(error) = self.abandon().await {
            tracing::debug!(%error, "a member is left to its lease");
        }
    }

    fn is_queued(&self) -> bool {
        self.hold.is_some() || self.acquisition.as_ref().is_some_and(|place| place.is_queued())
    }
}

struct MultiAcquisition {
    places: Vec<Place>,
    tolerated: usize,
    /// The member that was busy at the last attempt.
    busy: usize,
}

impl MultiAcquisition {
    /// Nothing is held, and no other queue is stood in than that of the member to wait for. Fails
    /// if one of them does not answer: it must not be asked again as the same owner.
    async fn step_back(&mut self, wait_for: Option<usize>) -> Result<(), LockError> {
        let mut outcome = Ok(());
        for (number, place) in self.places.iter_mut().enumerate().rev() {
            if place.is_queued() && wait_for != Some(number) {
                outcome = place.abandon().await.and(outcome);
            }
        }
        outcome
    }

    /// Of the members that the whole does without.
    async fn leave_queues(&mut self) {
        let missing = self.places.iter_mut().filter(|place| place.hold.is_none());
        for place in missing.filter(|place| place.is_queued()) {
            place.leave().await;
        }
    }

    fn held(&mut self) -> Box<dyn Hold> {
        let members: Vec<_> = self
            .places
            .iter_mut()
            .filter_map(|place| {
                place.acquisition = None;
                place.hold.take()
            })
            .collect();
        let spare = self.tolerated + members.len() - self.places.len();
        let id = self.places.first().map(|place| place.request.clone());
        Box::new(MultiHold::new(members, spare, id))
    }
}

#[async_trait]
impl Acquisition for MultiAcquisition {
    async fn attempt(&mut self) -> Result<Option<Box<dyn Hold>>, LockError> {
        let (mut busy, mut failed) = (0, self.places.iter().filter(|place| place.failed).count());
        for number in 0..self.places.len() {
            let place = &mut self.places[number];
            if place.failed {
                continue;
            }
            match place.attempt().await {
                Ok(true) => continue,
                Ok(false) => {
                    self.busy = number;
                    busy += 1;
                }
                Err(error) => {
                    // Whether it was taken or not: it is given back.
                    place.leave().await;
                    place.failed = true;
                    failed += 1;
                    if failed > self.tolerated {
                        if let Err(error) = self.step_back(None).await {
                            tracing::debug!(%error, "a member is given back in the background");
                        }
                        return Err(error);
                    }
                }
            }
            if busy + failed > self.tolerated {
                self.step_back(Some(self.busy)).await?;
                return Ok(None);
            }
        }
        self.leave_queues().await;
        Ok(Some(self.held()))
    }

    fn wake(&mut self) -> Wake<'_> {
        let Some(Place { acquisition: Some(acquisition), hold, .. }) =
            self.places.get_mut(self.busy)
        else {
            return Wake::Poll;
        };
        match acquisition.wake() {
            Wake::Poll => Wake::Poll,
            Wake::Signal(signal) => Wake::Signal(Box::pin(async move {
                if let Woken::Held { hold: taken, .. } = signal.await? {
                    *hold = Some(taken);
                }
                Ok(Woken::LookAgain)
            })),
        }
    }

    fn is_endless(&self) -> bool {
        let busy = self.places.get(self.busy).and_then(|place| place.acquisition.as_ref());
        busy.is_some_and(|acquisition| acquisition.is_endless())
    }

    fn is_queued(&self) -> bool {
        self.places.iter().any(Place::is_queued)
    }

    async fn abandon(&mut self) -> Result<(), LockError> {
        let mut outcome = Ok(());
        for place in self.places.iter_mut().rev() {
            outcome = place.abandon().await.and(outcome);
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;
    use crate::{Owner, local::Local, none::NoLock};

    /// Lets everybody in, and notes who asks.
    struct Noting {
        reentrant: Answer,
        asked: Mutex<Vec<Request>>,
    }

    impl Locker for Noting {
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
    async fn what_is_taken_again_is_asked_for_anew_and_by_an_owner_who_can_enter_again_if_any() {
        for reentrant in [Answer::Yes, Answer::No] {
            let [a, b] = ["a", "b"].map(|name| LockName::new(name).unwrap());
            let noting = Arc::new(Noting { reentrant, asked: Mutex::default() });
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
