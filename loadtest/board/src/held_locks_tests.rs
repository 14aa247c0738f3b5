use super::*;

/// How long anything may take on a busy machine.
const DEADLINE: Duration = Duration::from_secs(20);

fn shell(script: &str) -> LockSource {
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script]);
    LockSource::Command(Box::new(command), ReplicaProcesses::default())
}

/// Asks until that is the state, with that reason.
async fn shows(watch: &LockWatch, state: ListState, reason: Option<&str>) {
    let begun = Instant::now();
    loop {
        let held = watch.read();
        if (held.state, held.reason.as_deref()) == (state, reason) {
            return;
        }
        assert!(begun.elapsed() < DEADLINE, "{held:?}");
        sleep(POLL_INTERVAL).await;
    }
}

const EMPTY_LIST: &str = "{\"locks\":[],\"failures\":[]}";

#[tokio::test]
async fn a_list_is_shown_while_the_inspector_runs_and_a_silent_one_is_named() {
    let watch = LockWatch::default();
    let _interest = watch.read();
    let script = format!("echo '{EMPTY_LIST}'; exec sleep 600");
    let read = async {
        loop {
            watch.follow(shell(&script), 0).await;
        }
    };
    tokio::select! {
        () = read => {}
        () = async {
            shows(&watch, ListState::Listed, None).await;
            shows(&watch, ListState::Silent, None).await;
        } => {}
    }
    watch.change();
    watch.show(EMPTY_LIST, &ReplicaProcesses::default(), 0);
    assert_eq!(watch.read().state, ListState::Opening, "a list of other servers is not shown");
}

#[tokio::test]
async fn an_inspector_that_ends_says_why() {
    for (script, state, why) in [
        ("echo 'seckill: names only' >&2; exit 80", ListState::Unlisted, None),
        ("echo one >&2; echo two >&2; exit 69", ListState::Failed, Some("two")),
        ("echo no JSON; exec sleep 600", ListState::Failed, Some("its list is no JSON")),
        ("exit 69", ListState::Failed, Some("no message")),
        ("echo 'error: a flag' >&2; exit 2", ListState::Failed, Some("error: a flag")),
        (
            "head -c 5000000 /dev/zero | tr '\\0' x; exec sleep 600",
            ListState::Failed,
            Some("its list is too long"),
        ),
    ] {
        let watch = LockWatch::default();
        let _interest = watch.read();
        let shown = async {
            loop {
                watch.follow(shell(script), 0).await;
            }
        };
        tokio::select! {
            () = shown => {}
            () = shows(&watch, state, why) => {}
        }
    }
}

#[tokio::test]
async fn an_inspector_ends_when_no_page_asks() {
    let watch = LockWatch::default();
    let _interest = watch.read();
    let ended = tokio::time::timeout(DEADLINE, watch.follow(shell("exec sleep 600"), 0)).await;
    assert!(ended.is_ok(), "it runs on");
    assert_eq!(watch.read().state, ListState::Opening);
}
