//! The line at the end of a terminal that says what a command is doing, once that takes longer than a second.
//!
//! It is on stderr and goes away by itself. Everything else that the program writes comes in its place.
//!
//! ```text
//! trueup_base::progress -> every 100 ms: busy for a second? -> the line, cut to the terminal
//! ```

use std::io::{self, IsTerminal as _, Write};
use std::time::Duration;

use parking_lot::Mutex;
use trueup_base::{progress, text};

use crate::output::{and_more, width};

const EVERY: Duration = Duration::from_millis(100);
const LOOKS_PER_SECOND: usize = 10;

/// To the first column; the rest of the line away.
const CLEAR: &str = "\r\u{1b}[K";

/// Whether the line is there.
static DRAWN: Mutex<bool> = Mutex::new(false);

/// Shows what takes long from now on, if a person sees it.
pub(crate) fn start() {
    if !io::stderr().is_terminal() {
        return;
    }
    progress::show();
    let looks = || {
        let mut busy = 0;
        loop {
            std::thread::sleep(EVERY);
            let Some((what, others)) = progress::newest() else {
                busy = 0;
                clear();
                continue;
            };
            busy += 1;
            if busy > LOOKS_PER_SECOND {
                let seconds = busy / LOOKS_PER_SECOND;
                let others = and_more(others, "").map_or_else(String::new, |more| format!(" {more}"));
                draw(&format!("{}{others} ({seconds} s)", text::printable(&what)));
            }
        }
    };
    // Without it, a command is as it is elsewhere.
    let _ = std::thread::Builder::new().name("progress".to_owned()).spawn(looks);
}

fn draw(line: &str) {
    let width = width(&io::stderr()).unwrap_or(usize::MAX);
    // A line that reaches the last column would begin another one.
    let line: String = line.chars().take(width.saturating_sub(1)).collect();
    let mut drawn = DRAWN.lock();
    // Ignore the error: the terminal went away.
    *drawn = write!(io::stderr().lock(), "{CLEAR}{line}").is_ok();
}

/// Takes the line away.
pub(crate) fn clear() {
    aside(|| ());
}

/// Writes something to the terminal in place of the line.
pub(crate) fn aside<T>(write: impl FnOnce() -> T) -> T {
    let mut drawn = DRAWN.lock();
    if std::mem::take(&mut *drawn) {
        // As above.
        let _ = io::stderr().lock().write_all(CLEAR.as_bytes());
    }
    write()
}

/// Stderr for the log.
pub(crate) struct Stderr;

impl Write for Stderr {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        aside(|| io::stderr().write(buffer))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
