use std::time::Instant;

use testbed::Bed;
use tokio::net::TcpListener;

use super::*;

const SHORT_TIMEOUT: Duration = Duration::from_millis(300);
/// Long enough for a machine that is busy, far below what a hanging call would take.
const PROMPT_WITHIN: Duration = Duration::from_secs(8);

#[tokio::test]
async fn a_server_that_says_nothing_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("mysql://u:p@{}/sale", listener.local_addr().expect("bound"));
    let connected =
        tokio::time::timeout(PROMPT_WITHIN, DatabaseReader::connect_within(&url, SHORT_TIMEOUT));
    let error = connected.await.expect("given up in time").expect_err("nobody answers");
    assert!(error.to_string().contains("did not answer within"), "{error}");
}

#[tokio::test]
async fn a_server_that_stops_answering_is_given_up_and_named() {
    let bed = Bed::start().expect("a folder");
    let database = bed.database(testbed::Flavor::Any).expect("a database server");
    let url = database.url("information_schema");
    let connected = DatabaseReader::connect_within(&url, Duration::from_secs(5)).await;
    let mut reader = connected.expect("connected");
    reader.deadline = SHORT_TIMEOUT;
    database.freeze().expect("frozen");
    let began = Instant::now();
    let result = tokio::time::timeout(PROMPT_WITHIN, reader.read("1", Guards::On)).await;
    database.thaw().expect("thawed");
    let error = result.expect("given up in time").expect_err("it is frozen");
    assert!(error.to_string().contains("did not answer within"), "{error}");
    assert!(began.elapsed() >= SHORT_TIMEOUT);
}
