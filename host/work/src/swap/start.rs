//! Decides which version a start uses: the one that was active, unless the configuration was edited since.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use trueup_config::{Guest, OnFailure};
use trueup_instance::{Instances, Program, Worlds};
use trueup_registry::{NoGuest, NotLoaded, Reference};

use super::proof::{Against, Fetched, Guests, Refused, Step, accepted, initial_state, of_world, self_test};
use super::revisions::{By, Configured, Revision, Revisions};
use crate::lifecycle::active::Active;
use crate::load::named;
use crate::setup::SetupError;

/// The version of a guest that decides. It has accepted its settings.
pub struct Version {
    /// The name in `[guests.NAME]`.
    pub name: &'static str,
    /// The worlds that a guest of this name may have.
    pub worlds: Worlds,
    /// Its section of the configuration.
    pub guest: Guest,
    /// The version that decides, and what its instances share.
    pub active: Arc<Active>,
    /// The versions that decided before.
    pub revisions: Revisions,
    /// Why the version that the configuration names was refused. `None` if it was not.
    pub problem: Option<String>,
    /// Which version is active in place of the one that the configuration names, if a command made it so.
    pub other: Option<String>,
}

/// A guest of the configuration, for a start.
pub(crate) struct GuestSection<'a> {
    pub(crate) guests: &'a Guests,
    /// The name in `[guests.NAME]`.
    pub(crate) name: &'static str,
    /// The worlds that it may be of.
    pub(crate) worlds: Worlds,
    pub(crate) guest: &'a Guest,
    pub(crate) state_dir: &'a Path,
    /// Whether the decision is recorded: a plan changes nothing.
    pub(crate) writes: bool,
}

/// Decides which version is active, and records it. `instances` creates the instances of a program.
///
/// # Errors
/// If no version could be active; or if the configuration was edited to name a guest that is not available or is of
/// another world. Then nothing is written: a version that never was active is not a revision.
pub(crate) async fn begin(
    section: &GuestSection<'_>,
    instances: impl Fn(Arc<Program>) -> Instances,
) -> Result<Version, SetupError> {
    let mut revisions = Revisions::load(section.state_dir, section.name).map_err(SetupError::Misused)?;
    let active = section.active(&revisions)?;
    let begun_afresh = revisions.active().filter(|it| it.afresh).map(|it| it.digest.clone());
    let instances = |program: Arc<Program>| Instances {
        afresh: section.guest.proof.afresh || begun_afresh.as_ref() == Some(&program.guest.digest.to_string()),
        ..instances(program)
    };
    if let Err(error) = section.reserves().await {
        // At a first start the operator must correct it now. Otherwise the active version goes on all the same.
        if active.is_none() {
            return Err(error);
        }
        tracing::warn!("{error}");
    }
    let fetched = match section.fetched().await {
        Ok(fetched) => fetched,
        Err(error) => {
            let (active, problem) = section.without(error, active, &revisions)?;
            let active = section.goes_on(instances(active), &revisions);
            return section.begun(active, revisions, Some(problem)).await;
        }
    };
    let mut configured = Configured {
        reference: section.guest.reference.to_string(),
        digest: fetched.program.guest.digest.to_string(),
        settings: Some(section.guest.settings.clone()),
        was_refused: false,
    };
    let before = revisions.configured();
    let is_edited = before.is_none_or(|before| before.is_edited(&configured));
    configured.was_refused = !is_edited && before.is_some_and(|before| before.was_refused);
    let with = match active {
        Some(active) if !is_edited || active.guest.digest == fetched.program.guest.digest => {
            section.goes_on(instances(active), &revisions)
        }
        Some(active) => match section.proven(&fetched.program, &instances(Arc::clone(&active))).await {
            Ok(()) => instances(Arc::clone(&fetched.program)),
            Err(refused) => {
                if section.writes {
                    revisions.refuse(configured).map_err(|error| section.failed(&error))?;
                }
                return section.refused(&refused, instances(active), revisions).await;
            }
        },
        None => section.tested(instances(Arc::clone(&fetched.program))).await?,
    };
    let mut version = section.begun(with, revisions, None).await?;
    version.other = section.other(&version, &fetched.program);
    if section.writes {
        section.write_down(&fetched, &mut version, configured)?;
    }
    Ok(version)
}

impl GuestSection<'_> {
    fn misused(&self, error: &str) -> SetupError {
        SetupError::Misused(self.placed(error))
    }

    /// Adds the section of the configuration.
    fn placed(&self, error: &str) -> String {
        format!("{}: [guests.{}]: {error}", self.guest.location, self.name)
    }

    /// What a start begins with, once the guest has accepted its settings.
    async fn begun(
        &self,
        mut instances: Instances,
        revisions: Revisions,
        problem: Option<String>,
    ) -> Result<Version, SetupError> {
        let initial = initial_state(&instances).await;
        instances.initial = initial.map_err(|refused| self.misused(&refused.why))?;
        Ok(Version {
            name: self.name,
            worlds: self.worlds,
            guest: self.guest.clone(),
            active: Active::of(Arc::new(instances), !self.writes),
            revisions,
            problem,
            other: None,
        })
    }

    /// The active version goes on: with the configured settings, or, if neither `use` nor `settings` was edited since,
    /// with those with which it last ran. These differ after a command that followed a refused edit.
    fn goes_on(&self, mut active: Instances, revisions: &Revisions) -> Instances {
        let reference = self.guest.reference.to_string();
        let before = revisions.configured().filter(|before| before.reference == reference);
        let is_unedited = before.is_some_and(|before| before.settings.as_ref() == Some(&self.guest.settings));
        if let Some(own) = revisions.settings().filter(|_| is_unedited) {
            active.settings = own.clone();
        }
        active
    }

    /// That another version is active than the configured one: a command made it so. `None` if it is that one.
    fn other(&self, version: &Version, configured: &Program) -> Option<String> {
        let instances = version.active.instances();
        if instances.program.guest.digest == configured.guest.digest {
            return None;
        }
        let active = active_of(&instances.program, &version.revisions);
        let name = self.name;
        let with = self.note_of_settings(&instances);
        let other = &self.guest.reference;
        Some(format!(
            "guest `{name}`: {active} is active{with}, not {other}, which the configuration names"
        ))
    }

    /// Text to append if the active version does not run with the configured settings.
    fn note_of_settings(&self, active: &Instances) -> &'static str {
        let is_own = active.settings != self.guest.settings;
        let note = is_own.then_some(" with its own settings, not those of the configuration");
        note.unwrap_or_default()
    }

    /// The configured version is refused, and with it the settings that came with it. The active version goes on with
    /// those with which it last ran. If these are not known, it goes on with the configured ones, unless it refuses
    /// them.
    async fn refused(
        &self,
        refused: &Refused,
        mut active: Instances,
        revisions: Revisions,
    ) -> Result<Version, SetupError> {
        let mut problem = self.stays(refused, &active.program, &revisions);
        match revisions.settings() {
            Some(own) => {
                active.settings = own.clone();
                problem += self.note_of_settings(&active);
            }
            None => {
                let unknown = "the state folder does not say with which it ran before";
                problem += &format!(" with the settings of the configuration: {unknown}");
            }
        }
        self.begun(active, revisions, Some(problem)).await.map_err(|error| {
            let either = "the active version can't go on with these settings either";
            self.misused(&format!("{} is {refused}; {either}: {error}", self.guest.reference))
        })
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> SetupError {
        SetupError::Failed(format!("guest `{}`: {error}", self.name))
    }

    /// Proves the configured version against the active one.
    async fn proven(&self, fetched: &Arc<Program>, active: &Instances) -> Result<(), Refused> {
        let reference = self.guest.reference.to_string();
        let against = Against {
            active,
            proof: &self.guest.proof,
            reference: &reference,
            config: self.guest.file(),
            patience: Duration::ZERO,
            worlds: self.worlds,
        };
        let proven = self.guests.prove(Arc::clone(fetched), &against).await;
        let (_, report) = proven.map_err(|mut refused| {
            if refused.step == Step::Gate {
                let name = self.name;
                refused.why += &format!("; to take it all the same: `gate = \"report\"` in [guests.{name}]");
            }
            refused
        })?;
        tracing::info!("guest `{}`: {reference} passed: {report}", self.name);
        Ok(())
    }

    /// Tests the configured version by itself: there is no active one.
    async fn tested(&self, fetched: Instances) -> Result<Instances, SetupError> {
        let tested = self_test(&fetched, &self.guest.proof, &self.guests.loader).await;
        tested.map(|_| fetched).map_err(|it| self.misused(&it.to_string()))
    }

    /// Handles a configured guest that is not available. If the configuration was not edited since it was available,
    /// the active version goes on. If it was edited, or the guest does not match the lock file or the keys, that is
    /// an error.
    fn without(
        &self,
        (error, refused): Unavailable,
        active: Option<Arc<Program>>,
        revisions: &Revisions,
    ) -> Result<(Arc<Program>, String), SetupError> {
        let reference = self.guest.reference.to_string();
        let before = revisions.configured();
        match (active, refused) {
            (Some(active), Some(refused)) if before.is_some_and(|before| before.reference == reference) => {
                let problem = self.stays(&refused, &active, revisions);
                Ok((active, problem))
            }
            _ => Err(error),
        }
    }

    fn stays(&self, refused: &Refused, active: &Program, revisions: &Revisions) -> String {
        let name = self.name;
        let reference = &self.guest.reference;
        let active = active_of(active, revisions);
        format!("guest `{name}`: {reference} is {refused}; {active} stays active")
    }

    /// The version that was active last. `None` if there is none, or it is lost.
    ///
    /// # Errors
    /// If it exists and is not available now.
    fn active(&self, revisions: &Revisions) -> Result<Option<Arc<Program>>, SetupError> {
        let Some(active) = revisions.active() else {
            return Ok(None);
        };
        let goes_on = |why: &str| {
            let name = self.name;
            let revision = active.revision;
            tracing::warn!("guest `{name}`: revision {revision} {why}: going on with what the configuration names");
            Ok(None)
        };
        if !active.is_vouched_for(&self.guest.verify) {
            return goes_on("is signed by no key of `verify`");
        }
        match self.guests.kept(&active.digest) {
            Ok(Some(program)) => Ok(Some(program)),
            Ok(None) => goes_on("is kept no more"),
            Err(refused) => Err(self.failed(&refused.why)),
        }
    }

    async fn fetched(&self) -> Result<Fetched, Unavailable> {
        let unlocked = |NoGuest(why): NoGuest| (SetupError::Misused(why), None);
        let registry = &self.guests.loader.registry;
        registry.check_lock().map_err(unlocked)?;
        let reference = &self.guest.reference;
        let is_pinned = registry.pins(reference).map_err(unlocked)?;
        let is_vouched_for = is_pinned || !self.guest.verify.keys.is_empty() || matches!(reference, Reference::Oci(_));
        let refused = |refused: Refused| (self.misused(&refused.why), Some(refused).filter(|_| !is_vouched_for));
        let loaded = self.guests.load(reference, &self.guest.verify).await;
        let fetched = loaded.map_err(|error| match error {
            // Its registry did not answer.
            NotLoaded::Failed(why) => {
                let failed = SetupError::Failed(self.placed(&why));
                (failed, Some(Refused::new(Step::Load, why)))
            }
            NotLoaded::NoGuest(NoGuest(why)) => refused(Refused::new(Step::Load, why)),
        })?;
        of_world(&fetched.program, self.worlds).map_err(refused)?;
        Ok(fetched)
    }

    /// Checks what only a swap or a failure needs, so that problems do not first appear then.
    async fn reserves(&self) -> Result<(), SetupError> {
        accepted(&self.guest.proof).map_err(|error| self.misused(&format!("accepted_differences: {error}")))?;
        // Loading the guest itself reports problems with the lock file.
        let unlocked = self.guests.loader.registry.check_lock();
        if let (OnFailure::FallBack(reference), Ok(())) = (&self.guest.failure.on_failure, unlocked) {
            let fall_back = self.guests.named(reference, &self.guest.verify).await;
            let checked = fall_back.and_then(|fall_back| of_world(&fall_back.program, self.worlds));
            checked.map_err(|refused| self.misused(&format!("fall_back: {}", refused.why)))?;
        }
        Ok(())
    }

    /// Writes the bytes first, so that those of each revision exist.
    fn write_down(&self, fetched: &Fetched, version: &mut Version, configured: Configured) -> Result<(), SetupError> {
        let failed = |error: std::io::Error| self.failed(&error);
        if let Some(bytes) = &fetched.bytes {
            self.guests.keep(bytes).map_err(|it| SetupError::Failed(it.why))?;
        }
        let (instances, revisions) = (version.active.instances(), &mut version.revisions);
        let guest = &instances.program.guest;
        let digest = guest.digest.to_string();
        if revisions.active().is_none_or(|active| active.digest != digest) {
            let revision = Revision {
                vouched: fetched.vouched.clone(),
                afresh: self.guest.proof.afresh,
                ..Revision::new(guest, configured.reference.clone(), By::Configuration)
            };
            revisions.push(revision).map_err(failed)?;
        }
        revisions.configure(configured, &instances.settings).map_err(failed)
    }
}

/// The active version, with its number.
fn active_of(active: &Program, revisions: &Revisions) -> String {
    let number = revisions.active().map_or(0, |active| active.revision);
    format!("revision {number} (`{}`)", named(&active.guest))
}

/// Why the configured guest is not available: the error if no active version goes on, and why it is refused if one may.
/// None may if the lock file or a key says what the guest must be, or if the lock file can't be read.
type Unavailable = (SetupError, Option<Refused>);
