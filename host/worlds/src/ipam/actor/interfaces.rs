//! Interfaces and addresses: follows their list, and gives up those that are not used.

use std::time::Duration;

use std::collections::BTreeSet;

use tokio::time::Instant;
use trueup_work::lifecycle::failure::Failure;
use trueup_work::status::pods::Event;

use super::{Actor, Task};
use crate::ipam::enis::{Addition, Inventory, Removal};
use crate::ipam::guest::{DelAddress, Error, RemoveEni, RemoveUnusedEni};
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
            tracing::error!(
                instance = self.settings.instance,
                "interfaces that left the list still count as given up: {error}"
            );
        }
        self.wanted = Inventory::wanted(&enis, self.released.ids());
        self.refused.clear();
    }

    pub(super) async fn follow_list(&mut self) {
        self.take_in_enis();
        if !self.datastore.slot.is_live() {
            return;
        }
        let followed = self.follow().await;
        if let Err(Failure { error, .. }) = followed {
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
            tracing::error!(
                instance = self.settings.instance,
                "new interfaces and addresses are not used yet, they can't be remembered: {error}; trying again"
            );
            return Ok(());
        }
        for addition in additions {
            let added: Result<(), Error> = match &addition {
                Addition::Eni(eni) => self.datastore.ask("datastore.add-eni", eni).await?,
                Addition::Address(address) => {
                    let call = "datastore.add-ipv4-address-to-store";
                    self.datastore.ask(call, address).await?
                }
            };
            match (added, addition) {
                (Ok(()), addition) => self.has.put(&addition),
                (Err(error), Addition::Eni(eni)) => tracing::warn!(
                    instance = self.settings.instance,
                    eni = eni.eni_id,
                    "the guest does not take the interface: {}",
                    protocol::name(&error)
                ),
                (Err(error), Addition::Address(address)) => {
                    tracing::warn!(
                        instance = self.settings.instance,
                        eni = address.eni_id,
                        address = address.ipv4,
                        "the guest does not take the address: {}",
                        protocol::name(&error)
                    );
                    self.refused.push(Addition::Address(address));
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
                if self.remove_eni(&id).await? {
                    tracing::info!(
                        instance = self.settings.instance,
                        eni = id,
                        "interface removed: it left the list"
                    );
                    return Ok(());
                }
                self.remove_free(&id).await
            }
            Removal::Replaced(id) => {
                if self.remove_eni(&id).await? {
                    return Ok(());
                }
                let wanted = self.wanted.eni(&id);
                if let Some(wanted) = wanted.filter(|wanted| self.reported.get(&id) != Some(*wanted)) {
                    self.reported.insert(id.clone(), wanted.clone());
                    tracing::warn!(
                        instance = self.settings.instance,
                        eni = id,
                        "the interface has another device number or other flags in the list; pods use it, so it is replaced when none does"
                    );
                }
                self.remove_free(&id).await
            }
        }
    }

    /// Removes the free addresses of an interface that is to be removed at once. Otherwise a new pod on it would keep
    /// it for ever.
    async fn remove_free(&mut self, id: &str) -> Result<(), Failure> {
        for ip in self.has.addresses(id) {
            self.remove_address(id, &ip).await?;
        }
        Ok(())
    }

    /// Removes a freed address if it is to be removed, and its interface with it. The cost does not depend on how
    /// many addresses there are: others on the interface are still used, or were removed before. `true` if it was to
    /// be removed.
    pub(super) async fn remove_freed(&mut self, ip: &str) -> Result<bool, Failure> {
        match self.has.removal_after(ip, &self.wanted) {
            None => return Ok(false),
            Some(Removal::Address { id, ip }) => self.remove_address(&id, &ip).await?,
            Some(Removal::Eni(id) | Removal::Replaced(id)) => {
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
        let settled = self.answers.settle(self.datastore.last_entry()).await;
        let forgot = settled.and_then(|()| {
            let forgot = self.remembered.forget_all_but(&self.has);
            forgot.map_err(|error| error.to_string())
        });
        if let Err(error) = forgot {
            self.due.insert(Task::Forget, Instant::now() + FORGET_RETRY);
            tracing::warn!(
                instance = self.settings.instance,
                "interfaces and addresses that are gone are still remembered: {error}"
            );
        }
    }

    /// Something left the guest.
    pub(super) fn forget_soon(&mut self) {
        self.due
            .entry(Task::Forget)
            .or_insert_with(|| Instant::now() + FORGET_PAUSE);
    }

    /// `false` if pods use it.
    async fn remove_eni(&mut self, id: &str) -> Result<bool, Failure> {
        // Never by force.
        let args = RemoveEni {
            eni_id: id.to_owned(),
            force: false,
        };
        match self
            .datastore
            .ask("datastore.remove-eni-from-data-store", &args)
            .await?
        {
            Ok(()) | Err(Error::UnknownEni) => {
                self.has.remove_eni(id);
                self.reported.remove(id);
                self.forget_soon();
                Ok(true)
            }
            Err(Error::EniInUse) => Ok(false),
            Err(error) => {
                let error = protocol::name(&error);
                tracing::warn!(
                    instance = self.settings.instance,
                    eni = id,
                    "the interface stays: {error}"
                );
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
        match self
            .datastore
            .ask("datastore.del-ipv4-address-from-store", &args)
            .await?
        {
            Ok(()) | Err(Error::UnknownIp | Error::UnknownEni) => {
                self.has.remove_address(ip);
                self.forget_soon();
            }
            Err(Error::IpInUse) => {}
            Err(error) => {
                let error = protocol::name(&error);
                tracing::warn!(
                    instance = self.settings.instance,
                    address = ip,
                    "the address stays: {error}"
                );
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
        let args = RemoveUnusedEni {
            warm_ip_target: targets.warm_ip_target,
            minimum_ip_target: targets.minimum_ip_target,
        };
        let call = "datastore.remove-unused-eni-from-store";
        while let Some(id) = self.datastore.ask::<Option<String>>(call, &args).await? {
            self.has.remove_eni(&id);
            self.forget_soon();
            if !self.wanted.has_eni(&id) {
                // It was already to be removed.
                continue;
            }
            let settled = self.answers.settle(self.datastore.last_entry()).await;
            let given_up = settled.and_then(|()| self.released.add(&id).map_err(|error| error.to_string()));
            if let Err(error) = given_up {
                tracing::error!(
                    instance = self.settings.instance,
                    eni = id,
                    "an unused interface is not given up: {error}"
                );
                return self.follow().await;
            }
            self.wanted.remove_eni(&id);
            self.report(Event::Released {
                instance: self.name(),
                eni: id,
            });
        }
        Ok(())
    }
}
