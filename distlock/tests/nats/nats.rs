//! `nats` on a server that works: entries, tokens, buckets, and other programs.

use std::time::Duration;

use distlock::{LockError, LockState, NatsServer, Release};
use testbed::{Bed, NatsOptions};
use tokio::task::block_in_place;

use crate::scene::{
    BUCKET, LONG, assert_busy, at_once, bucket, entry, eventually, fresh_name, jetstream, key,
    lock, locks, locks_at, release, server, wait_for,
};

#[tokio::test(flavor = "multi_thread")]
async fn the_token_is_the_revision_of_the_create_also_after_renewals() {
    let (locks, name) = (locks_at(server().url(), "short", LONG / 10), fresh_name());
    let guard = lock(&locks, &name).await;
    let bucket = bucket("short").await;
    let token = guard.token().expect("a token").0;
    assert_eq!(entry(&bucket, &name).await.expect("an entry").revision, token);
    let renewed = async || entry(&bucket, &name).await.expect("an entry").revision > token;
    eventually("it is renewed", renewed).await;
    let shown = locks.inspect(&name).await.expect("an answer");
    let [holder] = shown.state.holders() else { panic!("{shown:?}") };
    assert_eq!(holder.token.expect("a token").0, token);
    assert_eq!(holder.owner.as_deref(), Some(guard.owner().as_str()));
    release(guard).await;
    assert!(entry(&bucket, &name).await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_another_program_excludes_is_shown_and_is_excluded() {
    let (locks, name) = (locks(), fresh_name());
    release(lock(&locks, &name).await).await;
    let bucket = bucket(BUCKET).await;
    bucket.create(key(&name), "theirs".into()).await.expect("it is free");
    assert_busy(&locks, &name).await;
    let shown = locks.inspect(&name).await.expect("an answer");
    let [holder] = shown.state.holders() else { panic!("{shown:?}") };
    assert_eq!(holder.owner.as_deref(), Some("theirs"));
    let waiter = wait_for(&locks, &name);
    bucket.delete(key(&name)).await.expect("an answer");
    let guard = waiter.await.expect("no panic").expect("the lock");
    assert!(bucket.create(key(&name), "theirs".into()).await.is_err());
    release(guard).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_of_what_was_removed_says_whether_another_holds_it() {
    let (locks, name) = (locks(), fresh_name());
    for is_taken in [false, true] {
        let guard = lock(&locks, &name).await;
        let bucket = bucket(BUCKET).await;
        bucket.delete(key(&name)).await.expect("an answer");
        if is_taken {
            bucket.create(key(&name), "theirs".into()).await.expect("it is free");
        }
        let expected = if is_taken { Release::HeldByOther } else { Release::Gone };
        assert_eq!(guard.release().await.expect("an answer"), expected);
    }
    let kept = entry(&bucket(BUCKET).await, &name).await.expect("it is the other program's");
    assert_eq!(kept.value.as_ref(), b"theirs");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_has_names_with_all_signs_and_shows_a_key_that_is_no_name_as_damaged() {
    let locks = locks_at(server().url(), "listed", LONG);
    let names = ["a.b=c {ü}*>", "a/1", "b"].map(|name| distlock::LockName::new(name).unwrap());
    let mut guards = Vec::new();
    for name in &names {
        guards.push(lock(&locks, name).await);
    }
    let other = bucket("listed").await;
    other.put("a.odd", "x".into()).await.expect("an answer");
    other.put("a.gone", "x".into()).await.expect("an answer");
    other.delete("a.gone").await.expect("an answer");
    let (mut listed, mut cursor) = (Vec::new(), None);
    loop {
        let page = locks.list("a", cursor, 2).await.expect("a page");
        assert!(page.locks.len() <= 2);
        listed.extend(page.locks);
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    let held = |name: &str| {
        listed.iter().any(|it| it.name == name && matches!(it.state, LockState::Held(_)))
    };
    assert!(held("a.b=c {ü}*>") && held("a/1") && listed.len() == 3, "{listed:?}");
    let damaged = |name: &str| {
        listed.iter().any(|it| it.name == name && matches!(it.state, LockState::Damaged(_)))
    };
    assert!(damaged("a.odd"), "{listed:?}");
    for guard in guards {
        release(guard).await;
    }
}

/// All programs of a bucket must mean the same by a hold that is not renewed.
#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_keeps_the_ttl_that_it_was_made_with() {
    let (first, second) = (Duration::from_secs(7), Duration::from_secs(20));
    let name = fresh_name();
    release(lock(&locks_at(server().url(), "seven", first), &name).await).await;
    let guard = lock(&locks_at(server().url(), "seven", second), &name).await;
    let valid = guard.validity().deadline().expect("an end") - tokio::time::Instant::now();
    assert!(valid < first, "{valid:?}");
    release(guard).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_whose_entries_never_end_is_refused() {
    let stream = async_nats::jetstream::stream::Config {
        name: "KV_endless".into(),
        subjects: vec!["$KV.endless.>".into()],
        max_messages_per_subject: 1,
        ..Default::default()
    };
    jetstream().await.create_stream(stream).await.expect("it is made");
    let refused = locks_at(server().url(), "endless", LONG).lock(&fresh_name(), &at_once()).await;
    let refused = refused.expect_err("a dead holder would keep its locks").to_string();
    assert!(refused.contains("NATS bucket: must have a maximum age"), "{refused}");
}

/// A program that only reads must not choose the TTL of those that lock.
#[tokio::test(flavor = "multi_thread")]
async fn an_inspector_makes_no_bucket() {
    let (locks, name) = (locks_at(server().url(), "unmade", LONG), fresh_name());
    let shown = locks.inspect(&name).await.expect("an answer");
    assert_eq!(shown.state, LockState::Free);
    assert!(locks.list("", None, 10).await.expect("a page").locks.is_empty());
    assert!(jetstream().await.get_key_value("unmade").await.is_err(), "it was made");
}

/// Another program makes it again with a shorter TTL: an entry ends by that.
#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_that_was_made_again_counts_with_its_new_ttl() {
    let (name, short) = (fresh_name(), Duration::from_secs(3));
    let locks = locks_at(server().url(), "again", LONG);
    let guard = lock(&locks, &name).await;
    jetstream().await.delete_stream("KV_again").await.expect("it was there");
    let others = locks_at(server().url(), "again", short);
    release(lock(&others, &fresh_name()).await).await;
    let began = tokio::time::Instant::now();
    eventually("it reads the bucket again", async || {
        let Ok(later) = locks.lock(&fresh_name(), &at_once()).await else { return false };
        let valid = later.validity().deadline().expect("an end") - tokio::time::Instant::now();
        release(later).await;
        valid < short
    })
    .await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    // The revision of its create may be that of another entry in the new bucket.
    let heir = lock(&others, &name).await;
    assert_eq!(guard.release().await.expect("an answer"), Release::HeldByOther);
    assert_busy(&locks, &name).await;
    release(heir).await;
}

/// Between two renewals a waiter reads once a second: only the message is faster.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_wakes_a_waiter_by_its_message() {
    let locks = locks_at(server().url(), "woken", LONG / 10);
    let (rounds, mut soon) = (8, 0);
    for _ in 0..rounds {
        let name = fresh_name();
        let guard = lock(&locks, &name).await;
        let waiter = wait_for(&locks_at(server().url(), "woken", LONG / 10), &name);
        let (bucket, token) = (bucket("woken").await, guard.token().expect("a token").0);
        let renewed = async || entry(&bucket, &name).await.expect("an entry").revision > token;
        eventually("it is renewed", renewed).await;
        assert!(!waiter.is_finished());
        release(guard).await;
        let released = tokio::time::Instant::now();
        let heir = waiter.await.expect("no panic").expect("the lock");
        soon += usize::from(released.elapsed() < Duration::from_millis(300));
        release(heir).await;
    }
    assert!(soon >= rounds - 2, "{soon} of {rounds} waiters were woken at once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_that_is_removed_is_made_again() {
    let (locks, name) = (locks_at(server().url(), "removed", LONG), fresh_name());
    release(lock(&locks, &name).await).await;
    jetstream().await.delete_stream("KV_removed").await.expect("it was there");
    eventually("the lock is granted again", async || {
        let guard = locks.lock(&name, &at_once()).await;
        if let Ok(guard) = guard {
            release(guard).await;
            return true;
        }
        false
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_is_wrong_or_missing_is_refused_as_such() {
    let bed = Bed::start().expect("a private bed");
    let login = Some(["me".to_owned(), "s3cret".to_owned()]);
    let server = block_in_place(|| bed.nats(&NatsOptions { login })).expect("NATS is installed");
    release(lock(&locks_at(server.url(), BUCKET, LONG), &fresh_name()).await).await;
    let (wrong, none) = (server.url().replace("s3cret", "other"), server.addr().to_string());
    for url in [wrong, format!("nats://{none}")] {
        let refused = locks_at(&url, BUCKET, LONG).lock(&fresh_name(), &at_once()).await;
        let refused = refused.expect_err("it has no right");
        assert!(matches!(refused, LockError::AccessDenied(_)), "{refused:?}");
        assert!(!refused.to_string().contains("other"), "{refused}");
    }
}

#[tokio::test]
async fn servers_bucket_and_ttl_are_checked_before_a_connection_and_no_error_has_a_password() {
    let connect = NatsServer::connect_lazily;
    for good in ["nats://h:1", "nats://me:pw@h:1,nats://me:pw@h:2/", "h:1"] {
        assert!(connect(good, "a-B_9", LONG).is_ok(), "{good}");
    }
    for bad in [
        "",
        "nats://",
        "h",
        "nats://h",
        "tls://h:1",
        "ws://h:1",
        "http://h:1",
        "nats://h:1/bucket",
        "nats://me:s3cret@h",
        "tls://me:s3cret@h:1",
        "nats://h:1,me:s3cret@",
        "nats://h:1?s3cret",
        "nats://me:s3cret@h:1,nats://you:s3cret@h:2",
    ] {
        let error = connect(bad, "locks", LONG).err().unwrap_or_else(|| panic!("{bad:?}"));
        let text = error.to_string();
        assert!(text.starts_with("NATS servers: must ") && !text.contains("s3cret"), "{text}");
    }
    for bad in ["", "a.b", "a b", "ü", &"x".repeat(65)] {
        let error = connect("h:1", bad, LONG).expect_err("a refusal").to_string();
        assert!(error.starts_with("NATS bucket: must have 1 to 64 "), "{error}");
    }
    for bad in [Duration::from_millis(99), Duration::from_millis(86_400_001)] {
        let error = connect("h:1", "locks", bad).expect_err("a refusal").to_string();
        assert!(error.starts_with("TTL: must be 100 ms to a day"), "{error}");
    }
}
