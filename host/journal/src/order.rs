//! The valid order of entries: the one grammar that writer, reader and tape share.
//!
//! ```text
//! segment = header ask* call* rolled-back?      call = "call" ask* ending
//! ```
//! A segment may end anywhere, and be rolled back wherever it ends; another segment follows then. After a question
//! without an answer only the failed ending of its call may follow: the guest, left without an answer, did nothing
//! more.

/// The kind of an entry, as far as order goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Header,
    Call,
    Ask { answered: bool },
    Ending { failed: bool },
    RolledBack,
}

/// The position within a segment, after an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Position {
    /// Before the header.
    Start,
    /// After the header: questions now belong to `init` and `restore`.
    Starting,
    /// A question of `init` or `restore` got no answer.
    StartRefused,
    /// Between two calls; `failed`: the last one ended the instance.
    Between { failed: bool },
    /// Inside a call.
    InCall,
    /// Inside a call, after a question without an answer.
    CallRefused,
    /// After a rollback: the instance is gone, and some of the entries are invalid.
    RolledBack,
}

impl Position {
    /// The position after an entry of this kind, or why none is allowed here.
    pub(crate) fn then(self, kind: Kind) -> Result<Self, &'static str> {
        match (self, kind) {
            (Self::Start, Kind::Header) => Ok(Self::Starting),
            (Self::Start, _) => Err("the first entry of a segment must be its header"),
            (_, Kind::Header) => Err("a header inside a segment"),
            (Self::RolledBack, _) => Err("an entry after a rollback"),
            (_, Kind::RolledBack) => Ok(Self::RolledBack),
            (Self::Starting, Kind::Ask { answered: true }) => Ok(Self::Starting),
            (Self::Starting, Kind::Ask { answered: false }) => Ok(Self::StartRefused),
            (Self::StartRefused, _) => Err("an entry after a question that got no answer"),
            (Self::Starting | Self::Between { .. }, Kind::Call) => Ok(Self::InCall),
            (Self::Starting | Self::Between { .. }, Kind::Ending { .. }) => Err("an ending outside any call"),
            (Self::Between { .. }, Kind::Ask { .. }) => Err("a question outside any call"),
            (Self::InCall | Self::CallRefused, Kind::Call) => Err("a call inside a call"),
            (Self::InCall, Kind::Ask { answered: true }) => Ok(Self::InCall),
            (Self::InCall, Kind::Ask { answered: false }) => Ok(Self::CallRefused),
            (Self::CallRefused, Kind::Ask { .. }) => Err("a question after one that got no answer"),
            (Self::CallRefused, Kind::Ending { failed: false }) => Err("a result after a question that got no answer"),
            (Self::InCall | Self::CallRefused, Kind::Ending { failed }) => Ok(Self::Between { failed }),
        }
    }

    /// Whether a call has begun and not ended.
    pub(crate) fn inside_call(self) -> bool {
        matches!(self, Self::InCall | Self::CallRefused)
    }

    /// Whether the instance of the entries so far can continue: no call failed or is open.
    pub(crate) fn can_go_on(self) -> bool {
        matches!(self, Self::Starting | Self::Between { failed: false })
    }
}
