//! Which version a start comes back with: what was active, unless the configuration was edited since.

use std::path::Path;
use std::sync::Arc;

use trueup_capabilities::clock::{Clock as _, SystemClock};

use super::fetch::{Fetched, Guests};
use super::proof::{Against, Refused, of_world, prove, self_test};
use super::revisions::{By, Configured, Revision, Revisions};
use crate::config::Guest;
use crate::guests::Program;
use crate::run::{Instances, SetupError};

/// A guest to begin with.
pub(crate) struct Begun {
    pub(crate) program: Arc<Program>,
    pub(crate) revisions: Revisions,
    /// What the configuration wishes for did not become active: why.
    pub(crate) problem: Option<String>,
}

/// A guest of the configuration that a start is about.
pub(crate) struct Wish<'a> {
    /// As in `[guests.NAME]`.
    pub(crate) name: &'static str,
    /// The world that it must be of.
    pub(crate) world: &'static str,
    pub(crate) guest: &'a Guest,
    pub(crate) state_dir: &'a Path,
}

/// Finds out which version decides, and writes it down where `write` says so: a plan changes nothing. `instances` makes
/// what a version is run with, from its program.
///
/// # Errors
/// Where there is no version that could decide; where the configuration was edited to name what can't be had, or is of
/// another world.
pub(crate) async fn begin(
    guests: &Guests,
    wish: &Wish<'_>,
    write: bool,
    instances: impl Fn(Arc<Program>) -> Instances,
) -> Result<Begun, SetupError> {
    let mut revisions = Revisions::load(wish.state_dir, wish.name).map_err(SetupError::Misused)?;
    let active = active(guests, wish, &revisions)?;
    let wished = match wished(guests, wish).await {
        Ok(wished) => wished,
        Err(refused) => return wish.without(refused, active, revisions),
    };
    let configured = Configured {
        reference: wish.guest.reference.to_string(),
        digest: wished.program.guest.digest.to_string(),
    };
    let is_edited = revisions.configured() != Some(&configured);
    let program = match active {
        Some(active) if !is_edited || active.guest.digest == wished.program.guest.digest => active,
        Some(active) => {
            let with = instances(Arc::clone(&active));
            let proven = prove(Arc::clone(&wished.program), wish.world, &wish.against(guests, &with)).await;
            match proven {
                Ok(proven) => tracing::info!(
                    "guest `{}`: {} passed: {}",
                    wish.name,
                    wish.guest.reference,
                    proven.report
                ),
                Err(refused) => {
                    if write {
                        let noted = revisions.refuse(configured);
                        noted.map_err(|error| wish.failed(&error))?;
                    }
                    return Ok(wish.stays(refused, active, revisions));
                }
            }
            Arc::clone(&wished.program)
        }
        None => {
            let with = instances(Arc::clone(&wished.program));
            let tested = self_test(&with, &wish.against(guests, &with)).await;
            tested.map_err(|refused| wish.misused(&refused.to_string()))?;
            Arc::clone(&wished.program)
        }
    };
    if write {
        write_down(guests, wish, &wished, &program, &mut revisions, configured)?;
    }
    Ok(Begun {
        program,
        revisions,
        problem: None,
    })
}

impl Wish<'_> {
    fn misused(&self, error: &str) -> SetupError {
        SetupError::Misused(format!("[guests.{}]: {error}", self.name))
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> SetupError {
        SetupError::Failed(format!("guest `{}`: {error}", self.name))
    }

    fn against<'a>(&'a self, guests: &'a Guests, active: &'a Instances) -> Against<'a> {
        Against {
            active,
            proof: &self.guest.proof,
            registry: guests.registry(),
        }
    }

    /// What the configuration names can't be had. Where nobody edited it since it could, that is no reason not to go on with
    /// what was active; where somebody did, he wants to know.
    fn without(
        &self,
        refused: Refused,
        active: Option<Arc<Program>>,
        revisions: Revisions,
    ) -> Result<Begun, SetupError> {
        let reference = self.guest.reference.to_string();
        let is_as_before = revisions
            .configured()
            .is_some_and(|before| before.reference == reference);
        match active {
            Some(active) if is_as_before => Ok(self.stays(refused, active, revisions)),
            _ => Err(self.misused(&refused.why)),
        }
    }

    fn stays(&self, refused: Refused, active: Arc<Program>, revisions: Revisions) -> Begun {
        let number = revisions.active().map_or(0, |active| active.revision);
        let problem = format!(
            "guest `{}`: {} is {refused}; revision {number} (`{}@{}`) stays active",
            self.name, self.guest.reference, active.guest.name, active.guest.version
        );
        Begun {
            program: active,
            revisions,
            problem: Some(problem),
        }
    }
}

/// The version that was active last; none: there is none, or it is lost.
///
/// # Errors
/// Where it is there and can't be had now.
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

async fn wished(guests: &Guests, wish: &Wish<'_>) -> Result<Fetched, Refused> {
    let wished = guests.named(&wish.guest.reference, &wish.guest.verify).await?;
    of_world(&wished.program, wish.world)?;
    Ok(wished)
}

/// The bytes first: what a revision names is there.
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
        };
        revisions.push(revision).map_err(failed)?;
    }
    revisions.configure(configured).map_err(failed)
}
