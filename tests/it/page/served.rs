//! `trueup journal serve` in its own process, and plain HTTP requests to it.

use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

use support::Serving;

pub(crate) struct Served {
    _serving: Serving,
    pub(crate) url: String,
}

/// The answer to an HTTP request.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Served {
    pub(crate) fn start(args: &[&OsStr]) -> Self {
        let (serving, url) = Serving::start(&["journal", "serve"], args);
        assert!(url.starts_with("http://127.0.0.1:") && url.ends_with('/'), "{url:?}");
        Self { _serving: serving, url }
    }

    pub(crate) fn address(&self) -> &str {
        self.url.trim_start_matches("http://").trim_end_matches('/')
    }

    /// A raw request: its first line without the version, and its `Host`.
    pub(crate) fn request(&self, line: &str, host: &str) -> Answered {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        write!(stream, "{line} HTTP/1.0\r\nHost: {host}\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        Answered {
            status: head.split(' ').nth(1).unwrap().parse().unwrap(),
            head: head.to_ascii_lowercase(),
            body: body.to_owned(),
        }
    }

    pub(crate) fn get(&self, path: &str) -> Answered {
        self.request(&format!("GET {path}"), self.address())
    }

    /// The answer to a question, which must succeed.
    #[track_caller]
    pub(crate) fn ask(&self, question: &str) -> Value {
        let answered = self.get(&format!("/api/{question}"));
        assert_eq!(answered.status, 200, "{question}: {answered:?}");
        serde_json::from_str(&answered.body).unwrap()
    }

    /// Waits until the server has read everything.
    pub(crate) fn wait_until_read(&self, recording: &str) -> Value {
        loop {
            let progress = self.ask(&format!("progress?r={recording}"));
            if progress["is_read"] == true && progress["read"].as_u64() <= progress["size"].as_u64() {
                return progress;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
