//! The history of a load, from its header to its last line.

use std::collections::HashMap;
use std::env;
use std::path::{Path, PathBuf};

use loadtest_measure::error::{Error, Result};
use tempfile::TempDir;

use crate::history::{Begin, Event, EventObserver, History, Offer, ReadError, Reader, Recorder};
use crate::plan::Plan;

/// Ids of the orders that each user was told of, by voucher and user.
pub type AcknowledgedOrders = HashMap<u64, HashMap<u64, Vec<u64>>>;

/// A history that is being written.
#[derive(Debug)]
pub struct HistoryFile {
    recorder: Recorder,
    path: PathBuf,
    /// The temporary folder of a file that was not asked for; removed with it.
    _folder: Option<TempDir>,
}

impl HistoryFile {
    /// Creates the file, in a temporary folder if none is named; `offered` are the units of each
    /// voucher of the plan.
    pub fn begin(plan: &Plan, file: Option<&Path>, offered: &[Option<i64>]) -> Result<Self> {
        Self::begin_with(plan, (file, &env::temp_dir()), offered, &[])
    }

    /// Creates the file with settings besides those of the plan, by name. If none is named, it is
    /// in a folder of its own in `temporary`.
    pub fn begin_with(
        plan: &Plan,
        (file, temporary): (Option<&Path>, &Path),
        offered: &[Option<i64>],
        settings: &[(&str, &str)],
    ) -> Result<Self> {
        let (path, folder) = if let Some(file) = file {
            (file.to_owned(), None)
        } else {
            let folder = tempfile::tempdir_in(temporary).map_err(|error| {
                Error::Setup(format!("there is no temporary folder for the history: {error}"))
            })?;
            (folder.path().join("history.jsonl.zst"), Some(folder))
        };
        let offers = plan.vouchers.iter().zip(offered);
        let offers = offers.map(|(&id, &offered)| Offer { id, offered }).collect();
        let users = plan.users.len() as u64;
        let mut begin = Begin::now(plan.target.to_string(), plan.seed, users, offers);
        begin.settings = plan.settings();
        let more = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        begin.settings.extend(more);
        Ok(Self { recorder: Recorder::create(&path, &begin)?, path, _folder: folder })
    }

    /// Where events go.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Shows each later event to the observer. Recorders that were cloned before do not.
    pub fn observe(&mut self, observer: EventObserver) {
        self.recorder.observe(observer);
    }

    /// Reads back which orders were acknowledged so far; they are what has to be asked for before
    /// the history ends.
    pub async fn acknowledged(&self) -> Result<AcknowledgedOrders> {
        self.recorder.flush().await;
        let path = self.path.clone();
        blocking(move || acknowledged(&path)).await
    }

    /// Reads back everything so far; a request under way has no end.
    pub async fn so_far(&self) -> Result<History> {
        self.recorder.flush().await;
        let path = self.path.clone();
        blocking(move || History::read_so_far(&path)).await
    }

    /// Writes the last line, and reads nothing back.
    pub async fn close(self) -> Result<()> {
        let Self { recorder, _folder, .. } = self;
        recorder.finish().await.map(drop)
    }

    /// Writes the last line and reads the whole file back.
    pub async fn end(self) -> Result<History> {
        let Self { recorder, path, _folder } = self;
        recorder.finish().await?;
        blocking(move || History::read(&path)).await
    }
}

async fn blocking<T: Send + 'static>(
    read: impl FnOnce() -> std::result::Result<T, ReadError> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(read).await;
    let done = done.map_err(|error| Error::Setup(format!("the reading broke off: {error}")))?;
    done.map_err(|error| Error::Setup(error.to_string()))
}

/// Reads the acknowledged orders of a file that is still being written. Besides them only requests
/// under way are kept.
fn acknowledged(path: &Path) -> std::result::Result<AcknowledgedOrders, ReadError> {
    let mut reader = Reader::open(path)?;
    let (mut under_way, mut found) = (HashMap::new(), AcknowledgedOrders::new());
    loop {
        match reader.next_event() {
            Ok(Some(Event::Invoke(invoke))) => {
                under_way.insert(invoke.n, (invoke.v, invoke.u));
            }
            Ok(Some(Event::Ok(ended))) => {
                let asked = under_way.remove(&ended.n);
                if let (Some((voucher, user)), Some(order)) = (asked, ended.o) {
                    found.entry(voucher).or_default().entry(user).or_default().push(order);
                }
            }
            Ok(Some(Event::Fail(ended) | Event::Unknown(ended))) => {
                under_way.remove(&ended.n);
            }
            Ok(Some(_)) => {}
            Ok(None) | Err(ReadError::CutOff { .. }) => return Ok(found),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::client::Target;
    use crate::history::{Completion, Invoke};
    use crate::tokens;

    #[tokio::test]
    async fn acknowledged_orders_are_read_back_while_the_history_grows() {
        let users = tokens::parse(r#"{"user_id":"7","token":"a"}"#).expect("tokens");
        let target = Target::parse("http://127.0.0.1:1").expect("a target");
        let plan = Plan::closed(target, 3, users.into(), 1);
        let recorded = HistoryFile::begin(&plan, None, &[Some(10)]).expect("a history");
        let into = recorded.recorder();
        let invoke = |n| Event::Invoke(Invoke { t: 1, n, u: 7, v: 3, k: Uuid::nil() });
        let ended = |n, o| Completion { t: 2, n, o, ..Completion::default() };
        for n in 0..4 {
            into.record(invoke(n)).await;
        }
        into.record(Event::Ok(ended(1, Some(100)))).await;
        into.record(Event::Fail(ended(0, Some(100)))).await;
        into.record(Event::Ok(ended(2, None))).await;
        let so_far = recorded.acknowledged().await.expect("readable");
        assert_eq!(so_far, AcknowledgedOrders::from([(3, HashMap::from([(7, vec![100])]))]));
        into.record(Event::Ok(ended(3, Some(101)))).await;
        let so_far = recorded.acknowledged().await.expect("readable");
        assert_eq!(so_far[&3][&7], [100, 101], "and again");
        let history = recorded.end().await.expect("whole");
        assert_eq!(history.records.len(), 4);
    }
}
