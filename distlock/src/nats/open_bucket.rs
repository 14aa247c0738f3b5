//! The entries of a bucket.
//!
//! Each write is conditional: it names the revision after which alone it counts. So a write that
//! comes late changes nothing once another one has come before it. Reads ask the stream's leader.

use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::jetstream::context::{
    ContextBuilder, CreateStreamErrorKind, GetStreamErrorKind, PublishErrorKind,
};
use async_nats::jetstream::stream::{
    Config, DiscardPolicy, LastRawMessageErrorKind, RetentionPolicy, StorageType, Stream,
};
use async_nats::jetstream::{Context, ErrorCode};
use async_nats::{HeaderMap, Subscriber, header};
use futures_util::TryStreamExt;
use tokio::time::Instant;

use super::MIN_TTL;
use super::bucket::NatsError;
use crate::{LockError, LockOptions};

/// For how long the settings of a bucket are taken to be those that were read.
const MAX_INFO_AGE: Duration = Duration::from_secs(1);
/// How long one page of the list of keys may take, 100,000 of them.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);
/// The header of a write that ends a value.
const OPERATION: &str = "KV-Operation";
const DELETED: &str = "DEL";
/// The header of a marker that the server writes in place of an entry that is too old (2.11).
const MARKER_REASON: &str = "Nats-Marker-Reason";

/// The last write to a key.
pub(crate) struct Entry {
    /// Its number in the bucket; 0 if there is none.
    pub(crate) revision: u64,
    /// `None` if it is none, or deleted.
    pub(crate) value: Option<String>,
}

/// A bucket as it was when it was read.
pub(crate) struct OpenBucket {
    jetstream: Context,
    stream: Stream,
    /// What the subjects of all keys begin with.
    prefix: String,
    read_at: Instant,
    /// Of the client, the number of the connection by which it was read.
    connection: u64,
}

impl OpenBucket {
    /// Reads the bucket of that name; `None` if there is none. Refuses one that would lose locks.
    pub(crate) async fn find(jetstream: &Context, name: &str) -> Result<Option<Self>, NatsError> {
        let (read_at, connection) = (Instant::now(), connections(jetstream));
        let stream = match jetstream.get_stream(stream_name(name)).await {
            Ok(stream) => stream,
            Err(error) => {
                return match error.kind() {
                    GetStreamErrorKind::JetStream(error)
                        if error.error_code() == ErrorCode::STREAM_NOT_FOUND =>
                    {
                        Ok(None)
                    }
                    _ => Err(NatsError::Unanswered(error.to_string())),
                };
            }
        };
        let prefix = key_prefix(name);
        check(&stream.cached_info().config, &prefix).map_err(|limit| {
            let limit = limit.to_owned();
            NatsError::Refused(LockError::BadRequest { field: "NATS bucket", limit })
        })?;
        Ok(Some(Self { jetstream: jetstream.clone(), stream, prefix, read_at, connection }))
    }

    /// Makes a bucket with that maximum age, unless another program has made it.
    pub(crate) async fn make(
        jetstream: &Context,
        name: &str,
        ttl: Duration,
    ) -> Result<(), NatsError> {
        match jetstream.create_stream(new_bucket(name, ttl)).await {
            Ok(_) => Ok(()),
            Err(error) => match error.kind() {
                CreateStreamErrorKind::JetStream(error)
                    if error.error_code() == ErrorCode::STREAM_NAME_EXIST =>
                {
                    Ok(())
                }
                _ => Err(NatsError::Unanswered(error.to_string())),
            },
        }
    }

    /// How long the server keeps an entry.
    pub(crate) fn ttl(&self) -> Duration {
        self.stream.cached_info().config.max_age
    }

    /// Whether its settings may still be relied on.
    pub(crate) fn is_fresh(&self) -> bool {
        self.read_at.elapsed() < MAX_INFO_AGE.min(self.ttl() / 3)
            && self.connection == connections(&self.jetstream)
    }

    /// Whether that is the same bucket, and not one that was made again under its name.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.stream.cached_info().created == other.stream.cached_info().created
    }

    /// What is written to that key from now on.
    pub(crate) async fn subscribe(&self, key: &str) -> Result<Subscriber, NatsError> {
        let subscribed = self.jetstream.client().subscribe(self.subject(key)).await;
        subscribed.map_err(|error| NatsError::Unanswered(error.to_string()))
    }

    /// The last write to that key.
    pub(crate) async fn read(&self, key: &str) -> Result<Entry, NatsError> {
        let last = self.stream.get_last_raw_message_by_subject(&self.subject(key)).await;
        match last {
            Ok(message) => {
                let text = String::from_utf8_lossy(&message.payload).into_owned();
                let value = is_value(&message.headers).then_some(text);
                Ok(Entry { revision: message.sequence, value })
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

    /// Writes if that revision is still the key's last; `None` deletes. Returns the new revision.
    pub(crate) async fn write(
        &self,
        key: &str,
        after: u64,
        value: Option<&str>,
    ) -> Result<u64, NatsError> {
        let mut headers = HeaderMap::new();
        headers.insert(header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, after.to_string().as_str());
        if value.is_none() {
            headers.insert(OPERATION, DELETED);
        }
        let value = value.unwrap_or_default().to_owned();
        let answered = async {
            let subject = self.subject(key);
            self.jetstream.publish_with_headers(subject, headers, value.into()).await?.await
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

    /// The keys that begin so, those of deleted entries as well, in their order.
    pub(crate) async fn keys(&self, prefix: &str) -> Result<Vec<String>, NatsError> {
        let failed = |error: &dyn std::fmt::Display| NatsError::Unanswered(error.to_string());
        let patient = ContextBuilder::new().timeout(LIST_TIMEOUT).ack_timeout(LIST_TIMEOUT);
        let patient = patient.build(self.jetstream.client());
        let stream = patient.get_stream_no_info(&self.stream.cached_info().config.name).await;
        let stream = stream.map_err(|error| failed(&error))?;
        let mut info = stream.info_with_subjects(format!("{}>", self.prefix)).await;
        let subjects = info.as_mut().map_err(|error| failed(error))?;
        let mut keys = Vec::new();
        while let Some((subject, _)) = subjects.try_next().await.map_err(|error| failed(&error))? {
            if let Some(key) = subject.strip_prefix(&self.prefix)
                && key.starts_with(prefix)
            {
                keys.push(key.to_owned());
            }
        }
        keys.sort_unstable();
        // A key that is written between two pages may be on both.
        keys.dedup();
        Ok(keys)
    }

    fn subject(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }
}

/// Whether a write is a value, and not the end of one.
pub(crate) fn is_value(headers: &HeaderMap) -> bool {
    headers.get(MARKER_REASON).is_none()
        && headers.get(OPERATION).is_none_or(|operation| operation.as_str() == "PUT")
}

fn connections(jetstream: &Context) -> u64 {
    jetstream.client().statistics().connects.load(Ordering::Relaxed)
}

fn stream_name(bucket: &str) -> String {
    format!("KV_{bucket}")
}

fn key_prefix(bucket: &str) -> String {
    format!("$KV.{bucket}.")
}

/// Refuses settings by which the server would remove or hide the entry of a holder, or keep that of
/// a dead one; the error says what must be.
fn check(config: &Config, prefix: &str) -> Result<(), &'static str> {
    let is_limited = config.max_messages > 0 || config.max_bytes > 0;
    if !(MIN_TTL..=LockOptions::MAX).contains(&config.max_age) {
        Err("must have a maximum age of 100 ms to a day")
    } else if config.mirror.is_some() || !config.subjects.contains(&format!("{prefix}>")) {
        Err("must take the writes to its keys, and mirror no other one")
    } else if config.retention != RetentionPolicy::Limits || config.no_ack {
        Err("must keep entries that were read, and confirm writes")
    } else if is_limited && config.discard != DiscardPolicy::New {
        Err("must refuse writes beyond its limits, and not remove other entries")
    } else {
        Ok(())
    }
}

/// The stream behind a bucket, as NATS' own clients make it.
fn new_bucket(name: &str, ttl: Duration) -> Config {
    Config {
        name: stream_name(name),
        description: Some("locks of distlock".to_owned()),
        subjects: vec![format!("{}>", key_prefix(name))],
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_a_value_is_none() {
        assert!(is_value(&HeaderMap::new()));
        let with = |name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value);
            is_value(&headers)
        };
        assert!(with(OPERATION, "PUT"));
        assert!(!with(OPERATION, DELETED) && !with(OPERATION, "PURGE"));
        assert!(!with(MARKER_REASON, "MaxAge"));
    }

    #[test]
    fn a_bucket_that_would_lose_a_hold_is_refused() {
        let prefix = key_prefix("locks");
        let sound = || new_bucket("locks", Duration::from_secs(30));
        assert_eq!(check(&sound(), &prefix), Ok(()));
        let limited = Config { max_messages: 9, ..sound() };
        assert_eq!(check(&limited, &prefix), Ok(()), "writes beyond it are refused");
        let year = Duration::from_hours(24 * 365);
        for unsound in [
            Config { max_age: Duration::ZERO, ..sound() },
            Config { max_age: year, ..sound() },
            Config { subjects: vec!["other.>".to_owned()], ..sound() },
            Config { retention: RetentionPolicy::WorkQueue, ..sound() },
            Config { retention: RetentionPolicy::Interest, ..sound() },
            Config { no_ack: true, ..sound() },
            Config { discard: DiscardPolicy::Old, max_messages: 1, ..sound() },
            Config { discard: DiscardPolicy::Old, max_bytes: 1, ..sound() },
        ] {
            assert!(check(&unsound, &prefix).is_err(), "{unsound:?}");
        }
    }
}
