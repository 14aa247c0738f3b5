//! The answer to the COMMIT of a payment, a cancellation or a purchase with a key is lost.

use testbed::{Action, Command, Proxy, Times};

use super::{id, post};
use crate::support::{Answer, Place, Service, eventually};

const LOST: [Action; 3] = [Action::CutAnswer, Action::ResetAnswer, Action::CutRequest];

pub(super) async fn start(flags: &[&str]) -> (Service, Proxy) {
    let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
    let (proxy, through) = place.database_through_proxy();
    (Service::start_at(through, flags).await, proxy)
}

/// The statement that ends that action's transaction.
fn end_of(action: &str) -> Command {
    match action {
        "cancel" => Command::sql("UPDATE voucher_stock SET stock = stock + 1"),
        "buy" => Command::sql("UPDATE voucher_stock SET stock = stock - 1"),
        _ => Command::sql("COMMIT"),
    }
}

/// Waits until requests are let in again: the health watch may have noticed the cut.
async fn until_told(mut answer: impl AsyncFnMut() -> Answer, status: u16) -> Answer {
    let mut last = None;
    eventually("it is told", async || {
        last = Some(answer().await);
        last.as_ref().is_some_and(|answer| answer.status == status)
    })
    .await;
    last.expect("an answer")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_or_cancellation_whose_answer_is_lost_is_resolved() {
    // A payment is noted before it is charged, and marked after it.
    for (action, commit) in [("pay", 1), ("pay", 2), ("cancel", 1)] {
        for how in LOST {
            let what = format!("{action} {commit} {how:?}");
            let (service, proxy) = start(&[]).await;
            let voucher = service.voucher(9).await;
            let order = service.order(&voucher, 17).await;
            let path = format!("/api/orders/{order}/{action}");
            let rule = proxy.arm(end_of(action), how, Times::Nth(commit));
            let first = post(&service.url, &path, 17, Some("k")).await;
            assert_eq!(rule.fired(), 1, "{what}");
            let is_note = (action, commit) == ("pay", 1);
            if how.is_executed() || is_note {
                let first = first.expect(200);
                let again = async || post(&service.url, &path, 17, Some("k")).await;
                assert_eq!(until_told(again, 200).await.body, first, "{what}");
            } else {
                if action == "pay" {
                    // Nothing is written, but the money may be taken.
                    assert_eq!(first.problem(504), "outcome_unknown", "{what}");
                } else {
                    assert_eq!(first.problem(503), "dependency_unavailable", "{what}");
                    assert_eq!(first.body["executed"], false, "{what}");
                }
                assert_eq!(service.look(&order, 17).await["status"], "unpaid", "{what}");
                let again = async || post(&service.url, &path, 17, Some("k")).await;
                until_told(again, 200).await;
            }
            let paid = i64::from(action == "pay");
            assert_eq!(service.add_up(&voucher).await, (paid, 1 - paid, 9 - paid), "{what}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purchase_with_a_key_whose_answer_is_lost_is_repeated_without_harm() {
    for writer in ["single", "grouped"] {
        for how in LOST {
            let what = format!("{writer} {how:?}");
            let (service, proxy) = start(&["--writer", writer]).await;
            let voucher = service.voucher(9).await;
            let path = format!("/api/vouchers/{voucher}/orders");
            let rule = proxy.arm(end_of("buy"), how, Times::Next(1));
            let first = post(&service.url, &path, 17, Some("k")).await;
            assert_eq!(rule.fired(), 1, "{what}");
            let again = async || post(&service.url, &path, 17, Some("k")).await;
            let told = until_told(again, 201).await.body;
            if how.is_executed() {
                assert_eq!(first.expect(201), told, "{what}");
            } else {
                assert_eq!(first.problem(503), "dependency_unavailable", "{what}");
            }
            assert_eq!(service.look(id(&told), 17).await["status"], "unpaid", "{what}");
            assert_eq!(service.add_up(&voucher).await, (1, 0, 8), "{what}");
        }
    }
}
