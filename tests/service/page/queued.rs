//! A purchase in the mode `queued`, from the click to what became of its ticket.

use seckill::domain::Role;
use sqlx::{Connection, MySqlConnection};

use super::{ENTER, Visit};
use crate::queued::buyer::{QUEUED, buy, lock_stock, ticket_of};
use crate::queued::place::hold_back;
use crate::support::{client, token};

/// The button of that voucher's ticket.
fn button(voucher: &str) -> String {
    format!("#buy-{voucher}")
}

/// The ticket on the page that has that voucher's button.
fn ticket(voucher: &str) -> String {
    format!(".ticket:has({})", button(voucher))
}

/// Tickets that the page asked for since the last time: those of streams, and the others.
async fn asked(visit: &Visit) -> (Vec<String>, Vec<String>) {
    let addresses = visit.browser.requested().await;
    let tickets = addresses.iter().filter_map(|url| url.split_once("/api/tickets/"));
    let (streams, others): (Vec<_>, Vec<_>) =
        tickets.map(|(_, rest)| rest).partition(|rest| rest.ends_with("/events"));
    let name = |rest: &str| rest.trim_end_matches("/events").to_owned();
    (streams.into_iter().map(name).collect(), others.into_iter().map(name).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queued_purchase_is_followed_to_its_order_which_can_then_be_paid() {
    let visit = Visit::without_order(&QUEUED).await;
    let database = &visit.service.place.database_url;
    let tx = lock_stock(database, &visit.voucher).await;
    visit.wait_for_text(".stub", "Buy for").await;
    visit.browser.run("document.querySelector('[data-part=buy]').focus(); return 1").await;
    visit.press(&[ENTER]).await;
    visit.wait_for_text(".slip", "You are in the queue.").await;
    visit.wait_for_text("#hear", "You are in the queue.").await;
    visit.wait_for_text("[data-part=buy]", "In the queue").await;
    assert_eq!(visit.focus().await, "buy", "the focus is lost while it waits");
    tx.rollback().await.expect("a ROLLBACK");
    visit.wait_for(".ticket[data-state=bought]").await;
    visit.wait_for_text(".slip", "Kept for you for").await;
    visit.wait_for_text("#hear", "It is yours.").await;
    assert_eq!(visit.focus().await, "order", "the focus went away with the button");
    // One stream has told all of it, and no address has a token.
    let (streams, others) = asked(&visit).await;
    assert_eq!((streams.len(), &others[..]), (1, &[][..]));
    assert_eq!(streams[0].len(), 36, "{streams:?}");
    visit.press(&[ENTER]).await;
    visit.wait_for(".order [data-part=pay]").await;
    visit.wait_for(".order [data-part=cancel]").await;
    visit.click("[data-part=pay]").await;
    visit.wait_for_text(".order-status", "Paid").await;
    assert_eq!(visit.service.add_up(&visit.voucher).await, (1, 0, 0));
    visit.assert_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queued_buyer_sees_how_many_others_are_ahead_and_the_time_in_both_languages() {
    let visit = Visit::without_order(&QUEUED).await;
    let (url, voucher) = (&visit.service.url, visit.service.voucher(3).await);
    let tx = lock_stock(&visit.service.place.database_url, &voucher).await;
    for other in [101, 102] {
        ticket_of(buy(url, &voucher, other).await);
    }
    visit.browser.run("location.reload(); return 1").await;
    visit.browser.requested().await;
    visit.click(&button(&voucher)).await;
    visit.wait_for_text(&ticket(&voucher), "2 others are ahead of you. Your order is").await;
    visit.wait_for_text("#hear", "2 others are ahead of you.").await;
    visit.click("#language").await;
    visit.wait_for_text(&ticket(&voucher), "你前面还有 2 人。轮到时").await;
    visit.assert_chinese().await;
    // The others' orders are written, and this one's is not.
    let (streams, _) = asked(&visit).await;
    let held = hold_back(&visit.service, &streams[0], visit.user).await;
    tx.rollback().await.expect("a ROLLBACK");
    visit.wait_for_text(&ticket(&voucher), "下一个就是你的订单。大约还要").await;
    visit.click("#language").await;
    visit.wait_for_text(&ticket(&voucher), "Your order is next. It takes about").await;
    visit.click("#language").await;
    held.rollback().await.expect("a ROLLBACK");
    visit.wait_for_text(&ticket(&voucher), "抢到了").await;
    visit.assert_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_that_ends_without_an_order_is_shown_with_its_outcome() {
    const ENDS: [(&str, &str); 4] = [
        ("sold_out", "Sold out."),
        ("refused", "could not be written in time"),
        ("lost", "Your place was lost."),
        ("dead", "This went wrong on our side."),
    ];
    let visit = Visit::without_order(&QUEUED).await;
    let database = &visit.service.place.database_url;
    let mut vouchers = Vec::new();
    for (state, words) in ENDS {
        let voucher = visit.service.voucher(1).await;
        let tx = lock_stock(database, &voucher).await;
        vouchers.push((state, words, voucher, tx));
    }
    visit.browser.run("location.reload(); return 1").await;
    let mut ending = Vec::new();
    for (state, words, voucher, tx) in vouchers {
        visit.browser.requested().await;
        visit.click(&button(&voucher)).await;
        visit.wait_for_text(&ticket(&voucher), "You are in the queue.").await;
        let (streams, _) = asked(&visit).await;
        let [id] = &streams[..] else { panic!("{streams:?}") };
        let end = end(database.clone(), id.clone(), (visit.user, voucher.clone(), state));
        ending.push((tokio::spawn(end), state, words, voucher, tx));
    }
    for (end, state, words, voucher, tx) in ending {
        end.await.expect("its end is written");
        visit.wait_for_text(&ticket(&voucher), words).await;
        visit.wait_for_text("#hear", words).await;
        let text = visit.text(&ticket(&voucher)).await;
        assert!(text.contains("othing was bought"), "{state}: {text}");
        tx.rollback().await.expect("a ROLLBACK");
    }
    visit.assert_quiet().await;
}

/// Ends that ticket so in the database. (The order that waits for its unit has the ticket's row for
/// a few seconds, and then gives it up.)
async fn end(database_url: String, ticket: String, whose: (u64, String, &str)) {
    let (user, voucher, state) = whose;
    let mut database = MySqlConnection::connect(&database_url).await.expect("the database");
    let row = "INSERT INTO tickets (ticket, user_id, voucher_id, state) \
               VALUES (UNHEX(REPLACE(?, '-', '')), ?, ?, ?)";
    let row = sqlx::query(row).bind(ticket).bind(user).bind(voucher).bind(state);
    row.execute(&mut database).await.expect("its end");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_stream_the_page_polls_its_ticket() {
    let visit = Visit::without_order(&QUEUED).await;
    let (url, database) = (&visit.service.url, &visit.service.place.database_url);
    let (mine, other) = (&visit.voucher, visit.service.voucher(1).await);
    let held = [lock_stock(database, mine).await, lock_stock(database, &other).await];
    // The user has as many streams as one may have.
    let waiting = ticket_of(buy(url, &other, visit.user).await);
    let mut streams = Vec::new();
    for expected in [200, 200, 200, 200, 429] {
        let events = format!("{url}/api/tickets/{waiting}/events");
        let request = client().get(events).bearer_auth(token(visit.user, Role::Buyer));
        let stream = request.send().await.expect("an answer");
        assert_eq!(stream.status(), expected);
        streams.push(stream);
    }
    visit.click(&button(mine)).await;
    visit.wait_for_text(&ticket(mine), "You are in the queue.").await;
    for tx in held {
        tx.rollback().await.expect("a ROLLBACK");
    }
    visit.wait_for_text(&ticket(mine), "It is yours.").await;
    let (streams_of_page, others) = asked(&visit).await;
    assert_eq!(streams_of_page.len(), 1);
    assert!(!others.is_empty() && others.iter().all(|id| *id == streams_of_page[0]), "{others:?}");
}
