//! Decides which version a start uses: the one that was active, unless the configuration was edited since.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use trueup_base::clock::{Clock as _, SystemClock};
use trueup_config::{Guest, OnFailure};
use trueup_registry::{NoGuest, NotLoaded, Reference};

use super::fetch::{Fetched, Guests};
use super::proof::{Against, Refused, Step, gate, initial_state, of_world, prove, self_test};
use super::revisions::{By, Configured, Revision, Revisions};
use crate::guests::{Program, Worlds};
use crate::instances::Instances;
use crate::setup::SetupError;

/// A guest at the start.
pub(crate) struct Begun {
    /// The instances of a guest that has accepted its settings.
    pub(crate) instances: Instances,
    pub(crate) revisions: Revisions,
    /// Why the version that the configuration names did not become active.
    pub(crate) problem: Option<String>,
}

/// A guest of the configuration, for a start.
pub(crate) struct Wish<'a> {
    /// The name in `[guests.NAME]`.
    pub(crate) name: &'static str,
    /// The worlds that it may be of.
    pub(crate) worlds: Worlds,
    pub(crate) guest: &'a Guest,
    pub(crate) state_dir: &'a Path,
}

/// Decides which version is active, and records it if `write`: a plan changes nothing. `instances` creates the
/// instances of a program.
///
/// # Errors
/// If no version could be active; or if the configuration was edited to name a guest that is not available or is of
/// another world. Then nothing is written: a version that never was active is not a revision.
pub(crate) async fn begin(
    guests: &Guests,
    wish: &Wish<'_>,
    write: bool,
    instances: impl Fn(Arc<Program>) -> Instances,
) -> Result<Begun, SetupError> {
    let mut revisions = Revisions::load(wish.state_dir, wish.name).map_err(SetupError::Misused)?;
    let active = active(guests, wish, &revisions)?;
    let begun_afresh = revisions.active().filter(|active| active.afresh);
    let begun_afresh = begun_afresh.map(|active| active.digest.clone());
    let instances = |program: Arc<Program>| Instances {
        afresh: wish.guest.proof.afresh || begun_afresh.as_ref() == Some(&program.guest.digest.to_string()),
        ..instances(program)
    };
    match (reserves(guests, wish).await, &active) {
        (Ok(()), _) => {}
        // At a first start the operator must correct it now. Otherwise the active version goes on all the same.
        (Err(error), None) => return Err(error),
        (Err(error), Some(_)) => tracing::warn!("{error}"),
    }
    let wished = match wished(guests, wish).await {
        Ok(wished) => wished,
        Err(error) => {
            let (active, problem) = wish.without(error, active, &revisions)?;
            return wish.begun(instances(active), revisions, Some(problem)).await;
        }
    };
    let configured = Configured {
        reference: wish.guest.reference.to_string(),
        digest: wished.program.guest.digest.to_string(),
    };
    let is_edited = revisions.configured() != Some(&configured);
    let program = match active {
        Some(active) if !is_edited || active.guest.digest == wished.program.guest.digest => active,
        Some(active) => match wish
            .proven(guests, &wished.program, &instances(Arc::clone(&active)))
            .await
        {
            Ok(()) => Arc::clone(&wished.program),
            Err(refused) => {
                if write {
                    let noted = revisions.refuse(configured);
                    noted.map_err(|error| wish.failed(&error))?;
                }
                return wish.refused(&refused, instances(active), revisions).await;
            }
        },
        None => {
            wish.tested(guests, &instances(Arc::clone(&wished.program))).await?;
            Arc::clone(&wished.program)
        }
    };
    let mut begun = wish.begun(instances(program), revisions, None).await?;
    if write {
        let program = &begun.instances.program;
        write_down(guests, wish, &wished, program, &mut begun.revisions, configured)?;
    }
    Ok(begun)
}

impl Wish<'_> {
    fn misused(&self, error: &str) -> SetupError {
        SetupError::Misused(self.placed(error))
    }

    /// Adds the section of the configuration.
    fn placed(&self, error: &str) -> String {
        format!("{}: [guests.{}]: {error}", self.guest.location, self.name)
    }

    /// The same instances, once the guest has accepted its settings.
    async fn accepted(&self, mut instances: Instances) -> Result<Instances, SetupError> {
        let initial = initial_state(&instances).await;
        instances.initial = initial.map_err(|error| match error {
            SetupError::Misused(error) => self.misused(&error),
            failed @ SetupError::Failed(_) => failed,
        })?;
        Ok(instances)
    }

    async fn begun(
        &self,
        instances: Instances,
        revisions: Revisions,
        problem: Option<String>,
    ) -> Result<Begun, SetupError> {
        Ok(Begun {
            instances: self.accepted(instances).await?,
            revisions,
            problem,
        })
    }

    /// The configured version is refused. The active version goes on, unless it refuses settings that came with the
    /// refused one.
    async fn refused(&self, refused: &Refused, active: Instances, revisions: Revisions) -> Result<Begun, SetupError> {
        let problem = self.stays(&refused.to_string(), &active.program, &revisions);
        let begun = self.begun(active, revisions, Some(problem)).await;
        begun.map_err(|error| self.neither(refused, error))
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> SetupError {
        SetupError::Failed(format!("guest `{}`: {error}", self.name))
    }

    /// Proves the configured version against the active one.
    async fn proven(&self, guests: &Guests, wished: &Arc<Program>, active: &Instances) -> Result<(), Refused> {
        let reference = self.guest.reference.to_string();
        let against = self.against(guests, active, &reference);
        let proven = prove(Arc::clone(wished), self.worlds, &against).await?;
        tracing::info!("guest `{}`: {reference} passed: {}", self.name, proven.report);
        Ok(())
    }

    /// Tests the configured version by itself: there is no active one.
    async fn tested(&self, guests: &Guests, wished: &Instances) -> Result<(), SetupError> {
        let reference = self.guest.reference.to_string();
        let tested = self_test(wished, &self.against(guests, wished, &reference)).await;
        tested.map(drop).map_err(|refused| self.misused(&refused.to_string()))
    }

    fn against<'a>(&'a self, guests: &'a Guests, active: &'a Instances, reference: &'a str) -> Against<'a> {
        Against {
            active,
            proof: &self.guest.proof,
            reference,
            patience: Duration::ZERO,
            loader: guests.loader(),
        }
    }

    /// Handles a configured guest that is not available. If the configuration was not edited since it was available,
    /// the active version goes on. If it was edited, or the guest does not match the lock file or the keys, that is
    /// an error.
    fn without(
        &self,
        error: NotWished,
        active: Option<Arc<Program>>,
        revisions: &Revisions,
    ) -> Result<(Arc<Program>, String), SetupError> {
        let reference = self.guest.reference.to_string();
        let is_as_before = revisions
            .configured()
            .is_some_and(|before| before.reference == reference);
        match active {
            Some(active) if is_as_before && !matches!(error, NotWished::Lock(_) | NotWished::Distrusted(_)) => {
                let problem = self.stays(&error.refused().to_string(), &active, revisions);
                Ok((active, problem))
            }
            _ => Err(match error {
                NotWished::Lock(NoGuest(why)) => SetupError::Misused(why),
                NotWished::Away(why) => SetupError::Failed(self.placed(&why)),
                NotWished::Distrusted(refused) | NotWished::Refused(refused) => self.misused(&refused.why),
            }),
        }
    }

    /// The configuration names a version that is refused, and the active one refuses the settings.
    fn neither(&self, refused: &Refused, error: SetupError) -> SetupError {
        match error {
            SetupError::Misused(error) => self.misused(&format!(
                "{} is {refused}; the active version can't go on with these settings either: {error}",
                self.guest.reference
            )),
            failed @ SetupError::Failed(_) => failed,
        }
    }

    fn stays(&self, refused: &str, active: &Program, revisions: &Revisions) -> String {
        let number = revisions.active().map_or(0, |active| active.revision);
        format!(
            "guest `{}`: {} is {refused}; revision {number} (`{}@{}`) stays active",
            self.name, self.guest.reference, active.guest.name, active.guest.version
        )
    }
}

/// The version that was active last. `None` if there is none, or it is lost.
///
/// # Errors
/// If it exists and is not available now.
fn active(guests: &Guests, wish: &Wish<'_>, revisions: &Revisions) -> Result<Option<Arc<Program>>, SetupError> {
    let Some(active) = revisions.active() else {
        return Ok(None);
    };
    let goes_on = |why: &str| {
        tracing::warn!(
            "guest `{}`: revision {} {why}: going on with what the configuration names",
            wish.name,
            active.revision
        );
        Ok(None)
    };
    if !active.is_vouched_for(&wish.guest.verify) {
        return goes_on("is signed by no key of `verify`");
    }
    match guests.kept(&active.digest) {
        Ok(Some(program)) => Ok(Some(program)),
        Ok(None) => goes_on("is kept no more"),
        Err(refused) => Err(wish.failed(&refused.why)),
    }
}

/// Why the configured guest is not available.
enum NotWished {
    /// The lock file can't be read. The error names it.
    Lock(NoGuest),
    /// Its registry did not answer.
    Away(String),
    /// It is not available, or of another world, although the lock file or a key says what it must be.
    Distrusted(Refused),
    /// The same, for one that no lock file or key describes.
    Refused(Refused),
}

impl NotWished {
    fn refused(self) -> Refused {
        let step = Step::Load;
        match self {
            Self::Lock(NoGuest(why)) | Self::Away(why) => Refused { step, why },
            Self::Distrusted(refused) | Self::Refused(refused) => refused,
        }
    }
}

async fn wished(guests: &Guests, wish: &Wish<'_>) -> Result<Fetched, NotWished> {
    guests.check_lock().map_err(NotWished::Lock)?;
    let reference = &wish.guest.reference;
    let is_pinned = guests.loader().registry.pins(reference).map_err(NotWished::Lock)?;
    let is_trusted = is_pinned || !wish.guest.verify.keys.is_empty() || matches!(reference, Reference::Oci(_));
    let refused = |refused| {
        if is_trusted {
            NotWished::Distrusted(refused)
        } else {
            NotWished::Refused(refused)
        }
    };
    let loaded = guests.load(&wish.guest.reference, &wish.guest.verify).await;
    let wished = loaded.map_err(|error| match error {
        NotLoaded::Failed(why) => NotWished::Away(why),
        NotLoaded::NoGuest(NoGuest(why)) => refused(Refused { step: Step::Load, why }),
    })?;
    of_world(&wished.program, wish.worlds).map_err(refused)?;
    Ok(wished)
}

/// Checks what only a swap or a failure needs, so that problems do not first appear then.
async fn reserves(guests: &Guests, wish: &Wish<'_>) -> Result<(), SetupError> {
    gate(&wish.guest.proof).map_err(|error| wish.misused(&format!("accepted_differences: {error}")))?;
    // Loading the guest itself reports problems with the lock file.
    if let (OnFailure::FallBack(reference), Ok(())) = (&wish.guest.failure.on_failure, guests.check_lock()) {
        let fall_back = guests.named(reference, &wish.guest.verify).await;
        fall_back
            .and_then(|fall_back| of_world(&fall_back.program, wish.worlds))
            .map_err(|refused| wish.misused(&format!("fall_back: {}", refused.why)))?;
    }
    Ok(())
}

/// Writes the bytes first, so that those of each revision exist.
fn write_down(
    guests: &Guests,
    wish: &Wish<'_>,
    wished: &Fetched,
    program: &Program,
    revisions: &mut Revisions,
    configured: Configured,
) -> Result<(), SetupError> {
    let failed = |error: std::io::Error| wish.failed(&error);
    if let Some(bytes) = &wished.bytes {
        guests.keep(bytes).map_err(|refused| SetupError::Failed(refused.why))?;
    }
    let digest = program.guest.digest.to_string();
    if revisions.active().is_none_or(|active| active.digest != digest) {
        let revision = Revision {
            revision: 0,
            reference: configured.reference.clone(),
            name: program.guest.name.clone(),
            version: program.guest.version.clone(),
            digest,
            at_ms: SystemClock.now_ms(),
            by: By::Configuration,
            vouched: wished.vouched.clone(),
            note: None,
            afresh: wish.guest.proof.afresh,
        };
        revisions.push(revision).map_err(failed)?;
    }
    revisions.configure(configured).map_err(failed)
}
