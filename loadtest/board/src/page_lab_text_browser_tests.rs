//! What the laboratory says, in a browser: Chinese where there is some, and English named as such.

use super::lane_tests::begun;
use super::*;
use crate::lab_text::lab_text;

/// The texts of these elements, and what of them is named as English.
async fn told(page: &OpenPage, selector: &str) -> Value {
    let body = format!(
        "const all = [...document.querySelectorAll('{selector}')]; \
         const text = (one) => one.textContent.trim(); \
         return [all.map(text), \
           all.flatMap((it) => [...it.querySelectorAll('[lang=en]')]).map(text)]"
    );
    page.browser.run(&body).await
}

/// A race of a rung that broke a rule, with too small a load, and that failed at last.
async fn judged() -> OpenPage {
    let mut page = begun(&RaceSetup::default()).await;
    let mut told = verdict(161, 1, "user");
    told["invalid_because"] =
        json!([lab_text("6 requests are fewer than 2000"), lab_text("it rained")]);
    told["rung"] = json!({
        "outcome": "broke",
        "evidence": [lab_text("fault kill: all is well"), lab_text("161 orders for 160 units")],
    });
    let detail = lab_text("161 orders, 160 units");
    told["findings"] = json!([
        {"rule": "orders_within_stock", "held": false, "detail": detail, "proofs": []},
    ]);
    page.push(&purchases());
    page.push(&[json!(["m", 0, 200_000, "kill r1", "witness", lab_text("2 connections cut")])]);
    page.click("#lane-left .faults [data-t=fault_freeze]").await;
    let fault = tokio::time::timeout(DEADLINE, page.board.requests.faults[0].recv()).await;
    let FaultRequest { reply, .. } = fault.expect("in time").expect("a fault");
    let why = "no witness: r1 is in state S";
    let failed = BoardError::new(ErrorCode::FaultFailed, why).with("detail", lab_text(why));
    reply.send(Err(failed)).expect("the page waits");
    page.shows("document.querySelector('#lane-left .answer').textContent.includes('S')").await;
    page.end([told, verdict(1, 0, "user")]).await;
    page.push(&[json!(["s", 2, 900_000, "failed", lab_text("replica r1 and r2 died.")])]);
    page.shows("document.querySelector('#state.failed')").await;
    page
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_laboratory_says_is_chinese_where_there_is_some_and_else_named_as_english() {
    let page = judged().await;
    let broken = "#lane-left .broken li";
    let english =
        json!([["✗ no more orders than units 161 orders, 160 units"], ["161 orders, 160 units"]]);
    assert_eq!(told(&page, broken).await, english);
    page.click("#language").await;
    page.shows("document.documentElement.lang === 'zh'").await;
    for (selector, texts, english) in [
        (broken, json!(["✗ 订单数不超过库存 161 个订单，库存 160"]), json!([])),
        (
            "#lane-left .invalid li",
            json!(["6 个请求，少于 2000 个", "it rained"]),
            json!(["it rained"]),
        ),
        (
            "#lane-left .evidence li",
            json!(["故障 kill：all is well", "161 个订单，库存 160"]),
            json!(["all is well"]),
        ),
        ("#state", json!(["竞赛失败：副本 r1 and r2 自行退出。"]), json!(["r1 and r2"])),
        ("#lane-left .answer", json!(["没有观察到故障发生：没有见证：r1 处于状态 S"]), json!([])),
        ("#lane-left .log .fault .detail", json!(["切断了 2 个连接"]), json!([])),
    ] {
        assert_eq!(told(&page, selector).await, json!([texts, english]), "{selector}");
    }
    let logged = page.browser.logged().await;
    assert!(logged.iter().all(|line| line.contains("500")), "{logged:?}");
}
