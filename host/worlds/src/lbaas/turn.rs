//! The turn of one key: removes what is left of it under old UIDs, reconciles it, and asks what is in service.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use trueup_base::text;
use trueup_capabilities::grants::{Access, Grants};
use trueup_capabilities::guard::refuse_call;
use trueup_capabilities::holdings::{COUNTS_FIRST, Holdings, Uncounted, WAITS};
use trueup_capabilities::lbaas;
use trueup_capabilities::meter::Unapplied;
use trueup_work::keyed::turn::Turn;
use trueup_work::lifecycle::failure::{Blame, End, Failure};

use super::known::{self, KnownKeys, Locations};
use super::publish::Publisher;
use crate::lbaas::adapter::{self, Key};
use crate::lbaas::guest::{AddressPorts, Desired, Error as Reconciliation, NAME, Plan, Report};

/// The call that reconciles a Service.
const RECONCILE: &str = "reconciliation.reconcile";

/// The pause of a turn that waits for those of other keys, which take about as long.
const OTHERS_COUNT_MS: u64 = 250;

/// What all turns share.
pub(super) struct Shared {
    pub(super) known: Mutex<KnownKeys>,
    pub(super) settings: adapter::Settings,
    pub(super) publisher: Publisher,
}

/// One reconciliation of a turn.
struct Step {
    desired: Desired,
    /// Nothing is to remain.
    removes: bool,
}

/// A running turn.
pub(super) struct ServiceTurn {
    pub(super) shared: Arc<Shared>,
    pub(super) key: Key,
    pub(super) turn: Turn,
    pub(super) in_service: Vec<AddressPorts>,
}

impl ServiceTurn {
    /// Makes the calls of the turn. `desired`: `None` if the key is gone, and everything of it is to be removed. `own`:
    /// where objects may exist. `moved`: the same under UIDs that another key has now, whose objects this key must not
    /// remove.
    pub(super) async fn run(&mut self, desired: Option<Desired>, moved: Locations, own: Locations) -> End {
        let is_gone = desired.is_none();
        for (uid, on) in moved {
            let on: Vec<String> = on.into_iter().collect();
            self.known(|known, key| known::forget(known, key, &uid, &on))?;
        }
        let steps = self.steps(desired, own);
        let mut ahead = steps.as_slice();
        while let [step, later @ ..] = ahead {
            match step.removes {
                true => self.remove(step, later).await?,
                false => self.serve(step, later).await?,
            }
            ahead = later;
        }
        if is_gone {
            let fence = self.turn.fence.clone();
            self.shared.publisher.release(&self.key, &fence).await?;
        }
        Ok(is_gone)
    }

    /// The reconciliations of the turn, in order: what is left under other UIDs goes first, and what is left on load
    /// balancers that the configuration no longer names comes after those that it names. Each of these comes by itself:
    /// if it can't be reached, the others are clean nevertheless.
    fn steps(&self, desired: Option<Desired>, locations: Locations) -> Vec<Step> {
        let settings = &self.shared.settings;
        let removal = |uid: &str, on| Step {
            desired: adapter::removal(&self.key, uid, on, settings),
            removes: true,
        };
        let (mut steps, mut left) = (Vec::new(), Vec::new());
        for (uid, mut on) in locations {
            let own = desired.as_ref().filter(|desired| desired.service_uid == uid);
            on.retain(|at| own.is_none_or(|own| !own.load_balancers.contains(at)));
            let removals = self.apart(on).map(|on| removal(&uid, on));
            match own {
                Some(_) => left.extend(removals),
                None => steps.extend(removals),
            }
        }
        let removes = false;
        steps.extend(desired.map(|desired| Step { desired, removes }));
        steps.extend(left);
        steps
    }

    /// Those that the configuration names together, and each of the others by itself.
    fn apart(&self, on: BTreeSet<String>) -> impl Iterator<Item = Vec<String>> {
        let settings = &self.shared.settings;
        let (named, left): (Vec<_>, Vec<_>) = on.into_iter().partition(|at| settings.load_balancers.contains(at));
        let left = left.into_iter().map(|at| vec![at]);
        std::iter::once(named).chain(left).filter(|on| !on.is_empty())
    }

    /// Reconciles the Service, and says what is in service.
    async fn serve(&mut self, step: &Step, later: &[Step]) -> Result<(), Failure> {
        let desired = &step.desired;
        let fence = self.turn.fence.clone();
        // Of a load balancer without a grant nothing is remembered: nothing is created there.
        self.granted(desired)?;
        // On disk before anything is created, so that it can be found again whatever happens next.
        self.known(|known, key| known::remember(known, key, &desired.service_uid, &desired.load_balancers))?;
        let shared = Arc::clone(&self.shared);
        let publisher = &shared.publisher;
        publisher.claim(&self.key, &desired.service_uid, &fence).await?;
        self.reconcile(step, later).await?;
        let in_service = self.call("reconciliation.status", desired).await?;
        self.in_service = addresses_only(in_service.unwrap_or_default())?;
        let serving = publisher.serve(&self.key, &desired.service_uid, &self.in_service, &fence);
        serving.await
    }

    /// Removes every object of a UID on some load balancers.
    async fn remove(&mut self, step: &Step, later: &[Step]) -> Result<(), Failure> {
        let desired = &step.desired;
        self.reconcile(step, later).await?;
        self.known(|known, key| known::forget(known, key, &desired.service_uid, &desired.load_balancers))
    }

    fn known<T>(&self, change: impl FnOnce(&mut KnownKeys, &Key) -> std::io::Result<T>) -> Result<T, Failure> {
        change(&mut self.shared.known.lock(), &self.key).map_err(|error| Failure::from(error.to_string()))
    }

    /// Whether all of these load balancers have left the configuration.
    fn has_left(&self, load_balancers: &[String]) -> bool {
        let named = &self.shared.settings.load_balancers;
        !load_balancers.iter().any(|at| named.contains(at))
    }

    /// Refuses a reconcile of load balancers that the grants cover only in part, before the host calls the guest, with
    /// a line of the audit log. The host also checks the grants at each request, but a single request can't show that a
    /// reconcile of two load balancers with a grant for one of them would be half applied.
    fn granted(&self, desired: &Desired) -> Result<(), Failure> {
        let slot = &self.turn.slot;
        let instances = slot.instances();
        let Some((access, missing)) = not_granted(&instances.grants, &desired.load_balancers) else {
            return Ok(());
        };
        let what = format!("no grant to {access} load balancer `{missing}`");
        let identity = instances.identity(slot.key());
        let what = refuse_call(&identity, slot.backends(), RECONCILE, missing, what);
        let why = describe(&Reconciliation::Api(lbaas::Error::AccessDenied(what)));
        Err(Failure::from(match self.has_left(&desired.load_balancers) {
            true => format!("{why}: it left `load_balancers`, and objects may be on it: grant it until they are gone"),
            false => why,
        }))
    }

    /// Makes one reconciliation of the turn. `later`: those that follow.
    async fn reconcile(&mut self, step: &Step, later: &[Step]) -> Result<(), Failure> {
        let desired = &step.desired;
        self.granted(desired)?;
        self.turn.foreseen = None;
        let report = loop {
            (self.turn.removing, self.turn.counts) = (step.removes, true);
            let report = self.call::<Report>(RECONCILE, desired).await;
            (self.turn.removing, self.turn.counts) = (false, false);
            match self.holdings().take_uncounted(self.turn.slot.key()) {
                Some(Uncounted::Key) if report.is_err() => self.count(step, later).await?,
                Some(Uncounted::Others) if report.is_err() => break Err(Failure::gave_way(OTHERS_COUNT_MS)),
                _ => break report,
            }
        };
        if report?.is_none() {
            let key = &self.key;
            let gone = desired.load_balancers.join(", ");
            tracing::warn!(%key, "{gone} left `load_balancers`, and the Engine does not know it: nothing is removed from it");
        }
        Ok(())
    }

    /// Has the guest say how many objects this reconciliation and the later ones destroy.
    async fn count(&mut self, step: &Step, later: &[Step]) -> Result<(), Failure> {
        let foreseen = self.destroys(step).await?;
        let mut all = foreseen;
        for step in later {
            all += self.destroys(step).await?;
        }
        self.turn.foreseen = Some(foreseen);
        self.holdings().foresee(self.turn.slot.key(), all);
        Ok(())
    }

    /// How many objects a reconciliation destroys. If the guest can't say that now: as many as the key has.
    async fn destroys(&mut self, step: &Step) -> Result<u64, Failure> {
        self.turn.removing = step.removes;
        let plan = self.call::<Plan>("reconciliation.reconcile-check", &step.desired).await;
        self.turn.removing = false;
        match plan {
            Ok(plan) => Ok(plan.map_or(0, |plan| plan.destroy.len() as u64)),
            Err(failure) if failure.blame == Blame::Host => Ok(self.holdings().held(self.turn.slot.key())),
            Err(failure) => Err(failure),
        }
    }

    fn holdings(&self) -> &Holdings {
        &self.turn.slot.active().quotas.holdings
    }

    /// Calls the guest, and reads its answer: `{"Ok": R}` or `{"Err": error}`. `None` if the load balancers have left
    /// the configuration and the Engine does not know one: a name that was mistyped, or a load balancer that was
    /// deleted.
    async fn call<R: DeserializeOwned>(&mut self, call: &str, desired: &Desired) -> Result<Option<R>, Failure> {
        self.turn.ready(None).await?;
        let has_left = self.has_left(&desired.load_balancers);
        let read = |answer: Result<R, Reconciliation>, unapplied: &Unapplied| match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(Reconciliation::Api(lbaas::Error::NotFound)) if has_left => Ok(None),
            Err(error) => Err(Failure {
                retry_after_ms: match &error {
                    Reconciliation::Api(lbaas::Error::RateLimited(after_ms)) => *after_ms,
                    _ => None,
                },
                ..Failure::from(text::error(in_words(&error) + &in_vain(&error, unapplied)))
            }),
        };
        let args = BTreeMap::from([("desired", desired)]);
        self.turn.call(call, &args, read).await
    }
}

/// A load balancer that the grants do not cover, if they allow writing only some of them, or do not allow reading one
/// of them. None if they allow writing none of them: the guest is called and reads, and the host refuses each write.
/// None also if nothing at all is granted of the capability: each request then fails.
fn not_granted<'a>(grants: &Grants, load_balancers: &'a [String]) -> Option<(Access, &'a String)> {
    if !grants.allow_some(NAME, Access::Read) && !grants.allow_some(NAME, Access::Write) {
        return None;
    }
    let without = |access| load_balancers.iter().filter(move |at| !grants.allow(NAME, access, at));
    let writes_some = without(Access::Write).count() < load_balancers.len();
    let unwritable = without(Access::Write).next().filter(|_| writes_some);
    let unreadable = || Some((Access::Read, without(Access::Read).next()?));
    unwritable.map(|at| (Access::Write, at)).or_else(unreadable)
}

/// What is in service, if each address is valid: it is published as the Service's.
fn addresses_only(in_service: Vec<AddressPorts>) -> Result<Vec<AddressPorts>, Failure> {
    let wrong = in_service.iter().find(|at| at.address.parse::<IpAddr>().is_err());
    let Some(wrong) = wrong else { return Ok(in_service) };
    let address = text::printable(&text::cut(wrong.address.clone(), ADDRESS_SHOWN_BYTES)).into_owned();
    Err(Failure::of_guest(format!(
        "the guest says that `{address}` is in service, which is no IP address"
    )))
}

/// How many bytes of an invalid address are shown. The longest valid address has 45 characters.
const ADDRESS_SHOWN_BYTES: usize = 64;

/// An error of the guest, in an operator's words. Cut to size, since a guest may fill a whole answer.
pub(crate) fn describe(error: &Reconciliation) -> String {
    text::error(in_words(error))
}

fn in_words(error: &Reconciliation) -> String {
    match error {
        Reconciliation::InvalidInput(text) => format!("invalid input: {text}"),
        Reconciliation::Progressing(refs) => format!("not ready yet: {}", list(refs)),
        Reconciliation::RecoveryPending(refs) => format!("reset, and not ready again yet: {}", list(refs)),
        Reconciliation::Failed(refs) => format!("the Engine failed to apply: {}", list(refs)),
        Reconciliation::NotDestroyable(refs) => format!("can't be destroyed: {}", list(refs)),
        Reconciliation::TimedOut(refs) => format!("waited too long for: {}", list(refs)),
        Reconciliation::Api(error) => match error {
            lbaas::Error::NotFound => {
                "the Engine does not know the load balancer: check `load_balancers` in [adapter.lbaas]".to_owned()
            }
            lbaas::Error::RateLimited(Some(ms)) => {
                format!("the Engine limits the rate of requests, for {ms} ms from now")
            }
            lbaas::Error::RateLimited(None) => "the Engine limits the rate of requests".to_owned(),
            lbaas::Error::Unauthorized => {
                "the Engine refuses the token: check `token_file` in [backend.lbaas]".to_owned()
            }
            lbaas::Error::Refused((status, text)) => format!("the Engine refuses it: {status} {text}"),
            lbaas::Error::Unavailable(text) => format!("the Engine is not available: {text}"),
            lbaas::Error::AccessDenied(text) if text == COUNTS_FIRST => text.clone(),
            lbaas::Error::AccessDenied(text) if text.contains(WAITS) => format!("access denied: {text}"),
            lbaas::Error::AccessDenied(text) => format!("access denied: {text}; see `grants` in [guests.lbaas]"),
        },
    }
}

/// Which of the objects that the guest waited for can't become ready, since the Engine failed to apply them.
fn in_vain(error: &Reconciliation, unapplied: &Unapplied) -> String {
    let Reconciliation::TimedOut(refs) = error else {
        return String::new();
    };
    let mut failed = refs.clone();
    failed.retain(|at| unapplied.contains(&(at.kind.name(), at.identifier.clone())));
    match failed.is_empty() {
        true => String::new(),
        false => format!("; the Engine failed to apply: {}", list(&failed)),
    }
}

/// The maximum number of resources in one line.
const NAMED_MAX: usize = 5;

fn list(refs: &[lbaas::ObjectRef]) -> String {
    let name = |at: &lbaas::ObjectRef| format!("{} {}", at.kind.name(), at.identifier);
    let named: Vec<String> = refs.iter().take(NAMED_MAX).map(name).collect();
    match refs.len().saturating_sub(NAMED_MAX) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use trueup_capabilities::grants::Grant;

    use super::*;

    #[test]
    fn only_what_no_grant_allows_points_at_the_grants() {
        let said = |text: &str| describe(&Reconciliation::Api(lbaas::Error::AccessDenied(text.to_owned())));
        let waits = format!("destroying 22 of 29 objects: {WAITS}; type: trueup approve");
        assert_eq!(said(&waits), format!("access denied: {waits}"));
        assert_eq!(said("no"), "access denied: no; see `grants` in [guests.lbaas]");
    }

    #[test]
    fn a_reconcile_that_would_be_half_applied_is_stopped() {
        let check = |read: &[&str], write: &[&str], named: &[&str]| {
            let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            let grant = Grant {
                read: owned(read),
                write: owned(write),
                ..Grant::default()
            };
            let grants = Grants::new([("lbaas".to_owned(), grant)].into());
            let named: Vec<String> = owned(named).into_iter().collect::<Vec<String>>();
            not_granted(&grants, &named).map(|(access, missing)| format!("{access} {missing}"))
        };
        let both: &[&str] = &["a", "b"];
        assert_eq!(check(both, both, both), None);
        assert_eq!(check(&["*"], &["*"], both), None);
        assert_eq!(check(&["a"], &["a"], both).as_deref(), Some("write b"));
        assert_eq!(check(both, &["b"], both).as_deref(), Some("write a"));
        assert_eq!(check(&["a"], both, both).as_deref(), Some("read b"));
        assert_eq!(check(&["c"], &["c"], &["a"]).as_deref(), Some("read a"));
        assert_eq!(check(&[], &[], both), None, "it may ask nothing");
        assert_eq!(check(both, &[], both), None, "it may look, and writes nothing");
        assert_eq!(check(both, &["c"], both), None, "as before: it writes to none of these");
    }
}
