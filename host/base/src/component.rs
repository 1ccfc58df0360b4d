//! A guest's bytes, without a compiler: their digest, and whether they are WebAssembly at all.

use std::fmt;

use serde::{Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use crate::text::hex;

/// A Python guest with its interpreter has 60 MB. The engine holds the bytes in memory while it compiles them.
pub const GUEST_BYTES_MAX: usize = 256 << 20;

/// How every component begins: the magic number, the version, and the kind.
const COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0";

/// How every core module begins.
const MODULE: &[u8] = b"\0asm\x01\0\0\0";

/// SHA-256 of a guest's original bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// 64 lower-case hexadecimal digits.
    pub fn hex(&self) -> String {
        hex(&self.0)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A description of bytes that are neither a component nor a core module: their beginning often identifies them. `None`
/// if they are one.
pub fn not_webassembly(bytes: &[u8]) -> Option<String> {
    /// Enough for `<!DOCTYPE html>`, and for the beginning of other files.
    const SHOWN_BYTES: usize = 16;
    if bytes.starts_with(COMPONENT) || bytes.starts_with(MODULE) {
        return None;
    }
    if bytes.is_empty() {
        return Some("it is empty".to_owned());
    }
    if bytes.starts_with(b"\0asm") || b"\0asm".starts_with(bytes) {
        return Some(format!("it is cut off after {} bytes", bytes.len()));
    }
    let start = bytes.get(..bytes.len().min(SHOWN_BYTES)).unwrap_or_default();
    let line = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
    Some(format!("it starts with `{}`", line.escape_ascii()))
}
