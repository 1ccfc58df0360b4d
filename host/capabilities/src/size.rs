//! The size of answers and of requests' arguments, for the limits on both.
//!
//! The size of an answer is that of the value, not of its JSON. The limit therefore applies, at little cost, whether or
//! not anything is recorded.

use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::checkpoint::{self, Saved};
use crate::cri::Sandbox;
use crate::etcd::{self, KeyValue};
use crate::lbaas::{Error, Object, Spec, State};
use crate::neg::{self, Endpoint};

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

/// The approximate bytes that a value takes in a guest's memory: its own and those of its texts.
pub trait AnswerSize: Serialize + DeserializeOwned {
    /// The size in bytes.
    fn bytes(&self) -> usize;
}

/// Types that take their own size and that of their texts.
macro_rules! with_texts {
    ($($type:ty: $($text:ident),*;)+) => { $(impl AnswerSize for $type {
        fn bytes(&self) -> usize {
            size_of::<Self>() $(+ self.$text.len())*
        }
    })+ };
}

with_texts! {
    (): ;
    bool: ;
    u8: ;
    u32: ;
    u64: ;
    (u64, u64): ;
    State: ;
    Sandbox: id, ip, namespace, name;
    Endpoint: ip, ipv6, port, node;
    KeyValue: key, value;
}

impl AnswerSize for String {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.len()
    }
}

impl<T: AnswerSize> AnswerSize for Vec<T> {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.iter().map(AnswerSize::bytes).sum::<usize>()
    }
}

impl<T: AnswerSize> AnswerSize for Option<T> {
    fn bytes(&self) -> usize {
        self.as_ref().map_or(size_of::<Self>(), AnswerSize::bytes)
    }
}

impl AnswerSize for Saved {
    fn bytes(&self) -> usize {
        // Only the texts: what a store accepted up to its own limit can be returned under an equal one.
        self.data.len() + self.entries.iter().map(String::len).sum::<usize>()
    }
}

impl AnswerSize for checkpoint::Error {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.text().len()
    }
}

impl<T: AnswerSize, E: AnswerSize> AnswerSize for Result<T, E> {
    fn bytes(&self) -> usize {
        match self {
            Ok(value) => value.bytes(),
            Err(error) => error.bytes(),
        }
    }
}

/// The errors of servers have the same cases.
macro_rules! errors_of_servers {
    ($($error:ty),+) => { $(impl AnswerSize for $error {
        fn bytes(&self) -> usize {
            size_of::<Self>()
                + match self {
                    Self::NotFound | Self::RateLimited(_) | Self::Unauthorized => 0,
                    Self::Refused((_, text)) | Self::Unavailable(text) | Self::AccessDenied(text) => text.len(),
                }
        }
    })+ };
}
errors_of_servers!(Error, neg::Error);

impl AnswerSize for Object {
    fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.identifier.len()
            + match &self.spec {
                Spec::Backend(b) => b.name.len() + b.load_balancer.len() + b.health_check.len(),
                Spec::Frontend(f) => f.name.len() + f.load_balancer.len() + f.default_backend.len(),
                Spec::Bind(b) => b.name.len() + b.frontend.len() + b.address.len(),
                Spec::Server(s) => s.name.len() + s.backend.len() + s.ip.len() + s.check.len(),
            }
    }
}

impl AnswerSize for etcd::Error {
    fn bytes(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::TooManyOperations(_) => 0,
                Self::Unavailable(text) | Self::AccessDenied(text) | Self::NotText(text) | Self::Invalid(text) => {
                    text.len()
                }
            }
    }
}
