//! Rate limits hold over all replicas, for users and for addresses, and no header gets around them.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use reqwest::Method;
use seckill::domain::Role;
use serde_json::json;
use testbed::{Action, Command, Times};
use tokio::task::JoinSet;

use crate::support::{Answer, Service, client, eventually, token};

/// The purchase of that user, with such a header.
async fn buy(url: &str, voucher: &str, user: u64, forwarded: Option<&str>) -> Answer {
    let url = format!("{url}/api/vouchers/{voucher}/orders");
    let mut request = client().post(url).bearer_auth(token(user, Role::Buyer));
    if let Some(forwarded) = forwarded {
        request = request.header("x-forwarded-for", forwarded);
    }
    Answer::of(request.send().await.expect("an answer")).await
}

async fn ask_for_code(service: &Service, phone: u64) -> Answer {
    let body = Some(json!({"phone": format!("+4917{phone:08}")}));
    service.call(Method::POST, "/api/login/codes", None, body).await
}

fn is_refused(answer: &Answer) -> bool {
    if answer.status != 429 {
        return false;
    }
    assert_eq!(answer.problem(429), "too_many_requests");
    let wait = answer.headers["retry-after"].to_str().expect("text").parse::<u64>();
    assert!((1..=60).contains(&wait.expect("seconds")), "{:?}", answer.headers);
    true
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_at_a_hundred_times_the_limit_is_refused_by_all_replicas_together() {
    const LIMIT: u64 = 5;
    let flags = ["--limit-orders-user", "5"];
    let one = Service::start(&flags).await;
    let others = [
        Service::start_at(one.place.clone(), &flags).await,
        Service::start_at(one.place.clone(), &flags).await,
    ];
    let voucher = one.voucher(1000).await;
    let began = Instant::now();
    let mut asking = JoinSet::new();
    for number in 0..LIMIT * 100 {
        let service = [&one, &others[0], &others[1]][usize::try_from(number % 3).expect("small")];
        let (url, voucher) = (service.url.clone(), voucher.clone());
        asking.spawn(async move { buy(&url, &voucher, 7, None).await });
    }
    let answers = asking.join_all().await;
    let others: Vec<_> = answers.iter().filter(|answer| !is_refused(answer)).collect();
    // A server that is too slow to count is no reason to let a request through.
    let let_through = others.iter().filter(|answer| answer.status != 503).count() as u64;
    // Beside the five at once one in each twelve seconds.
    let most = LIMIT + began.elapsed().as_secs() / 12 + 1;
    assert!(let_through <= most, "{let_through} were let through, of {most}");
    assert!(others.len() as u64 >= LIMIT, "{} were not refused", others.len());
    // The limits of others do not change.
    buy(&one.url, &voucher, 8, None).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_waits_for_retry_after_is_let_through() {
    let service = Service::start(&["--limit-orders-user", "60"]).await;
    let voucher = service.voucher(1000).await;
    let mut refused = None;
    for _ in 0..200 {
        let answer = service.buy(&voucher, 7).await;
        if is_refused(&answer) {
            refused = Some(answer);
            break;
        }
    }
    let refused = refused.expect("sixty at once, and one a second");
    let wait = refused.headers["retry-after"].to_str().expect("text").parse().expect("seconds");
    tokio::time::sleep(Duration::from_secs(wait)).await;
    assert!(!is_refused(&service.buy(&voucher, 7).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_is_the_connections_own_whatever_its_requests_say() {
    let service = Service::start(&["--limit-orders-address", "4"]).await;
    let voucher = service.voucher(1000).await;
    let mut refused = 0;
    for user in 1..=40 {
        let said = format!("10.1.1.{user}");
        refused += u32::from(is_refused(&buy(&service.url, &voucher, user, Some(&said)).await));
    }
    assert!(refused >= 35, "{refused} of 40 were refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trusted_proxy_sets_the_address_and_its_client_cannot_add_to_it() {
    let flags = ["--limit-orders-address", "2", "--trusted-proxies", "127.0.0.0/8,10.0.0.1"];
    let service = Service::start(&flags).await;
    let voucher = service.voucher(1000).await;
    let mut user = 0;
    let mut let_through = async |said: String| {
        user += 1;
        !is_refused(&buy(&service.url, &voucher, user, Some(&said)).await)
    };
    // Two for each client, whatever it wrote before the proxy added its address; the proxy in the
    // middle is trusted as well.
    for client in ["192.0.2.1", "192.0.2.2", "2001:db8::1"] {
        let mut count = 0;
        for spoof in 1..=10 {
            let said = match spoof % 3 {
                0 => format!("198.51.100.{spoof}, {client}"),
                1 => format!("{client}, 10.0.0.1"),
                _ => client.to_owned(),
            };
            count += u32::from(let_through(said).await);
        }
        assert_eq!(count, 2, "{client}");
    }
    // One household has many addresses of IPv6, and those two are used up.
    assert!(!let_through("2001:db8::2:1".to_owned()).await);
    assert!(let_through("2001:db8:0:1::1".to_owned()).await);
    // What is no address is the proxy itself, which has its own two.
    let mut count = 0;
    for nonsense in ["unknown", "", "_hidden", "1.2.3.4:5", "a,b"] {
        count += u32::from(let_through(nonsense.to_owned()).await);
    }
    assert_eq!(count, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_of_addresses_that_is_no_text_ends_the_search_for_the_clients() {
    let flags = ["--limit-orders-address", "2", "--trusted-proxies", "127.0.0.0/8,192.0.2.1"];
    let service = Service::start(&flags).await;
    let voucher = service.voucher(1000).await;
    let url = format!("{}/api/vouchers/{voucher}/orders", service.url);
    let mut refused = 0;
    for user in 1..=4 {
        let lines = ["198.51.100.7".as_bytes(), b"\xff, 192.0.2.1"];
        let mut request = client().post(&url).bearer_auth(token(user, Role::Buyer));
        for line in lines {
            request = request.header("x-forwarded-for", line);
        }
        let answer = Answer::of(request.send().await.expect("an answer")).await;
        refused += u32::from(is_refused(&answer));
    }
    assert_eq!(refused, 2, "they count for the proxy");
    for user in [11, 12] {
        buy(&service.url, &voucher, user, Some("198.51.100.7")).await.expect(201);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_limit_refuses_does_not_count_against_the_other() {
    let flags = ["--limit-orders-user", "2", "--limit-orders-address", "20"];
    let service = Service::start(&flags).await;
    let voucher = service.voucher(1000).await;
    let mut refused = 0;
    for _ in 0..60 {
        refused += u32::from(is_refused(&service.buy(&voucher, 1).await));
    }
    assert!(refused >= 55, "{refused} of 60 were refused");
    // Of the same address.
    for user in 2..=10 {
        service.buy(&voucher, user).await.expect(201);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn login_codes_of_an_address_are_limited_over_all_its_phones() {
    let flags = ["--limit-codes-address", "6"];
    let service = Service::start(&flags).await;
    let other = Service::start_at(service.place.clone(), &flags).await;
    let mut codes = BTreeSet::new();
    for phone in 0..20 {
        let service = if phone % 2 == 0 { &service } else { &other };
        let answer = ask_for_code(service, phone).await;
        if answer.status == 429 {
            assert_eq!(answer.problem(429), "too_many_requests");
            assert!(answer.headers.contains_key("retry-after"));
        } else {
            answer.expect(202);
            codes.insert(phone);
        }
    }
    assert_eq!(codes.into_iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
}

fn counting() -> Command {
    Command::redis("EVALSHA").containing("limit:")
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_cost_nothing_where_there_are_none_and_one_round_trip_where_there_are_two() {
    let (proxy, service) = Service::start_through_redis_proxy(&[]).await;
    let counts = proxy.watch(counting());
    let voucher = service.voucher(10).await;
    service.buy(&voucher, 1).await.expect(201);
    assert_eq!(counts.matched(), 0);

    let flags = ["--limit-orders-user", "9", "--limit-orders-address", "99"];
    let (proxy, service) = Service::start_through_redis_proxy(&flags).await;
    let voucher = service.voucher(50).await;
    eventually("it sells", async || service.buy(&voucher, 1).await.status != 503).await;
    let mut user = 1;
    // Both are on their way before either has an answer. (On a machine that stands still meanwhile
    // the one that is held is given up.)
    eventually("both are asked for at once", async || {
        user += 1;
        let held = proxy.arm(counting(), Action::HoldAnswer, Times::Next(1));
        let (url, wanted) = (service.url.clone(), voucher.clone());
        let purchase = tokio::spawn(async move { buy(&url, &wanted, user, None).await });
        eventually("both are asked for", async || held.matched() == 2).await;
        held.release();
        purchase.await.expect("a purchase").status == 201
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_limited_is_refused_while_redis_is_away() {
    let flags = ["--limit-orders-user", "9", "--limit-codes-address", "9"];
    let (proxy, service) = Service::start_through_redis_proxy(&flags).await;
    let voucher = service.voucher(10).await;
    proxy.start_outage();
    let refused = service.buy(&voucher, 1).await;
    assert_eq!(refused.problem(503), "dependency_unavailable");
    assert_eq!(refused.body["executed"], false);
    let refused = ask_for_code(&service, 1).await;
    assert_eq!(refused.problem(503), "dependency_unavailable");
    proxy.end_outage();
    eventually("it sells again", async || service.buy(&voucher, 1).await.status == 201).await;
    ask_for_code(&service, 1).await.expect(202);
    // Also if only the count is lost.
    let lost = proxy.arm(counting(), Action::CutAnswer, Times::Next(1));
    let refused = service.buy(&voucher, 2).await;
    assert_eq!((refused.problem(503), lost.fired()), ("dependency_unavailable", 1));
    eventually("it sells again", async || service.buy(&voucher, 2).await.status == 201).await;
    let lost = proxy.arm(counting(), Action::CutAnswer, Times::Next(1));
    let refused = ask_for_code(&service, 2).await;
    assert_eq!((refused.problem(503), lost.fired()), ("dependency_unavailable", 1));
}
