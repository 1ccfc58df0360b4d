//! The status of the host, completed with the guests, the memory and the list of problems.

use serde_json::Value;
use trueup_base::folder;
use trueup_base::text::counted;
use trueup_config::Config;
use trueup_work::status::{GuestShown, HostShown, HostStatus, KeyState, Role, ShadowShown, Status};
use trueup_work::swap::Manager;

use super::{Reads, health, metrics};

/// The whole status.
pub(super) fn status(reads: &Reads) -> Status {
    let mut status = reads.host_status.status();
    if let Some(listens) = reads.listens.get() {
        status.host.admin.clone_from(listens);
    }
    status.host.config_changed = Config::file_differs(&reads.host_status.facts().config, &reads.digest);
    status.host.state_dir_moved = folder::moved(&reads.host_status.facts().state_dir);
    status.guests = reads.manager.get().map(|manager| guests(manager)).unwrap_or_default();
    status.memory = metrics::memory(status.guests.iter().map(|guest| guest.memory_bytes).sum());
    status.problems = problems(reads, &status);
    status
}

/// Each running guest, by name.
pub(super) fn guests(manager: &Manager) -> Vec<GuestShown> {
    let guests = manager.each().map(|(managed, guest_status)| {
        let guest = &managed.active.instances().program.guest;
        let usage = &managed.active.usage;
        let calls = &managed.active.calls;
        let working = calls.working();
        let all = usize::try_from(usage.instances());
        let [(_, answered), _, (_, failures)] = calls.outcomes();
        GuestShown {
            guest: guest_status.guest,
            name: guest.name.clone(),
            version: guest.version.clone(),
            digest: guest.digest.to_string(),
            revision: guest_status.active.map(|active| active.revision),
            working,
            resting: all.unwrap_or(usize::MAX).saturating_sub(working),
            calls: answered + failures,
            failures,
            memory_bytes: usage.memory_bytes(),
            quarantined: guest_status.quarantined.len(),
            shadow: guest_status.shadow.map(|shadow| ShadowShown {
                candidate: format!("{}@{}", shadow.candidate, shadow.version),
                compared: shadow.compared,
                same: shadow.same,
                promoted_after: shadow.promoted_after,
            }),
        }
    });
    guests.collect()
}

/// What an operator should look at, one line each.
fn problems(reads: &Reads, status: &Status) -> Vec<String> {
    let mut problems = health::why_not_ready(reads);
    problems.extend(status.host.state_dir_moved.clone());
    problems.extend(lease_problem(&status.host));
    problems.extend(refused_reload(&status.host));
    let pods = status.pods.iter().flat_map(|pods| &pods.problems);
    problems.extend(pods.map(|problem| format!("pod-addresses: {problem}")));
    problems.extend(status.source.as_ref().and_then(|source| not_watched(&source.more)));
    problems.extend(contested(status));
    if let Some(manager) = reads.manager.get() {
        problems.extend(manager.each().filter_map(|(managed, _)| managed.refused()));
        problems.extend(manager.each().filter_map(|(managed, _)| {
            let waiting = managed.active.quotas.holdings.waiting()?;
            let guest = managed.name;
            let wants = format!("waits for an approval to destroy {}", waiting.text("objects"));
            Some(format!("guest `{guest}` {wants}: trueup approve {guest}"))
        }));
    }
    let mut count = |count: usize, one: &str, many: &str| {
        problems.extend((count > 0).then(|| counted(count, one, many)));
    };
    let of = |state| status.keys.get(&state).copied().unwrap_or_default();
    let set_aside = of(KeyState::SetAside);
    let failed = status.in_trouble_count.saturating_sub(set_aside);
    count(failed, "key failed", "keys failed");
    count(set_aside, "key is set aside", "keys are set aside");
    if let Some(negs) = &status.negs {
        let first = negs.error_states.first().map_or("", String::as_str);
        let one = format!("key is in its error state: {first}");
        let many = format!("keys are in their error state, first {first}");
        count(negs.error_state_count, &one, &many);
    }
    if let Some(source) = &status.source {
        count(source.problem_count, "problem of the source", "problems of the source");
    }
    if let Some(node) = &status.node {
        let (one, many) = ("node's record can't be read", "nodes' records can't be read");
        count(node.problem_count, one, many);
    }
    for guest in &status.guests {
        // The keys among them are counted above.
        let name = &guest.guest;
        let set_aside = requests_set_aside(guest, &reads.host_status);
        let one = format!("request to guest `{name}` is set aside");
        count(set_aside, &one, &format!("requests to guest `{name}` are set aside"));
    }
    problems
}

/// How many inputs of a guest are set aside, not counting keys: those are counted as keys.
fn requests_set_aside(guest: &GuestShown, host_status: &HostStatus) -> usize {
    guest.quarantined.saturating_sub(host_status.set_aside_of(&guest.guest))
}

/// Another host writes to the same objects, and neither knows of the other.
fn contested(status: &Status) -> Option<String> {
    let mut of = status.contested.first()?.clone();
    if status.contested_count > 1 {
        of += &format!(" and of {} more", counted(status.contested_count - 1, "key", "keys"));
    }
    let look = "look for another host with the same `cluster`";
    Some(format!("others change the objects of {of} again and again: {look}"))
}

/// The configuration that an operator wrote is refused.
fn refused_reload(host: &HostShown) -> Option<String> {
    let why = host.refused_reload.as_ref()?.reasons.join("; ");
    let then = format!("then `kill -HUP {}`; only a reload that succeeds ends this", host.pid);
    Some(format!("the last reload was refused: {why}: correct it, {then}"))
}

/// What is wrong with the election: the Lease can't be read or written, or no host is known to hold it.
fn lease_problem(host: &HostShown) -> Option<String> {
    let error = host.election.as_ref().and_then(|election| election.error.as_ref());
    if let Some(error) = error {
        return Some(match host.role {
            Role::Standby => format!("this host does not hold the lease: {error}"),
            Role::Alone | Role::Leading => format!("the lease can't be renewed now: {error}"),
        });
    }
    (host.role == Role::Standby && host.leader.is_none())
        .then(|| "this host does not hold the lease, and knows of none that does".to_owned())
}

/// What a cluster reports about its watches if one has failed and is not running: the observed state is stale.
fn not_watched(more: &Value) -> Option<String> {
    let watches = more.get("watches").and_then(Value::as_array)?;
    let error = |watch: &Value| {
        let at = |name: &str| watch.get(name).and_then(Value::as_u64).unwrap_or_default();
        let is_watching = watch.get("watching").and_then(Value::as_bool).unwrap_or_default();
        let failed = !is_watching && at("last_error_at_ms") > at("last_event_at_ms");
        let error = watch.get("last_error").and_then(Value::as_str).filter(|_| failed)?;
        Some(format!("the source is not watched: {error}"))
    };
    watches.iter().find_map(error)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_failed_watch_that_is_not_running_is_a_problem() {
        let watch = |watching: bool, event: u64, error: u64| {
            not_watched(&json!({"watches": [
                {"watching": true, "last_error": null},
                {"watching": watching, "last_event_at_ms": event, "last_error_at_ms": error, "last_error": "away"},
            ]}))
        };
        assert_eq!(watch(false, 1, 2).as_deref(), Some("the source is not watched: away"));
        assert_eq!(watch(true, 1, 2), None);
        assert_eq!(watch(false, 2, 1), None, "it ended in its time, and is begun again");
        assert_eq!(not_watched(&Value::Null), None, "manifests");
    }

    #[test]
    fn a_refused_reload_says_how_it_ends() {
        let refused = trueup_work::status::RefusedReload {
            at_ms: 5,
            reasons: vec!["unknown key `adress`".to_owned()],
        };
        let host = HostShown {
            pid: 17,
            refused_reload: Some(refused),
            ..HostShown::default()
        };
        let says = "the last reload was refused: unknown key `adress`: correct it, then `kill -HUP 17`; only a reload that succeeds \
                    ends this";
        assert_eq!(refused_reload(&host).as_deref(), Some(says));
    }

    #[test]
    fn an_input_that_is_set_aside_is_counted_once() {
        let host_status = HostStatus::new(trueup_work::status::Facts::default());
        host_status.set_aside("neg", "shop/web/80", "it trapped", 5);
        let guest = |name: &str, quarantined: usize| {
            let guest = json!({
                "guest": name, "name": name, "version": "1", "digest": "", "working": 0, "resting": 0, "calls": 5, "failures": 5,
                "memory_bytes": 0, "quarantined": quarantined,
            });
            requests_set_aside(&serde_json::from_value(guest).unwrap(), &host_status)
        };
        assert_eq!((guest("neg", 1), guest("ipam", 2)), (0, 2));
    }

    #[test]
    fn a_standby_that_knows_no_other_host_says_so() {
        let host_status = HostStatus::new(trueup_work::status::Facts::default());
        let seen = |holder: Option<&str>, error: Option<&str>| {
            host_status.set_election(trueup_election::Status {
                identity: "a".to_owned(),
                holder: holder.map(str::to_owned),
                error: error.map(str::to_owned),
                ..trueup_election::Status::default()
            });
            lease_problem(&host_status.status().host)
        };
        let leader = || host_status.role().1;
        assert_eq!(lease_problem(&HostShown::default()), None);
        let none = "this host does not hold the lease, and knows of none that does";
        assert_eq!(seen(None, None).as_deref(), Some(none));
        assert_eq!(seen(Some("a"), None).as_deref(), Some(none), "its own of before");
        assert_eq!((seen(Some("b"), None), leader()), (None, Some("b".to_owned())));
        let away = seen(Some("b"), Some("no answer within 4000 ms"));
        assert_eq!(
            away.as_deref(),
            Some("this host does not hold the lease: no answer within 4000 ms")
        );
        assert_eq!(leader(), None, "another host may hold it by now");
    }
}
