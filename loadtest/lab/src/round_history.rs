//! One history of all requests of a round, which several loads send in turn.

use std::collections::HashMap;
use std::sync::Arc;

use loadtest_judge::recovery::{BROKEN, KEPT, SEEN};
use loadtest_judge::stalls::STALL;
use loadtest_judge::verdict::Rule;
use loadtest_load::client::HUNG_UP;
use loadtest_load::drive;
use loadtest_load::history::{Completion, Event, FAULT, Grant, Invoke, Mark, Recorder};
use loadtest_load::history_file::HistoryFile;
use loadtest_load::live::LiveFigures;
use loadtest_load::plan::Plan;
use loadtest_load::stall_monitor::Stall;
use loadtest_load::stats::Figures;
use loadtest_load::tokens::User;
use loadtest_measure::error::Result;
use tokio_util::sync::CancellationToken;

use crate::faults::{AbortedClient, FaultKind};

/// The loads of a round.
pub(super) struct RoundHistory {
    recorded: HistoryFile,
    voucher: u64,
    /// Number of the next request.
    next: u32,
}

impl RoundHistory {
    /// Before the first load.
    pub(super) fn new(recorded: HistoryFile, voucher: u64) -> Self {
        Self { recorded, voucher, next: 0 }
    }

    /// The clock of the history, in nanoseconds.
    pub(super) fn clock(&self) -> Recorder {
        self.recorded.recorder().clone()
    }

    /// One more load, begun no longer once `stop` is cancelled.
    pub(super) async fn run(
        &mut self,
        plan: &Plan,
        live: &Arc<LiveFigures>,
        stop: &CancellationToken,
    ) -> Result<Figures> {
        let plan = Plan { first_request: self.next, ..plan.clone() };
        let connections = drive::connect(&plan).await?;
        let told = (self.recorded.recorder(), live);
        let figures = drive::run_until(stop, &plan, connections, told).await?;
        // Those that were never sent have had their numbers too.
        let numbers = figures.requests + figures.cost.dropped;
        self.next = self.next.saturating_add(u32::try_from(numbers).unwrap_or(u32::MAX));
        Ok(figures)
    }

    /// Adds the requests of clients that closed their connection before an answer.
    pub(super) async fn add_unanswered(&mut self, clients: &[AbortedClient]) {
        for &AbortedClient { user: u, key: k, sent_ns: t, end_ns, abort_point: _ } in clients {
            let (n, v) = (self.next, self.voucher);
            self.next += 1;
            let recorder = self.recorded.recorder();
            recorder.record(Event::Invoke(Invoke { t, n, u, v, k })).await;
            let ended =
                Completion { t: end_ns, n, c: Some(HUNG_UP.into()), ..Completion::default() };
            recorder.record(Event::Unknown(ended)).await;
        }
    }

    /// Units that were added meanwhile.
    pub(super) async fn add_grants(&self, grants: Vec<Grant>) {
        for grant in grants {
            self.recorded.recorder().record(Event::Grant(grant)).await;
        }
    }

    /// What was seen of a rule.
    pub(super) async fn record_rule(&self, rule: Rule, kept: bool, detail: String) {
        let mark = Mark {
            t: self.recorded.recorder().now(),
            what: SEEN.into(),
            name: rule.name().into(),
            phase: if kept { KEPT } else { BROKEN }.into(),
            detail: detail.into(),
        };
        self.recorded.recorder().record(Event::Mark(mark)).await;
    }

    /// When the generator stood still.
    pub(super) async fn add_stalls(&self, stalls: &[Stall]) {
        let recorder = self.recorded.recorder();
        for [from, until] in stalls.iter().map(|stall| stall.map(|moment| recorder.since(moment))) {
            let mark = Mark {
                t: until,
                what: STALL.into(),
                name: "generator".into(),
                phase: "over".into(),
                detail: until.saturating_sub(from).to_string().into(),
            };
            recorder.record(Event::Mark(mark)).await;
        }
    }

    /// At most `count` of these users who had a request in flight at that time.
    pub(super) async fn on_their_way(
        &self,
        (at_ns, most): (u64, usize),
        users: &[User],
    ) -> Result<Vec<User>> {
        let history = self.recorded.so_far().await?;
        let by_id: HashMap<u64, &User> = users.iter().map(|user| (user.id, user)).collect();
        let mut found: Vec<u64> = Vec::new();
        for record in &history.records {
            let is_on_its_way = (record.start_ns..record.end_ns).contains(&at_ns);
            if is_on_its_way && !found.contains(&record.user) && found.len() < most {
                found.push(record.user);
            }
        }
        Ok(found.iter().filter_map(|id| by_id.get(id).copied().cloned()).collect())
    }

    /// The history, to which the final reads are still to be added.
    pub(super) fn into_recorded(self) -> HistoryFile {
        self.recorded
    }
}

/// Records a phase of a fault at this moment, which it returns.
pub(super) async fn mark_fault(
    recorder: &Recorder,
    fault: FaultKind,
    (phase, detail): (&'static str, &str),
) -> u64 {
    let (t, name, detail) = (recorder.now(), fault.name().into(), detail.to_owned().into());
    let mark = Mark { t, what: FAULT.into(), name, phase: phase.into(), detail };
    recorder.record(Event::Mark(mark)).await;
    t
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use loadtest_load::arrival::Arrival;
    use loadtest_load::client::Target;
    use loadtest_load::history::key::key_of;
    use loadtest_load::outcome::Outcome;
    use loadtest_load::tokens;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use uuid::Uuid;

    use super::*;
    use crate::faults::AbortPoint;

    #[tokio::test]
    async fn a_client_that_hung_up_is_in_the_history_with_its_request_and_time() {
        let target = Target::parse("http://127.0.0.1:1").expect("a target");
        let plan = Plan::closed(target, 3, Vec::new().into(), 1);
        let recorded = HistoryFile::begin(&plan, None, &[Some(10)]).expect("a history");
        let mut round_history = RoundHistory::new(recorded, 3);
        let gone = |user| AbortedClient {
            user,
            key: Uuid::from_u128(user.into()),
            sent_ns: user * 10,
            end_ns: user * 10 + 4,
            abort_point: AbortPoint::BeforeAnswer,
        };
        round_history.add_unanswered(&[gone(7), gone(8)]).await;
        let history = round_history.into_recorded().end().await.expect("whole");
        let key = |user| key_of(Uuid::from_u128(user));
        let seen = history.records.iter().map(|one| (one.user, one.key, one.start_ns, one.end_ns));
        assert_eq!(seen.collect::<Vec<_>>(), [(7, key(7), 70, 74), (8, key(8), 80, 84)]);
        assert!(history.records.iter().all(|one| one.outcome == Outcome::Unknown));
    }

    /// A shop that shows its voucher at once, and takes its time to say that nothing is left.
    async fn slow_shop(pause: Duration) -> Arc<Target> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let answer = |status: &str, body: &str| {
            format!(
                "HTTP/1.1 {status}\r\ncontent-type: application/problem+json\r\n\
                 content-length: {}\r\n\r\n{body}",
                body.len()
            )
        };
        let voucher = r#"{"voucher":{"id":"3","title":"","status":"on_sale","phase":"open"}}"#;
        let shown = answer("200 OK", voucher);
        let refused = answer("409 Conflict", r#"{"code":"sold_out","status":409}"#);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (shown, refused) = (shown.clone(), refused.clone());
                tokio::spawn(async move {
                    let mut buffer = [0; 4096];
                    while let Ok(read) = stream.read(&mut buffer).await
                        && read > 0
                    {
                        let is_look = buffer.starts_with(b"GET ");
                        if !is_look {
                            tokio::time::sleep(pause).await;
                        }
                        let said = if is_look { &shown } else { &refused };
                        if stream.write_all(said.as_bytes()).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Target::parse(&url).expect("a target")
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_next_load_has_other_numbers_though_some_of_the_last_were_never_sent() {
        let target = slow_shop(Duration::from_millis(100)).await;
        let lines = (1..=20).map(|id| format!(r#"{{"user_id":"{id}","token":"a"}}"#));
        let lines = lines.collect::<Vec<_>>().join("\n");
        let users: Arc<[User]> = tokens::parse(&lines).expect("tokens").into();
        let calm = Plan { connections: 1, ..Plan::closed(target, 3, users, 1) };
        let timeout = Duration::from_millis(150);
        let crowd = Plan { arrival: Arrival::Constant(100.0), timeout, ..calm.clone() };
        let recorded = HistoryFile::begin(&calm, None, &[Some(10)]).expect("a history");
        let mut round_history = RoundHistory::new(recorded, 3);
        let mut sent = 0;
        for plan in [&crowd, &calm] {
            let live = Arc::new(LiveFigures::new(plan));
            let figures =
                round_history.run(plan, &live, &CancellationToken::new()).await.expect("run");
            let is_crowd = plan.arrival.is_open();
            assert_eq!(figures.cost.dropped > 0, is_crowd, "one connection cannot do it");
            sent += figures.requests;
        }
        let history = round_history.into_recorded().end().await.expect("no number comes twice");
        assert_eq!(history.records.len() as u64, sent);
    }
}
