//! Redisson's read-write lock, seen from outside.

use crate::support::{Look, connect, fresh_name, locks_of, server};
use distlock::{LockError, LockKind, RemainingLease};
use redis::AsyncCommands;
use uuid::Uuid;

#[tokio::test]
async fn readers_and_writer_of_redissons_read_write_lock_are_shown_and_are_not_freed() {
    let locks = locks_of(LockKind::Redisson, connect(server().url()).await);
    let look = Look::at(server().url()).await;
    let client = Uuid::new_v4();
    let [one, two] = [1, 2].map(|thread| format!("{client}:{thread}"));
    let writer = format!("{one}:write");
    for (mode, owners) in [("read", [&one, &two]), ("write", [&one, &writer])] {
        let name = fresh_name();
        let mut connection = look.connection();
        let fields = [("mode", mode), (owners[0], "1"), (owners[1], "2")];
        connection.hset_multiple::<_, _, _, ()>(name.as_str(), &fields).await.expect("a hash");
        connection.pexpire::<_, ()>(name.as_str(), 60_000).await.expect("a lease");
        let seen = locks.inspect(&name).await.expect("an answer");
        let mut holders = seen.state.holders().to_vec();
        holders.sort_by_key(|holder| holder.holds);
        let shown: Vec<_> = holders.iter().map(|one| (&one.id, one.holds, one.shares)).collect();
        let may_share = owners[1] != &writer;
        assert_eq!(shown, [(owners[0], Some(1), true), (owners[1], Some(2), may_share)]);
        assert!(matches!(holders[0].lease, RemainingLease::Ends(left) if !left.is_zero()));
        for owner in owners {
            let refused = locks.force_release(&name, owner).await;
            assert!(matches!(refused, Err(LockError::Unsupported(_))), "{refused:?}");
        }
        assert_eq!(locks.inspect(&name).await.expect("an answer").state.holders().len(), 2);
    }
}
