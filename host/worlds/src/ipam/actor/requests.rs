//! Requests about pods, also those that wait in the spool: what the guest answers, and what follows from a freed
//! address. If the guest fails repeatedly in a request, the host refuses it at once, so that it no longer ends an
//! instance that others use. The requester retries by itself, so the host never repeats a request.

use std::path::PathBuf;
use std::time::Duration;

use tokio::time::Instant;
use trueup_base::clock::{Clock as _, SystemClock};
use trueup_work::lifecycle::failure::Failure;
use trueup_work::status::pods::{Event, Stats};

use super::{Actor, Mail, Task, Worked};
use crate::ipam::enis::Inventory;
use crate::ipam::guest::{AddressInfo, Assignment, EniInfos, Error, IpamKey, Nothing, OfKey, PodIpInfo};
use crate::ipam::protocol::{self, Answer, Command, Done, Gc, Refusal, Shown, ShownGuest};
use crate::ipam::spool::Release;

/// The end of a pod triggers a look for unused interfaces, but not more often than this: many pods end together.
const WARM_PAUSE: Duration = Duration::from_secs(1);

/// How often the actor looks at the spool. Retries failed releases and finds new ones.
const SPOOL_PERIOD: Duration = Duration::from_secs(30);

/// The maximum number of releases in one turn. Each is a call of some microseconds, and requests wait meanwhile.
const SPOOL_AT_ONCE_MAX: usize = 64;

/// The maximum number of requests that are set aside; the newest stay. A retried pod has a new name each time, and
/// the client may never report that it gave up on the old one.
const SET_ASIDE_MAX: usize = 1_000;

impl Actor {
    pub(super) async fn serve(&mut self, mail: Mail) {
        let Mail { command, pod, reply } = mail;
        let known = command.key().and_then(|key| self.holders.pod(key).map(str::to_owned));
        self.pod = pod.clone().or(known);
        let mut freed = Vec::new();
        let refused = match (&self.unread, &command) {
            (_, Command::Status | Command::Show) | (None, _) => self.set_aside(&command),
            (Some(why), _) => Some(format!("the store is not read: {why}")),
        };
        let answer = match refused {
            Some(why) => Ok(Err(Refusal::later(why))),
            None => self.carry_out(&command, &mut freed).await,
        };
        self.pod = None;
        let (answer, ended) = match answer {
            Ok(answer) => {
                self.note(&command, &answer, pod.as_deref());
                if self.is_serving() {
                    self.ends = 0;
                }
                (answer, None)
            }
            Err(Failure { error, .. }) => {
                let refusal = Refusal::later(format!("the instance gave no answer: {error}"));
                (Err(refusal), Some(error))
            }
        };
        self.answers.give(self.last_entry(), answer, reply);
        self.after(&freed, ended).await;
    }

    /// Notes what the guest gave, for display.
    fn note(&mut self, command: &Command, answer: &Answer, pod: Option<&str>) {
        if let Command::Add(_) | Command::Del(_) = command {
            match answer.as_ref().map_err(Refusal::unstored) {
                Ok(_) => self.unstored = None,
                Err(Some(why)) => {
                    if self.unstored.is_none() {
                        tracing::warn!(instance = self.settings.instance, "the store takes no changes: {why}");
                    }
                    self.unstored = Some(why.to_owned());
                }
                // It did not get as far as the store.
                Err(None) => {}
            }
        }
        let Command::Add(key) = command else { return };
        match answer {
            Ok(Done::Allocation { ip, .. }) => {
                self.holders.assigned(key, ip, pod);
                self.refused_at = None;
            }
            Err(refusal) if refusal.is_exhausted() => self.refused_at = Some(Instant::now()),
            _ => {}
        }
    }

    async fn carry_out(&mut self, command: &Command, freed: &mut Vec<String>) -> Result<Answer, Failure> {
        Ok(match command {
            Command::Add(key) => {
                let args = OfKey { key: key.clone() };
                let assigned = self.ask("datastore.assign-pod-ipv4-address", &args).await;
                let assigned: Result<Assignment, Error> = self.counted(command, assigned)?;
                assigned.map(Done::from).map_err(protocol::refusal)
            }
            Command::Del(key) => self.free(key.clone(), freed).await?.map(|()| Done::Nothing {}),
            Command::Check(key) => {
                let args = OfKey { key: key.clone() };
                let found = self.ask("datastore.find-address-for-sandbox", &args).await;
                let found: Option<Assignment> = self.counted(command, found)?;
                let unknown = || Refusal::new(protocol::code::CONTAINER_UNKNOWN, "the container has no address");
                found.map(Done::from).ok_or_else(unknown)
            }
            Command::Gc(gc) => self.collect(gc, freed).await?,
            // The mailbox answers it.
            Command::Status => Ok(Done::Nothing {}),
            Command::Show => Ok(Done::Shown(Box::new(self.show().await?))),
        })
    }

    /// Why a request is refused without calling the guest. `None` if the guest is to be called.
    fn set_aside(&self, command: &Command) -> Option<String> {
        if self.managed.failing.is_empty() {
            return None;
        }
        let request = command.about(&self.settings.instance)?;
        let version = self.slot.instances();
        let held = self.managed.failing.held(&version, &request, &request)?;
        Some(format!(
            "the guest failed in this {} times in a row, and is not asked again until another version is active: {}",
            held.failures, held.error
        ))
    }

    /// Counts whether the guest answered a request, whatever the answer. If it gave none and is to blame, may set the
    /// request aside and request another version.
    fn counted<T>(&mut self, command: &Command, answer: Result<T, Failure>) -> Result<T, Failure> {
        let instance = &self.settings.instance;
        let Some(request) = command.about(instance) else {
            return answer;
        };
        if let Err(failure) = &answer {
            if let Some(too_much) = self.managed.failing.failed(&request, failure) {
                let failures = too_much.failures;
                let error = &too_much.error;
                tracing::warn!("{request}: set aside after {failures} failures in a row: {error}");
                let version = self.slot.instances();
                let failing = &mut self.managed.failing;
                failing.set_aside(&version, instance, &request, &request, too_much);
                failing.quarantine.keep_newest(SET_ASIDE_MAX);
            }
        } else if !self.managed.failing.is_empty() {
            let mut requests = vec![request];
            if let Command::Del(key) = command {
                // There are no further requests about a pod that has ended.
                let ended = [Command::Add(key.clone()), Command::Check(key.clone())];
                requests.extend(ended.iter().filter_map(|ended| ended.about(instance)));
            }
            for request in requests {
                self.managed.failing.succeeded(&request);
                self.managed.failing.quarantine.release(&request);
            }
        }
        answer
    }

    /// Frees the address of a key. Succeeds too if there is none.
    pub(super) async fn free(&mut self, key: IpamKey, freed: &mut Vec<String>) -> Result<Result<(), Refusal>, Failure> {
        let command = Command::Del(key.clone());
        if let Some(why) = self.set_aside(&command) {
            return Ok(Err(Refusal::later(why)));
        }
        if let Some(pod) = self.holders.pod(&key) {
            self.pod = Some(pod.to_owned());
        }
        let args = OfKey { key };
        let unassigned = self.ask("datastore.unassign-pod-ipv4-address", &args).await;
        self.pod = None;
        let unassigned = protocol::unassigned(self.counted(&command, unassigned)?);
        Ok(unassigned.map(|assignment| {
            self.holders.freed(&args.key);
            freed.extend(assignment.map(|assignment| assignment.ip));
        }))
    }

    /// Frees what is not in use. A failure does not stop the others; returns the first one.
    async fn collect(&mut self, gc: &Gc, freed: &mut Vec<String>) -> Result<Answer, Failure> {
        let unused = gc.unused(self.allocated().await?);
        let mut first = None;
        for key in unused {
            let refusal = match self.free(key.clone(), freed).await {
                Ok(Ok(())) => continue,
                Ok(Err(refusal)) => refusal,
                Err(Failure { error, .. }) => {
                    let refusal = Refusal::later(format!("the instance gave no answer: {error}"));
                    self.recover(error).await;
                    refusal
                }
            };
            first.get_or_insert(Refusal {
                code: protocol::code::TRY_AGAIN,
                ..Command::Del(key).refuse(refusal)
            });
            if !self.is_serving() {
                break;
            }
        }
        Ok(first.map_or(Ok(Done::Nothing {}), Err))
    }

    async fn show(&mut self) -> Result<Shown, Failure> {
        let mut enis = Vec::new();
        let mut allocated = Vec::new();
        if self.slot.is_live() {
            let infos: EniInfos = self.ask("datastore.get-eni-infos", &Nothing {}).await?;
            (enis, allocated) = (infos.enis, self.allocated().await?);
        }
        let has = Inventory::of_guest(&enis);
        let is_held = |pod: &PodIpInfo| has.interface_of(&pod.ip).is_none();
        let (rest_ms, now_ms) = (self.cooling_period_ms(), SystemClock.now_ms());
        let rests = |address: &&AddressInfo| {
            let rested_ms = address.unassigned_at_ms.map(|at_ms| now_ms.saturating_sub(at_ms));
            address.key.is_none() && rest_ms > 0 && rested_ms.is_some_and(|rested_ms| rested_ms <= rest_ms)
        };
        // The guest also knows of addresses that pods gave back before this process.
        let resting = enis.iter().flat_map(|eni| &eni.addresses).filter(rests).count();
        let stats = self.holders.stats(&has, rest_ms, Instant::now());
        let version = self.slot.instances();
        let guest = &version.program.guest;
        let runtime = self.managed.runtime.as_ref();
        let missing = runtime.map(|_| self.holders.missing(Instant::now()));
        Ok(Shown {
            instance: self.settings.instance.clone(),
            guest: ShownGuest {
                name: guest.name.clone(),
                version: guest.version.clone(),
                digest: guest.digest.to_string(),
            },
            read: self.unread.is_none(),
            error: self.unread.as_ref().or(self.unstored.as_ref()).cloned(),
            stats: Stats {
                free: (stats.free + stats.resting).saturating_sub(resting),
                resting,
                ..stats
            },
            cooling_period_ms: rest_ms,
            enis,
            held: allocated.into_iter().filter(is_held).collect(),
            released: self.released.ids().iter().cloned().collect(),
            pods: self.holders.pods(),
            missing,
        })
    }

    /// Follows calls that freed these addresses, once their answers are on their way. In the last of them the instance
    /// may have ended.
    async fn after(&mut self, freed: &[String], mut ended: Option<String>) {
        if ended.is_none() {
            ended = self.try_after(freed).await.err().map(|failure| failure.error);
        }
        if let Some(error) = ended {
            self.recover(error).await;
        }
    }

    async fn try_after(&mut self, freed: &[String]) -> Result<(), Failure> {
        let mut has_left = false;
        for ip in freed {
            has_left |= self.remove_freed(ip).await?;
        }
        if has_left {
            // It may have waited to move to another interface.
            self.add(&self.wanted.clone()).await?;
        }
        if !freed.is_empty() && self.settings.warm.is_some() {
            let soon = self.last_warm.map_or_else(Instant::now, |last| last + WARM_PAUSE);
            let due = self.due.entry(Task::Warm).or_insert(soon);
            *due = soon.min(*due);
        }
        self.rest().await
    }

    pub(super) fn look_at_spool(&mut self) {
        let Some(spool) = &mut self.spool else { return };
        self.due.insert(Task::Spool, Instant::now() + SPOOL_PERIOD);
        if self.unread.is_none() && self.releases.is_empty() {
            self.worked_off = Worked::default();
            self.releases = spool.releases(&self.settings.instance).into();
        }
    }

    pub(super) fn has_releases(&self) -> bool {
        self.is_serving() && !self.releases.is_empty()
    }

    /// Works off some releases in this turn. No other call comes between a release, its sync and the removal of its
    /// file.
    pub(super) async fn work_off_some(&mut self) {
        if !self.has_releases() {
            return;
        }
        let some = self.releases.len().min(SPOOL_AT_ONCE_MAX);
        let some: Vec<Release> = self.releases.drain(..some).collect();
        let mut files = Vec::new();
        let mut freed = Vec::new();
        let mut ended = None;
        // Some files may have been taken back: the pod's key is in use again.
        for release in some.into_iter().filter(Release::is_there) {
            let worked_off = match &ended {
                None => self.free(release.key, &mut freed).await,
                Some(_) => Ok(Err(Refusal::later("the instance ended"))),
            };
            let why = match worked_off {
                Ok(Ok(())) => {
                    files.push(release.file);
                    continue;
                }
                Ok(Err(refusal)) => refusal.msg,
                Err(Failure { error, .. }) => ended.insert(error).clone(),
            };
            self.worked_off.kept += 1;
            let instance = &self.settings.instance;
            let file = release.file.display();
            tracing::warn!(
                instance,
                "the release `{file}` could not be worked off, and is tried again: {why}"
            );
        }
        self.remove_releases(&files).await;
        self.after(&freed, ended).await;
        let Worked { done, kept } = self.worked_off;
        if self.releases.is_empty() && done + kept > 0 {
            self.report(|instance| Event::Spool { instance, done, kept });
        }
    }

    async fn remove_releases(&mut self, files: &[PathBuf]) {
        if files.is_empty() {
            return;
        }
        let removed = self.settled(|actor| actor.spool.as_ref().map_or(Ok(()), |spool| spool.remove(files)));
        match removed.await {
            Ok(()) => self.worked_off.done += files.len(),
            Err(error) => {
                let instance = &self.settings.instance;
                let count = files.len();
                self.worked_off.kept += count;
                tracing::warn!(instance, "{count} releases stay in the spool: {error}");
            }
        }
    }
}
