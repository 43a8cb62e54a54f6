//! A browser of its own for each test: Debian's chromium, driven over `WebDriver`, with a temporary profile.

use crate::support::{PATIENCE, until};
use fantoccini::actions::{InputSource, KeyAction, KeyActions};
use fantoccini::error::{CmdError, ErrorStatus};
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value as Json, json};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) const ENTER: char = '\u{e007}';
pub(crate) const ESCAPE: char = '\u{e00c}';
pub(crate) const TAB: char = '\u{e004}';

/// Injected into every page from the start: it records whatever must not happen.
const WATCH: &str = r"
window.seen = { violations: [], dialogs: [], errors: [] };
document.addEventListener('securitypolicyviolation', (e) => seen.violations.push(e.violatedDirective + ' ' + e.blockedURI + ' ' + e.sample));
for (const name of ['alert', 'confirm', 'prompt', 'print']) window[name] = (...said) => { seen.dialogs.push(name + ' ' + said); };
addEventListener('error', (e) => seen.errors.push(e.message));
addEventListener('unhandledrejection', (e) => seen.errors.push(String(e.reason)));
";

/// One browser with one page.
pub(crate) struct Browser {
    client: Client,
    driver: Driver,
}

/// The driver and its child processes. All end on drop, even after a failed test.
struct Driver {
    child: Child,
    address: String,
    session: String,
    profile: tempfile::TempDir,
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        // The browser is a child of the driver, and outlives it. It is found by its profile, which is unique.
        let profile = self.profile.path().display().to_string();
        let patience = Instant::now() + PATIENCE;
        while Instant::now() < patience {
            let left = processes_naming(&profile);
            if left.is_empty() {
                break;
            }
            for pid in left {
                kill_process(pid, Signal::KILL).ok();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn processes_naming(text: &str) -> Vec<Pid> {
    let named = |entry: std::fs::DirEntry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        String::from_utf8_lossy(&line).contains(text).then(|| Pid::from_raw(pid)).flatten()
    };
    std::fs::read_dir("/proc").unwrap().filter_map(|entry| named(entry.ok()?)).collect()
}

impl Browser {
    /// A browser with this window size.
    pub(crate) async fn new(width: u32, height: u32) -> Self {
        let profile = tempfile::tempdir().unwrap();
        let (child, port) = start_driver();
        let address = format!("http://127.0.0.1:{port}");
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--lang=en-US",
            &format!("--user-data-dir={}", profile.path().display()),
            &format!("--window-size={width},{height}"),
        ];
        let wanted = json!({
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "performance": "ALL" },
        });
        let mut driver = Driver { child, address, session: String::new(), profile };
        let mut builder = ClientBuilder::new(HttpConnector::new());
        builder.capabilities(wanted.as_object().unwrap().clone());
        let client = builder.connect(&driver.address).await.unwrap();
        driver.session = client.session_id().await.unwrap().unwrap();
        let browser = Self { client, driver };
        browser.devtools("Page.addScriptToEvaluateOnNewDocument", json!({ "source": WATCH })).await;
        browser.size(width, height).await;
        browser
    }

    /// Sends a driver command that `WebDriver` does not define.
    async fn ask(&self, path: &str, what: Json) -> Json {
        let url = format!("{}/session/{}/{path}", self.driver.address, self.driver.session);
        let answer = reqwest::Client::new().post(url).body(what.to_string()).send().await.unwrap();
        let answer: Json = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
        answer["value"].clone()
    }

    async fn devtools(&self, command: &str, with: Json) -> Json {
        self.ask("goog/cdp/execute", json!({ "cmd": command, "params": with })).await
    }

    /// Sets the size of the page.
    pub(crate) async fn size(&self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.devtools("Emulation.setDeviceMetricsOverride", size).await;
    }

    /// Sets the system's theme.
    pub(crate) async fn system_theme(&self, theme: &str) {
        let features = json!({ "features": [
            { "name": "prefers-color-scheme", "value": theme },
            { "name": "prefers-reduced-motion", "value": "reduce" },
        ] });
        self.devtools("Emulation.setEmulatedMedia", features).await;
    }

    pub(crate) async fn open(&self, url: &str) {
        self.client.goto(url).await.unwrap();
    }

    pub(crate) async fn back(&self) {
        self.client.back().await.unwrap();
    }

    /// The value of this expression on the page.
    pub(crate) async fn value(&self, expression: &str) -> Json {
        let script = format!("return ({expression});");
        self.client.execute(&script, Vec::new()).await.unwrap_or_else(|error| panic!("{expression}: {error}"))
    }

    /// Waits until this expression is true on the page.
    pub(crate) async fn until(&self, expression: &str) {
        let start = Instant::now();
        loop {
            let script = format!("return !!({expression});");
            let is = self.client.execute(&script, Vec::new()).await;
            if is.as_ref().is_ok_and(|is| *is == json!(true)) {
                return;
            }
            if start.elapsed() > PATIENCE {
                let page = self.value("document.body.innerText").await;
                panic!("waited in vain for {expression} ({is:?}); the page says:\n{}", page.as_str().unwrap_or(""));
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }

    /// Waits until the page contains this text.
    pub(crate) async fn says(&self, text: &str) {
        self.until(&format!("document.body.innerText.includes({})", json!(text))).await;
    }

    /// Waits until this element is visible and contains this text.
    pub(crate) async fn shows(&self, css: &str, text: &str) {
        let (css, text) = (json!(css), json!(text));
        self.until(&format!(
            "[...document.querySelectorAll({css})].some((e) => e.checkVisibility() && e.textContent.includes({text}))"
        ))
        .await;
    }

    /// Waits until no such element is visible.
    pub(crate) async fn lacks(&self, css: &str) {
        self.until(&format!("![...document.querySelectorAll({})].some((e) => e.checkVisibility())", json!(css))).await;
    }

    pub(crate) async fn click(&self, css: &str) {
        self.shows(css, "").await;
        self.hit(css).await;
    }

    /// Clicks this element. If it is rendered again between finding and clicking it, it is searched again.
    async fn hit(&self, css: &str) {
        let patience = Instant::now() + PATIENCE;
        loop {
            let clicked = match self.client.find(Locator::Css(css)).await {
                Ok(found) => found.click().await,
                Err(error) => Err(error),
            };
            let Err(error) = clicked else { return };
            let moved = match &error {
                CmdError::Standard(said) => matches!(
                    said.error,
                    ErrorStatus::NoSuchElement
                        | ErrorStatus::StaleElementReference
                        | ErrorStatus::ElementNotInteractable
                        | ErrorStatus::ElementClickIntercepted
                ),
                _ => false,
            };
            assert!(moved && Instant::now() < patience, "{css}: {error}");
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }

    pub(crate) async fn type_in(&self, css: &str, text: &str) {
        self.shows(css, "").await;
        self.client.find(Locator::Css(css)).await.unwrap().send_keys(text).await.unwrap();
    }

    /// Sets the text of a field at once, as pasting does.
    pub(crate) async fn paste(&self, css: &str, text: &str) {
        self.shows(css, "").await;
        self.value(&format!("document.querySelector({}).value = {}", json!(css), json!(text))).await;
    }

    /// Chooses an option of a list without opening it: a busy browser may draw the open list over what is clicked next.
    pub(crate) async fn choose(&self, css: &str, value: &str) {
        self.hit(&format!("{css} option[value={}]", json!(value))).await;
    }

    /// Presses keys one after another, wherever the focus is.
    pub(crate) async fn press(&self, keys: &[char]) {
        let mut pressed = KeyActions::new("keys".into());
        for key in keys {
            pressed = pressed.then(KeyAction::Down { value: *key }).then(KeyAction::Up { value: *key });
        }
        self.client.perform_actions(pressed).await.unwrap();
    }

    /// Presses two keys that together lead to another page; again if the first was too long ago for the second: a busy
    /// driver may take seconds between the two.
    pub(crate) async fn goes(&self, keys: [char; 2], path: &str) {
        let patience = Instant::now() + PATIENCE;
        let there = format!("return location.pathname === {};", json!(path));
        while Instant::now() < patience {
            self.press(&keys).await;
            let soon = Instant::now() + Duration::from_secs(2);
            while Instant::now() < soon {
                if self.client.execute(&there, Vec::new()).await.is_ok_and(|is| is == json!(true)) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(25)).await;
            }
        }
        panic!("{keys:?} did not lead to {path}");
    }

    pub(crate) async fn screenshot(&self) -> Vec<u8> {
        self.client.screenshot().await.unwrap()
    }

    /// Checks that nothing has happened on this page that must not happen.
    pub(crate) async fn is_clean(&self) {
        let seen = self.value("window.seen").await;
        assert_eq!(seen, json!({ "violations": [], "dialogs": [], "errors": [] }));
    }

    /// Ends the browser; all its requests must have been to this node.
    pub(crate) async fn close(self, origin: &str) {
        self.is_clean().await;
        let log = self.ask("se/log", json!({ "type": "performance" })).await;
        let mut asked = 0;
        for line in log.as_array().unwrap() {
            let message: Json = serde_json::from_str(line["message"].as_str().unwrap()).unwrap();
            let message = &message["message"];
            if message["method"] == "Network.requestWillBeSent" {
                let url = message["params"]["request"]["url"].as_str().unwrap();
                // Requests of the browser itself, before any page, do not count; nor do those of its date picker.
                let of_page = message["params"]["documentURL"].as_str().is_some_and(|of| of.starts_with("http"));
                if of_page && !url.starts_with("data:") {
                    assert!(url.starts_with(origin), "the page asked {url}");
                    asked += 1;
                }
            }
        }
        assert!(asked > 10, "the log shows only {asked} requests");
        let pid = self.driver.child.id();
        let profile = self.driver.profile.path().to_owned();
        self.client.close().await.unwrap();
        drop(self.driver);
        until("the browser to be gone", || {
            !std::path::Path::new(&format!("/proc/{pid}")).exists()
                && processes_naming(&profile.display().to_string()).is_empty()
                && !profile.exists()
        })
        .await;
    }
}

/// Starts chromedriver. It takes a free port of IPv6, and ends if another program has that port of IPv4: then again.
fn start_driver() -> (Child, u16) {
    let mut said = String::new();
    for _ in 0..10 {
        let mut child = Command::new("chromedriver")
            .args(["--port=0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver is there: ./test installs it");
        match port(&mut child) {
            Ok(port) => return (child, port),
            Err(output) => said = output,
        }
        child.wait().unwrap();
    }
    panic!("chromedriver did not start: {said}");
}

/// The port from the driver's own output; otherwise that output.
fn port(child: &mut Child) -> Result<u16, String> {
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut said = String::new();
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line).unwrap() == 0 {
            return Err(said);
        }
        said += &line;
        if let Some(port) = line.trim_end().strip_suffix('.').and_then(|line| line.split("on port ").nth(1)) {
            // Its later output is ignored, but must be read.
            std::thread::spawn(move || lines.read_to_end(&mut Vec::new()));
            return Ok(port.parse().unwrap());
        }
    }
}
