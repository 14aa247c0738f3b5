use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Read as _;

use uuid::Uuid;

use super::*;
use crate::history::event::{
    Account, AuditMoment, Completion, Condition, EarlierOrder, EffectEvent, Invoke, Mark, Offer,
    Order, ServiceAudit, Source,
};
use crate::history::final_state::Audit;
use crate::history::{ReadError, Reader};

fn header() -> Begin {
    let offer = Offer { id: u64::MAX, offered: Some(100) };
    let mut begin = Begin::now("http://127.0.0.1:1".into(), 7, 3, vec![offer]);
    begin.settings = BTreeMap::from([("lock".to_owned(), "redisson".to_owned())]);
    begin
}

fn invoke(n: u32) -> Event<'static> {
    Event::Invoke(Invoke { t: u64::from(n), n, u: u64::MAX, v: 1, k: Uuid::from_u128(n.into()) })
}

/// One event of each kind but the header and the end, with and without what may be absent.
fn one_of_each() -> Vec<Event<'static>> {
    let full = Completion {
        t: 9,
        n: 1,
        c: Some("sold_out".into()),
        o: Some(u64::MAX),
        r: Some(Cow::from("r\"1")),
        s: Some(409),
        h: Some([3, 8]),
        w: 2,
        l: true,
        d: Some(5),
        f: Some([7, 8]),
    };
    let tables = BTreeMap::from([("orders".to_owned(), "lab_orders".to_owned())]);
    let account = Account {
        v: 1,
        granted: None,
        left: Some(-1),
        orders: 1,
        source: Source::Database,
        tables,
    };
    vec![
        invoke(1),
        Event::Ok(full.clone()),
        Event::Fail(full.clone()),
        Event::Unknown(full),
        Event::Unknown(Completion { t: 10, n: 2, ..Completion::default() }),
        Event::Mark(Mark { t: 3, what: "fault".into(), name: "freeze".into(), ..Mark::default() }),
        Event::Condition(Condition { what: "x".into(), met: true, detail: "y".into() }),
        Event::Order(Order { v: 1, o: 2, u: 3, x: false, k: None }),
        Event::Order(Order { v: 1, o: 4, u: 5, x: true, k: Some(u32::MAX) }),
        Event::Earlier(EarlierOrder { v: 1, o: 2 }),
        Event::Account(account),
        Event::Audit(ServiceAudit {
            v: 1,
            when: AuditMoment::After,
            said: Audit::of(&[], 1, 1, ["a", "b", "c"]),
        }),
        Event::Effect(EffectEvent { v: 1, res: "redisson:x".into(), seq: 1, token: 2, o: 3 }),
    ]
}

fn counted(path: &Path) -> (u64, std::result::Result<bool, ReadError>) {
    let mut reader = Reader::open(path).expect("opened");
    let mut ended = false;
    loop {
        match reader.next_event() {
            Ok(Some(event)) => ended = matches!(event, Event::End(_)),
            Ok(None) => return (reader.number(), Ok(ended)),
            Err(error) => return (reader.number(), Err(error)),
        }
    }
}

#[tokio::test]
async fn what_was_recorded_is_read_back_between_header_and_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("h.jsonl.zst");
    let begin = header();
    let recorder = Recorder::create(&path, &begin).expect("created");
    let mut expected = vec![Event::Begin(begin)];
    for event in one_of_each() {
        recorder.record(event.clone()).await;
        expected.push(event);
    }
    let written = recorder.finish().await.expect("written");
    assert_eq!((written.requests, written.events), (1, expected.len() as u64 + 1));
    assert_eq!(written.bytes, std::fs::metadata(&path).expect("there").len());
    let mut reader = Reader::open(&path).expect("opened");
    for event in expected {
        assert_eq!(reader.next_event().expect("read"), Some(event));
    }
    let end = reader.next_event().expect("read");
    let Some(Event::End(End { requests: 1, events, .. })) = end else { panic!("{end:?}") };
    assert_eq!(events + 1, written.events);
    assert_eq!(reader.next_event().expect("read"), None);
}

#[tokio::test]
async fn more_events_than_the_queue_holds_wait_and_are_all_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("h.jsonl.zst");
    let recorder = Recorder::create(&path, &header()).expect("created");
    let events = u32::try_from(QUEUE).expect("small") * 3;
    let writers = [0, 1].map(|half| {
        let recorder = recorder.clone();
        tokio::spawn(async move {
            for n in (half..events).step_by(2) {
                recorder.record(invoke(n)).await;
            }
        })
    });
    for writer in writers {
        writer.await.expect("recorded");
    }
    let written = recorder.finish().await.expect("written");
    assert_eq!(written.requests, u64::from(events));
    assert!(written.waited > Duration::ZERO, "the queue was full");
    let (lines, ended) = counted(&path);
    assert_eq!(lines, written.events);
    assert!(ended.expect("whole"));
}

#[tokio::test]
async fn a_recorder_that_is_dropped_leaves_a_file_without_its_last_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("h.jsonl.zst");
    let recorder = Recorder::create(&path, &header()).expect("created");
    recorder.record(invoke(1)).await;
    drop(recorder);
    let (_, ended) = counted(&path);
    assert!(!ended.unwrap_or(false));
}

#[tokio::test]
async fn a_file_that_cannot_be_created_or_has_no_room_is_a_usage_error() {
    for path in ["/nonexistent/h.jsonl.zst", "/dev/full"] {
        let error = Recorder::create(Path::new(path), &header()).expect_err(path);
        assert!(matches!(error, Error::Usage(_)), "{error}");
        assert!(error.to_string().contains(path), "{error}");
    }
}

#[tokio::test]
async fn an_error_in_the_middle_blocks_no_writer_and_is_reported_at_the_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
    assert!(made.success());
    let (there, path) = (std::sync::mpsc::channel(), pipe.clone());
    let (close, closed) = there;
    let reader = std::thread::spawn(move || {
        let mut file = File::open(path).expect("opened");
        file.read_exact(&mut [0; 16]).expect("the header's first bytes");
        closed.recv().expect("told to close");
    });
    let recorder = Recorder::create(&pipe, &header()).expect("created");
    close.send(()).expect("still reading");
    reader.join().expect("closed");
    for n in 0..u32::try_from(QUEUE).expect("small") * 2 {
        recorder.record(invoke(n)).await;
    }
    let error = recorder.finish().await.expect_err("nobody reads");
    assert!(error.to_string().contains("could not be written"), "{error}");
}

#[tokio::test]
async fn an_observer_sees_what_is_recorded_from_then_on_also_by_later_clones() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("observed.zst");
    let mut recorder = Recorder::create(&file, &header()).expect("created");
    recorder.record(invoke(1)).await;
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let sink = seen.clone();
    recorder.observe(EventObserver::new(move |event| {
        sink.lock().expect("no panic").push(event.clone());
    }));
    let clone = recorder.clone();
    for event in one_of_each() {
        clone.record(event).await;
    }
    recorder.record(invoke(2)).await;
    let expected: Vec<_> = one_of_each().into_iter().chain([invoke(2)]).collect();
    assert_eq!(*seen.lock().expect("no panic"), expected);
    drop(clone);
    let written = recorder.finish().await.expect("written");
    assert_eq!(written.events, expected.len() as u64 + 3, "with the header, the first, the end");
}
