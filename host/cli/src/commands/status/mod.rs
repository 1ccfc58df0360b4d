//! `trueup status`: the state of a running host, at a glance.

mod text;

use std::fmt;

use anyhow::Context as _;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use trueup_runtime::control::Client;
use trueup_work::status::{KeyShown, KeyState, KeysShown, Status};

use super::guest::host::Host;
use super::watch::{Picture, Watch};
use crate::exit::{Ending, Exit, Failure};
use crate::output::{self, Output};

#[cfg_attr(not(feature = "top"), expect(unused_imports, reason = "`top` shows them too"))]
pub(super) use self::text::{bytes, in_queue, negs_of, next_try, process, since, what, without_problems};

/// A key that runs for this long is shown, in milliseconds.
const LONG_MS: u64 = 60_000;

/// Shows the state of the running host: what it works on, the guests that decide, what failed and when it is tried
/// again.
///
/// Exits 0 if all is well. Exits 1 if a key failed or is set aside, something in the source can't be used, or the host
/// is not ready or does not answer.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    host: Host,
    /// Shows every key, not only those in trouble.
    #[arg(long)]
    keys: bool,
    #[command(flatten)]
    watch: Watch,
}

/// The output as JSON: the status, with `--keys` all keys in it.
#[derive(serde::Serialize)]
struct WithKeys<'a> {
    #[serde(flatten)]
    status: &'a Status,
    #[serde(skip_serializing_if = "Option::is_none")]
    all_keys: Option<Vec<KeyShown>>,
}

pub(super) fn exec(args: &Args, output: Output) -> Ending {
    let client = args.host.client()?;
    args.watch.show(output, || look(&client, args.keys, output))
}

fn look(client: &Client, keys: bool, output: Output) -> Result<Picture, Failure> {
    let asked = super::block_on(async {
        let status: Status = client.get("status").await?;
        let (keys, beside) = match keys {
            true => (Some(all_keys(client).await?), Vec::new()),
            false => (None, beside(client, &status).await?),
        };
        Ok::<_, Failure>((status, keys, beside))
    });
    let (status, all_keys, beside) = asked??;
    let is_well = status.problems.is_empty();
    let exit = if is_well { Exit::Done } else { Exit::Failed };
    let status = &status;
    let shown = WithKeys { status, all_keys };
    let text = output::text(&shown, output, |shown| {
        let lines = text::lines(status, shown.all_keys.as_deref(), &beside);
        lines.iter().map(|line| output::printable(line)).collect()
    })?;
    let mut lasting = serde_json::to_value(&shown).context("writing JSON")?;
    leave_out_passing(&mut lasting);
    let lasting = lasting.to_string();
    Ok(Picture { text, lasting, exit })
}

/// Removes what passes while nothing happens: the time, pauses that run down, and memory.
fn leave_out_passing(value: &mut Value) {
    let passes = |name: &str| {
        let ends = ["now_ms", "_in_ms", "waiting_ms", "memory_bytes", "renewed", "renewals"];
        name == "memory" || ends.iter().any(|end| name.ends_with(end))
    };
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !passes(name));
            fields.values_mut().for_each(leave_out_passing);
        }
        Value::Array(values) => values.iter_mut().for_each(leave_out_passing),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The keys without an error that an operator looks for: those that are held, and those that run for long.
async fn beside(client: &Client, status: &Status) -> Result<Vec<KeyShown>, Failure> {
    let mut beside = Vec::new();
    for state in [KeyState::Held, KeyState::Running] {
        if status.keys.get(&state).is_some_and(|count| *count > 0) {
            let of_state: KeysShown = client.get(&format!("keys?state={}", state.name())).await?;
            beside.extend(of_state.keys);
        }
    }
    let runs_for_long = |key: &KeyShown| status.host.now_ms.saturating_sub(key.since_ms) >= LONG_MS;
    beside.retain(|key| key.error.is_none() && (key.state == KeyState::Held || runs_for_long(key)));
    Ok(beside)
}

/// Asks page by page: one answer holds some thousand keys.
async fn all_keys(client: &Client) -> Result<Vec<KeyShown>, Failure> {
    let mut all = Vec::new();
    let mut after = String::new();
    loop {
        let path = format!("keys?limit=10000&after={}", escaped(&after));
        let page: KeysShown = client.get(&path).await?;
        all.extend(page.keys);
        match page.next {
            Some(next) => after = next,
            None => return Ok(all),
        }
    }
}

/// A key in a query.
pub(super) fn escaped(text: &str) -> impl fmt::Display {
    const UNRESERVED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    const ESCAPED: &AsciiSet = &UNRESERVED.remove(b'/');
    utf8_percent_encode(text, ESCAPED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_by_itself_is_no_news() {
        let mut status = serde_json::json!({
            "host": {"now_ms": 5, "pid": 7},
            "memory": {"resident_bytes": 1},
            "keys": [{"next_try_in_ms": 3, "since_ms": 2}],
        });
        leave_out_passing(&mut status);
        assert_eq!(
            status,
            serde_json::json!({"host": {"pid": 7}, "keys": [{"since_ms": 2}]})
        );
    }

    #[test]
    fn what_a_query_gives_a_meaning_is_escaped() {
        assert_eq!(escaped("default/web-1").to_string(), "default/web-1");
        assert_eq!(escaped("a&b=ü c").to_string(), "a%26b%3D%C3%BC%20c");
    }
}
