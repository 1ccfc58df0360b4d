//! A headless Chromium, driven through chromedriver; both end with the value.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fantoccini::actions::{InputSource as _, KeyAction, KeyActions};
use fantoccini::key::Key;
use fantoccini::{Client, ClientBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use tempfile::TempDir;

const MISSING: &str = "Chromium and its driver are needed (`apt-get install chromium chromium-driver`)";

/// On a machine that does other things too, a browser takes its time.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Browser {
    pub(crate) client: Client,
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
            // The browser is the driver's child, and ends with its group whatever becomes of the driver.
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
        // What it says later has a reader too, or it would stand still.
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
        let mut capabilities = serde_json::Map::new();
        capabilities.insert("goog:chromeOptions".to_owned(), options);
        let patience_ms = u64::try_from(PATIENCE.as_millis()).unwrap();
        capabilities.insert(
            "timeouts".to_owned(),
            json!({ "script": patience_ms, "pageLoad": patience_ms }),
        );
        let client = ClientBuilder::new(HttpConnector::new())
            .capabilities(capabilities)
            .connect(&format!("http://127.0.0.1:{port}"))
            .await;
        match client {
            Ok(client) => Self {
                client,
                driver,
                _profile: profile,
            },
            Err(error) => {
                end_group(&mut driver);
                panic!("{error}: {MISSING}");
            }
        }
    }

    pub(crate) async fn run(&self, script: &str) -> Value {
        self.client.execute(script, Vec::new()).await.unwrap()
    }

    /// The text of what a selector finds first; empty where nothing is found.
    pub(crate) async fn text(&self, selector: &str) -> String {
        let script = "const found = document.querySelector(arguments[0]); return found ? found.innerText : '';";
        let text = self.client.execute(script, vec![json!(selector)]).await.unwrap();
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

    pub(crate) async fn press(&self, keys: &str) {
        let pressed = keys.chars().fold(KeyActions::new("keys".to_owned()), |actions, value| {
            actions.then(KeyAction::Down { value }).then(KeyAction::Up { value })
        });
        self.client.perform_actions(pressed).await.unwrap();
    }

    pub(crate) async fn key(&self, key: Key) {
        self.press(&char::from(key).to_string()).await;
    }

    /// Lets the browser write down what it wants to, and ends it.
    pub(crate) async fn end(self) {
        self.client.clone().close().await.unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        end_group(&mut self.driver);
    }
}

fn end_group(driver: &mut Child) {
    let group = rustix::process::Pid::from_child(driver);
    // It may have ended by itself.
    _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    _ = driver.wait();
}
