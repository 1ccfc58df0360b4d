//! Splits a guest's output into lines.
//!
//! Pure: bytes in, lines out. Independent of the log, which limits lines beyond their length.

pub use crate::log::LINE_BYTES_MAX;

/// One output, with its incomplete line.
#[derive(Debug, Default)]
pub(super) struct Lines {
    line: Vec<u8>,
    /// The line is longer than its kept part.
    cut: bool,
}

impl Lines {
    /// Takes bytes, and passes each completed line on, without its end.
    pub(super) fn take(&mut self, mut bytes: &[u8], mut line: impl FnMut(String)) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (head, tail) = bytes.split_at(end);
            self.keep(head);
            line(self.finish());
            bytes = tail.get(1..).unwrap_or_default();
        }
        self.keep(bytes);
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
        match String::from_utf8(bytes) {
            Ok(line) => line,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(parts: &[&[u8]]) -> (Vec<String>, Option<String>) {
        let mut lines = Lines::default();
        let mut seen = Vec::new();
        for part in parts {
            lines.take(part, |line| seen.push(line));
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
