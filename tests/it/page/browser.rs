//! A headless Chromium, driven through chromedriver; dropping the value ends both.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::{Value, json};
use tempfile::TempDir;

const MISSING: &str = "Chromium and its driver are needed (`apt-get install chromium chromium-driver`)";

/// On a machine with other work, a browser is slow.
const PATIENCE: Duration = Duration::from_secs(120);

/// Keys without a character of their own, by WebDriver's numbers
/// (<https://www.w3.org/TR/webdriver2/#keyboard-actions>).
pub(crate) mod key {
    pub(crate) const ENTER: &str = "\u{e007}";
    pub(crate) const ESCAPE: &str = "\u{e00c}";
    pub(crate) const PAGE_UP: &str = "\u{e00e}";
    pub(crate) const END: &str = "\u{e010}";
    pub(crate) const HOME: &str = "\u{e011}";
    pub(crate) const UP: &str = "\u{e013}";
}

pub(crate) struct Browser {
    client: reqwest::Client,
    /// The session's address at the driver.
    session: String,
    driver: Child,
    _profile: TempDir,
}

impl Browser {
    pub(crate) async fn start(width: u32, height: u32) -> Self {
        let mut driver = Command::new("chromedriver")
            .args(["--port=0", "--log-level=SEVERE"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // The browser is the driver's child, and ends with its group whatever happens to the driver.
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("chromedriver: {error}: {MISSING}"));
        let mut said = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = said.find_map(|line| {
            let line = line.unwrap();
            let port = line.split_once("started successfully on port ")?.1;
            Some(port.trim_end_matches('.').to_owned())
        });
        let port = port.unwrap_or_else(|| panic!("chromedriver said no port: {MISSING}"));
        // Its later output needs a reader too, or it would block.
        std::thread::spawn(move || said.for_each(drop));
        let profile = tempfile::tempdir().unwrap();
        let options = json!({
            "args": [
                "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-sync",
                "--disable-dev-shm-usage", "--force-device-scale-factor=1",
                format!("--window-size={width},{height}"),
                format!("--user-data-dir={}", profile.path().display()),
            ]
        });
        let patience_ms = u64::try_from(PATIENCE.as_millis()).unwrap();
        let capabilities = json!({
            "goog:chromeOptions": options,
            "timeouts": { "script": patience_ms, "pageLoad": patience_ms },
        });
        // An HTTP client requires a TLS provider.
        _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut browser = Self {
            client,
            session: format!("http://127.0.0.1:{port}/session"),
            driver,
            _profile: profile,
        };
        let wish = json!({ "capabilities": { "alwaysMatch": capabilities } });
        let begun = browser.post("", wish).await;
        let id = begun["sessionId"]
            .as_str()
            .unwrap_or_else(|| panic!("{begun}: {MISSING}"));
        browser.session = format!("{}/{id}", browser.session);
        browser
    }

    /// Sends the driver a command, and returns the resulting value.
    async fn post(&self, command: &str, body: Value) -> Value {
        let url = format!("{}{command}", self.session);
        answered(self.client.post(url).json(&body)).await
    }

    async fn get(&self, command: &str) -> String {
        let url = format!("{}{command}", self.session);
        answered(self.client.get(url)).await.as_str().unwrap().to_owned()
    }

    pub(crate) async fn goto(&self, url: &str) {
        self.post("/url", json!({ "url": url })).await;
    }

    pub(crate) async fn current_url(&self) -> String {
        self.get("/url").await
    }

    /// A screenshot of the window, as PNG.
    pub(crate) async fn screenshot(&self) -> Vec<u8> {
        let text = self.get("/screenshot").await;
        base64::engine::general_purpose::STANDARD.decode(text).unwrap()
    }

    /// Changes the size of the page. A window has no less than 500 pixels.
    pub(crate) async fn resize(&self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        let command = json!({ "cmd": "Emulation.setDeviceMetricsOverride", "params": size });
        self.post("/goog/cdp/execute", command).await;
    }

    pub(crate) async fn run(&self, script: &str) -> Value {
        self.execute(script, json!([])).await
    }

    /// Runs a script that ends by calling its last argument; returns the value of that call.
    pub(crate) async fn run_async(&self, script: &str) -> Value {
        self.post("/execute/async", json!({ "script": script, "args": [] }))
            .await
    }

    async fn execute(&self, script: &str, arguments: Value) -> Value {
        self.post("/execute/sync", json!({ "script": script, "args": arguments }))
            .await
    }

    /// The text of a selector's first match; empty if there is none.
    pub(crate) async fn text(&self, selector: &str) -> String {
        let script = "const found = document.querySelector(arguments[0]); return found ? found.innerText : '';";
        let text = self.execute(script, json!([selector])).await;
        text.as_str().unwrap().to_owned()
    }

    /// Waits until an expression is true.
    pub(crate) async fn until(&self, expression: &str) {
        let began = Instant::now();
        while self.run(&format!("return Boolean({expression});")).await != json!(true) {
            if began.elapsed() > PATIENCE {
                let body = self.text("body").await;
                panic!(
                    "waited {} s for {expression}; the page says:\n{body}",
                    PATIENCE.as_secs()
                );
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Presses these keys, one after the other, including those of [`key`].
    pub(crate) async fn press(&self, keys: &str) {
        let presses = keys
            .chars()
            .flat_map(|key| ["keyDown", "keyUp"].map(|act| json!({ "type": act, "value": key })));
        let actions = json!([{ "type": "key", "id": "keys", "actions": presses.collect::<Vec<_>>() }]);
        self.post("/actions", json!({ "actions": actions })).await;
    }

    /// Lets the browser write its files, and ends it.
    pub(crate) async fn end(self) {
        answered(self.client.delete(&self.session)).await;
    }
}

/// The value in the driver's answer. An error of the driver ends the test.
async fn answered(request: reqwest::RequestBuilder) -> Value {
    let response = request
        .send()
        .await
        .unwrap_or_else(|error| panic!("{error:?}: {MISSING}"));
    let mut answer: Value = response.json().await.unwrap();
    let value = answer["value"].take();
    assert!(value["error"].is_null(), "{value}: {MISSING}");
    value
}

impl Drop for Browser {
    fn drop(&mut self) {
        end_group(&mut self.driver);
    }
}

fn end_group(driver: &mut Child) {
    let group = rustix::process::Pid::from_child(driver);
    // Ignore the error: it may have ended by itself.
    _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    _ = driver.wait();
}
