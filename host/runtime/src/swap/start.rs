//! Which version a start comes back with: what was active, unless the configuration was edited since.

use std::sync::Arc;

use trueup_capabilities::clock::{Clock as _, SystemClock};

use super::fetch::Guests;
use super::proof::{Against, check_files, of_world, prove};
use super::revisions::{By, Configured, Revision, Revisions};
use crate::config::{Guest, OnFailure};
use crate::guests::Program;
use crate::run::setup::initial_state;
use crate::run::{Instances, SetupError};

/// A guest to begin with.
pub(crate) struct Begun {
    /// It has accepted its settings.
    pub(crate) instances: Instances,
    pub(crate) revisions: Revisions,
    /// What the configuration wishes for did not become active: why.
    pub(crate) problem: Option<String>,
}

/// Finds out which version decides, and writes it down where `write` says so: a plan changes nothing. `instances` makes
/// what a version is run with, from its program.
///
/// # Errors
/// Where what the configuration names can't be had at all, is of another world, or there is no version that could decide.
pub(crate) async fn begin(
    guests: &Guests,
    (name, world): (&'static str, &str),
    guest: &Guest,
    state_dir: &std::path::Path,
    write: bool,
    instances: impl Fn(Arc<Program>) -> Instances,
) -> Result<Begun, SetupError> {
    let misused = |error: String| SetupError::Misused(format!("{}: [guests.{name}]: {error}", guest.place));
    guests.check_lock().map_err(|error| SetupError::Misused(error.0))?;
    check_files(&guest.proof).map_err(misused)?;
    let mut revisions = Revisions::load(state_dir, name).map_err(SetupError::Misused)?;
    let wished = guests
        .named(&guest.reference, &guest.verify)
        .await
        .map_err(|refused| misused(refused.why))?;
    of_world(&wished.program, world).map_err(|refused| misused(refused.why))?;
    if let OnFailure::FallBack(reference) = &guest.failure.on_failure {
        // The moment it is needed is no moment to find out that it is not there.
        let fall_back = guests.named(reference, &guest.verify).await;
        fall_back
            .and_then(|fall_back| of_world(&fall_back.program, world))
            .map_err(|refused| misused(format!("fall_back: {}", refused.why)))?;
    }
    let accepts = async |program: Arc<Program>| {
        let mut with = instances(program);
        let initial = initial_state(&with).await;
        with.initial = initial.map_err(|error| match error {
            SetupError::Misused(error) => misused(error),
            failed @ SetupError::Failed(_) => failed,
        })?;
        Ok::<_, SetupError>(with)
    };
    let configured = Configured {
        reference: guest.reference.to_string(),
        digest: wished.program.guest.digest.to_string(),
    };
    let is_edited = revisions.configured() != Some(&configured);
    let active = match revisions.active() {
        Some(active) if active.digest == configured.digest => Some(Arc::clone(&wished.program)),
        Some(active) => match guests.kept(&active.digest) {
            Ok(program) => Some(program),
            Err(refused) => {
                tracing::warn!(
                    "guest `{name}`: revision {} is lost ({}): going on with what the configuration names",
                    active.revision,
                    refused.why
                );
                None
            }
        },
        None => None,
    };
    let (program, problem, pushed) = match active {
        Some(active) if !is_edited => (active, None, false),
        Some(active) if active.guest.digest == wished.program.guest.digest => (active, None, false),
        Some(active) => {
            let with = instances(Arc::clone(&active));
            let against = Against {
                active: &with,
                proof: &guest.proof,
                registry: guests.registry(),
            };
            match prove(Arc::clone(&wished.program), world, &against).await {
                Ok(proven) => {
                    tracing::info!("guest `{name}`: {} passed: {}", guest.reference, proven.report);
                    (wished.program.clone(), None, true)
                }
                Err(refused) => {
                    let number = revisions.active().map_or(0, |active| active.revision);
                    let problem = format!(
                        "guest `{name}`: {} is {refused}; revision {number} (`{}@{}`) stays active",
                        guest.reference, active.guest.name, active.guest.version
                    );
                    return Ok(Begun {
                        instances: accepts(active).await?,
                        revisions,
                        problem: Some(problem),
                    });
                }
            }
        }
        None => (wished.program.clone(), None, true),
    };
    // Before anything is written: a version that does not accept its settings never was active.
    let instances = accepts(program).await?;
    if write {
        let failed = |error: std::io::Error| SetupError::Failed(format!("guest `{name}`: {error}"));
        if let Some(bytes) = &wished.bytes {
            guests.keep(bytes).map_err(|refused| SetupError::Failed(refused.why))?;
        }
        if pushed {
            let guest = &instances.program.guest;
            let revision = Revision {
                revision: 0,
                reference: configured.reference.clone(),
                name: guest.name.clone(),
                version: guest.version.clone(),
                digest: guest.digest.to_string(),
                at_ms: SystemClock.now_ms(),
                by: By::Configuration,
                note: None,
            };
            revisions.push(revision).map_err(failed)?;
        }
        revisions.configure(configured).map_err(failed)?;
    }
    Ok(Begun {
        instances,
        revisions,
        problem,
    })
}
