//! Interfaces and addresses: follows their list, and gives up those that are not used.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;
use trueup_work::lifecycle::failure::Failure;
use trueup_work::status::pods::Event;

use super::{Actor, Task};
use crate::ipam::enis::{Addition, Inventory, Removal};
use crate::ipam::guest::{AddAddress, AddEni, DelAddress, Error, RemoveEni};
use crate::ipam::protocol;

/// How long after something left the guest the actor forgets it, together with everything else that left.
const FORGET_PAUSE: Duration = Duration::from_secs(1);

/// When the actor tries again if it can't forget, for example because the disk is full.
const FORGET_RETRY: Duration = Duration::from_secs(30);

impl Actor {
    /// Takes in the current list.
    pub(super) fn take_in_enis(&mut self) {
        let enis = self.enis.borrow_and_update().clone();
        let listed: BTreeSet<&str> = enis.enis.iter().map(|eni| eni.id.as_str()).collect();
        if let Err(error) = self.released.keep(|id| listed.contains(id)) {
            let instance = &self.settings.instance;
            tracing::error!(
                instance,
                "interfaces that left the list still count as given up: {error}"
            );
        }
        self.wanted = Inventory::wanted(&enis, self.released.ids());
        self.refused.clear();
    }

    pub(super) async fn follow_list(&mut self) {
        self.take_in_enis();
        if !self.slot.is_live() {
            return;
        }
        if let Err(Failure { error, .. }) = self.follow().await {
            self.recover(error).await;
        }
    }

    /// Changes the guest's interfaces to the desired ones, as far as no pod uses what is to be removed. Before the
    /// reading it is unknown what pods use, so nothing is removed.
    pub(super) async fn follow(&mut self) -> Result<(), Failure> {
        if self.unread.is_none() {
            for removal in self.has.removals_to(&self.wanted) {
                self.remove(removal).await?;
            }
        }
        self.add(&self.wanted.clone()).await
    }

    pub(super) async fn add(&mut self, should_have: &Inventory) -> Result<(), Failure> {
        let mut additions = self.has.additions_to(should_have);
        additions.retain(|addition| !self.refused.contains(addition));
        if let Err(error) = self.remembered.add(&additions) {
            let instance = &self.settings.instance;
            let what = "new interfaces and addresses are not used yet";
            tracing::error!(instance, "{what}, they can't be remembered: {error}; trying again");
            return Ok(());
        }
        for addition in additions {
            let added: Result<(), Error> = match &addition {
                Addition::Eni(eni) => self.ask("datastore.add-eni", eni).await?,
                Addition::Address(at) => self.ask("datastore.add-ipv4-address-to-store", at).await?,
            };
            let Err(error) = added else {
                self.has.put(&addition);
                continue;
            };
            let instance = &self.settings.instance;
            let error = protocol::name(&error);
            match &addition {
                Addition::Eni(AddEni { eni_id: eni, .. }) => {
                    tracing::warn!(instance, eni, "the guest does not take the interface: {error}");
                }
                Addition::Address(AddAddress { eni_id, ipv4 }) => {
                    let eni = eni_id;
                    let address = ipv4;
                    tracing::warn!(instance, eni, address, "the guest does not take the address: {error}");
                    self.refused.push(addition);
                }
            }
        }
        Ok(())
    }

    /// Never by force: what a pod uses stays, and is tried again.
    async fn remove(&mut self, removal: Removal) -> Result<(), Failure> {
        match removal {
            Removal::Address { id, ip } => self.remove_address(&id, &ip).await,
            Removal::Eni(id) => {
                let is_removed = self.remove_eni(&id).await?;
                let wanted = self.wanted.enis.get(&id);
                let instance = &self.settings.instance;
                if is_removed {
                    if wanted.is_none() {
                        tracing::info!(instance, eni = id, "interface removed: it left the list");
                    }
                    return Ok(());
                }
                if let Some(wanted) = wanted.filter(|wanted| self.reported.get(&id) != Some(*wanted)) {
                    self.reported.insert(id.clone(), wanted.clone());
                    let what = "the interface has another device number or other flags in the list";
                    tracing::warn!(
                        instance,
                        eni = id,
                        "{what}; pods use it, so it is replaced when none does"
                    );
                }
                // Its free addresses go at once. Otherwise a new pod on it would keep it for ever.
                for ip in self.has.addresses(&id) {
                    self.remove_address(&id, &ip).await?;
                }
                Ok(())
            }
        }
    }

    /// Removes a freed address if it is to be removed, and its interface with it. The cost does not depend on how
    /// many addresses there are: others on the interface are still used, or were removed before. `true` if it was to
    /// be removed.
    pub(super) async fn remove_freed(&mut self, ip: &str) -> Result<bool, Failure> {
        match self.has.removal_after(ip, &self.wanted) {
            None => return Ok(false),
            Some(Removal::Address { id, ip }) => self.remove_address(&id, &ip).await?,
            Some(Removal::Eni(id)) => {
                if !self.remove_eni(&id).await? {
                    self.remove_address(&id, ip).await?;
                }
            }
        }
        Ok(true)
    }

    /// Forgets what the guest no longer has, once its writes about pods there are durable: after a lost DEL the pod
    /// keeps its address.
    pub(super) async fn forget_gone(&mut self) {
        self.due.remove(&Task::Forget);
        // It is due again after the next reading.
        if !self.is_serving() || self.remembered.inventory() == &self.has {
            return;
        }
        // If this fails, the instance is begun again, with everything remembered.
        let forgot = self.settled(|actor| actor.remembered.replace(actor.has.clone()));
        if let Err(error) = forgot.await {
            self.due.insert(Task::Forget, Instant::now() + FORGET_RETRY);
            let instance = &self.settings.instance;
            let what = "interfaces and addresses that are gone";
            tracing::warn!(instance, "{what} are still remembered: {error}");
        }
    }

    /// Something left the guest.
    pub(super) fn forget_soon(&mut self) {
        let due = self.due.entry(Task::Forget);
        due.or_insert_with(|| Instant::now() + FORGET_PAUSE);
    }

    /// `false` if pods use it.
    async fn remove_eni(&mut self, id: &str) -> Result<bool, Failure> {
        // Never by force.
        let args = RemoveEni {
            eni_id: id.to_owned(),
            force: false,
        };
        let call = "datastore.remove-eni-from-data-store";
        match self.ask(call, &args).await? {
            Ok(()) | Err(Error::UnknownEni) => {
                self.has.remove_eni(id);
                self.reported.remove(id);
                self.forget_soon();
                Ok(true)
            }
            Err(Error::EniInUse) => Ok(false),
            Err(error) => {
                let instance = &self.settings.instance;
                let error = protocol::name(&error);
                tracing::warn!(instance, eni = id, "the interface stays: {error}");
                Ok(false)
            }
        }
    }

    async fn remove_address(&mut self, id: &str, ip: &str) -> Result<(), Failure> {
        // Never by force.
        let args = DelAddress {
            eni_id: id.to_owned(),
            ipv4: ip.to_owned(),
            force: false,
        };
        let call = "datastore.del-ipv4-address-from-store";
        match self.ask(call, &args).await? {
            Ok(()) | Err(Error::UnknownIp | Error::UnknownEni) => {
                self.has.addresses.remove(ip);
                self.forget_soon();
            }
            Err(Error::IpInUse) => {}
            Err(error) => {
                let instance = &self.settings.instance;
                let error = protocol::name(&error);
                tracing::warn!(instance, address = ip, "the address stays: {error}");
            }
        }
        Ok(())
    }

    /// Gives up interfaces that are not needed, each on disk before the next. Otherwise the operator might detach one
    /// that a pod still uses, because the release of its address was lost.
    pub(super) async fn give_up_unused(&mut self) -> Result<(), Failure> {
        let Some(targets) = self.settings.warm.filter(|_| self.is_serving()) else {
            return Ok(());
        };
        let call = "datastore.remove-unused-eni-from-store";
        while let Some(id) = self.ask::<Option<String>>(call, &targets).await? {
            self.has.remove_eni(&id);
            self.forget_soon();
            if !self.wanted.enis.contains_key(&id) {
                // It was already to be removed.
                continue;
            }
            if let Err(error) = self.settled(|actor| actor.released.add(&id)).await {
                let instance = &self.settings.instance;
                tracing::error!(instance, eni = id, "an unused interface is not given up: {error}");
                return self.follow().await;
            }
            self.wanted.remove_eni(&id);
            self.report(|instance| Event::Released { instance, eni: id });
        }
        Ok(())
    }
}
