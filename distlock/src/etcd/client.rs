//! The client of an etcd cluster: one member at a time, deadlines, the next member when the present
//! one does not answer.
//!
//! A call that got no answer may have been carried out, or may yet be. It is repeated on the next
//! member until its deadline. So each call is one that may be carried out twice.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::endpoints::Endpoints;
use super::login::UserLogin;
use super::rpc::MemberConnection;
use crate::LockError;

/// How long the answers to one call may take.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long one of several members may take before the next one is asked: three fit into
/// [`RESPONSE_TIMEOUT`].
const MEMBER_TIMEOUT: Duration = Duration::from_millis(600);
/// Before the next member is asked.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// What etcd says where authentication is on and a request has no user.
const NO_USER: &str = "etcdserver: user name is empty";
/// What it says to a user with another password, or to one whom it does not know.
const WRONG_LOGIN: &str = "etcdserver: authentication failed, invalid user ID or password";
/// What it says of a token that is older than a change of users or rights.
const OLD_AUTH_REVISION: &str = "etcdserver: revision of auth store is old";

/// By when the answers to a call that begins now have to be there.
pub(crate) fn deadline() -> Instant {
    Instant::now() + RESPONSE_TIMEOUT
}

/// The client of one cluster.
pub(crate) struct EtcdClient {
    members: Vec<Endpoint>,
    runtime: Handle,
    member_timeout: Duration,
    present: watch::Sender<Member>,
    /// None if the list of endpoints names no user.
    login: Option<UserLogin>,
}

/// The member that is asked, until it does not answer.
#[derive(Clone)]
pub(crate) struct Member {
    /// Of all members that were asked, the number of this one.
    number: usize,
    /// Which of the endpoints it is.
    pub(crate) endpoint: usize,
    pub(crate) channel: Channel,
}

/// Why there is no good answer.
#[derive(Debug)]
pub(crate) enum EtcdError {
    /// There is none: the call may have been carried out, or may yet be.
    Unanswered(String),
    /// The server knows no lease of that id.
    LeaseNotFound,
    /// The server has a lease of that id.
    LeaseExists,
    /// A key under the lock's prefix is no contender's.
    NoContender,
    /// The server said no and did nothing.
    Refused(Status),
}

impl From<Status> for EtcdError {
    fn from(status: Status) -> Self {
        match status.code() {
            Code::NotFound if status.message().contains("lease not found") => Self::LeaseNotFound,
            Code::FailedPrecondition if status.message().contains("lease already exists") => {
                Self::LeaseExists
            }
            _ if is_refusal(&status) => Self::Refused(status),
            _ => Self::Unanswered(format!("etcd: {}", status.message())),
        }
    }
}

/// Whether the server said no and did nothing.
pub(crate) fn is_refusal(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::ResourceExhausted
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::Unimplemented
            | Code::Unauthenticated
    )
}

impl From<EtcdError> for LockError {
    fn from(failure: EtcdError) -> Self {
        match failure {
            EtcdError::Unanswered(reason) => Self::Backend(reason),
            EtcdError::LeaseNotFound => Self::Backend("the etcd lease has ended".into()),
            EtcdError::LeaseExists => Self::Backend("the etcd lease is another's".into()),
            EtcdError::NoContender => Self::HeldByOtherKind,
            EtcdError::Refused(status) => {
                let reason = format!("etcd refused: {}", status.message());
                let is_denied =
                    matches!(status.code(), Code::PermissionDenied | Code::Unauthenticated)
                        || [NO_USER, WRONG_LOGIN].contains(&status.message());
                if is_denied { Self::AccessDenied(reason) } else { Self::Backend(reason) }
            }
        }
    }
}

impl EtcdClient {
    /// Connects to no member yet.
    pub(crate) fn new(endpoints: &str, runtime: Handle) -> Result<Self, LockError> {
        let endpoints = Endpoints::parse(endpoints)?;
        let several = endpoints.members.len() > 1;
        let member_timeout = if several { MEMBER_TIMEOUT } else { RESPONSE_TIMEOUT };
        let Endpoints { members, login } = endpoints.with_connect_timeout(member_timeout);
        let first = Member::connect(0, &members, &runtime);
        let (present, _) = watch::channel(first);
        let login = login.map(UserLogin::new);
        Ok(Self { members, runtime, member_timeout, present, login })
    }

    pub(crate) fn present(&self) -> Member {
        self.present.borrow().clone()
    }

    /// Returns when that member is asked no more.
    pub(crate) async fn replaced(&self, member: &Member) {
        let mut present = self.present.subscribe();
        let is_another = |present: &Member| present.number != member.number;
        // The sender is this client's own.
        let _ended = present.wait_for(is_another).await;
    }

    /// Leaves a member that does not answer; the next call asks the next one.
    fn replace(&self, failed: &Member) {
        self.present.send_if_modified(|present| {
            let is_present = present.number == failed.number;
            if is_present {
                *present = Member::connect(failed.number + 1, &self.members, &self.runtime);
            }
            is_present
        });
    }

    /// Makes a call, to one member after the other until one has answered.
    pub(crate) async fn call<T, F>(
        &self,
        until: Instant,
        mut ask: impl FnMut(MemberConnection) -> F,
    ) -> Result<T, EtcdError>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let mut has_refreshed = false;
        loop {
            let (member, mut used) = (self.present(), None);
            let limit = until.min(Instant::now() + self.member_timeout);
            let attempt = async {
                let connection = self.connection(&member).await?;
                used = connection.login;
                ask(connection).await
            };
            let failure = match timeout_at(limit, attempt).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(status)) => match (&self.login, used) {
                    (Some(login), Some(number)) if !has_refreshed && wants_new_token(&status) => {
                        has_refreshed = true;
                        login.forget_token(number);
                        continue;
                    }
                    _ => EtcdError::from(status),
                },
                Err(_) => EtcdError::Unanswered("etcd did not answer in time".into()),
            };
            if !matches!(failure, EtcdError::Unanswered(_)) {
                return Err(failure);
            }
            self.replace(&member);
            if Instant::now() + RETRY_PAUSE >= until {
                return Err(failure);
            }
            sleep(RETRY_PAUSE).await;
        }
    }

    /// The connection to that member for one request.
    pub(crate) async fn connection(&self, member: &Member) -> Result<MemberConnection, Status> {
        let channel = member.channel.clone();
        let Some(login) = &self.login else {
            return Ok(MemberConnection { channel, token: None, login: None });
        };
        let (token, number) = login.token(&self.runtime, &self.present).await?;
        Ok(MemberConnection { channel, token, login: Some(number) })
    }
}

/// Whether a request was refused for its token: the server has forgotten it, or users, rights or
/// authentication itself have changed.
fn wants_new_token(status: &Status) -> bool {
    status.code() == Code::Unauthenticated
        || [NO_USER, OLD_AUTH_REVISION].contains(&status.message())
}

impl Member {
    /// The one of that number; its connection is made by its first call.
    pub(crate) fn connect(number: usize, endpoints: &[Endpoint], runtime: &Handle) -> Self {
        // The channel's task lives where this is called.
        let _entered = runtime.enter();
        let endpoint = number % endpoints.len();
        Self { number, endpoint, channel: endpoints[endpoint].connect_lazy() }
    }
}
