//! Changes to what fenced holders did: each is found by the rule on tokens and by no other.

use loadtest_judge::verdict::Rule::TokensRise;
use loadtest_load::history::event::EffectEvent;

use crate::mutations::assert_found;
use crate::tape::{Tape, broken, judge};

const NEW_ORDER: u64 = 77;

#[tokio::test]
async fn an_effect_whose_token_is_lower_than_an_earlier_one_is_found() {
    let fenced = Tape::fenced();
    let request_of = |tape: &Tape, order: u64| {
        tape.with_code("201").into_iter().find(|n| tape.end_of(*n).o == Some(order))
    };
    let mut stale = fenced.clone();
    stale.effects[50].token = 1;
    let mut requests: Vec<u32> = request_of(&stale, stale.effects[50].o).into_iter().collect();
    requests.extend(request_of(&stale, stale.effects[49].o));
    assert_found("a stale holder wrote", &[stale], &[TokensRise], &requests).await;

    let mut jump = fenced.clone();
    jump.effects[10].token = 1_000_000;
    let requests: Vec<u32> = request_of(&jump, jump.effects[10].o).into_iter().collect();
    assert_found("a token came back after it had fallen", &[jump], &[TokensRise], &requests).await;

    let mut swapped = fenced.clone();
    let (a, b) = (swapped.effects[20].seq, swapped.effects[30].seq);
    (swapped.effects[20].seq, swapped.effects[30].seq) = (b, a);
    assert_found("two commits in the wrong order", &[swapped], &[TokensRise], &[]).await;

    let mut history = fenced;
    let gone = history.effects.remove(70);
    let requests: Vec<u32> = request_of(&history, gone.o).into_iter().collect();
    assert_found("an order past the fence", &[history], &[TokensRise], &requests).await;
}

#[tokio::test]
async fn an_effect_that_its_lock_cannot_have_allowed_is_found() {
    let fenced = Tape::fenced();
    let requests = |tape: &Tape, orders: &[u64]| -> Vec<u32> {
        let wanted = |n: &u32| tape.end_of(*n).o.is_some_and(|order| orders.contains(&order));
        tape.with_code("201").into_iter().filter(wanted).collect()
    };
    let mut equal = fenced.clone();
    equal.effects[50].token = equal.effects[49].token;
    let both = requests(&equal, &[equal.effects[49].o, equal.effects[50].o]);
    assert_found("two orders under one token", &[equal], &[TokensRise], &both).await;

    let mut phantom = fenced.clone();
    let last = phantom.effects.last().expect("effects").clone();
    phantom.effects.push(EffectEvent {
        seq: last.seq + 1,
        token: last.token + 1,
        o: NEW_ORDER,
        ..last
    });
    assert_found("of an order that does not exist", &[phantom], &[TokensRise], &[]).await;

    let order = fenced.effects[60].o;
    let of_order: Vec<u32> = requests(&fenced, &[order]);
    let owner = fenced.rows.iter().find(|row| row.id == order).expect("a row").user_id;
    for (what, resource) in [
        ("a lock of another kind", "fair:lock:voucher:1".to_owned()),
        ("another voucher's lock", "redisson:lock:voucher:2".to_owned()),
        (
            "its buyer's lock, where others had the voucher's",
            format!("redisson:lock:order:{owner}"),
        ),
        ("another buyer's lock", "redisson:lock:order:5".to_owned()),
        ("a lock of nobody knows what", "redisson:x".to_owned()),
    ] {
        let mut tape = fenced.clone();
        tape.effects[60].res = resource.into();
        assert_found(what, &[tape], &[TokensRise], &of_order).await;
    }
    let mut nameless = fenced.clone();
    for effect in &mut nameless.effects {
        effect.res = "redisson:x".into();
    }
    assert_found("all under a lock of nobody knows what", &[nameless], &[TokensRise], &[]).await;

    let mut swapped = fenced;
    for (effect, row) in swapped.effects.iter_mut().zip(&swapped.rows) {
        effect.res = format!("redisson:lock:order:{}", row.user_id).into();
    }
    let other = swapped.effects[61].res.clone();
    swapped.effects[61].res = std::mem::replace(&mut swapped.effects[60].res, other);
    assert_found("two buyers under each other's lock", &[swapped], &[TokensRise], &of_order).await;
}

#[tokio::test]
async fn a_fenced_run_without_recorded_tokens_is_no_pass() {
    let gone = Tape { effects: Vec::new(), ..Tape::fenced() };
    let judgement = judge(std::slice::from_ref(&gone)).await;
    assert_eq!(broken(&judgement), [], "{:?}", judgement.failed_because);
    let why = judgement.failed_because.join("; ");
    assert!(why.starts_with("voucher 1: could not be judged: no effect under"), "{why}");
    assert!(judgement.vouchers[0].demanded.contains(&TokensRise));
    let unfenced = judge(&[Tape { fenced: false, ..gone }]).await;
    assert!(unfenced.ok, "nobody was to leave any: {:?}", unfenced.failed_because);
}
