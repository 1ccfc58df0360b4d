//! `trueup approve`, `reconcile` and `neg error-state`: what an operator asks of a running host.

use std::time::{Duration, Instant};

use trueup_runtime::control::{self, Approved, ErrorState as Set};
use trueup_work::lifecycle::quarantine::way_out;
use trueup_work::status::{KeyShown, KeyState};
use trueup_work::swap::GuestStatus;
use trueup_worlds::KINDS;

use super::guest::host::Host;
use super::status::escaped;
use crate::exit::{Ending, Exit};
use crate::output::{self, Output, printable};

/// Approves the destruction of what waits for an approval.
///
/// A source change that destroys more than half of what a guest holds, and more than 10 objects, waits. `trueup status`
/// reports it, and `trueup plan` lists the changes. Limits: `approve_above` and `approve_above_percent` in
/// [guests.NAME].
#[derive(Debug, clap::Args)]
pub(crate) struct Approve {
    /// The guest, such as `lbaas`. Default: every guest with a waiting change.
    guest: Option<String>,
    #[command(flatten)]
    host: Host,
}

pub(super) fn approve(args: Approve, output: Output) -> Ending {
    let request = control::Approve { guest: args.guest };
    let approved: Vec<Approved> = args.host.post("approve", &request)?;
    let line = |Approved { guest, waiting }: &Approved| {
        let guest = printable(guest);
        let keys = printable(&waiting.keys.join(", "));
        format!("{guest}: approved: {} go: {keys}", waiting.text("objects"))
    };
    output::show(&approved, output, |approved| match approved.as_slice() {
        [] => vec!["nothing waits for an approval".to_owned()],
        approved => approved.iter().map(line).collect(),
    })
}

/// Sets whether a key is in its error state.
///
/// In the error state, a migration between stacks does not go on while many attachments are pending. The state persists
/// over restarts of the host, until you change it.
#[derive(Debug, clap::Args)]
pub(crate) struct ErrorState {
    /// The key: namespace, Service and port, such as `shop/web/80`.
    key: String,
    /// Whether the key is in its error state from now on.
    #[arg(value_parser = ["on", "off"])]
    state: String,
    #[command(flatten)]
    host: Host,
}

pub(super) fn error_state(args: ErrorState, output: Output) -> Ending {
    let key = args.key;
    let on = args.state == "on";
    let set: Set = args.host.post("negs/error-state", &Set { key, on })?;
    output::show(&set, output, |set| {
        let state = if set.on { "on" } else { "off" };
        vec![format!("{:<24} error state {state}", printable(&set.key))]
    })
}

/// How often to look whether the host is done.
const EVERY: Duration = Duration::from_millis(100);

/// Has the running host work on a key now, before all others, and waits for the result.
///
/// The host looks at everything again, as at a resync. Exits 0 if the key is then in its desired state (or gone, if
/// nothing asks for it), and 1 if it failed, is held or set aside, or is not done in time.
#[derive(Debug, clap::Args)]
pub(crate) struct Reconcile {
    /// A Service, `NAMESPACE/NAME`, or another key that `trueup status --keys` shows.
    key: String,
    /// The guest, as in `[guests.NAME]`, if several have a key of that name.
    #[arg(long, value_name = "NAME")]
    guest: Option<String>,
    /// How many seconds to wait for the result. The host goes on all the same.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u64,
    #[command(flatten)]
    host: Host,
}

pub(super) fn reconcile(args: &Reconcile, output: Output) -> Ending {
    let until = Instant::now() + Duration::from_secs(args.timeout);
    let request = control::Reconcile {
        key: args.key.clone(),
        guest: args.guest.clone(),
    };
    let mut key: KeyShown = args.host.post("reconcile", &request)?;
    let path = format!("keys/{}?guest={}", escaped(&key.key), escaped(&key.guest));
    while is_under_way(&key) && Instant::now() < until {
        std::thread::sleep(EVERY);
        key = args.host.get(&path)?;
    }
    let mut next_step = String::new();
    if key.state == KeyState::SetAside {
        let guests: Vec<GuestStatus> = args.host.get("guests")?;
        let of_key = guests.iter().filter(|it| it.guest == key.guest);
        let revision = of_key.flat_map(|it| &it.active).next().map(|active| active.revision);
        next_step = format!("; {}", way_out(&key.guest, revision));
    }
    output::show(&key, output, |key| vec![line(key, args.timeout) + &next_step])?;
    Ok(match key.state {
        KeyState::True | KeyState::Gone => Exit::Done,
        _ => Exit::Failed,
    })
}

fn is_under_way(key: &KeyShown) -> bool {
    matches!(key.state, KeyState::Queued | KeyState::Running)
}

/// `default/web  true  in 12 ms: 0 created, 0 destroyed; in service: 203.0.113.10:80`.
fn line(key: &KeyShown, timeout_s: u64) -> String {
    let mut line = format!("{:<24} {}", printable(&key.key), key.state.name().replace('-', " "));
    match (&key.error, key.recent.first()) {
        _ if is_under_way(key) => line += &format!("  not done after {timeout_s} s; the host goes on"),
        (Some(error), _) => line += &format!("  {}", printable(error)),
        (None, _) if key.state == KeyState::Held => line += "  nothing done: `trueup status` says what can't be read",
        (None, Some(last)) => {
            let (created, destroyed) = (last.created, last.destroyed);
            line += &format!("  in {} ms", last.took_ms);
            // A node's guest counts no objects.
            if KINDS.iter().any(|kind| kind.keyed_guest() == Some(key.guest.as_str())) {
                line += &format!(": {created} created, {destroyed} destroyed");
            }
        }
        (None, None) => {}
    }
    if !key.in_service.is_empty() && key.state == KeyState::True {
        line += &format!("; in service: {}", printable(&key.in_service.join(", ")));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_with_the_name_of_the_guest_makes_no_node_of_a_service() {
        let done = |guest: &str, key: &str| {
            let key = serde_json::json!({
                "guest": guest, "key": key, "state": "true", "since_ms": 1, "error": null, "failures": 0, "next_try_in_ms": null,
                "created": 0, "destroyed": 0, "in_service": [], "decisions": 1,
                "recent": [{"at_ms": 1, "took_ms": 7, "outcome": "true", "created": 0, "destroyed": 0}],
            });
            line(&serde_json::from_value(key).unwrap(), 1)
        };
        let service = done("lbaas", "lbaas/web");
        assert!(service.ends_with("  in 7 ms: 0 created, 0 destroyed"), "{service}");
        let node = done("nftables", "nftables/node-a");
        assert!(node.ends_with("  in 7 ms"), "{node}");
    }
}
