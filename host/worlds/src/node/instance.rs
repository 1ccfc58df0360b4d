//! The one instance of a guest on this node: opened at its first call, and opened again after a call in which it ended.
//!
//! The host can repeat everything that it knows. If its recording gives no state to continue from, it begins with its
//! settings.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use trueup_capabilities::Backends;
use trueup_journal::By;
use trueup_work::lifecycle::active::{Active, Handover};
use trueup_work::lifecycle::failure::Failure;
use trueup_work::slot::{CallContext, InstanceSlot};

/// The one instance of a guest, or none until its next call.
pub struct NodeInstance {
    pub(super) slot: InstanceSlot,
    /// Whether it began with its settings alone and got no full resync since.
    is_blank: bool,
    /// The entry of the last call that was answered, for calls that follow from it.
    pub(super) last_entry: Option<By>,
}

impl NodeInstance {
    /// Opens nothing yet.
    pub fn new(active: Arc<Active>, key: &str, backends: Backends) -> Self {
        Self {
            slot: InstanceSlot::new(active, key, backends),
            is_blank: false,
            last_entry: None,
        }
    }

    /// The name in messages: `NAME/KEY`.
    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.slot.instances().name, self.slot.key())
    }

    /// Makes a call. `by` is the request of another guest that this answers. After a call `INTERFACE.resync` the
    /// instance has everything. Other calls depend on that: an instance that began with its settings alone refuses
    /// them, since it would take the little it gets for everything.
    ///
    /// # Errors
    /// Why there is no answer. The next call has an instance again.
    pub async fn call<R: DeserializeOwned>(
        &mut self,
        call: &str,
        args: &impl Serialize,
        by: Option<By>,
    ) -> Result<R, Failure> {
        let is_resync = call.ends_with(".resync");
        self.open().await?;
        if self.is_blank && !is_resync {
            let error = "it lost its state, and gets everything again";
            return Err(Failure::from(error.to_owned()));
        }
        let about = CallContext {
            cause: "event",
            by,
            object: None,
            sleeps_max: None,
        };
        let answer = self.slot.call(call, args, about).await;
        self.is_blank &= !is_resync || answer.is_err();
        if self.slot.is_live() {
            self.last_entry = self.slot.entry();
        }
        if let Err(Failure { error, .. }) = self.slot.rotate().await {
            // It answered. The next call opens it again, and reports if that fails.
            tracing::warn!(instance = self.slot.key(), "its recording can't go on: {error}");
        }
        answer
    }

    async fn open(&mut self) -> Result<(), Failure> {
        if self.slot.is_live() {
            return Ok(());
        }
        let Err(Failure { error, .. }) = self.slot.resume().await else {
            return Ok(());
        };
        tracing::warn!(
            instance = self.slot.key(),
            "guest `{}` begins with its settings alone, and gets everything again: {error}",
            self.slot.instances().name
        );
        self.restart().await
    }

    /// Restarts it with its settings alone: its earlier state is no longer valid.
    ///
    /// # Errors
    /// If it can't start. The next call has an instance again.
    pub(super) async fn restart(&mut self) -> Result<(), Failure> {
        self.slot.begin(None).await?;
        self.is_blank = true;
        Ok(())
    }

    /// Makes another version active, and moves the instance's state to it.
    pub(super) async fn hand_over(&mut self, handover: Handover) -> bool {
        // The candidate must be tried on the state with which it is to continue.
        let moved = match self.open().await {
            Ok(()) => {
                let Handover { instances, commit, .. } = handover;
                self.slot.hand_over(instances, commit, false).await
            }
            Err(failure) => Err(failure.error),
        };
        let is_active = moved.is_ok();
        // The caller may have disconnected.
        let _ = handover.reply.send(moved);
        is_active
    }
}
