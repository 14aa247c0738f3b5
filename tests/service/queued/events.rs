//! A ticket's stream of events.

use reqwest::header::CONTENT_TYPE;
use seckill::domain::Role;
use serde_json::Value;

use crate::queued::buyer::{buy, lock_stock, service, ticket_of};
use crate::support::{client, eventually, token};

/// Reads the stream to its end: the statuses in its events.
async fn statuses(response: reqwest::Response) -> Vec<String> {
    statuses_in(&response.text().await.expect("the events"))
}

/// Reads the first event: its status.
async fn first_status(response: &mut reqwest::Response) -> String {
    let mut text = String::new();
    while !text.contains("\n\n") {
        let chunk = response.chunk().await.expect("the events").expect("an event");
        text.push_str(str::from_utf8(&chunk).expect("UTF-8"));
    }
    let [first] = &statuses_in(&text)[..] else { panic!("{text:?}") };
    first.clone()
}

fn statuses_in(text: &str) -> Vec<String> {
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let status = |data: &str| {
        let answer: Value = serde_json::from_str(data).expect("JSON");
        answer["ticket"]["status"].as_str().expect("a status").to_owned()
    };
    data.map(status).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_reports_a_ticket_as_pending_and_then_its_outcome() {
    let service = service(&[]).await;
    let voucher = service.voucher(1).await;
    let tx = lock_stock(&service.place.database_url, &voucher).await;
    let ticket = ticket_of(buy(&service.url, &voucher, 5).await);
    let events = format!("{}/api/tickets/{ticket}/events", service.url);
    let get = || client().get(&events).bearer_auth(token(5, Role::Buyer));
    let mut stream = get().send().await.expect("an answer");
    assert_eq!(stream.status(), 200);
    assert_eq!(stream.headers()[CONTENT_TYPE], "text/event-stream");
    // While nothing can be written it tells that, and does not end.
    assert_eq!(first_status(&mut stream).await, "pending");
    tx.rollback().await.expect("a ROLLBACK");
    assert_eq!(statuses(stream).await, ["bought"]);
    // Of a ticket that has ended the stream ends at once.
    assert_eq!(statuses(get().send().await.expect("an answer")).await, ["bought"]);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_wants_the_token_in_its_header_and_is_its_users_alone() {
    let service = service(&[]).await;
    let voucher = service.voucher(1).await;
    let ticket = ticket_of(buy(&service.url, &voucher, 5).await);
    let owner = token(5, Role::Buyer);
    let path = format!("/api/tickets/{ticket}");
    for path in [path.clone(), format!("{path}/events")] {
        let status = async |url: String, token: Option<&str>| {
            let mut request = client().get(url);
            if let Some(token) = token {
                request = request.bearer_auth(token);
            }
            request.send().await.expect("an answer").status().as_u16()
        };
        let url = format!("{}{path}", service.url);
        assert_eq!(status(url.clone(), None).await, 401);
        assert_eq!(status(format!("{url}?token={owner}"), None).await, 401);
        assert_eq!(status(format!("{url}?access_token={owner}"), None).await, 401);
        assert_eq!(status(url.clone(), Some(&token(6, Role::Buyer))).await, 404);
        assert_eq!(status(url.clone(), Some(&token(6, Role::Admin))).await, 404);
        assert_eq!(status(url, Some(&owner)).await, 200);
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_ends_ends_its_streams() {
    let service = service(&[]).await;
    let voucher = service.voucher(1).await;
    let tx = lock_stock(&service.place.database_url, &voucher).await;
    let ticket = ticket_of(buy(&service.url, &voucher, 5).await);
    let events = format!("{}/api/tickets/{ticket}/events", service.url);
    let stream = client().get(events).bearer_auth(token(5, Role::Buyer)).send().await;
    let reading = tokio::spawn(statuses(stream.expect("an answer")));
    let place = service.place.clone();
    let stopping = tokio::spawn(service.stop());
    eventually("the stream ends", async || reading.is_finished()).await;
    assert_eq!(reading.await.expect("the events"), ["pending"]);
    tx.rollback().await.expect("a ROLLBACK");
    stopping.await.expect("it ends");
    // What it had taken, it has finished.
    let books = crate::crowd::Books::read(&place.database_url, &voucher).await;
    assert_eq!(books.of(5).len(), 1);
}
