//! Writes a history while the load runs.
//!
//! Events go through a bounded queue to one thread that encodes and compresses them, so a request
//! pays for a push. Where the disk is slower than the load the queue fills and the load waits; that
//! time is counted as the generator's own cost. Nothing is dropped: after an error of the disk the
//! rest is discarded and [`Recorder::finish`] says so. A process that ends without it leaves a file
//! without its last line, which no reader takes for whole.

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use loadtest_measure::error::{Error, Result};
use tokio::sync::{mpsc, oneshot};

use crate::history::event::{Begin, End, Event};

/// Events that wait to be written: about half a second of the fastest load.
const QUEUE: usize = 65_536;
/// Events that are encoded together.
const BATCH: usize = 8192;
/// How long the thread lets events gather, so that it need not be woken for each.
const GATHER_TIME: Duration = Duration::from_millis(1);
/// zstd's fastest usual level: the load runs on the same machine.
const ZSTD_LEVEL: i32 = 1;

enum Message {
    Event(Event<'static>),
    /// Earlier events have to be in the file.
    Flush(oneshot::Sender<()>),
    /// All is recorded.
    Finish(oneshot::Sender<io::Result<Written>>),
}

/// What a finished history holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Lines.
    pub events: u64,
    /// Requests among them.
    pub requests: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// How long requests waited, all added, because the file was slower than the load.
    pub waited: Duration,
}

/// What sees each event before it is queued. It runs in the task that records, so it must be short
/// and must not block.
#[derive(Clone)]
pub struct EventObserver(Arc<dyn Fn(&Event<'static>) + Send + Sync>);

impl EventObserver {
    /// An observer that calls this function.
    pub fn new(observe: impl Fn(&Event<'static>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(observe))
    }
}

impl fmt::Debug for EventObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventObserver")
    }
}

/// Where events go; clones write the same file.
#[derive(Debug, Clone)]
pub struct Recorder {
    queue: mpsc::Sender<Message>,
    path: Arc<PathBuf>,
    zero: Instant,
    waited_ns: Arc<AtomicU64>,
    observer: Option<EventObserver>,
}

impl Recorder {
    /// Creates the file and writes its header. Time 0 of the history is now.
    pub fn create(path: &Path, begin: &Begin) -> Result<Self> {
        let zero = Instant::now();
        let writer = Writer::create(path, begin, zero).map_err(|error| {
            Error::Usage(format!("the history {} cannot be written: {error}", path.display()))
        })?;
        let (queue, events) = mpsc::channel(QUEUE);
        std::thread::Builder::new()
            .name("history".to_owned())
            .spawn(move || writer.run(events))
            .map_err(|error| Error::Setup(format!("no thread for the history: {error}")))?;
        let (path, waited_ns) = (Arc::new(path.to_owned()), Arc::default());
        Ok(Self { queue, path, zero, waited_ns, observer: None })
    }

    /// Shows each event that this recorder, or a later clone of it, records to the observer.
    pub fn observe(&mut self, observer: EventObserver) {
        self.observer = Some(observer);
    }

    /// Nanoseconds from the history's begin to a moment; 0 if it was before.
    pub fn since(&self, moment: Instant) -> u64 {
        nanoseconds(moment.saturating_duration_since(self.zero))
    }

    /// Nanoseconds from the history's begin to now.
    pub fn now(&self) -> u64 {
        self.since(Instant::now())
    }

    /// How long callers of [`Recorder::record`] have waited for the file so far, all added.
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited_ns.load(Ordering::Relaxed))
    }

    /// Records an event; waits only while the queue is full.
    pub async fn record(&self, event: Event<'static>) {
        if let Some(EventObserver(observe)) = &self.observer {
            observe(&event);
        }
        let Err(refused) = self.queue.try_send(Message::Event(event)) else { return };
        let since = Instant::now();
        // It fails only if the thread is gone, which `finish` reports.
        let _ = self.queue.send(refused.into_inner()).await;
        self.waited_ns.fetch_add(nanoseconds(since.elapsed()), Ordering::Relaxed);
    }

    /// Waits until what was recorded so far can be read in the file, which is cut off there. An
    /// error of the disk is left to [`Recorder::finish`].
    pub async fn flush(&self) {
        let (done, flushed) = oneshot::channel();
        let _ = self.queue.send(Message::Flush(done)).await;
        // It fails only if the thread is gone.
        let _ = flushed.await;
    }

    /// Writes the last line and waits until the file is on the disk. Events that come later are not
    /// in it. Fails if anything could not be written.
    pub async fn finish(self) -> Result<Written> {
        let (done, finished) = oneshot::channel();
        let _ = self.queue.send(Message::Finish(done)).await;
        let failed = |why: &str| {
            Error::Setup(format!("the history {} could not be written: {why}", self.path.display()))
        };
        match finished.await {
            Ok(Ok(written)) => Ok(Written { waited: self.waited(), ..written }),
            Ok(Err(error)) => Err(failed(&error.to_string())),
            Err(_) => Err(failed("its thread ended")),
        }
    }
}

struct Writer {
    file: zstd::Encoder<'static, BufWriter<File>>,
    zero: Instant,
    text: Vec<u8>,
    events: u64,
    requests: u64,
    failed: Option<io::Error>,
}

impl Writer {
    fn create(path: &Path, begin: &Begin, zero: Instant) -> io::Result<Self> {
        let file = zstd::Encoder::new(BufWriter::new(File::create(path)?), ZSTD_LEVEL)?;
        let (text, events, requests) = (Vec::new(), 0, 0);
        let mut writer = Self { file, zero, text, events, requests, failed: None };
        writer.add(&Event::Begin(begin.clone()))?;
        writer.flush()?;
        Ok(writer)
    }

    fn run(mut self, mut queue: mpsc::Receiver<Message>) {
        let mut batch = Vec::with_capacity(BATCH);
        while queue.blocking_recv_many(&mut batch, BATCH) > 0 {
            let gather = batch.len() < BATCH;
            for message in batch.drain(..) {
                match message {
                    Message::Event(event) => self.take(&event),
                    Message::Flush(done) => {
                        if self.failed.is_none() {
                            self.failed = self.flush().err();
                        }
                        // The receiver may be gone.
                        let _ = done.send(());
                    }
                    Message::Finish(done) => {
                        // The receiver may be gone.
                        let _ = done.send(self.finish());
                        return;
                    }
                }
            }
            if self.failed.is_none() {
                self.failed = self.write().err();
            }
            if gather {
                std::thread::sleep(GATHER_TIME);
            }
        }
    }

    fn take(&mut self, event: &Event<'_>) {
        if self.failed.is_none() {
            self.failed = self.add(event).err();
        }
    }

    fn add(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.events += 1;
        self.requests += u64::from(matches!(event, Event::Invoke(_)));
        serde_json::to_writer(&mut self.text, event)?;
        self.text.push(b'\n');
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        self.file.write_all(&self.text)?;
        self.text.clear();
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write()?;
        self.file.flush()
    }

    fn finish(mut self) -> io::Result<Written> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let (t, requests, events) = (nanoseconds(self.zero.elapsed()), self.requests, self.events);
        self.add(&Event::End(End { t, requests, events }))?;
        self.write()?;
        let file = self.file.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        let bytes = file.metadata()?.len();
        Ok(Written { events: self.events, requests, bytes, waited: Duration::ZERO })
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
