//! Takes in what the store and Kubernetes say about nodes.

use trueup_capabilities::etcd::{self, Changes, Listing};

use super::Numbering;
use crate::node::guests::nodesync::{Change, VppNode, records};

impl Numbering {
    pub(super) async fn take_listing(&mut self, listing: Listing) {
        self.begin();
        self.progress.records.clear();
        self.progress.unreadable.clear();
        for stored in listing.entries {
            let Some(id) = self.id_of(&stored.key) else {
                let key = String::from_utf8_lossy(&stored.key);
                tracing::warn!(
                    "`{}` is no node's record: what follows the prefix is no number",
                    trueup_base::text::line(&key)
                );
                continue;
            };
            if let Some(record) = self.record(id, &stored.value) {
                self.progress.records.insert(id, record);
            }
        }
        self.show_unreadable();
        self.resync().await;
    }

    pub(super) async fn take_changes(&mut self, changes: Changes) {
        let was_published = self.is_published();
        for event in changes.events {
            let (key, value) = match &event {
                etcd::Event::Put(stored) => (&stored.key, Some(&stored.value)),
                etcd::Event::Deleted(key) => (key, None),
            };
            let Some(id) = self.id_of(key) else { continue };
            self.progress.unreadable.remove(&id);
            // A record that can't be read counts as deleted.
            let change = match value.and_then(|value| self.record(id, value)) {
                Some(record) => {
                    self.progress.records.insert(id, record.clone());
                    Change::VppNodePut(record)
                }
                None => {
                    self.progress.records.remove(&id);
                    Change::VppNodeDeleted(id)
                }
            };
            self.update(change).await;
        }
        self.show_unreadable();
        self.check_published();
        if was_published && self.progress.is_synced && !self.is_published() {
            self.show_overwritten();
        }
    }

    fn id_of(&self, key: &[u8]) -> Option<u32> {
        records::id_of(&self.prefix, std::str::from_utf8(key).ok()?)
    }

    fn show_unreadable(&self) {
        let problems = self.progress.unreadable.values().cloned().collect();
        self.parts.host_status.node_problems(problems);
    }

    fn record(&mut self, id: u32, value: &[u8]) -> Option<VppNode> {
        match records::record(id, value) {
            Ok((node, warning)) => {
                if let Some(warning) = warning {
                    tracing::warn!("`{}{id}` {warning}", self.prefix);
                }
                Some(node)
            }
            Err(why) => {
                let problem = format!("`{}{id}` {why}", self.prefix);
                tracing::warn!("{problem}");
                self.progress.unreadable.insert(id, problem);
                None
            }
        }
    }

    /// Takes changes of Kubernetes' Nodes. The first ones are all of them.
    pub(super) async fn take_kube(&mut self, changes: Vec<Change>) {
        let mut left = changes.len();
        for change in changes {
            left -= 1;
            self.progress.has_kube_nodes |= left == 0;
            match &change {
                Change::KubeNodePut(node) => _ = self.progress.kube_nodes.insert(node.name.clone(), node.clone()),
                Change::KubeNodeDeleted(name) => _ = self.progress.kube_nodes.remove(name),
                Change::VppNodePut(_) | Change::VppNodeDeleted(_) => {}
            }
            self.update(change).await;
        }
        self.progress.has_kube_nodes = true;
        // If the guest did not answer, its followers go on with the nodes that they know.
        self.known
            .send_if_modified(|known| !std::mem::replace(&mut known.has_kube_nodes, true));
    }
}
