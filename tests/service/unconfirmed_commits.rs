//! A COMMIT at a semi-synchronous primary waits for its replica. No buyer is told of an order that
//! no replica has: not while the replica lags, and not by a primary that starts again with it.

use std::time::Duration;

use sqlx::{Connection, MySqlConnection};
use testbed::Replication;
use tokio::task::block_in_place;
use tokio::time::timeout;

use crate::database_failover::{CROWD, SHOP, STOCK, Sale};
use crate::support::eventually;

/// A call is given up after 5 s; then the service finds out what became of its order.
const LONGER_THAN_A_CALL: Duration = Duration::from_secs(8);

/// The primary is lost, and its replica has all that buyers were told of.
async fn acknowledge_only_what_the_replica_has(mut sale: Sale) {
    // Each buyer may hear of one that the replica had confirmed before.
    let told = timeout(LONGER_THAN_A_CALL, sale.crowd.until_bought(u64::from(CROWD) + 1)).await;
    assert!(told.is_err(), "orders are acknowledged that the replica has not");
    sale.group.primary().kill().expect("it is lost");
    sale.fail_over().await;
    let (books, tries) = sale.end().await;
    books.add_up_to(STOCK.into());
    books.bear_out(&tries);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_its_lagging_replica_has_not_is_not_acknowledged_however_long_it_lags() {
    let sale = Sale::start(Replication::SemiSync).await;
    sale.cut_off_the_replica().await;
    acknowledge_only_what_the_replica_has(sale).await;
}

/// `MySQL` has the orders whose COMMIT waited for the replica, and shows them. `MariaDB` drops
/// them.
#[tokio::test(flavor = "multi_thread")]
async fn a_semi_synchronous_primary_that_is_restarted_shows_no_buyer_what_no_replica_has() {
    let sale = Sale::start(Replication::SemiSync).await;
    sale.cut_off_the_replica().await;
    let waiting = "SELECT COUNT(*) FROM information_schema.PROCESSLIST \
                   WHERE STATE LIKE 'Waiting for semi-sync ACK%'";
    eventually("a COMMIT waits for the replica", async || {
        let mut session =
            MySqlConnection::connect(&sale.group.primary_url(SHOP)).await.expect("a session");
        let count: i64 = sqlx::query_scalar(waiting).fetch_one(&mut session).await.expect("some");
        count > 0
    })
    .await;
    sale.group.primary().kill().expect("it is lost");
    block_in_place(|| sale.group.restart_primary()).expect("it takes writes again");
    acknowledge_only_what_the_replica_has(sale).await;
}
