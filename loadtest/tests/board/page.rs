//! A page of the board in a browser.

use std::time::Duration;

use loadtest_board::challenge::Challenge;
use serde_json::json;

use super::browser::Browser;
use super::challenges::fragment;
use super::process::{DEADLINE, runs_all_scenarios, until};

/// From opening the page to the first violation on the screen.
const VIOLATION_WITHIN: Duration = Duration::from_secs(20);

/// A page of the board.
pub(super) struct Page {
    pub(super) browser: Browser,
}

impl Page {
    /// Waits until the expression is true.
    pub(super) async fn shows(&self, expression: &str, within: Duration) {
        let body = format!("return Boolean({expression})");
        until(expression, within, async || self.browser.run(&body).await == json!(true)).await;
    }

    pub(super) async fn text(&self, selector: &str) -> String {
        let body = format!("return document.querySelector('{selector}').innerText");
        self.browser.run(&body).await.as_str().expect("a text").to_owned()
    }

    pub(super) async fn click(&self, selector: &str) {
        let found = self.browser.find(selector).await;
        self.browser.click(&found[0]).await;
    }

    /// Presses a button of a lane's faults, and waits for what was seen.
    pub(super) async fn inject(&self, (lane, fault): (&str, &str), seen: &str) {
        self.click(&format!("#lane-{lane} .faults [data-t='fault_{fault}']")).await;
        let answer = format!("document.querySelector('#lane-{lane} .answer').textContent");
        self.shows(&format!("{answer}.includes('{seen}')"), DEADLINE).await;
    }

    pub(super) async fn numbers(&self, counter: &str) -> Vec<u64> {
        let text = self.text(&format!("{counter} dd")).await;
        let parts = text.split('/').map(|part| part.trim().parse());
        parts.collect::<Result<_, _>>().expect("numbers")
    }

    /// Waits for the first violation of a page that was just opened; after how many seconds.
    pub(super) async fn breaks_by_itself(&self) -> f64 {
        let red = "document.querySelector('#lane-left .counters .second.bad')";
        self.shows(red, VIOLATION_WITHIN).await;
        let since = self.browser.run("return performance.now() / 1000").await;
        since.as_f64().expect("a number")
    }

    pub(super) async fn has_both_verdicts(&self) {
        for lane in ["left", "right"] {
            let verdict = format!("document.querySelector('#lane-{lane} .verdict:not([hidden])')");
            self.shows(&verdict, DEADLINE).await;
        }
    }

    /// Opens the challenge's solution, and waits for what the judge says of both lanes.
    pub(super) async fn solves(&self, challenge: &Challenge) {
        let number = challenge.number;
        self.browser.run(&format!("location.hash = '{}'", fragment(challenge))).await;
        let is_shown =
            format!("document.querySelector('#challenge h2').innerText.endsWith(' {number}')");
        self.shows(&is_shown, DEADLINE).await;
        self.shows("document.querySelector('#challenge .outcome').innerText !== ''", DEADLINE)
            .await;
        let outcome = self.text("#challenge .outcome").await;
        let right = self.text("#lane-right .outcome").await;
        assert!(right.ends_with("Oversold: 0. Users who bought twice: 0."), "{number}: {right}");
        // Beside other tests a lane may be too slow to sell all.
        if runs_all_scenarios() {
            assert!(outcome.starts_with("Solved:"), "{number}: {outcome} {right}");
            assert!(right.starts_with("100 orders of 100 units."), "{number}: {right}");
            if challenge.solution.fenced {
                let refused = self.text("#lane-right .fence .stale").await;
                assert!(refused.contains(" refused after "), "{number}: {refused}");
            }
        }
        // The given lane has the same fault.
        let left = self.text("#lane-left .outcome").await;
        let has_all = left.starts_with("100 orders of 100 units. Oversold: 0.");
        assert!(!has_all, "{number}: what it begins with sells exactly the stock: {left}");
    }

    /// What is shown at the end of the default race.
    pub(super) async fn tells_how_it_ended(&self) {
        let left = self.text("#lane-left .outcome").await;
        let right = self.text("#lane-right .outcome").await;
        assert!(left.contains(" of 300 units") && !left.contains("twice: 0."), "{left}");
        assert!(right.contains("Oversold: 0. Users who bought twice: 0."), "{right}");
        let cost = self.text("#lane-left .cost").await;
        assert!(cost.contains(" orders/s.") && cost.ends_with(" ms for each order."), "{cost}");
        let proofs = self.browser.find("#lane-left .broken button").await;
        assert!(!proofs.is_empty(), "requests prove what the left lane broke");
    }
}
