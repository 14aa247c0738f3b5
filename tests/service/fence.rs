//! `--fenced`: a purchase shows the token of its lock to what it reads and writes.

use sqlx::{Connection, MySqlConnection};

use crate::support::{Place, Service};

/// Shows a token from the future, as the holder after the next ones would; the names of all fences.
async fn raise(place: &Place) -> Vec<String> {
    let mut database = MySqlConnection::connect(&place.database_url).await.expect("the database");
    let raise = "UPDATE lock_fence SET token = token + 1000";
    sqlx::raw_sql(raise).execute(&mut database).await.expect("raised");
    let names = "SELECT CAST(name AS CHAR) FROM lock_fence ORDER BY name";
    sqlx::query_scalar(names).fetch_all(&mut database).await.expect("the names")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purchase_with_a_token_that_is_too_old_is_rolled_back_and_refused() {
    for (lock, guards, orders) in [
        ("redisson", "on", "orders"),
        ("redisson", "off", "lab_orders"),
        ("fair", "on", "orders"),
        ("mysql-table", "off", "lab_orders"),
    ] {
        let flags = ["--lab", "--fenced", "--lock", lock, "--guards", guards];
        let service = Service::start(&flags).await;
        let (one, other) = (service.voucher(10).await, service.voucher(10).await);
        service.buy(&one, 1).await.expect(201);
        assert_eq!(raise(&service.place).await, [format!("{lock}:lock:order:1")]);
        let stale = service.buy(&other, 1).await;
        assert_eq!(stale.problem(503), "lock_lost", "{lock} {guards}");
        assert_eq!(stale.body["executed"], false);
        let audit = service.audit(&other).await;
        assert_eq!((&audit["orders"], &audit["stock_left"]), (&0.into(), &10.into()), "{audit}");
        assert_eq!(audit["tables"]["orders"], orders);
        // The fence of another name is another one, and tokens go on rising.
        service.buy(&other, 2).await.expect(201);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_switch_no_token_is_taken_or_shown() {
    let service = Service::start(&[]).await;
    let (one, other) = (service.voucher(10).await, service.voucher(10).await);
    service.buy(&one, 1).await.expect(201);
    assert_eq!(raise(&service.place).await, [""; 0]);
    service.buy(&other, 1).await.expect(201);
}

/// What fenced holders did to a voucher, in the order of commits: resource and token.
async fn effects(place: &Place, voucher: &str) -> Vec<(String, u64)> {
    let mut database = MySqlConnection::connect(&place.database_url).await.expect("the database");
    let read = "SELECT CAST(e.resource AS CHAR), e.token FROM lab_effects e \
                JOIN orders o ON o.id = e.order_id AND o.voucher_id = e.voucher_id \
                WHERE e.voucher_id = ? ORDER BY e.seq";
    sqlx::query_as(read).bind(voucher).fetch_all(&mut database).await.expect("effects")
}

#[tokio::test(flavor = "multi_thread")]
async fn each_order_of_a_fenced_holder_leaves_its_token_and_a_refused_one_leaves_nothing() {
    let flags = ["--lab", "--fenced", "--lock", "redisson", "--lock-scope", "voucher"];
    let service = Service::start(&flags).await;
    let voucher = service.voucher(2).await;
    for user in [1, 2] {
        service.buy(&voucher, user).await.expect(201);
    }
    assert_eq!(service.buy(&voucher, 3).await.problem(409), "sold_out");
    let left = effects(&service.place, &voucher).await;
    let resource = format!("redisson:lock:voucher:{voucher}");
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(left.iter().all(|(name, _)| *name == resource), "{left:?}");
    assert!(left[0].1 < left[1].1, "tokens rise: {left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn holders_that_are_not_fenced_leave_no_effects() {
    let service = Service::start(&["--lab"]).await;
    let voucher = service.voucher(2).await;
    service.buy(&voucher, 1).await.expect(201);
    assert_eq!(effects(&service.place, &voucher).await, []);
}
