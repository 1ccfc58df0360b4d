//! The WASI state of one instance.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use wasmtime::component::{Resource, ResourceTable, ResourceTableError};
use wasmtime_wasi::WasiCtx;
use wasmtime_wasi::p2::{DynPollable, Pollable, subscribe};

use crate::log::LINE_BYTES_MAX;

/// The maximum number of streams and pollables (two entries each) of one instance. A runtime has three streams and a
/// pollable per wait; an instance with thousands leaks them.
pub const RESOURCES_MAX: usize = 4_096;

/// The WASI state of the running instance, created on first use: a guest without WASI imports pays nothing. The lock is
/// never contended, since only its owner reaches it. It makes a host shareable although the table is not.
#[derive(Default)]
pub(crate) struct Slot(Option<Box<Mutex<Wasi>>>);

impl Slot {
    pub(super) fn get(&mut self) -> &mut Wasi {
        let begun = || {
            let mut wasi = Wasi::default();
            wasi.table.set_max_capacity(RESOURCES_MAX);
            Box::new(Mutex::new(wasi))
        };
        self.0.get_or_insert_with(begun).get_mut()
    }

    pub(super) fn existing(&mut self) -> Option<&mut Wasi> {
        Some(self.0.as_mut()?.get_mut())
    }
}

/// The WASI state of one instance.
#[derive(Default)]
pub(super) struct Wasi {
    pub(super) table: ResourceTable,
    pub(super) ctx: WasiCtx,
    pub(super) monotonic: Monotonic,
    /// By the pollable's number: when it is ready, on the monotonic clock. Pollables that are always ready have no
    /// entry.
    pub(super) deadlines_ns: BTreeMap<u32, u64>,
    /// By the stream's number.
    pub(super) outputs: BTreeMap<u32, Output>,
    /// What has no end of line yet.
    pub(super) lines: BTreeMap<Output, Lines>,
    /// Drawn by the running call.
    pub(super) random_bytes: u64,
}

/// The destination of a stream's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Output {
    Stdout,
    Stderr,
}

impl Wasi {
    /// A pollable that is ready at `deadline_ns`; `None` if it is always ready.
    pub(super) fn pollable(&mut self, deadline_ns: Option<u64>) -> wasmtime::Result<Resource<DynPollable>> {
        /// Never polled itself: `poll.rs` knows when it is ready.
        struct Due;

        #[wasmtime_wasi::async_trait]
        impl Pollable for Due {
            async fn ready(&mut self) {}
        }

        let due = self.push(Due)?;
        let full = |error: wasmtime::Error| error.downcast().map_or_else(|other| other, too_many);
        let pollable = subscribe(&mut self.table, due).map_err(full)?;
        self.deadlines_ns
            .extend(deadline_ns.map(|deadline_ns| (pollable.rep(), deadline_ns)));
        Ok(pollable)
    }

    pub(super) fn push<R: Send + 'static>(&mut self, resource: R) -> wasmtime::Result<Resource<R>> {
        self.table.push(resource).map_err(too_many)
    }
}

fn too_many(error: ResourceTableError) -> wasmtime::Error {
    match error {
        ResourceTableError::Full => wasmtime::format_err!(
            "keeps more than {RESOURCES_MAX} streams and pollables of WASI; a guest drops what it is done with"
        ),
        other => other.into(),
    }
}

/// The host's clock counts milliseconds.
pub(super) const RESOLUTION_NS: u64 = 1_000_000;

/// A monotonic clock based on one that may go back: if the machine's clock is set back, this one pauses once and
/// continues from there.
#[derive(Debug, Default)]
pub(super) struct Monotonic {
    wall_ms: u64,
    ns: u64,
}

impl Monotonic {
    /// The time in nanoseconds when the host's clock shows `wall_ms`. It starts at that value, so that a restarted
    /// guest never sees an earlier time.
    pub(super) fn at_ms(&mut self, wall_ms: u64) -> u64 {
        let passed_ms = wall_ms.saturating_sub(self.wall_ms);
        self.wall_ms = wall_ms;
        self.ns = self.ns.saturating_add(passed_ms.saturating_mul(RESOLUTION_NS));
        self.ns
    }

    /// Advances to `deadline_ns` at the end of a wait, whatever the host's clock shows.
    pub(super) fn reach(&mut self, deadline_ns: u64) -> u64 {
        self.ns = self.ns.max(deadline_ns);
        self.ns
    }
}

/// Splits one output into lines: its incomplete line. Bytes in, lines out; independent of the log, which limits lines
/// beyond their length.
#[derive(Debug, Default)]
pub(super) struct Lines {
    line: Vec<u8>,
    /// The line is longer than its kept part.
    cut: bool,
}

impl Lines {
    /// Takes bytes, and returns each completed line, without its end.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Vec<String> {
        let parts = bytes.split_inclusive(|byte| *byte == b'\n');
        let completed = parts.filter_map(|part| {
            let line = part.strip_suffix(b"\n");
            self.keep(line.unwrap_or(part));
            line.map(|_| self.finish())
        });
        completed.collect()
    }

    /// The incomplete line, if there is one.
    pub(super) fn rest(&mut self) -> Option<String> {
        (!self.line.is_empty()).then(|| self.finish())
    }

    /// Keeps one byte more than a line may have, so that the log cuts the line.
    fn keep(&mut self, bytes: &[u8]) {
        let room = (LINE_BYTES_MAX + 1).saturating_sub(self.line.len());
        let kept = bytes.get(..room).unwrap_or(bytes);
        self.cut |= kept.len() < bytes.len();
        self.line.extend_from_slice(kept);
    }

    fn finish(&mut self) -> String {
        let mut bytes = std::mem::take(&mut self.line);
        if !std::mem::take(&mut self.cut) && bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_monotonic_clock_follows_the_hosts_and_never_goes_back() {
        let mut clock = Monotonic::default();
        assert_eq!(clock.at_ms(1_000), 1_000_000_000);
        assert_eq!(clock.at_ms(1_001), 1_001_000_000);
        assert_eq!(clock.at_ms(5), 1_001_000_000, "set back: it stands");
        assert_eq!(clock.at_ms(7), 1_003_000_000, "and goes on");
        assert_eq!(clock.reach(1_002_000_000), 1_003_000_000, "that was over before");
        assert_eq!(clock.reach(1_010_000_000), 1_010_000_000);
        assert_eq!(clock.at_ms(8), 1_011_000_000);
        assert_eq!(clock.at_ms(u64::MAX), u64::MAX, "the end of time");
    }

    fn lines(parts: &[&[u8]]) -> (Vec<String>, Option<String>) {
        let mut lines = Lines::default();
        let mut seen = Vec::new();
        for part in parts {
            seen.extend(lines.take(part));
        }
        let rest = lines.rest();
        assert_eq!(lines.rest(), None, "it is given once");
        (seen, rest)
    }

    #[test]
    fn a_line_ends_with_its_end_however_it_comes() {
        for parts in [
            &[&b"one\ntwo\r\n\nthree"[..]][..],
            &[b"o", b"ne\nt", b"wo\r", b"\n", b"\nthr", b"", b"ee"],
        ] {
            let (seen, rest) = lines(parts);
            assert_eq!(seen, ["one", "two", ""]);
            assert_eq!(rest.as_deref(), Some("three"));
        }
    }

    #[test]
    fn of_a_line_that_is_too_long_the_start_is_kept_and_no_more() {
        let long = vec![b'a'; LINE_BYTES_MAX + 7];
        let (seen, rest) = lines(&[&long, &long, b"\nnext\n"]);
        assert_eq!(seen, ["a".repeat(LINE_BYTES_MAX + 1), "next".to_owned()]);
        assert_eq!(rest, None);
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        assert_eq!(lines(&[b"a\xffb\n"]).0, ["a\u{fffd}b"]);
    }
}
