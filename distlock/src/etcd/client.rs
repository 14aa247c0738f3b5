//! The client of an etcd cluster: one member at a time, deadlines, and the next member when the
//! present one does not answer.
//!
//! A call that got no answer may have been carried out, or may yet be. It is repeated on the next
//! member until its deadline. So each call is one that may be carried out twice.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

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

/// By when the answers to a call that begins now have to be there.
pub(crate) fn deadline() -> Instant {
    Instant::now() + RESPONSE_TIMEOUT
}

/// The client of one cluster.
pub(crate) struct EtcdClient {
    endpoints: Vec<Endpoint>,
    runtime: Handle,
    member_timeout: Duration,
    present: watch::Sender<Member>,
}

/// The member that is asked, until it does not answer.
#[derive(Clone)]
pub(crate) struct Member {
    /// Of all members that were asked, the number of this one.
    number: usize,
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
            Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::ResourceExhausted
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::Unimplemented
            | Code::Unauthenticated => Self::Refused(status),
            _ => Self::Unanswered(format!("etcd: {}", status.message())),
        }
    }
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
                        || status.message() == NO_USER;
                if is_denied { Self::AccessDenied(reason) } else { Self::Backend(reason) }
            }
        }
    }
}

impl EtcdClient {
    /// Connects to no member yet. The list is etcd's own, `host:port,host:port`.
    pub(crate) fn new(endpoints: &str, runtime: Handle) -> Result<Self, LockError> {
        let texts: Vec<_> = endpoints.split(',').map(str::trim).collect();
        let several = texts.len() > 1;
        let member_timeout = if several { MEMBER_TIMEOUT } else { RESPONSE_TIMEOUT };
        let endpoints: Vec<_> = texts
            .into_iter()
            .map(|text| endpoint(text, member_timeout))
            .collect::<Result<_, _>>()?;
        let first = Member::connect(0, &endpoints, &runtime);
        let (present, _) = watch::channel(first);
        Ok(Self { endpoints, runtime, member_timeout, present })
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
                *present = Member::connect(failed.number + 1, &self.endpoints, &self.runtime);
            }
            is_present
        });
    }

    /// Makes a call, to one member after the other until one has answered.
    pub(crate) async fn call<T, F>(
        &self,
        until: Instant,
        mut ask: impl FnMut(Channel) -> F,
    ) -> Result<T, EtcdError>
    where
        F: Future<Output = Result<T, Status>>,
    {
        loop {
            let member = self.present();
            let limit = until.min(Instant::now() + self.member_timeout);
            let failure = match timeout_at(limit, ask(member.channel.clone())).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(status)) => EtcdError::from(status),
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
}

impl Member {
    /// The one of that number; its connection is made by its first call.
    fn connect(number: usize, endpoints: &[Endpoint], runtime: &Handle) -> Self {
        // The channel's task lives where this is called.
        let _entered = runtime.enter();
        Self { number, channel: endpoints[number % endpoints.len()].connect_lazy() }
    }
}

fn endpoint(text: &str, timeout: Duration) -> Result<Endpoint, LockError> {
    let refuse = || {
        let limit = format!("must be host:port[,host:port...], without TLS, is {text:?}");
        LockError::BadRequest { field: "etcd endpoints", limit }
    };
    let address = text.strip_prefix("http://").unwrap_or(text);
    let has_port = address
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    if !has_port || address.contains('/') {
        return Err(refuse());
    }
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|_| refuse())?;
    Ok(endpoint.connect_timeout(timeout).tcp_nodelay(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn endpoints_are_addresses_with_ports_and_without_tls() {
        let client = |endpoints| EtcdClient::new(endpoints, Handle::current());
        assert_eq!(client("a:2379, http://b:2379,[::1]:2379").unwrap().endpoints.len(), 3);
        for bad in ["", "a", "a:", ":1", "a:x", "https://a:1", "a:1,", "a:1/b", "a b:1"] {
            let refused = client(bad).err();
            assert!(matches!(refused, Some(LockError::BadRequest { .. })), "{bad}: {refused:?}");
        }
    }
}
