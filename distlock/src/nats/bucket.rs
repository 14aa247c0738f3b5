//! The bucket that the locks live in: found, or made, and looked at again at least once a second.
//!
//! Its maximum age is the TTL of all holds. An operator may change it, and a program may make the
//! bucket again after its server has lost it. So what was read of it counts for a second and for a
//! third of its TTL, on the same connection.

use std::sync::Arc;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::Context;
use async_nats::jetstream::context::ContextBuilder;
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::open_bucket::OpenBucket;
use super::servers::NatsServers;
use crate::{LockError, NatsServer};

/// How long the calls of one step may take.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long one call may take, or one server to accept a connection: three fit into
/// [`RESPONSE_TIMEOUT`].
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_millis(600);
/// How often a step is tried before which other writes come.
pub(crate) const MAX_TRIES: u32 = 8;

/// Why there is no good answer.
#[derive(Debug)]
pub(crate) enum NatsError {
    /// Another write came before: nothing was done.
    Conflict,
    /// The call may have been carried out, or may yet be.
    Unanswered(String),
    /// There is no connection at the moment: nothing was sent.
    NotConnected,
    /// The server has no such bucket, or not any more: nothing was done.
    NoBucket,
    /// Nothing was done, for that reason.
    Refused(LockError),
}

impl From<NatsError> for LockError {
    fn from(failure: NatsError) -> Self {
        match failure {
            NatsError::Conflict => Self::Backend("NATS: other writes came first".into()),
            NatsError::Unanswered(reason) => Self::Backend(format!("NATS: {reason}")),
            NatsError::NotConnected => Self::Backend("NATS: not connected".into()),
            NatsError::NoBucket => Self::Backend("NATS: the bucket is not there".into()),
            NatsError::Refused(error) => error,
        }
    }
}

impl NatsError {
    /// Whether the server did nothing, and will not.
    pub(crate) fn did_nothing(&self) -> bool {
        !matches!(self, Self::Unanswered(_))
    }
}

/// A bucket by its name, and the way there.
pub(crate) struct NatsBucket {
    servers: NatsServers,
    name: String,
    /// The maximum age of a bucket that is made here.
    new_ttl: Duration,
    runtime: Handle,
    state: Mutex<BucketState>,
}

#[derive(Default)]
struct BucketState {
    jetstream: Option<Context>,
    bucket: Option<Arc<OpenBucket>>,
}

impl NatsBucket {
    /// Connects to no server yet.
    pub(crate) fn new(
        servers: &str,
        name: &str,
        new_ttl: Duration,
        runtime: Handle,
    ) -> Result<Self, LockError> {
        NatsServer::check_bucket(name)?;
        let (servers, name) = (NatsServers::parse(servers)?, name.to_owned());
        Ok(Self { servers, name, new_ttl, runtime, state: Mutex::default() })
    }

    /// The bucket, which is made if the server has none of that name.
    pub(crate) async fn open(&self) -> Result<Arc<OpenBucket>, NatsError> {
        self.find(true).await?.ok_or(NatsError::NoBucket)
    }

    /// The bucket, if the server has one of that name.
    pub(crate) async fn open_existing(&self) -> Result<Option<Arc<OpenBucket>>, NatsError> {
        self.find(false).await
    }

    /// Looks for the bucket again at the next call: the server said that it is not there.
    pub(crate) async fn forget(&self, former: &Arc<OpenBucket>) {
        let mut state = self.state.lock().await;
        if state.bucket.as_ref().is_some_and(|bucket| Arc::ptr_eq(bucket, former)) {
            state.bucket = None;
        }
    }

    async fn find(&self, may_make: bool) -> Result<Option<Arc<OpenBucket>>, NatsError> {
        let mut state = self.state.lock().await;
        let jetstream = match &state.jetstream {
            Some(jetstream) => jetstream.clone(),
            None => state.jetstream.insert(self.connect().await?).clone(),
        };
        match jetstream.client().connection_state() {
            State::Connected => {}
            State::Pending | State::Disconnected => return Err(NatsError::NotConnected),
        }
        if let Some(bucket) = state.bucket.as_ref().filter(|bucket| bucket.is_fresh()) {
            return Ok(Some(Arc::clone(bucket)));
        }
        let mut found = OpenBucket::find(&jetstream, &self.name).await?;
        if found.is_none() && may_make {
            OpenBucket::make(&jetstream, &self.name, self.new_ttl).await?;
            // Another program may have made it first.
            found = OpenBucket::find(&jetstream, &self.name).await?;
        }
        let found = found.map(Arc::new);
        if let Some(bucket) = &found
            && may_make
            && bucket.ttl() != self.new_ttl
            && state.bucket.as_ref().is_none_or(|before| before.ttl() != bucket.ttl())
        {
            let (bucket_ms, asked_ms) = (bucket.ttl().as_millis(), self.new_ttl.as_millis());
            let what = "NATS bucket has another maximum age; holds last for that";
            tracing::warn!(bucket = self.name, bucket_ms, asked_ms, "{what}");
        }
        state.bucket.clone_from(&found);
        Ok(found)
    }

    /// The tasks of a connection belong to the runtime that lives on.
    async fn connect(&self) -> Result<Context, NatsError> {
        let connecting = self.runtime.spawn(self.servers.clone().connect());
        let client = match timeout(RESPONSE_TIMEOUT, AbortOnDropHandle::new(connecting)).await {
            Ok(Ok(connected)) => connected?,
            Ok(Err(ended)) => return Err(NatsError::Unanswered(ended.to_string())),
            Err(_) => return Err(NatsError::Unanswered("no connection within 2 s".into())),
        };
        let jetstream = ContextBuilder::new().timeout(CALL_TIMEOUT).ack_timeout(CALL_TIMEOUT);
        Ok(jetstream.build(client))
    }
}

/// Ends a step after [`RESPONSE_TIMEOUT`].
pub(crate) async fn in_time<T>(
    step: impl Future<Output = Result<T, NatsError>>,
) -> Result<T, LockError> {
    let ended = timeout(RESPONSE_TIMEOUT, step).await;
    let no_answer = || NatsError::Unanswered("no answer within 2 s".into());
    ended.unwrap_or_else(|_| Err(no_answer())).map_err(LockError::from)
}
