//! `--since`: entries from a point in time on.

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
    if let Ok(at) = text.parse::<jiff::Timestamp>() {
        return Ok(at.as_millisecond());
    }
    let wrong = || {
        misused(anyhow::anyhow!(
            "--since: was `{text}`, must be a time such as `2026-05-01T00:00:00Z`, or a while such as `90m` or `7d`"
        ))
    };
    let ago: jiff::Span = text.parse().map_err(|_| wrong())?;
    // A day is 24 hours here: no calendar is involved.
    let options = jiff::SpanTotal::from(jiff::Unit::Millisecond).days_are_24_hours();
    let ago_ms = ago.total(options).map_err(|_| wrong())?;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a part of a millisecond, or more than any log is old"
    )]
    let ago_ms = ago_ms.abs() as i64;
    Ok(jiff::Timestamp::now().as_millisecond().saturating_sub(ago_ms))
}
