//! The effective configuration as JSON, under the names of its keys, for `/v1/config`.
//!
//! It contains no token, only the location of each.

use serde_json::{Value, json};
use trueup_journal::Sync;

use super::{AdminAt, Config, Source};

impl Config {
    /// The effective configuration with every default filled in.
    pub fn shown(&self) -> Value {
        let mut shown = self.shown_in_general();
        for (section, key, value) in self.shown_below() {
            if let Some(all) = shown.as_object_mut() {
                let section = all.entry(section).or_insert_with(|| json!({}));
                if let Some(section) = section.as_object_mut() {
                    section.insert(key.to_owned(), value);
                }
            }
        }
        shown
    }

    /// The sections that every host has.
    fn shown_in_general(&self) -> Value {
        let options = &self.journal.options;
        let (sync, interval_ms) = match options.sync {
            Sync::Write => ("write", None),
            Sync::Fsync => ("fsync", None),
            Sync::Interval { ms } => ("interval", Some(ms)),
        };
        json!({
            "file": self.file,
            "state_dir": self.state_dir,
            "seed": self.seed,
            "journal": {
                "record": self.journal.record,
                "sync": sync,
                "interval_ms": interval_ms,
                "segment_bytes": options.segment_bytes,
                "segment_entries": options.segment_entries,
                "keep_bytes": self.journal.record.then_some(options.keep_bytes),
                "keep_total_bytes": self.journal.keep_total_bytes,
                "keep_gone_days": self.journal.keep_gone_days,
            },
            "audit": self.audit,
            "run": self.run,
            "election": self.election.as_ref().map(|election| json!({
                "namespace": election.namespace,
                "name": election.name,
                "identity": election.identity,
                "lease_duration_ms": election.times.lease_duration.as_millis(),
                "renew_deadline_ms": election.times.renew_deadline.as_millis(),
                "retry_period_ms": election.times.retry_period.as_millis(),
            })),
            "admin": {
                "listen": self.admin.listen.as_ref().map(AdminAt::to_string),
                "metrics_listen": self.admin.metrics_listen,
            },
        })
    }

    /// The sections that it has by what it does, as `[SECTION.KEY]`.
    fn shown_below(&self) -> Vec<(&'static str, &'static str, Value)> {
        let source = self.source().map(|source| ("source", source.kind(), from(source)));
        let guests = self.guests().into_iter();
        let guests = guests.map(|(name, guest)| ("guests", name, guest.shown()));
        let of_worlds = self.worlds.iter().flat_map(|world| world.shown());
        let mut all: Vec<_> = source.into_iter().chain(guests).chain(of_worlds).collect();
        if self.worlds.iter().any(|world| world.shares_backends()) {
            all.push(("backend", "etcd", self.etcd.shown()));
            all.push(("backend", "nftables", self.nftables.shown()));
        }
        all
    }
}

fn from(source: &Source) -> Value {
    match source {
        Source::Manifests(folder) => json!(folder),
        Source::Kubernetes(cluster) => json!({
            "kubeconfig": cluster.kubeconfig,
            "context": cluster.context,
            "namespaces": cluster.namespaces,
            "watch": cluster.watch.iter().map(|kind| kind.name()).collect::<Vec<_>>(),
            "page_size": cluster.page_size,
            "request_timeout_ms": cluster.request_timeout_ms,
        }),
    }
}
