//! The scripts that compare an owner and then act, called by hand. They change nothing for other
//! owners, nor when a key or an argument is missing or wrong.

use crate::support::{Look, fresh_name, server};
use distlock::LockName;
use redis::RedisResult;

const RELEASE: &str = include_str!("../../lua/release_if_owner.lua");
const RENEW: &str = include_str!("../../lua/renew_if_owner.lua");

/// Each with arguments that are right, if it is the owner's.
const SCRIPTS: [(&str, &[&str]); 2] = [(RELEASE, &["owner"]), (RENEW, &["owner", "60000"])];

async fn call(look: &Look, text: &str, keys: &[&str], args: &[&str]) -> RedisResult<i64> {
    // As text: another test makes the server forget its scripts.
    let mut call = redis::cmd("EVAL");
    call.arg(text).arg(keys.len()).arg(keys).arg(args);
    call.query_async(&mut look.connection()).await
}

async fn held() -> (Look, LockName) {
    let (look, name) = (Look::at(server().url()).await, fresh_name());
    look.set(&name, "owner").await;
    (look, name)
}

async fn assert_untouched(look: &Look, name: &LockName, what: &str) {
    assert_eq!(look.owner(name).await.as_deref(), Some("owner"), "{what}");
    assert_eq!(look.lease(name).await, None, "{what}");
}

#[tokio::test]
async fn a_script_changes_nothing_when_an_argument_is_missing_or_wrong() {
    let (look, name) = held().await;
    let (key, other) = (name.as_str(), fresh_name());
    let mut calls: Vec<(&str, Vec<&str>, Vec<&str>)> = Vec::new();
    for (text, right) in SCRIPTS {
        for wrong in [vec![], vec![key, other.as_str()]] {
            calls.push((text, wrong, right.to_vec()));
        }
        for missing in 0..right.len() {
            calls.push((text, vec![key], [&right[..missing], &right[missing + 1..]].concat()));
        }
        calls.push((text, vec![key], [right, &["more"]].concat()));
        calls.push((text, vec![key], [&[""], &right[1..]].concat()));
    }
    for wrong in ["", "x", "-1", "0", "1.5", "1e3", "1e300", "nan", "inf", "1 ms", "0x10"] {
        calls.push((RENEW, vec![key], vec!["owner", wrong]));
    }
    for (text, keys, args) in calls {
        let what = format!("{keys:?} {args:?}");
        let refusal = call(&look, text, &keys, &args).await.expect_err(&what).to_string();
        assert!(refusal.contains("arguments: "), "{what}: {refusal}");
        assert_untouched(&look, &name, &what).await;
    }
}

#[tokio::test]
async fn a_script_acts_for_the_owner_alone_and_says_whose_it_is() {
    for (text, right) in SCRIPTS {
        let (look, name) = held().await;
        for other in ["other", "OWNER", "owner\0", "owne"] {
            let args = [&[other], &right[1..]].concat();
            let answer = call(&look, text, &[name.as_str()], &args).await.expect("an answer");
            assert_eq!(answer, 0, "{other:?}");
            assert_untouched(&look, &name, other).await;
        }
        assert_eq!(call(&look, text, &[name.as_str()], right).await.expect("an answer"), 1);
        let left = (look.owner(&name).await, look.lease(&name).await);
        assert_eq!(left.0.is_some(), text == RENEW);
        assert_eq!(left.1.is_some(), text == RENEW);
        look.delete(&name).await;
        assert_eq!(call(&look, text, &[name.as_str()], right).await.expect("an answer"), -1);
    }
}
