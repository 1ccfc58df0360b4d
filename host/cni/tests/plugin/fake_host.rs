//! A host for one test: a unix socket with scripted replies, which remembers the requests.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// What to do with one connection. After the last one in the list, the host hangs up on every connection.
pub(crate) enum Reply {
    /// Reads the request, writes these bytes, and closes the connection.
    Bytes(Vec<u8>),
    /// As `Bytes`, after it runs this check.
    After(Box<dyn Fn() + Send>, Vec<u8>),
    /// Reads the request; sends no answer, and no end, until the host stops.
    Silence,
    /// Reads the request; sends a byte now and then, and no end, until the host stops.
    Drip,
    /// Closes the connection without reading the request.
    HangUp,
    /// Writes these bytes without reading the request, and closes the connection.
    Unasked(Vec<u8>),
}

impl Reply {
    /// An answer with its newline.
    pub(crate) fn line(answer: &str) -> Self {
        Self::Bytes(format!("{answer}\n").into_bytes())
    }
}

pub(crate) struct FakeHost {
    socket: PathBuf,
    requests: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl FakeHost {
    /// Listens at `socket` until it is dropped.
    pub(crate) fn start(socket: &Path, replies: impl IntoIterator<Item = Reply>) -> Self {
        let listener = UnixListener::bind(socket).unwrap();
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let stop: Arc<AtomicBool> = Arc::default();
        let mut replies: VecDeque<Reply> = replies.into_iter().collect();
        let thread = thread::spawn({
            let (requests, stop) = (Arc::clone(&requests), Arc::clone(&stop));
            move || {
                for stream in listener.incoming() {
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                    serve(
                        stream.unwrap(),
                        replies.pop_front().unwrap_or(Reply::HangUp),
                        &requests,
                        &stop,
                    );
                }
            }
        });
        Self {
            socket: socket.to_owned(),
            requests,
            stop,
            thread: Some(thread),
        }
    }

    /// The lines received so far, without their newlines.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

impl Drop for FakeHost {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the thread if it waits for a connection.
        let _ = UnixStream::connect(&self.socket);
        let served = self.thread.take().unwrap().join();
        if !thread::panicking() {
            served.unwrap();
        }
    }
}

fn serve(mut stream: UnixStream, reply: Reply, requests: &Mutex<Vec<String>>, stop: &AtomicBool) {
    let ask = |stream: &UnixStream| {
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        let request = line.strip_suffix('\n').expect("a request ends its line");
        requests.lock().unwrap().push(request.to_owned());
    };
    // Ignore errors: the plugin may have given up and closed its end.
    let say = |stream: &mut UnixStream, bytes: &[u8]| {
        let _ = stream.write_all(bytes);
    };
    match reply {
        Reply::HangUp => {}
        Reply::Unasked(bytes) => say(&mut stream, &bytes),
        Reply::Bytes(bytes) => {
            ask(&stream);
            say(&mut stream, &bytes);
        }
        Reply::After(look, bytes) => {
            ask(&stream);
            look();
            say(&mut stream, &bytes);
        }
        Reply::Silence => {
            ask(&stream);
            while !stop.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(5));
            }
        }
        Reply::Drip => {
            ask(&stream);
            while !stop.load(Ordering::SeqCst) {
                say(&mut stream, b" ");
                thread::sleep(Duration::from_millis(5));
            }
        }
    }
}
