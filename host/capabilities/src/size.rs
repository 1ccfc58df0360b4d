//! The size of answers and of requests' arguments as JSON, for the limits on both. They apply whether or not anything
//! is recorded.

use std::io;

use serde::Serialize;

/// The bytes of a value as JSON; `None` if there are more than `bytes_max`. A value without a JSON form counts up to
/// its error, which the tape reports.
pub(crate) fn json_bytes<T: Serialize + ?Sized>(value: &T, bytes_max: u64) -> Option<u64> {
    let mut counted = Counted { bytes: 0, bytes_max };
    match serde_json::to_writer(&mut counted, value) {
        Err(error) if error.is_io() => None,
        _ => Some(counted.bytes),
    }
}

/// Counts the written bytes, and refuses more than the limit.
struct Counted {
    bytes: u64,
    bytes_max: u64,
}

impl io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        if self.bytes > self.bytes_max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
