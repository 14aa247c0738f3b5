use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::client::Target;

const NO_REPLICA: (u16, &str) = (503, r#"{"code":"no_replica","status":503}"#);
const VOUCHER: &str =
    r#"{"voucher":{"id":"7","title":"a","status":"on_sale","phase":"open","stock":3}}"#;

/// A server that gives these answers, one a request, and then the last one again and again.
async fn server(answers: &'static [(u16, &'static str)]) -> Connection {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut buffer = [0; 4096];
        let last = answers.last().expect("an answer");
        for (status, body) in answers.iter().chain(std::iter::repeat(last)) {
            let mut asked = String::new();
            while !asked.ends_with('}') {
                let Ok(read @ 1..) = stream.read(&mut buffer).await else { return };
                asked += &String::from_utf8_lossy(&buffer[..read]);
            }
            let length = body.len();
            let answer =
                format!("HTTP/1.1 {status} Fine\r\ncontent-length: {length}\r\n\r\n{body}");
            stream.write_all(answer.as_bytes()).await.expect("written");
        }
    });
    Connection::new(Target::parse(&url).expect("a target"), Duration::from_secs(20))
}

async fn sold_at(answers: &'static [(u16, &'static str)]) -> Result<u64, ApiError> {
    let mut connection = server(answers).await;
    let admin = HeaderValue::from_static("Bearer a");
    put_on_sale(&mut connection, &admin, &NewVoucher::of_now(3)).await
}

#[tokio::test]
async fn a_voucher_is_put_on_sale_although_no_replica_takes_requests_for_a_moment() {
    let answers = &[NO_REPLICA, NO_REPLICA, (201, VOUCHER), NO_REPLICA, (200, VOUCHER)];
    assert_eq!(sold_at(answers).await, Ok(7));
}

#[tokio::test]
async fn a_voucher_that_is_refused_for_good_is_asked_for_once() {
    let refused = sold_at(&[(403, r#"{"code":"forbidden"}"#), (201, VOUCHER)]).await;
    assert!(matches!(refused, Err(ApiError::Status { status: 403, .. })), "{refused:?}");
}
