//! The connection to a NATS server, and the entries of the bucket that the locks live in.
//!
//! Each write is conditional: it names the revision after which alone it counts. So a write that
//! comes late changes nothing once another one has come before it. Reads ask the stream's leader.

use std::sync::Arc;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::context::{ContextBuilder, PublishErrorKind};
use async_nats::jetstream::stream::{
    Config, DiscardPolicy, LastRawMessageErrorKind, StorageType, Stream,
};
use async_nats::jetstream::{Context, ErrorCode};
use async_nats::{
    Client, ConnectErrorKind, ConnectOptions, HeaderMap, ServerAddr, Subscriber, header,
};
use futures_util::TryStreamExt;
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::LockError;
use crate::percent_encoding::decode;

/// How long the calls of one step may take.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long one call may take, or one server to accept a connection: three fit into
/// [`RESPONSE_TIMEOUT`].
const CALL_TIMEOUT: Duration = Duration::from_millis(600);
/// A server that leaves two of these unanswered is left.
const PING_INTERVAL: Duration = Duration::from_secs(1);
/// The longest pause before the next try to connect.
const MAX_RECONNECT_PAUSE: Duration = Duration::from_millis(500);
/// The header of what is no value but the end of one.
const OPERATION: &str = "KV-Operation";
const DELETED: &str = "DEL";
/// The header of a marker that the server itself writes when an entry is too old (2.11).
const MARKER_REASON: &str = "Nats-Marker-Reason";

/// Why there is no good answer.
#[derive(Debug)]
pub(crate) enum NatsError {
    /// Another write came before: nothing was done.
    Conflict,
    /// The call may have been carried out, or may yet be.
    Unanswered(String),
    /// There is no connection at the moment: nothing was sent.
    NotConnected,
    /// The server has no such bucket, or not any more.
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

/// The last write to a key.
pub(crate) struct Entry {
    /// Its number in the bucket; 0 if there is none.
    pub(crate) revision: u64,
    /// `None` if it is none, or deleted.
    pub(crate) value: Option<String>,
}

/// A bucket and the way there.
pub(crate) struct NatsBucket {
    servers: Vec<ServerAddr>,
    /// User and password at all of them.
    login: Option<[String; 2]>,
    name: String,
    /// The maximum age of a bucket that is made here.
    new_ttl: Duration,
    runtime: Handle,
    opened: Mutex<Option<Arc<OpenBucket>>>,
}

/// A bucket that was there when it was opened.
pub(crate) struct OpenBucket {
    jetstream: Context,
    stream: Stream,
    /// What the subjects of all keys begin with.
    prefix: String,
}

impl NatsBucket {
    /// Connects to no server yet.
    pub(crate) fn new(
        servers: &str,
        name: &str,
        new_ttl: Duration,
        runtime: Handle,
    ) -> Result<Self, LockError> {
        let is_sign = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if !matches!(name.len(), 1..=64) || !name.bytes().all(is_sign) {
            let limit = "must have 1 to 64 letters, digits, '-' and '_'".to_owned();
            return Err(LockError::BadRequest { field: "NATS bucket", limit });
        }
        let servers = servers.split(',').map(|text| server(text.trim()));
        let servers = servers.collect::<Result<Vec<_>, _>>()?;
        let login = login(&servers)?;
        let (name, opened) = (name.to_owned(), Mutex::default());
        Ok(Self { servers, login, name, new_ttl, runtime, opened })
    }

    /// The bucket, which is made if it is not there.
    pub(crate) async fn open(&self) -> Result<Arc<OpenBucket>, NatsError> {
        let mut opened = self.opened.lock().await;
        if let Some(bucket) = &*opened {
            bucket.ensure_connected()?;
            return Ok(Arc::clone(bucket));
        }
        // The tasks of a connection belong to the runtime that lives on.
        let (servers, login) = (self.servers.clone(), self.login.clone());
        let (name, ttl) = (self.name.clone(), self.new_ttl);
        let opening = self.runtime.spawn(async move {
            let client = connect(servers, login).await?;
            OpenBucket::open(client, &name, ttl).await
        });
        let bucket = match timeout(RESPONSE_TIMEOUT, opening).await {
            Ok(Ok(bucket)) => Arc::new(bucket?),
            Ok(Err(ended)) => return Err(NatsError::Unanswered(ended.to_string())),
            Err(_) => return Err(NatsError::Unanswered("no connection within 2 s".into())),
        };
        Ok(Arc::clone(opened.insert(bucket)))
    }

    /// Looks for the bucket again: a server without its data has none.
    pub(crate) async fn forget(&self, gone: &Arc<OpenBucket>) {
        let mut opened = self.opened.lock().await;
        if opened.as_ref().is_some_and(|bucket| Arc::ptr_eq(bucket, gone)) {
            *opened = None;
        }
    }

    /// The last write to that key.
    pub(crate) async fn read(&self, key: &str) -> Result<Entry, NatsError> {
        let bucket = self.open().await?;
        let read = bucket.read(key).await;
        if matches!(read, Err(NatsError::NoBucket)) {
            self.forget(&bucket).await;
        }
        read
    }

    /// Writes if that revision is still the key's last; `None` deletes. Returns the new revision.
    pub(crate) async fn write(
        &self,
        key: &str,
        after: u64,
        value: Option<&str>,
    ) -> Result<u64, NatsError> {
        let bucket = self.open().await?;
        let written = bucket.write(key, after, value).await;
        if matches!(written, Err(NatsError::NoBucket)) {
            self.forget(&bucket).await;
        }
        written
    }
}

fn refuse_servers(limit: &str) -> LockError {
    LockError::BadRequest { field: "NATS servers", limit: limit.to_owned() }
}

/// Reads `nats://user:password@host:port`. An error shows no word of it: it may have a password.
fn server(text: &str) -> Result<ServerAddr, LockError> {
    let form = "must be nats://[user:password@]host:port[,nats://...]";
    let address: ServerAddr = text.parse().map_err(|_| refuse_servers(form))?;
    if address.scheme() != "nats" {
        return Err(refuse_servers("must be nats://, without TLS, which these locks do not speak"));
    }
    let url = address.clone().into_inner();
    let is_bare = matches!(url.path(), "" | "/") && url.query().is_none();
    if address.host().is_empty() || url.port().is_none() || !is_bare {
        return Err(refuse_servers(form));
    }
    Ok(address)
}

/// The client sends one login to all servers, whatever their addresses say.
fn login(servers: &[ServerAddr]) -> Result<Option<[String; 2]>, LockError> {
    let mut logins = servers.iter().map(|server| {
        let url = server.clone().into_inner();
        let password = url.password().unwrap_or_default();
        [url.username().to_owned(), password.to_owned()]
    });
    let first = logins.next().unwrap_or_default();
    if logins.any(|other| other != first) {
        return Err(refuse_servers("must have the same user and password in all addresses"));
    }
    match first.map(|text| decode(&text)) {
        [Some(user), Some(password)] => Ok((!user.is_empty()).then_some([user, password])),
        _ => Err(refuse_servers("must have user and password with other signs as %XX")),
    }
}

async fn connect(
    servers: Vec<ServerAddr>,
    login: Option<[String; 2]>,
) -> Result<Client, NatsError> {
    let mut options = ConnectOptions::new()
        .name("distlock")
        .connection_timeout(CALL_TIMEOUT)
        .request_timeout(Some(CALL_TIMEOUT))
        .ping_interval(PING_INTERVAL)
        .reconnect_delay_callback(reconnect_pause);
    if let Some([user, password]) = login {
        options = options.user_and_password(user, password);
    }
    options.connect(servers).await.map_err(|error| match error.kind() {
        ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
            let reason = "NATS refused the user or the password".to_owned();
            NatsError::Refused(LockError::AccessDenied(reason))
        }
        _ => NatsError::Unanswered(error.to_string()),
    })
}

impl OpenBucket {
    async fn open(client: Client, name: &str, new_ttl: Duration) -> Result<Self, NatsError> {
        let jetstream = ContextBuilder::new().timeout(CALL_TIMEOUT).ack_timeout(CALL_TIMEOUT);
        let jetstream = jetstream.build(client);
        let (stream, prefix) = (format!("KV_{name}"), format!("$KV.{name}."));
        let stream = match jetstream.get_stream(&stream).await {
            Ok(found) => found,
            // Several programs may make it at the same time, with this maximum age or others.
            Err(_) => match jetstream.create_stream(new_bucket(&stream, &prefix, new_ttl)).await {
                Ok(made) => made,
                Err(refused) => jetstream
                    .get_stream(&stream)
                    .await
                    .map_err(|_| NatsError::Unanswered(refused.to_string()))?,
            },
        };
        let config = &stream.cached_info().config;
        if config.max_age.is_zero() || config.mirror.is_some() {
            let limit = "must have a maximum age, and must not mirror another one".to_owned();
            let field = "NATS bucket";
            return Err(NatsError::Refused(LockError::BadRequest { field, limit }));
        }
        Ok(Self { jetstream, stream, prefix })
    }

    /// How long the server keeps an entry.
    pub(crate) fn ttl(&self) -> Duration {
        self.stream.cached_info().config.max_age
    }

    fn ensure_connected(&self) -> Result<(), NatsError> {
        match self.jetstream.client().connection_state() {
            State::Connected => Ok(()),
            State::Pending | State::Disconnected => Err(NatsError::NotConnected),
        }
    }

    pub(crate) fn subject(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    /// What is written to that key from now on.
    pub(crate) async fn subscribe(&self, key: &str) -> Result<Subscriber, NatsError> {
        let subscribed = self.jetstream.client().subscribe(self.subject(key)).await;
        subscribed.map_err(|error| NatsError::Unanswered(error.to_string()))
    }

    async fn read(&self, key: &str) -> Result<Entry, NatsError> {
        let last = self.stream.get_last_raw_message_by_subject(&self.subject(key)).await;
        match last {
            Ok(message) => {
                let text = String::from_utf8_lossy(&message.payload).into_owned();
                Ok(Entry {
                    revision: message.sequence,
                    value: is_value(&message.headers).then_some(text),
                })
            }
            Err(error) => match error.kind() {
                LastRawMessageErrorKind::NoMessageFound => Ok(Entry { revision: 0, value: None }),
                LastRawMessageErrorKind::JetStream(error)
                    if error.error_code() == ErrorCode::STREAM_NOT_FOUND =>
                {
                    Err(NatsError::NoBucket)
                }
                _ => Err(NatsError::Unanswered(error.to_string())),
            },
        }
    }

    async fn write(&self, key: &str, after: u64, value: Option<&str>) -> Result<u64, NatsError> {
        let mut headers = HeaderMap::new();
        headers.insert(header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, after.to_string().as_str());
        if value.is_none() {
            headers.insert(OPERATION, DELETED);
        }
        let value = value.unwrap_or_default().to_owned();
        let answered = async {
            let sent =
                self.jetstream.publish_with_headers(self.subject(key), headers, value.into());
            sent.await?.await
        };
        match answered.await {
            Ok(written) => Ok(written.sequence),
            Err(error) => match error.kind() {
                PublishErrorKind::WrongLastSequence => Err(NatsError::Conflict),
                PublishErrorKind::StreamNotFound => Err(NatsError::NoBucket),
                _ => Err(NatsError::Unanswered(error.to_string())),
            },
        }
    }

    /// The keys that begin so, those of deleted entries as well.
    pub(crate) async fn keys(&self, prefix: &str) -> Result<Vec<String>, NatsError> {
        let failed = |error: &dyn std::fmt::Display| NatsError::Unanswered(error.to_string());
        let filter = format!("{}>", self.prefix);
        let mut info = self.stream.info_with_subjects(filter).await;
        let subjects = info.as_mut().map_err(|error| failed(error))?;
        let mut keys = Vec::new();
        while let Some((subject, _)) = subjects.try_next().await.map_err(|error| failed(&error))? {
            if let Some(key) = subject.strip_prefix(&self.prefix)
                && key.starts_with(prefix)
            {
                keys.push(key.to_owned());
            }
        }
        Ok(keys)
    }
}

/// Whether a write is a value, and not the end of one.
pub(crate) fn is_value(headers: &HeaderMap) -> bool {
    headers.get(MARKER_REASON).is_none()
        && headers.get(OPERATION).is_none_or(|operation| operation.as_str() == "PUT")
}

/// The stream behind a bucket, as NATS' own clients make it.
fn new_bucket(stream: &str, prefix: &str, ttl: Duration) -> Config {
    Config {
        name: stream.to_owned(),
        description: Some("locks of distlock".to_owned()),
        subjects: vec![format!("{prefix}>")],
        max_messages_per_subject: 1,
        max_age: ttl,
        storage: StorageType::File,
        discard: DiscardPolicy::New,
        allow_rollup: true,
        deny_delete: true,
        allow_direct: true,
        num_replicas: 1,
        ..Config::default()
    }
}

fn reconnect_pause(attempts: usize) -> Duration {
    let doublings = u32::try_from(attempts.min(10)).unwrap_or(10);
    Duration::from_millis(1 << doublings).min(MAX_RECONNECT_PAUSE)
}
