//! The inspector of kinds on several servers or members: `redlock` and `multi`.
//!
//! A lock is read from all members at once. A member that does not answer counts as one that stores
//! nothing, as long as enough others answer. A list does not ask it again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use tokio::time::timeout;

use crate::inspector::{CursorPosition, ListCursor, NO_LOCK_NAME};
use crate::{
    LockError, LockHolder, LockInspector, LockName, LockPage, LockSnapshot, LockState, LockWaiters,
    RemainingLease, RenewalKind,
};

/// How long one member may take to answer; a row of a database takes up to 6 s.
const MEMBER_TIMEOUT: Duration = Duration::from_secs(8);

/// Reads a lock of several members.
pub(crate) struct CompositeInspector {
    pub(crate) kind: &'static str,
    pub(crate) renewal: RenewalKind,
    pub(crate) members: Vec<CompositeMember>,
    /// How many members make a hold.
    pub(crate) needed: usize,
    /// Whether the members of a hold may have different owners.
    pub(crate) mixes_owners: bool,
}

/// One member, and the name of its lock if that is not the composite's.
pub(crate) type CompositeMember = (Arc<dyn LockInspector>, Option<LockName>);

/// Where the list of a composite continues.
pub(crate) struct MemberPosition {
    member: usize,
    cursor: Option<Box<ListCursor>>,
    /// By member, why it has failed; it is not asked again.
    failures: Vec<Option<LockError>>,
    /// What the last page of the member had beyond the limit.
    surplus: VecDeque<LockSnapshot>,
}

/// By member; `None` of one that was not asked.
type Answers = Vec<Option<Result<LockSnapshot, LockError>>>;

/// The answer of a member, within [`MEMBER_TIMEOUT`].
async fn in_time<T>(answer: impl Future<Output = Result<T, LockError>>) -> Result<T, LockError> {
    let late = || LockError::Backend("a member did not answer in time".into());
    timeout(MEMBER_TIMEOUT, answer).await.unwrap_or_else(|_| Err(late()))
}

impl CompositeInspector {
    /// What the members say of a lock; those with a failure are not asked.
    async fn ask(&self, name: &LockName, failures: &[Option<LockError>]) -> Answers {
        join_all(self.members.iter().enumerate().map(async |(at, (inspector, own))| {
            if failures.get(at).is_some_and(Option::is_some) {
                return None;
            }
            Some(in_time(inspector.inspect(own.as_ref().unwrap_or(name))).await)
        }))
        .await
    }

    fn combine(&self, name: &LockName, answers: Answers) -> Result<LockSnapshot, LockError> {
        let (mut seen, mut failure) = (Vec::new(), None);
        for answer in answers.into_iter().flatten() {
            match answer {
                Ok(snapshot) => seen.push(snapshot),
                Err(error) => failure = Some(error),
            }
        }
        if let Some(error) = failure
            && seen.len() < self.needed
        {
            return Err(error);
        }
        Ok(LockSnapshot {
            kind: self.kind,
            name: name.to_string(),
            state: self.state(&seen),
            waiters: LockWaiters::Unknown,
            has_more_waiters: false,
            renewal: self.renewal,
        })
    }

    fn state(&self, seen: &[LockSnapshot]) -> LockState {
        let holding = seen.iter().filter(|member| !member.state.holders().is_empty()).count();
        let holders = merge(seen.iter().flat_map(|member| member.state.holders()), self.needed);
        let has_quorum = holders.iter().any(|holder| holder.servers >= self.needed);
        if has_quorum && !self.mixes_owners {
            // Others are attempts that end without a quorum.
            let holders = holders.into_iter().filter(|holder| holder.servers >= self.needed);
            return LockState::Held(holders.collect());
        }
        if has_quorum || (self.mixes_owners && holding >= self.needed) {
            return LockState::Held(holders);
        }
        // Where it stores anything else, the lock cannot be taken.
        let damaged = seen.iter().filter(|member| matches!(member.state, LockState::Damaged(_)));
        match damaged.clone().next() {
            Some(first) if damaged.count() > self.members.len() - self.needed => {
                first.state.clone()
            }
            _ if holders.is_empty() => LockState::Free,
            _ => LockState::Partial(holders),
        }
    }

    /// The snapshot of a name that was found at that member, unless an earlier one has it as well.
    fn first_found(
        &self,
        name: &LockName,
        answers: Answers,
        member: usize,
    ) -> Result<Option<LockSnapshot>, LockError> {
        let mut earlier = answers[..member].iter().flatten().flatten();
        if earlier.any(|snapshot| snapshot.state != LockState::Free) {
            return Ok(None);
        }
        let snapshot = self.combine(name, answers)?;
        Ok((snapshot.state != LockState::Free).then_some(snapshot))
    }

    fn as_own(&self, lock: LockSnapshot) -> LockSnapshot {
        LockSnapshot { kind: self.kind, renewal: self.renewal, ..lock }
    }

    fn start(&self) -> MemberPosition {
        let failures = self.members.iter().map(|_| None).collect();
        MemberPosition { member: 0, cursor: None, failures, surplus: VecDeque::new() }
    }

    /// Remembers that a member did not answer. Fails if too few are left.
    fn note_failure(
        &self,
        failures: &mut [Option<LockError>],
        at: usize,
        error: LockError,
    ) -> Result<(), LockError> {
        let others =
            failures.iter().enumerate().filter(|(it, failure)| *it != at && failure.is_some());
        if others.count() + 1 > self.members.len() - self.needed {
            return Err(error);
        }
        failures[at] = Some(error);
        Ok(())
    }

    /// Reads the next page of the member, which is empty if it does not answer.
    async fn next_page(
        &self,
        prefix: &str,
        position: &mut MemberPosition,
        limit: usize,
    ) -> Result<(), LockError> {
        let (at, cursor) = (position.member, position.cursor.take().map(|cursor| *cursor));
        if position.failures[at].is_some() {
            return Ok(());
        }
        match in_time(self.members[at].0.list(prefix, cursor, limit)).await {
            Ok(page) => {
                position.surplus.extend(page.locks);
                position.cursor = page.next.map(Box::new);
                Ok(())
            }
            Err(error) => self.note_failure(&mut position.failures, at, error),
        }
    }
}

/// Whether the member failed, and not this lock of it.
fn is_outage(answer: &Result<LockSnapshot, LockError>) -> bool {
    use LockError::{AccessDenied, Backend, NoConnection};
    matches!(answer, Err(Backend(_) | NoConnection(_) | AccessDenied(_)))
}

fn has_no_name(lock: &LockSnapshot) -> bool {
    matches!(&lock.state, LockState::Damaged(why) if why == NO_LOCK_NAME)
}

/// One holder for each owner, with the lease that its hold has on enough members.
fn merge<'a>(holders: impl Iterator<Item = &'a LockHolder>, needed: usize) -> Vec<LockHolder> {
    let mut merged: Vec<(LockHolder, Vec<RemainingLease>)> = Vec::new();
    for holder in holders {
        let same = merged.iter_mut().find(|(known, _)| match (&known.owner, &holder.owner) {
            (Some(known), Some(owner)) => known == owner,
            _ => known.id == holder.id,
        });
        if let Some((known, leases)) = same {
            known.servers += 1;
            leases.push(holder.lease);
        } else {
            // A member's token is no token of the whole, and the whole is held from the last on.
            let whole = LockHolder { held_for: None, token: None, place: None, ..holder.clone() };
            merged.push((whole, vec![holder.lease]));
        }
    }
    let with_lease = |(mut holder, mut leases): (LockHolder, Vec<RemainingLease>)| {
        leases.sort_by_key(|lease| match lease {
            RemainingLease::Ends(left) => std::cmp::Reverse(*left),
            _ => std::cmp::Reverse(Duration::MAX),
        });
        holder.lease = leases[needed.min(leases.len()) - 1];
        holder
    };
    merged.into_iter().map(with_lease).collect()
}

impl LockInspector for CompositeInspector {
    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<LockSnapshot, LockError>> {
        Box::pin(async move { self.combine(name, self.ask(name, &[]).await) })
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        cursor: Option<ListCursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<LockPage, LockError>> {
        Box::pin(async move {
            if self.members.iter().any(|(_, own)| own.is_some()) {
                return Err(LockError::Unsupported("one name for all members, to be listed"));
            }
            let mut position = match cursor {
                Some(ListCursor(CursorPosition::Member(position))) => position,
                _ => self.start(),
            };
            let at = position.member;
            if position.surplus.is_empty() {
                self.next_page(prefix, &mut position, limit).await?;
            }
            let count = limit.min(position.surplus.len());
            let (nameless, found): (Vec<_>, Vec<_>) =
                position.surplus.drain(..count).partition(has_no_name);
            let names = found.iter().filter_map(|lock| LockName::new(lock.name.as_str()).ok());
            let failures = &position.failures;
            let answers =
                join_all(names.map(async |name| (self.ask(&name, failures).await, name))).await;
            let mut locks: Vec<_> = nameless.into_iter().map(|lock| self.as_own(lock)).collect();
            for (mut answers, name) in answers {
                for (at, answer) in answers.iter_mut().enumerate() {
                    if let Some(Err(error)) = answer.take_if(|answer| is_outage(answer)) {
                        self.note_failure(&mut position.failures, at, error)?;
                    }
                }
                locks.extend(self.first_found(&name, answers, at)?);
            }
            if position.surplus.is_empty() && position.cursor.is_none() {
                position.member += 1;
            }
            let is_over = position.member >= self.members.len();
            let next = (!is_over).then_some(ListCursor(CursorPosition::Member(position)));
            Ok(LockPage { locks, next })
        })
    }

    fn force_release<'a>(
        &'a self,
        name: &'a LockName,
        id: &'a str,
    ) -> BoxFuture<'a, Result<bool, LockError>> {
        Box::pin(async move {
            // The same owner has another id at a member of another kind.
            let answers = self.ask(name, &[]).await;
            let all = answers.iter().flatten().flatten().flat_map(|member| member.state.holders());
            let owner = all.clone().find(|holder| holder.id == id).and_then(|it| it.owner.clone());
            let is_wanted =
                |holder: &LockHolder| holder.id == id || (owner.is_some() && holder.owner == owner);
            let (mut answered, mut released, mut failure) = (0, false, None);
            for ((inspector, own), answer) in self.members.iter().zip(&answers) {
                let Some(Ok(member)) = answer else { continue };
                answered += 1;
                for holder in member.state.holders().iter().filter(|holder| is_wanted(holder)) {
                    match inspector.force_release(own.as_ref().unwrap_or(name), &holder.id).await {
                        Ok(done) => released |= done,
                        Err(error) => failure = Some(error),
                    }
                }
            }
            match failure {
                Some(error) => Err(error),
                None if answered < self.needed => {
                    Err(LockError::Backend(format!("only {answered} members answered")))
                }
                None => Ok(released),
            }
        })
    }
}
