//! The login of the user: one at a time, for all requests that need its token.
//!
//! The check of a password is slow on purpose, and on a busy server may take longer than any
//! request waits. So a login is a task of its own. It goes on if the request that began it ends,
//! and also asks the members that replace the first one.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, Shared};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tonic::Status;

use super::client::{Member, RESPONSE_TIMEOUT, is_refusal};
use super::messages::AuthenticateRequest;
use super::rpc::{self, AuthToken};

/// How long a login may take: five times what a request waits. One that ended sooner would begin
/// anew for ever where the check of a password takes longer.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(10);
/// An endpoint that owes an answer is asked again after this time only, by a new connection: each
/// check of a password costs the cluster time.
const ASK_AGAIN_AFTER: Duration = RESPONSE_TIMEOUT;
/// For that long a refusal is the answer to all requests: each check of a password costs the
/// cluster time.
const REFUSAL_CACHE_TIME: Duration = Duration::from_secs(1);
/// What etcd says to a user who logs in where authentication is off.
const AUTH_IS_OFF: &str = "etcdserver: authentication is not enabled";

/// Who logs in, and the latest login.
pub(crate) struct UserLogin {
    request: AuthenticateRequest,
    latest: Mutex<LatestLogin>,
}

#[derive(Default)]
struct LatestLogin {
    /// Of all logins, the number of this one.
    number: usize,
    /// None if the cluster has refused its token since.
    outcome: Option<LoginOutcome>,
}

/// Is there once the login has ended.
type LoginOutcome = Shared<BoxFuture<'static, (Instant, LoginAnswer)>>;
/// No token if the cluster knows no users.
type LoginAnswer = Result<Option<AuthToken>, Status>;

impl UserLogin {
    pub(crate) fn new(request: AuthenticateRequest) -> Self {
        Self { request, latest: Mutex::default() }
    }

    /// The token, and the number of the login that it is from. Begins one if there is none.
    pub(crate) async fn token(
        &self,
        runtime: &Handle,
        present: &watch::Sender<Member>,
    ) -> Result<(Option<AuthToken>, usize), Status> {
        let (outcome, number) = {
            let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
            let outcome = if let Some(outcome) = latest.outcome.take().filter(is_usable) {
                outcome
            } else {
                latest.number += 1;
                begin(runtime, present.subscribe(), self.request.clone())
            };
            latest.outcome = Some(outcome.clone());
            (outcome, latest.number)
        };
        let (_, answer) = outcome.await;
        Ok((answer?, number))
    }

    /// Has the next request log in, unless another one has done so.
    pub(crate) fn forget_token(&self, number: usize) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if latest.number == number {
            latest.outcome = None;
        }
    }
}

/// Whether a login is under way, has brought a token, or was refused a moment ago.
fn is_usable(outcome: &LoginOutcome) -> bool {
    match outcome.clone().now_or_never() {
        Some((ended, Err(status))) => is_refusal(&status) && ended.elapsed() < REFUSAL_CACHE_TIME,
        _ => true,
    }
}

fn begin(
    runtime: &Handle,
    present: watch::Receiver<Member>,
    request: AuthenticateRequest,
) -> LoginOutcome {
    let task = runtime.spawn(async {
        let answer = timeout(LOGIN_TIMEOUT, log_in(present, request)).await;
        let unanswered = |_| Err(Status::unavailable("the login was not answered in time"));
        (Instant::now(), answer.unwrap_or_else(unanswered))
    });
    let cancelled = |_| (Instant::now(), Err(Status::unavailable("the login was cancelled")));
    task.map(move |ended| ended.unwrap_or_else(cancelled)).boxed().shared()
}

/// Asks the present member, and each one that replaces it, until one has answered.
async fn log_in(mut present: watch::Receiver<Member>, request: AuthenticateRequest) -> LoginAnswer {
    let (mut logins, mut asked) = (FuturesUnordered::new(), HashMap::new());
    present.mark_changed();
    loop {
        tokio::select! {
            Ok(()) = present.changed() => {
                let Member { channel, endpoint, .. } = present.borrow_and_update().clone();
                let latest: Option<&Instant> = asked.get(&endpoint);
                if latest.is_none_or(|latest| latest.elapsed() >= ASK_AGAIN_AFTER) {
                    asked.insert(endpoint, Instant::now());
                    logins.push(rpc::authenticate(channel, request.clone()));
                }
            }
            Some(answer) = logins.next() => match answer {
                Err(status) if status.message() == AUTH_IS_OFF => return Ok(None),
                Err(status) if !is_refusal(&status) && !logins.is_empty() => {}
                answer => return answer.map(Some),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use tonic::transport::Endpoint;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_login_that_takes_longer_than_a_request_is_not_begun_anew() {
        // The kernel accepts connections to it, and it never answers.
        let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", silent.local_addr().expect("its address"));
        let runtime = Handle::current();
        let endpoints = [Endpoint::new(url).expect("a URL")];
        let (present, _) = watch::channel(Member::connect(0, &endpoints, &runtime));
        let login = UserLogin::new(AuthenticateRequest::default());
        let number = || login.latest.lock().expect("no panic").number;
        let mut requests = 0;
        while number() < 2 {
            let token = login.token(&runtime, &present);
            let _unanswered = timeout(RESPONSE_TIMEOUT, token).await;
            requests += 1;
        }
        assert!(requests > 4, "it was begun anew after {requests} requests");
    }
}
