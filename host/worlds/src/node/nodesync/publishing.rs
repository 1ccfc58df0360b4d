//! Publishes this node's addresses in its record, and checks that they are there.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;

use super::{Numbering, describe};
use crate::node::guests::nodesync::{Error, IpVersion, PublishNodeIps};

/// The host publishes addresses that the store lacks again after this time. If the store has them, the watch usually
/// reports it sooner.
const PUBLISH_PAUSE: Duration = Duration::from_secs(5);

impl Numbering {
    /// This node's record had its addresses and now has others. The host writes it again; so will the other writer.
    pub(super) fn show_overwritten(&mut self) {
        let Some(record) = self.progress.records.get(&self.progress.id) else {
            return;
        };
        let text = format!(
            "its record `{}{}` was overwritten, with the addresses [{}]: does another host have the name `{}`?",
            self.prefix,
            self.progress.id,
            record.ip_addresses.join(", "),
            self.parts.node
        );
        self.show(Some(text.clone()), 1, self.publish_in_ms());
        if self.progress.overwritten.as_ref() != Some(&text) {
            tracing::warn!("{text}");
        }
        self.progress.overwritten = Some(text);
    }

    /// Publishes each address family separately. What could not be stored shows in the record, which the watch
    /// reports.
    pub(super) async fn publish(&mut self) {
        if self.parts.addresses.is_empty() {
            return;
        }
        self.progress.unpublished = None;
        for version in [IpVersion::Ipv4, IpVersion::Ipv6] {
            let is_ipv6 = version == IpVersion::Ipv6;
            let of_family = self.parts.addresses.iter().filter(|it| it.is_ipv6 == is_ipv6);
            let args = PublishNodeIps {
                addresses: of_family.map(|address| address.text.clone()).collect(),
                version,
            };
            let call = "node-sync.publish-node-ips";
            let why = match self.guest.instance.call::<Result<bool, Error>>(call, &args, None).await {
                Ok(Ok(_)) => continue,
                Ok(Err(error)) => describe(&error),
                Err(failure) => failure.error,
            };
            let error = format!("publishing this node's addresses: {why}");
            tracing::warn!("{error}");
            self.progress.unpublished = Some(error);
        }
        self.check_published();
        if self.progress.unpublished.is_some() && self.progress.reported.is_some() {
            self.show_numbered();
        }
    }

    /// Checks that this node's record has its addresses. If not, the watch reports them soon, or the host publishes
    /// them again.
    pub(super) fn check_published(&mut self) {
        if self.is_published() {
            let was_wrong = self.progress.unpublished.take().is_some() || self.progress.overwritten.is_some();
            if self.progress.publish_at.take().is_some() && was_wrong && self.progress.is_synced {
                self.show_numbered();
            }
        } else if self.progress.is_synced && self.progress.publish_at.is_none() {
            self.progress.publish_at = Some(Instant::now() + PUBLISH_PAUSE);
        }
    }

    pub(super) fn is_published(&self) -> bool {
        let stored = self
            .progress
            .records
            .get(&self.progress.id)
            .map(|record| record.ip_addresses.as_slice());
        let wanted = self.parts.addresses.iter().map(|address| address.text.as_str());
        self.parts.addresses.is_empty()
            || set_of(wanted) == set_of(stored.unwrap_or_default().iter().map(String::as_str))
    }

    pub(super) fn publish_in_ms(&self) -> Option<u64> {
        let pause = self
            .progress
            .publish_at
            .map(|at| at.saturating_duration_since(Instant::now()));
        pause.map(|pause| u64::try_from(pause.as_millis()).unwrap_or(u64::MAX))
    }
}

/// Parses addresses, so that their spelling does not matter.
fn set_of<'a>(addresses: impl Iterator<Item = &'a str>) -> BTreeSet<(Option<IpAddr>, &'a str)> {
    let parts = addresses.map(|text| {
        let (address, length) = text.split_once('/').unwrap_or((text, ""));
        (address.parse().ok(), length)
    });
    parts.collect()
}
