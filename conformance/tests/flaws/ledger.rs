//! Which test shows which flaw, and which shows it gone.

use std::collections::BTreeSet;
use std::process::Command;

use distlock::{LockKind, guarantees};

use LockKind::{
    Etcd, Fair, GetsetTimestamp, Local, LuaRelease, Multi, MysqlNamed, MysqlRow, MysqlTable, Nats,
    OwnerCheck, ReadWrite, Redisson, Redlock, Reentrant, SetNx, SetnxExpire, Zookeeper,
};

/// A flaw of some kinds.
struct Entry {
    /// Whose; a flaw of none is one that every kind has, or that another test program shows.
    kinds: &'static [LockKind],
    /// As [`guarantees`] words it, if it does.
    flaw: &'static str,
    shown: &'static [&'static str],
    /// What repairs it; a kind, or what is done besides.
    repaired_by: &'static str,
    gone: &'static [&'static str],
}

const NOT_SHOWN: &str = "not shown: ";

/// The kinds whose guarantees name the flaw; its tests ask the guarantees as well.
const BY_GUARANTEES: &[LockKind] = &LockKind::ALL;

const LEDGER: &[Entry] = &[
    Entry {
        kinds: &[LockKind::None],
        flaw: "excludes no contender",
        shown: &["no_exclusion::no_lock_excludes_no_contender"],
        repaired_by: "set-nx, lua-release",
        gone: &["no_exclusion::a_lock_on_a_server_keeps_other_replicas_out"],
    },
    Entry {
        kinds: &[Local],
        flaw: "replicas do not see each other",
        shown: &["no_exclusion::a_lock_in_the_process_does_not_exclude_another_replica"],
        repaired_by: "set-nx, lua-release",
        gone: &["no_exclusion::a_lock_on_a_server_keeps_other_replicas_out"],
    },
    Entry {
        kinds: &[SetnxExpire],
        flaw: "a holder that dies between SETNX and EXPIRE blocks all contenders forever",
        shown: &["stays_for_ever::\
                  a_holder_killed_between_setnx_and_expire_leaves_the_lock_for_ever"],
        repaired_by: "set-nx",
        gone: &["stays_for_ever::\
                 a_holder_killed_before_it_learns_that_it_holds_is_replaced"],
    },
    Entry {
        kinds: &[SetnxExpire],
        flaw: "without EXPIRE at all each holder that dies blocks all contenders forever",
        shown: &["stays_for_ever::\
                  without_expire_each_killed_holder_leaves_the_lock_for_ever"],
        repaired_by: "setnx-expire, set-nx",
        gone: &["stays_for_ever::with_a_lease_a_killed_holder_is_replaced"],
    },
    Entry {
        kinds: &[SetnxExpire],
        flaw: "DEL removes another owner's lock",
        shown: &["late_release::\
          after_a_freeze_a_bare_del_frees_the_successor_and_three_holders_follow_one_another"],
        repaired_by: "owner-check, lua-release, reentrant",
        gone: &["late_release::\
                 after_a_freeze_a_release_that_checks_the_owner_leaves_the_successor_alone"],
    },
    Entry {
        kinds: &[SetNx],
        flaw: "its late DEL frees the successor's lock, and a third enters",
        shown: &["late_release::\
          after_a_freeze_a_bare_del_frees_the_successor_and_three_holders_follow_one_another"],
        repaired_by: "owner-check, lua-release, reentrant",
        gone: &["late_release::\
                 after_a_freeze_a_release_that_checks_the_owner_leaves_the_successor_alone"],
    },
    Entry {
        kinds: &[OwnerCheck],
        flaw: "a pause between GET and DEL frees the successor's lock",
        shown: &["late_release::a_pause_between_get_and_del_frees_the_successor"],
        repaired_by: "lua-release",
        gone: &[
            "late_release::a_release_that_is_one_script_has_no_pause_in_it",
            "late_release::a_release_that_is_one_script_is_late_as_a_whole_and_finds_out",
        ],
    },
    Entry {
        kinds: &[OwnerCheck],
        flaw: "an owner that is a number of the process collides between replicas",
        shown: &["late_release::owners_that_are_numbers_of_the_process_are_equal_in_two_replicas"],
        repaired_by: "owners that are random",
        gone: &["late_release::owners_that_are_random_are_never_equal"],
    },
    Entry {
        kinds: BY_GUARANTEES,
        flaw: "work longer than the lease has two holders",
        shown: &["long_work::\
          work_longer_than_an_unrenewed_lease_has_two_holders_and_loses_an_update"],
        repaired_by: "renewal; and work that looks at its lock before it writes",
        gone: &[
            "long_work::work_longer_than_a_lease_that_is_renewed_is_alone",
            "long_work::work_that_looks_before_it_writes_does_not_write_after_its_lease",
        ],
    },
    Entry {
        kinds: &[GetsetTimestamp],
        flaw: "trusts the clocks of the clients",
        shown: &["clocks::a_process_whose_clock_is_fast_takes_the_lock_of_a_living_holder"],
        repaired_by: "set-nx, lua-release, reentrant",
        gone: &["clocks::\
          a_process_whose_clock_is_fast_takes_nothing_from_a_lease_that_the_server_counts"],
    },
    Entry {
        kinds: &[GetsetTimestamp],
        flaw: "a loser overwrites the winner's deadline",
        shown: &["clocks::a_loser_overwrites_the_deadline_of_the_winner_and_a_third_holder_enters"],
        repaired_by: "set-nx, lua-release",
        gone: &["clocks::a_loser_of_a_race_for_one_key_changes_nothing"],
    },
    Entry {
        kinds: &[LuaRelease],
        flaw: "the same owner cannot enter again",
        shown: &["reentry::an_owner_of_a_plain_key_keeps_itself_out"],
        repaired_by: "reentrant, redisson",
        gone: &["reentry::an_owner_of_a_counted_hash_enters_again_and_leaves_as_often"],
    },
    Entry {
        kinds: &[Reentrant],
        flaw: "an answer that is lost on re-entry counts twice",
        shown: &["reentry::an_answer_that_is_lost_on_re_entry_counts_twice_and_the_lock_stays"],
        repaired_by: "redisson",
        gone: &["reentry::an_answer_that_is_lost_on_re_entry_counts_once_with_a_latch"],
    },
    Entry {
        kinds: &[SetnxExpire, SetNx, OwnerCheck, LuaRelease, GetsetTimestamp, Reentrant],
        flaw: "a waiter gets no message and polls",
        shown: &["wake_up::a_waiter_without_messages_polls"],
        repaired_by: "redisson",
        gone: &["wake_up::a_waiter_with_messages_asks_when_one_arrives"],
    },
    Entry {
        kinds: BY_GUARANTEES,
        flaw: "a failover to a replica that lags forgets the lock",
        shown: &[
            "failover::a_failover_to_a_replica_that_lags_forgets_the_lock",
            "failover::a_confirmed_majority_does_not_help_if_another_replica_is_promoted",
        ],
        repaired_by: "confirmed writes make it rarer; redlock; a fence",
        gone: &[
            "failover::a_lock_that_all_replicas_must_confirm_is_not_granted_while_one_lags",
            "failover::a_lock_that_a_replica_has_confirmed_survives_the_failover_to_it",
            "failover::a_lock_on_a_majority_of_independent_servers_survives_the_failover_of_one",
            "failover::a_fence_refuses_the_holder_whose_lock_a_failover_has_forgotten",
        ],
    },
    Entry {
        kinds: BY_GUARANTEES,
        flaw: "a clock of the server that is set forward ends the lease early",
        shown: &[
            "server_clock::\
             a_redis_whose_clock_is_set_forward_admits_a_second_holder_beside_a_living_one",
            "server_clock::\
             a_database_whose_clock_is_set_forward_admits_a_second_holder_beside_a_living_one",
        ],
        repaired_by: "a clock that only slews; mysql-row, mysql-named; zookeeper",
        gone: &[
            "server_clock::a_clock_that_is_set_forward_ends_no_transaction_and_no_session",
            "zookeeper::a_clock_that_jumps_ends_no_session",
        ],
    },
    Entry {
        kinds: &[Multi],
        flaw: "one member that is away blocks all contenders",
        shown: &["multi::a_member_that_is_away_keeps_all_contenders_out"],
        repaired_by: "redlock",
        gone: &["multi::a_server_that_is_away_does_not_prevent_a_majority"],
    },
    Entry {
        kinds: &[Redlock],
        flaw: "a node that restarts empty too early has two majorities",
        shown: &["redlock::a_node_that_restarts_empty_makes_a_second_majority"],
        repaired_by: "redlock with a restart delay; an append-only file written through at once",
        gone: &[
            "redlock::a_node_that_restarts_empty_and_stays_out_for_a_lease_is_not_counted",
            "redlock::a_node_that_restarts_with_all_it_had_makes_no_second_majority",
        ],
    },
    Entry {
        kinds: &[Redlock],
        flaw: "a clock that jumps on a majority ends the lock early",
        shown: &["redlock::a_clock_that_jumps_on_a_majority_ends_the_lock_of_a_living_holder"],
        repaired_by: "nothing in redlock but a clock that only slews (a minority does no harm); \
                      zookeeper, which counts by a monotonic clock",
        gone: &[
            "redlock::a_clock_that_jumps_on_a_minority_ends_nothing",
            "zookeeper::a_clock_that_jumps_ends_no_session",
        ],
    },
    Entry {
        kinds: &[Redlock],
        flaw: "a holder that is paused past the validity has no fence",
        shown: &["fence::a_holder_of_redlock_that_is_paused_past_its_validity_writes_all_the_same"],
        repaired_by: "redisson with a token issuer, mysql-table, zookeeper, each with a fence",
        gone: &["fence::\
          a_holder_whose_token_is_checked_at_the_read_and_at_the_write_sells_nothing_late"],
    },
    Entry {
        kinds: &[Redlock],
        flaw: "a restart of all nodes without durable storage forgets the lock",
        shown: &["redlock::a_restart_of_all_nodes_without_a_file_forgets_the_lock"],
        repaired_by: "an append-only file written through at once",
        gone: &["redlock::a_restart_of_all_nodes_with_a_file_written_through_forgets_nothing"],
    },
    Entry {
        kinds: &[Redlock],
        flaw: "a restart of all nodes with AOF everysec forgets the lock",
        shown: &["redlock::\
          a_restart_of_all_nodes_with_a_file_written_through_every_second_forgets_the_lock"],
        repaired_by: "an append-only file written through at once",
        gone: &["redlock::a_file_written_through_at_once_grants_nothing_that_it_may_forget"],
    },
    Entry {
        kinds: &[MysqlTable],
        flaw: "a failover to a replica that lags forgets the lock, and gives its token out again",
        shown: &["database_failover::\
          a_failover_to_a_database_that_lags_forgets_the_lock_and_gives_its_token_out_again"],
        repaired_by: "mysql-row, which cannot commit then",
        gone: &["database_failover::\
          a_transaction_that_is_the_lock_does_not_outlive_the_database_that_fails_over"],
    },
    Entry {
        kinds: &[MysqlRow],
        flaw: "under autocommit all contenders enter",
        shown: &["mysql_row::under_autocommit_all_contenders_enter"],
        repaired_by: "mysql-row, which locks in a transaction",
        gone: &["mysql_row::in_a_transaction_one_enters"],
    },
    Entry {
        kinds: &[MysqlRow],
        flaw: "two transactions that insert a missing row deadlock",
        shown: &["mysql_row::two_transactions_that_insert_a_missing_row_deadlock"],
        repaired_by: "mysql-row, which makes the row before its transaction",
        gone: &["mysql_row::processes_that_meet_at_a_missing_row_enter_one_after_the_other"],
    },
    Entry {
        kinds: &[MysqlRow],
        flaw: "a plain read before the lock fixes an old snapshot",
        shown: &["mysql_row::a_section_that_has_read_before_it_locks_works_on_old_state"],
        repaired_by: "mysql-row, whose FOR UPDATE is the first read",
        gone: &["mysql_row::a_section_whose_lock_is_its_first_read_sees_the_last_write"],
    },
    Entry {
        kinds: &[MysqlRow],
        flaw: "each waiter holds a connection",
        shown: &["mysql_pool::a_pool_that_waiters_have_run_dry_is_a_clear_error_in_bounded_time"],
        repaired_by: "mysql-table",
        gone: &["mysql_pool::waiters_without_a_connection_leave_the_pool_to_others"],
    },
    Entry {
        kinds: &[MysqlRow],
        flaw: "Galera grants it on each node, and refuses all commits but the first",
        shown: &[
            "galera::of_two_transactions_that_hold_the_same_lock_on_two_nodes_one_commits",
            "galera::a_holder_of_a_row_commits_nothing_once_the_writer_has_changed",
        ],
        repaired_by: "mysql-table",
        gone: &["galera::a_lock_in_a_table_is_renewed_and_released_at_the_next_writer"],
    },
    Entry {
        kinds: &[MysqlNamed],
        flaw: "each holder and waiter has a connection of its own",
        shown: &["mysql_pool::a_pool_that_waiters_have_run_dry_is_a_clear_error_in_bounded_time"],
        repaired_by: "mysql-table",
        gone: &["mysql_pool::waiters_without_a_connection_leave_the_pool_to_others"],
    },
    Entry {
        kinds: &[MysqlNamed],
        flaw: "a session that the server ends frees the lock before its holder knows",
        shown: &["mysql_named::a_connection_that_ends_frees_the_lock_before_its_holder_notices"],
        repaired_by: "mysql-table",
        gone: &["mysql_named::a_lease_in_a_table_outlives_the_connections_of_its_holder"],
    },
    Entry {
        kinds: &[MysqlNamed],
        flaw: "a session that is cut off keeps its lock for as long as the server waits for it",
        shown: &["mysql_named::a_session_that_is_cut_off_without_a_word_keeps_its_lock"],
        repaired_by: "mysql-named, whose sessions time out with the lease",
        gone: &["mysql_named::a_holder_that_is_cut_off_without_a_word_is_freed_after_its_lease"],
    },
    Entry {
        kinds: &[MysqlNamed],
        flaw: "Galera grants it on each node",
        shown: &["galera::each_node_grants_a_named_lock"],
        repaired_by: "mysql-named, which is refused there; mysql-table",
        gone: &["galera::a_lock_in_a_table_is_one_for_both_nodes"],
    },
    Entry {
        kinds: &[MysqlNamed],
        flaw: "a holder that is paused past its session works on, and there is no fence",
        shown: &["fence::\
          a_holder_of_mysql_named_that_is_paused_past_its_session_writes_all_the_same"],
        repaired_by: "mysql-table or zookeeper, each with a fence; mysql-row",
        gone: &["fence::\
          a_holder_whose_token_is_checked_at_the_read_and_at_the_write_sells_nothing_late"],
    },
    Entry {
        kinds: &[Zookeeper],
        flaw: "a holder that is paused past its session works on unless its token is checked",
        shown: &["fence::\
          a_holder_of_zookeeper_that_is_paused_past_its_session_writes_all_the_same"],
        repaired_by: "its token, checked at the read and at the write",
        gone: &["fence::\
          a_holder_whose_token_is_checked_at_the_read_and_at_the_write_sells_nothing_late"],
    },
    Entry {
        kinds: &[Redisson, Fair, ReadWrite, Multi, MysqlTable, Etcd, Nats],
        flaw: "a holder that is paused past its lease works on unless its token is checked",
        shown: &["fence::a_holder_that_is_paused_past_its_lease_writes_all_the_same"],
        repaired_by: "its token, checked at the read and at the write",
        gone: &[
            "fence::\
          a_holder_whose_token_is_checked_at_the_read_and_at_the_write_sells_nothing_late",
            "galera::\
          a_token_that_a_node_gave_is_refused_at_the_other_node_after_a_newer_one",
        ],
    },
    Entry {
        kinds: &[Redisson, Fair, ReadWrite, Multi, MysqlTable, Zookeeper, Etcd, Nats],
        flaw: "a fence that is checked at the write alone lets a stale reader write",
        shown: &["fence::\
          a_holder_whose_token_is_checked_at_the_write_alone_sells_by_what_it_read_before"],
        repaired_by: "a fence that is checked at the read as well",
        gone: &["fence::\
          a_holder_whose_token_is_checked_at_the_read_and_at_the_write_sells_nothing_late"],
    },
    Entry {
        kinds: &[Nats],
        flaw: "entries age by the clock of their server, which may be set forward",
        shown: &["not shown: NATS reads its clock without the C library that tests can replace"],
        repaired_by: "",
        gone: &[],
    },
    Entry {
        kinds: &[Nats],
        flaw: "a server that loses power forgets locks that it has not flushed to disk",
        shown: &["not shown: a killed server loses nothing, and no test can cut the power"],
        repaired_by: "",
        gone: &[],
    },
    Entry {
        kinds: &[],
        flaw: "a lock inside the transaction is released before the commit",
        shown: &["not shown: the service's, see `loadtest matrix --scenarios inside`"],
        repaired_by: "",
        gone: &[],
    },
];

/// The tests of this program, as it lists them.
fn tests() -> BTreeSet<String> {
    let program = std::env::current_exe().expect("a program knows its path");
    let list = Command::new(program).args(["--list", "--format=terse"]).output().expect("a list");
    let list = String::from_utf8(list.stdout).expect("text");
    list.lines().filter_map(|line| Some(line.strip_suffix(": test")?.to_owned())).collect()
}

#[test]
fn every_flaw_has_a_test_that_shows_it_and_one_that_shows_it_repaired() {
    let (tests, mut named) = (tests(), BTreeSet::new());
    println!("| flaw | kinds | shown by | repaired by | gone in |");
    for Entry { kinds, flaw, shown, repaired_by, gone } in LEDGER {
        let has =
            |kind: &&LockKind| *kinds != BY_GUARANTEES || guarantees(**kind).flaws.contains(flaw);
        let kinds: Vec<&str> = kinds.iter().filter(has).map(|kind| kind.as_str()).collect();
        let (by, of) = (shown.join(", "), gone.join(", "));
        println!("| {flaw} | {} | {by} | {repaired_by} | {of} |", kinds.join(", "));
        assert!(!shown.is_empty(), "nothing shows: {flaw}");
        let is_shown = !shown[0].starts_with(NOT_SHOWN);
        assert_eq!(is_shown, !gone.is_empty(), "nothing shows that it can be repaired: {flaw}");
        let both = shown.iter().chain(*gone).filter(|name| !name.starts_with(NOT_SHOWN));
        named.extend(both.map(|name| (*name).to_owned()));
    }
    let own = "ledger::every_flaw_has_a_test_that_shows_it_and_one_that_shows_it_repaired";
    named.insert(own.into());
    let missing: Vec<_> = named.difference(&tests).collect();
    let unnamed: Vec<_> = tests.difference(&named).collect();
    assert!(missing.is_empty() && unnamed.is_empty(), "{missing:#?} {unnamed:#?}");

    for kind in LockKind::ALL {
        for promised in guarantees(kind).flaws {
            let has = |entry: &Entry| entry.flaw == *promised && entry.kinds.contains(&kind);
            assert!(LEDGER.iter().any(has), "{kind}: nothing shows: {promised}");
        }
    }
}
