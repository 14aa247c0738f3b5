//! A headless Chromium, driven by chromedriver (`WebDriver` of the W3C), that tells what a page
//! logged and what it asked the network for.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use reqwest::{Client, Method};
use serde_json::{Value, json};

/// Chromium without its windows, in its package of Debian: a start takes 0.7 s of processor time
/// instead of 2.3 s. Not the script in `/usr/bin`: chromedriver would kill that alone.
const HEADLESS_SHELL: &str = "/usr/lib/chromium/chromium-headless-shell";
/// How long one command may take; a busy machine starts a browser slowly.
const DEADLINE: Duration = Duration::from_mins(1);
/// How long a page may take to show what it is asked to show.
const SHOWN_WITHIN: Duration = Duration::from_secs(10);
/// How long the browser may take to end.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// A browser of one's own; it ends when this is dropped.
pub(crate) struct Browser {
    driver: Child,
    address: SocketAddr,
    client: Client,
    session: String,
}

/// How the page is looked at.
#[derive(Clone, Copy)]
pub(crate) struct Screen {
    pub(crate) width: u32,
    pub(crate) dark: bool,
}

impl Browser {
    pub(crate) async fn start() -> Self {
        Self::start_with(json!({})).await
    }

    /// Starts with these preferences of the log of performance.
    pub(crate) async fn start_with(log_preferences: Value) -> Self {
        let (driver, address) = tokio::task::spawn_blocking(start_driver).await.expect("a driver");
        let client = Client::builder().timeout(DEADLINE).build().expect("a client");
        let mut browser = Self { driver, address, client, session: String::new() };
        // Chromium has no sandbox where root runs it; it opens nothing but files of this test.
        let mut options = json!({
            "args": ["--headless=new", "--no-sandbox", "--disable-gpu"],
            "perfLoggingPrefs": log_preferences,
        });
        if Path::new(HEADLESS_SHELL).exists() {
            options["binary"] = HEADLESS_SHELL.into();
        }
        let logs = json!({"browser": "ALL", "performance": "ALL"});
        let wanted = json!({"goog:chromeOptions": options, "goog:loggingPrefs": logs});
        let created = browser
            .call(Method::POST, "/session", json!({"capabilities": {"alwaysMatch": wanted}}))
            .await;
        browser.session = created["sessionId"].as_str().expect("a session").to_owned();
        browser.look(Screen { width: 1280, dark: false }).await;
        browser
    }

    /// A command of the session.
    pub(crate) async fn command(&self, path: &str, body: Value) -> Value {
        self.call(Method::POST, &format!("/session/{}{path}", self.session), body).await
    }

    async fn call(&self, method: Method, path: &str, body: Value) -> Value {
        let url = format!("http://{}{path}", self.address);
        let answer = self.client.request(method, url).json(&body).send().await;
        let answer = answer.expect("chromedriver answers");
        let ok = answer.status().is_success();
        let mut answer: Value = answer.json().await.expect("JSON");
        assert!(ok, "{path}: {}", answer["value"]["message"]);
        answer["value"].take()
    }

    /// Sets the size of the screen and the reader's preference.
    pub(crate) async fn look(&self, screen: Screen) {
        let Screen { width, dark } = screen;
        let size = json!({
            "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500,
        });
        self.devtools("Emulation.setDeviceMetricsOverride", size).await;
        let scheme = if dark { "dark" } else { "light" };
        // A page that glides moves away under a click.
        let media = json!({"features": [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]});
        self.devtools("Emulation.setEmulatedMedia", media).await;
    }

    pub(crate) async fn devtools(&self, command: &str, parameters: Value) -> Value {
        self.command("/goog/cdp/execute", json!({"cmd": command, "params": parameters})).await
    }

    pub(crate) async fn open(&self, url: &str) {
        self.command("/url", json!({"url": url})).await;
    }

    /// What the body of a function gives.
    pub(crate) async fn run(&self, body: &str) -> Value {
        self.command("/execute/sync", json!({"script": body, "args": []})).await
    }

    /// Waits until the body of a function gives true.
    pub(crate) async fn wait_until(&self, body: &str) {
        let begun = Instant::now();
        while self.run(body).await != json!(true) {
            assert!(begun.elapsed() < SHOWN_WITHIN, "never true: {body}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The elements that a selector finds.
    pub(crate) async fn find(&self, selector: &str) -> Vec<String> {
        let query = json!({"using": "css selector", "value": selector});
        let found = self.command("/elements", query).await;
        let id = |element: &Value| {
            let member = element.as_object().and_then(|members| members.values().next());
            member.and_then(Value::as_str).expect("an element").to_owned()
        };
        found.as_array().expect("elements").iter().map(id).collect()
    }

    /// Clicks as a person does: the element is scrolled into view and must not be covered.
    pub(crate) async fn click(&self, element: &str) {
        self.command(&format!("/element/{element}/click"), json!({})).await;
    }

    /// What the page has logged since the last time: errors of scripts, and refused resources.
    pub(crate) async fn logged(&self) -> Vec<String> {
        let entries = self.command("/se/log", json!({"type": "browser"})).await;
        entries.as_array().expect("entries").iter().map(Value::to_string).collect()
    }

    /// The addresses that the browser has asked for since the last time.
    pub(crate) async fn requested(&self) -> Vec<String> {
        let all = self.events_of("Network.requestWillBeSent").await;
        let address = |event: &Value| event["request"]["url"].as_str().map(str::to_owned);
        all.iter().filter_map(address).collect()
    }

    /// What the browser has written to its log of performance since the last time, of that sort.
    pub(crate) async fn events_of(&self, sort: &str) -> Vec<Value> {
        let entries = self.command("/se/log", json!({"type": "performance"})).await;
        let event = |entry: &Value| {
            let mut message: Value = serde_json::from_str(entry["message"].as_str()?).ok()?;
            let message = &mut message["message"];
            (message["method"] == sort).then(|| message["params"].take())
        };
        entries.as_array().expect("entries").iter().filter_map(event).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Chromedriver ends its browser before itself. A panic here would hide the test's own.
        if let Ok(mut stream) = TcpStream::connect_timeout(&self.address, ENDS_WITHIN) {
            let request = format!("GET /shutdown HTTP/1.1\r\nHost: {}\r\n\r\n", self.address);
            let _ = stream.set_read_timeout(Some(ENDS_WITHIN));
            let _ = stream.write_all(request.as_bytes());
            let _ = stream.read(&mut [0; 1024]);
        }
        let begun = Instant::now();
        while begun.elapsed() < ENDS_WITHIN && matches!(self.driver.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// Chromedriver on a free port. It looks for one that is free for IPv4 and then wants the same for
/// IPv6, where it may be taken: then it ends, and another one is started.
fn start_driver() -> (Child, SocketAddr) {
    let mut said = String::new();
    for _ in 0..5 {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver is missing; `make install-all` installs it");
        match port(&mut driver) {
            Ok(port) => return (driver, SocketAddr::from(([127, 0, 0, 1], port))),
            Err(instead) => said = instead,
        }
        let _ = driver.kill();
        let _ = driver.wait();
    }
    panic!("chromedriver did not say its port, but: {said}");
}

/// The port on which that driver says it listens, or what it said instead.
fn port(driver: &mut Child) -> Result<u16, String> {
    let lines = BufReader::new(driver.stdout.take().expect("a pipe")).lines();
    let (tell, told) = mpsc::channel();
    // Reads to the end, so that the driver can go on writing.
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            // The receiver is gone once the port is known.
            let _ = tell.send(line);
        }
    });
    let mut said = Vec::new();
    let begun = Instant::now();
    while let Ok(line) = told.recv_timeout(DEADLINE.saturating_sub(begun.elapsed())) {
        if let Some((_, port)) = line.split_once("successfully on port ") {
            return port.trim_end_matches('.').parse().map_err(|_| line.clone());
        }
        said.push(line);
    }
    Err(format!("{said:?} within {:?}", begun.elapsed()))
}
