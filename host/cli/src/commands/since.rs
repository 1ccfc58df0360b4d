//! `--since`: entries from a point in time on.

use jiff::{Span, SpanRelativeTo, Timestamp};

use crate::exit::{Failure, misused};

/// The value of the flag.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Since {
    /// Only what happened since then: a time such as `2026-05-01T00:00:00Z`, or an age such as `90m` or `7d`.
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
}

impl Since {
    /// The time in milliseconds since 1970. `None` if the flag is not given.
    pub(super) fn at_ms(&self) -> Result<Option<u64>, Failure> {
        let at_ms = self.since.as_deref().map(at_ms).transpose()?;
        Ok(at_ms.map(|at_ms| u64::try_from(at_ms).unwrap_or_default()))
    }
}

/// A time, or an age, as milliseconds since the Unix epoch.
fn at_ms(text: &str) -> Result<i64, Failure> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at.as_millisecond());
    }
    let wrong = || {
        misused(anyhow::anyhow!(
            "--since: was `{text}`, must be a time such as `2026-05-01T00:00:00Z`, or a while such as `90m` or `7d`"
        ))
    };
    let ago: Span = text.parse().map_err(|_| wrong())?;
    // A day is 24 hours here: no calendar is involved.
    let ago = ago.to_duration(SpanRelativeTo::days_are_24_hours());
    let ago = ago.map_err(|_| wrong())?.abs();
    let at = Timestamp::now().checked_sub(ago).unwrap_or(Timestamp::MIN);
    Ok(at.as_millisecond())
}
