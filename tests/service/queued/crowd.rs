//! Many buyers on several replicas: exactly the stock is sold, no user gets two, every ticket ends.

use crate::crowd::Books;
use crate::queued::buyer::{
    QUEUED, QueueState, ask, assert_settled, buy, buy_and_follow, crowd, end_of, ended, left,
    poison, refusal, service, ticket_of,
};
use crate::support::{Service, eventually};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_purchase_is_admitted_ends_as_bought_and_is_not_admitted_again() {
    let service = service(&[]).await;
    let voucher = service.voucher(3).await;
    let ticket = ticket_of(buy(&service.url, &voucher, 7).await);
    let (status, order) = end_of(&service.url, &ticket, 7).await;
    assert_eq!(status, "bought");
    let books = assert_settled(&service.place, &voucher, &[], 3).await;
    assert_eq!(books.of(7), [order.expect("an order")]);
    let again = buy(&service.url, &voucher, 7).await;
    assert_eq!(again.problem(409), "already_ordered");
    assert_eq!(refusal(&again).1, Some(&json!(order.expect("an order").to_string())));
    eventually("the entry is acknowledged", async || {
        left(&service.place, &voucher).await == QueueState { stock: 2, entries: 0, users: 1 }
    })
    .await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_buyers_on_three_replicas_buy_exactly_the_stock_and_every_ticket_ends() {
    const STOCK: u32 = 60;
    const REFUSALS: [&str; 3] = ["sold_out", "already_ordered", "dependency_unavailable"];
    let first = service(&["--replica-id", "a"]).await;
    let place = first.place.clone();
    let mut services = vec![first];
    for name in ["b", "c"] {
        let flags = [&QUEUED[..], &["--replica-id", name]].concat();
        services.push(Service::start_at(place.clone(), &flags).await);
    }
    let urls: Vec<_> = services.iter().map(|service| service.url.clone()).collect();
    let voucher = services[0].voucher(STOCK).await;
    // Each user three times at once, at each of the replicas.
    let users = (1..=100).flat_map(|user| [user, user, user]);
    let mut stories = crowd(&urls, &voucher, users).await;
    // On a busy machine Redis keeps some waiting for too long, who are refused: what they were to
    // have goes to others.
    let mut user = 1000;
    eventually("all is sold", async || {
        user += 1;
        stories.push((user, buy_and_follow(&urls[0], &voucher, user).await));
        Books::read(&place.database_url, &voucher).await.stock == 0
    })
    .await;
    let books = assert_settled(&place, &voucher, &stories, STOCK.into()).await;
    assert_eq!((books.stock, books.orders.len()), (0, STOCK as usize));
    for (user, story) in &stories {
        let all_is_well = story.tickets.iter().all(|(status, _)| status == "bought")
            && story.refusals.iter().all(|code| REFUSALS.contains(&&code[..]));
        assert!(all_is_well, "{user}: {story:?}");
    }
    eventually("all is acknowledged", async || {
        left(&place, &voucher).await == QueueState { stock: 0, entries: 0, users: STOCK.into() }
    })
    .await;
    let mut ends = ended(&place, &voucher).await;
    ends.remove("refused");
    assert_eq!(ends, [("bought".to_owned(), STOCK.into())].into());
    for service in services {
        service.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn returned_units_are_admitted_within_a_second() {
    let service = service(&[]).await;
    let voucher = service.voucher(1).await;
    let ticket = ticket_of(buy(&service.url, &voucher, 1).await);
    end_of(&service.url, &ticket, 1).await;
    eventually("it is sold out", async || {
        buy(&service.url, &voucher, 2).await.problem(409) == "sold_out"
    })
    .await;
    let admin = crate::support::token(1, seckill::domain::Role::Admin);
    let path = format!("/api/admin/vouchers/{voucher}/stock");
    let added = service.post(&path, &admin, json!({"units": 2})).await;
    assert!(added.status.is_success(), "{}", added.body);
    for user in [2, 3] {
        let mut answer = None;
        eventually("the new units are sold", async || {
            let tried = buy(&service.url, &voucher, user).await;
            let is_admitted = tried.status.as_u16() == 202;
            answer = Some(tried);
            is_admitted
        })
        .await;
        let ticket = ticket_of(answer.expect("an answer"));
        assert_eq!(end_of(&service.url, &ticket, user).await.0, "bought");
    }
    let books = assert_settled(&service.place, &voucher, &[], 3).await;
    assert_eq!(books.stock, 0);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn returned_units_are_admitted_while_an_entry_is_still_tried() {
    let service = service(&[]).await;
    let voucher = service.voucher(2).await;
    poison(&service.place, 3).await;
    let stuck = ticket_of(buy(&service.url, &voucher, 3).await);
    let ticket = ticket_of(buy(&service.url, &voucher, 1).await);
    assert_eq!(end_of(&service.url, &ticket, 1).await.0, "bought");
    assert_eq!(buy(&service.url, &voucher, 2).await.problem(409), "sold_out");
    let admin = crate::support::token(1, seckill::domain::Role::Admin);
    let path = format!("/api/admin/vouchers/{voucher}/stock");
    service.post(&path, &admin, json!({"units": 1})).await.expect(200);
    let mut answer = None;
    eventually("the new unit is sold", async || {
        let tried = buy(&service.url, &voucher, 2).await;
        let is_admitted = tried.status.as_u16() == 202;
        answer = Some(tried);
        is_admitted
    })
    .await;
    let ticket = ticket_of(answer.expect("an answer"));
    assert_eq!(end_of(&service.url, &ticket, 2).await.0, "bought");
    let state = ask(&service.url, &stuck, 3).await.expect(200);
    assert_eq!(state["ticket"]["status"], "pending", "its unit is still its own");
    // The other unit may still be that entry's.
    assert_eq!(buy(&service.url, &voucher, 4).await.problem(409), "sold_out");
    assert_eq!(end_of(&service.url, &stuck, 3).await.0, "dead");
    service.stop().await;
}
