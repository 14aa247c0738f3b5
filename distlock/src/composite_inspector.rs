//! The inspector of kinds on several servers or members: `redlock` and `multi`.
//!
//! A lock is read from all members at once. A member that does not answer counts as one that stores
//! nothing, as long as enough others answer.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{join_all, try_join_all};
use tokio::time::timeout;

use crate::inspector::{CursorPosition, ListCursor};
use crate::{
    LockError, LockHolder, LockInspector, LockName, LockPage, LockSnapshot, LockState, LockWaiters,
    RemainingLease, RenewalKind,
};

/// How long one member may take to answer.
const MEMBER_TIMEOUT: Duration = Duration::from_secs(5);

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
    /// How many members have not answered.
    failures: usize,
    /// What the last page of the member had beyond the limit.
    surplus: VecDeque<String>,
}

type Answers = Vec<Result<LockSnapshot, LockError>>;

impl CompositeInspector {
    async fn ask(&self, name: &LockName) -> Answers {
        join_all(self.members.iter().map(async |(inspector, own)| {
            let answer = inspector.inspect(own.as_ref().unwrap_or(name));
            timeout(MEMBER_TIMEOUT, answer).await.unwrap_or_else(|_| {
                Err(LockError::Backend("a member did not answer in time".into()))
            })
        }))
        .await
    }

    fn combine(&self, name: &LockName, answers: Answers) -> Result<LockSnapshot, LockError> {
        let (mut seen, mut failure) = (Vec::new(), None);
        for answer in answers {
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
    async fn first_found(
        &self,
        name: &str,
        member: usize,
    ) -> Result<Option<LockSnapshot>, LockError> {
        // A key that is no name of a lock is none.
        let Ok(name) = LockName::new(name) else { return Ok(None) };
        let answers = self.ask(&name).await;
        let mut earlier = answers[..member].iter().flatten();
        if earlier.any(|snapshot| snapshot.state != LockState::Free) {
            return Ok(None);
        }
        let snapshot = self.combine(&name, answers)?;
        Ok((snapshot.state != LockState::Free).then_some(snapshot))
    }

    /// The names of the next page of the member, or none if it does not answer.
    async fn next_names(
        &self,
        prefix: &str,
        position: &mut MemberPosition,
        limit: usize,
    ) -> Result<(), LockError> {
        let (inspector, _) = &self.members[position.member];
        let cursor = position.cursor.take().map(|cursor| *cursor);
        match inspector.list(prefix, cursor, limit).await {
            Ok(page) => {
                position.surplus.extend(page.locks.into_iter().map(|lock| lock.name));
                position.cursor = page.next.map(Box::new);
            }
            Err(error) => {
                position.failures += 1;
                if position.failures > self.members.len() - self.needed {
                    return Err(error);
                }
            }
        }
        Ok(())
    }
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
            // A member's token is no token of the whole.
            let whole = LockHolder { token: None, place: None, ..holder.clone() };
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

#[async_trait]
impl LockInspector for CompositeInspector {
    async fn inspect(&self, name: &LockName) -> Result<LockSnapshot, LockError> {
        self.combine(name, self.ask(name).await)
    }

    async fn list(
        &self,
        prefix: &str,
        cursor: Option<ListCursor>,
        limit: usize,
    ) -> Result<LockPage, LockError> {
        if self.members.iter().any(|(_, own)| own.is_some()) {
            return Err(LockError::Unsupported("one name for all members, to be listed"));
        }
        let mut position = match cursor {
            Some(ListCursor(CursorPosition::Member(position))) => position,
            _ => MemberPosition { member: 0, cursor: None, failures: 0, surplus: VecDeque::new() },
        };
        let at = position.member;
        if position.surplus.is_empty() {
            self.next_names(prefix, &mut position, limit).await?;
        }
        let count = limit.min(position.surplus.len());
        let names: Vec<String> = position.surplus.drain(..count).collect();
        let found = try_join_all(names.iter().map(|name| self.first_found(name, at))).await?;
        if position.surplus.is_empty() && position.cursor.is_none() {
            position.member += 1;
        }
        let is_over = position.member >= self.members.len();
        let next = (!is_over).then_some(ListCursor(CursorPosition::Member(position)));
        Ok(LockPage { locks: found.into_iter().flatten().collect(), next })
    }

    async fn force_release(&self, name: &LockName, id: &str) -> Result<bool, LockError> {
        // The same owner has another id at a member of another kind.
        let answers = self.ask(name).await;
        let all = answers.iter().flatten().flat_map(|member| member.state.holders());
        let owner = all.clone().find(|holder| holder.id == id).and_then(|it| it.owner.clone());
        let is_wanted =
            |holder: &LockHolder| holder.id == id || (owner.is_some() && holder.owner == owner);
        let (mut answered, mut released, mut failure) = (0, false, None);
        for ((inspector, own), answer) in self.members.iter().zip(&answers) {
            let Ok(member) = answer else { continue };
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
    }
}
