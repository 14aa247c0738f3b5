//! The race board on real servers, in a real browser: a local lock sells twice to a user, and the
//! distributed one beside it does not. Nothing is left running afterwards.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use browser::{Browser, Screen};
use serde_json::{Value, json};

#[path = "../../tests/service/report/browser.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod browser;

const LOADTEST: &str = env!("CARGO_BIN_EXE_loadtest");
/// From opening the page to the first violation on the screen.
const VIOLATION_WITHIN: Duration = Duration::from_secs(20);
/// The longest time to anything else, on a busy machine.
const DEADLINE: Duration = Duration::from_mins(2);
/// Between two looks.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A running `loadtest up --board`.
struct BoardProcess {
    child: Child,
    lines: Receiver<String>,
    url: String,
    folder: PathBuf,
}

impl BoardProcess {
    fn start() -> Self {
        let seckill = Path::new(LOADTEST).with_file_name("seckill");
        let missing = "is missing; `cargo build --workspace --bins` makes it";
        assert!(seckill.is_file(), "{} {missing}", seckill.display());
        let free = TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr());
        let port = free.expect("a free port").port().to_string();
        let mut command = Command::new(LOADTEST);
        command.args(["up", "--board", "--replicas", "1", "--port", &port, "--seckill"]);
        let mut child = command.arg(seckill).stdout(Stdio::piped()).spawn().expect("loadtest runs");
        let (sender, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _test_is_over = sender.send(line);
            }
        });
        let (url, folder) = (String::new(), PathBuf::new());
        let mut process = Self { child, lines, url, folder };
        let tokens = process.line_with(" --tokens ");
        let file = tokens.split_whitespace().skip_while(|word| *word != "--tokens").nth(1);
        process.folder =
            Path::new(file.expect("a file")).parent().map(PathBuf::from).expect("a folder");
        let line = process.line_with("race board");
        process.url = line.split_whitespace().last().map(String::from).expect("an address");
        process
    }

    fn line_with(&mut self, words: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(DEADLINE).unwrap_or_else(|_| panic!("no {words}"));
            if line.contains(words) {
                return line;
            }
        }
    }

    /// Ctrl-C. It must end well, and its servers and their folder must be gone.
    async fn interrupt(mut self) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", "INT", &pid]).status().expect("kill(1)");
        assert!(sent.success());
        self.line_with("Taking everything down.");
        let status = self.child.wait().expect("its end");
        assert_eq!(status.code(), Some(0));
        let folder = self.folder.clone();
        until("its folder is gone", DEADLINE, async || !folder.exists()).await;
        let left = processes_in(&folder);
        assert!(left.is_empty(), "still running: {left:?}");
    }
}

impl Drop for BoardProcess {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Command lines of processes that name the folder.
fn processes_in(folder: &Path) -> Vec<String> {
    let name = folder.display().to_string();
    let all = std::fs::read_dir("/proc").expect("/proc").flatten();
    let lines = all.filter_map(|it| std::fs::read_to_string(it.path().join("cmdline")).ok());
    lines.filter(|line| line.contains(&name) && !line.contains("testbed-reaper")).collect()
}

async fn until(what: &str, within: Duration, mut is_so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < within, "not within {within:?}: {what}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// A page of the board.
struct Page {
    browser: Browser,
}

impl Page {
    /// Waits until the expression is true.
    async fn shows(&self, expression: &str, within: Duration) {
        let body = format!("return Boolean({expression})");
        until(expression, within, async || self.browser.run(&body).await == json!(true)).await;
    }

    async fn text(&self, selector: &str) -> String {
        let body = format!("return document.querySelector('{selector}').innerText");
        self.browser.run(&body).await.as_str().expect("a text").to_owned()
    }

    async fn click(&self, selector: &str) {
        let found = self.browser.find(selector).await;
        self.browser.click(&found[0]).await;
    }

    /// Presses a button of a lane's faults, and waits for what was seen.
    async fn inject(&self, (lane, fault): (&str, &str), seen: &str) {
        self.click(&format!("#lane-{lane} .faults [data-t='fault_{fault}']")).await;
        let answer = format!("document.querySelector('#lane-{lane} .answer').textContent");
        self.shows(&format!("{answer}.includes('{seen}')"), DEADLINE).await;
    }

    async fn numbers(&self, counter: &str) -> Vec<u64> {
        let text = self.text(&format!("{counter} dd")).await;
        let parts = text.split('/').map(|part| part.trim().parse());
        parts.collect::<Result<_, _>>().expect("numbers")
    }

    async fn has_both_verdicts(&self) {
        for lane in ["left", "right"] {
            let verdict = format!("document.querySelector('#lane-{lane} .verdict:not([hidden])')");
            self.shows(&verdict, DEADLINE).await;
        }
    }

    /// What is shown at the end of the default race.
    async fn tells_how_it_ended(&self) {
        let left = self.text("#lane-left .outcome").await;
        let right = self.text("#lane-right .outcome").await;
        assert!(left.contains(" of 300 units") && !left.contains("twice: 0."), "{left}");
        assert!(right.contains("Oversold: 0. Users who bought twice: 0."), "{right}");
        let proofs = self.browser.find("#lane-left .broken button").await;
        assert!(!proofs.is_empty(), "requests prove what the left lane broke");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_local_lock_sells_twice_within_20_s_of_opening_and_the_distributed_one_never() {
    let board = tokio::task::spawn_blocking(BoardProcess::start).await.expect("a board");
    let second = tokio::task::spawn_blocking(BoardProcess::start).await.expect("another board");
    assert_ne!(address(&board.url), address(&second.url), "two boards at once");
    let page = Page { browser: Browser::start().await };
    page.browser.open(&board.url).await;
    let red = "document.querySelector('#lane-left .counters .second.bad')";
    page.shows(red, VIOLATION_WITHIN).await;
    page.has_both_verdicts().await;
    page.tells_how_it_ended().await;
    let [sold, second_orders] =
        [page.numbers("#lane-left .sold").await, page.numbers("#lane-left .second").await];
    assert!(sold[0] > sold[1] && second_orders[0] > 0, "{sold:?} {second_orders:?}");
    assert_eq!(page.numbers("#lane-right .second").await, [0]);
    assert_eq!(page.text("#lane-right .first dd").await, "–");
    times_can_be_chosen(&page).await;
    let saved = page.browser.run(SAVED).await;
    faults_are_injected(&page).await;
    a_frozen_replica_is_named(&page, board.child.id()).await;
    let logged = page.browser.logged().await;
    assert!(logged.iter().all(|line| line.contains("409")), "the page logged {logged:?}");
    replays_offline(&page, saved.as_str().expect("a page")).await;
    the_address_and_the_form_choose_cells(&page, &second.url).await;
    drop(page);
    second.interrupt().await;
    board.interrupt().await;
}

fn address(url: &str) -> &str {
    url.split_once('?').map_or(url, |(address, _)| address)
}

/// Asks for a second freeze of one replica, as another page may.
const FROZEN_AGAIN: &str = "return (async () => { \
    const token = new URLSearchParams(location.search).get('token'); \
    const answer = await fetch('fault', { method: 'POST', \
    headers: { 'content-type': 'application/json', 'x-board-token': token }, \
    body: JSON.stringify({ lane: 'left', action: 'freeze', replica: 1 }) }); \
    return [answer.status, (await answer.json()).code]; })()";

/// The saved page, as the link gives it.
const SAVED: &str = "return (async () => { \
    const answer = await fetch(document.getElementById('save').href); \
    return await answer.text(); })()";

/// A race that lasts for longer: each button of the faults does what it says.
async fn faults_are_injected(page: &Page) {
    let cells = "left=local,user,off,3&right=redisson,user,off,3";
    let race = format!("location.hash = 'seed=3&users=900&stock=900&{cells}'");
    page.browser.run(&race).await;
    let ready = "!document.querySelector('#lane-left .faults button').disabled";
    page.shows(ready, DEADLINE).await;
    // In the right lane some of these may take a lock from its holder.
    page.inject(("left", "freeze"), "r1 is in state T").await;
    let answer = page.browser.run(FROZEN_AGAIN).await;
    assert_eq!(answer, json!([409, "fault_not_allowed"]));
    for (fault, seen) in [
        ("thaw", "r1 is in state"),
        ("flush-redis", "FLUSHALL removed"),
        ("kill", "has ended"),
        ("restart", "r1 was process"),
        ("cut-redis", "connections cut"),
        ("heal-redis", "accepted again"),
        // At the end a replica is started again whose link is cut.
        ("cut-redis", "connections cut"),
        ("kill", "has ended"),
    ] {
        page.inject(("left", fault), seen).await;
    }
    // The log of the left lane is full of second orders.
    page.inject(("right", "heal-redis"), "accepted again").await;
    page.shows("document.querySelector('#lane-right .log .fault')", DEADLINE).await;
    page.has_both_verdicts().await;
    let log = "document.querySelector('#lane-left .log').textContent";
    for healed in ["Heal Redis r1: done", "Restart r1: done"] {
        page.shows(&format!("{log}.includes('{healed}')"), DEADLINE).await;
    }
    let marks = "[...document.querySelectorAll('#ticks .glyph')].map((it) => it.textContent)";
    page.shows(&format!("['↻', '✓'].every((it) => {marks}.includes(it))"), DEADLINE).await;
}

/// The board did not freeze that replica, so it cannot know before the next race.
async fn a_frozen_replica_is_named(page: &Page, board: u32) {
    let replica = children_of(board).find(|(_, line)| {
        ["--lock local", "--replica-id r2"].iter().all(|flag| line.contains(flag))
    });
    let (pid, _) = replica.expect("a replica of the left lane");
    let sent = Command::new("kill").args(["-s", "STOP", &pid]).status().expect("kill(1)");
    assert!(sent.success());
    let cells = "left=local,user,off,3&right=redisson,user,off,3";
    page.browser.run(&format!("location.hash = 'seed=4&users=30&stock=30&{cells}'")).await;
    let named = "r2 was frozen before the race, so this lane got new servers";
    let log = "document.querySelector('#lane-left .log').textContent";
    page.shows(&format!("{log}.includes('{named}')"), DEADLINE).await;
    page.has_both_verdicts().await;
}

/// The processes that this one has started, with their command lines.
fn children_of(parent: u32) -> impl Iterator<Item = (String, String)> {
    let all = std::fs::read_dir("/proc").expect("/proc").flatten();
    all.filter_map(move |it| {
        let status = std::fs::read_to_string(it.path().join("status")).ok()?;
        let line = std::fs::read(it.path().join("cmdline")).ok()?;
        let is_child = status.lines().any(|line| line == format!("PPid:\t{parent}"));
        let words = String::from_utf8_lossy(&line).replace('\0', " ");
        is_child.then(|| (it.file_name().to_string_lossy().into_owned(), words))
    })
}

/// Jump, step, back, and the counters that belong to the moment.
async fn times_can_be_chosen(page: &Page) {
    let clock = async || page.text("#clock").await;
    page.click("#jump").await;
    let first = page.text("#lane-left .first dd").await;
    let at_first = format!("document.getElementById('clock').innerText.startsWith('{first}')");
    page.shows(&at_first, DEADLINE).await;
    page.shows("document.querySelector('#lane-left .second dd').innerText === '1'", DEADLINE).await;
    let before = clock().await;
    page.click("#back").await;
    page.shows("document.querySelector('#lane-left .second dd').innerText === '0'", DEADLINE).await;
    page.shows("document.querySelector('#lane-left .verdict').hidden", DEADLINE).await;
    page.click("#step").await;
    let back = format!("document.getElementById('clock').innerText === '{before}'");
    page.shows(&back, DEADLINE).await;
    let address: Value = page.browser.run("return location.hash").await;
    let address = address.as_str().expect("text");
    assert!(address.contains("seed=1&") && address.contains("left=local,user,off,3"), "{address}");
}

/// What the address asks for is raced; the form refuses what is beyond a limit and names both, and
/// then races other cells.
async fn the_address_and_the_form_choose_cells(page: &Page, url: &str) {
    let browser = &page.browser;
    browser.look(Screen { width: 1280, dark: false }).await;
    let cells = "left=none,voucher,off,2&right=lua-release,voucher,off,2";
    browser.open(&format!("{url}#seed=5&users=60&stock=10&{cells}")).await;
    // The language that was chosen for the saved page is that of another origin.
    page.has_both_verdicts().await;
    assert!(page.text("#lane-left h2").await.ends_with(": none"));
    let left = page.text("#lane-left .outcome").await;
    assert!(!left.contains("Oversold: 0."), "{left}");
    let right = page.text("#lane-right .outcome").await;
    assert_eq!(right, "10 orders of 10 units. Oversold: 0. Users who bought twice: 0.");
    assert!(browser.find("#lane-right .broken li").await.is_empty(), "all rules hold");
    let may_start = "!document.getElementById('start').disabled";
    page.shows(may_start, DEADLINE).await;
    browser.run(&enter("[name=users]", "5000")).await;
    page.click("#start").await;
    let told = "document.getElementById('problem').textContent === \
                'Users must be a whole number from 10 to 1000.'";
    page.shows(told, DEADLINE).await;
    page.shows("document.activeElement.name === 'users'", DEADLINE).await;
    browser.run(&enter("[name=users]", "30")).await;
    browser.run(&enter("[data-lane=right] [name=lock]", "redlock")).await;
    page.click("#start").await;
    page.shows("location.hash.includes('right=redlock,voucher,off,2')", DEADLINE).await;
    page.has_both_verdicts().await;
    let right = page.text("#lane-right .outcome").await;
    assert!(right.contains("Oversold: 0. Users who bought twice: 0."), "{right}");
}

fn enter(selector: &str, value: &str) -> String {
    format!("document.querySelector('#form {selector}').value = '{value}'")
}

/// The saved file shows the same end without a server, in both languages and on a phone.
async fn replays_offline(page: &Page, saved: &str) {
    assert!(saved.len() <= 1_500_000, "{} bytes", saved.len());
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("race.html");
    std::fs::write(&file, saved).expect("written");
    let browser = &page.browser;
    browser.requested().await;
    browser.look(Screen { width: 390, dark: true }).await;
    browser.open(&format!("file://{}", file.display())).await;
    page.shows("document.querySelector('#lane-left .counters .second.bad')", DEADLINE).await;
    browser.run(TO_THE_END).await;
    page.has_both_verdicts().await;
    page.tells_how_it_ended().await;
    let wide = browser.run("return document.documentElement.scrollWidth").await;
    assert_eq!(wide, 390, "nothing is cut off on a phone");
    page.click("#language").await;
    assert_eq!(browser.run("return document.documentElement.lang").await, "zh");
    let outcome = page.text("#lane-right .outcome").await;
    assert!(outcome.contains("超卖：0"), "{outcome}");
    let asked = browser.requested().await;
    assert!(
        asked.iter().all(|url| url.starts_with("file:") || url.starts_with("data:")),
        "{asked:?}"
    );
    let logged = browser.logged().await;
    assert!(logged.is_empty(), "the page logged {logged:?}");
}

/// Drags the scrubber to its end.
const TO_THE_END: &str = "const it = document.getElementById('scrubber'); it.value = it.max; \
    it.dispatchEvent(new Event('input'));";
