//! Reads the configuration again while the host runs. All of it takes effect, or nothing.
//!
//! The host checks a new configuration as far as it can beforehand: the file must be readable, the guests it names
//! must be available and pass the gate, and its tokens, folders and files must exist. Only then does the old run end,
//! as for a stop, and the new one begin in the same process. If the new one can't begin after all (its address is
//! taken), the old one begins again: `mod.rs` does that.
//!
//! ```text
//! SIGHUP -> read -> check -> drain the old -> begin the new, or the old again
//! ```

use tokio::sync::mpsc;
use trueup_base::folder;
use trueup_capabilities::Identity;
use trueup_config::{Config, ConfigError};
use trueup_registry::Registry;
use trueup_work::event::Event;
use trueup_work::host_context::HostContext;
use trueup_work::input::Input;
use trueup_work::setup::SetupError;
use trueup_work::status::RefusedReload;
use trueup_worlds::{KINDS, worlds};

/// Where configurations come from while a host runs.
pub struct Reload {
    asked: mpsc::Receiver<()>,
    read: Box<dyn Fn() -> Result<Config, ConfigError>>,
}

impl Reload {
    /// Reads with `read` each time `asked` receives a request.
    pub fn new(asked: mpsc::Receiver<()>, read: impl Fn() -> Result<Config, ConfigError> + 'static) -> Self {
        let read = Box::new(read);
        Self { asked, read }
    }

    /// Returns the next configuration that can replace `current`. Reports each one that is refused.
    pub(super) async fn next(
        &mut self,
        current: &Config,
        registry: &Registry,
        host_context: &HostContext,
        tell: impl Fn(Event),
    ) -> Config {
        loop {
            if self.asked.recv().await.is_none() {
                // All senders are gone.
                std::future::pending::<()>().await;
            }
            match self.read_and_check(current, registry).await {
                Ok(config) => return config,
                Err(problems) => {
                    refused(host_context, problems.clone());
                    problems.iter().for_each(|problem| tell(stays(problem)));
                }
            }
        }
    }

    async fn read_and_check(&self, current: &Config, registry: &Registry) -> Result<Config, Vec<String>> {
        if let Some(moved) = folder::moved(&current.state_dir) {
            return Err(vec![moved]);
        }
        let config = (self.read)().map_err(|error| error.problems)?;
        let file = config.file.display();
        let was = current.state_dir.display();
        if config.state_dir != current.state_dir {
            let never = "which can't change while it runs: start it again";
            let why = format!("{file}: state_dir: was `{was}` when the host started, {never}");
            return Err(vec![why]);
        }
        if config.telemetry != current.telemetry {
            let why = format!("{file}: [telemetry] can't change while the host runs: start it again");
            return Err(vec![why]);
        }
        check(&config, registry)
            .await
            .map_err(|error| vec![error.to_string()])?;
        Ok(config)
    }
}

/// The event of a refused configuration.
pub(super) fn stays(problem: &str) -> Event {
    Event::Problem(format!("{problem}; the configuration stays as it was"))
}

/// Notes a refused configuration in the status of the one that runs, and in the audit log.
pub(super) fn refused(host_context: &HostContext, reasons: Vec<String>) {
    let at_ms = host_context.host_status.now_ms();
    if let Some(audit) = &host_context.audit {
        let file = host_context.host_status.facts().config.display().to_string();
        let outcome = format!("refused: {}", reasons.join("; "));
        if let Err(error) = audit.managed(at_ms, &Identity::default(), "reload", &file, &outcome) {
            tracing::error!("audit: {:#}", anyhow::Error::from(error));
        }
    }
    let refused = RefusedReload { at_ms, reasons };
    host_context.host_status.reload_refused(refused);
}

/// Checks whether a run could begin, as far as that is possible beside the one that runs. Changes nothing.
async fn check(config: &Config, registry: &Registry) -> Result<(), SetupError> {
    let host_context = HostContext::of_trial(config, registry, worlds())?;
    if let Some(source) = config.source() {
        Input::check(source).await?;
    }
    for &kind in KINDS {
        let needs = kind.needs(config);
        if let Some(error) = needs.unusable {
            return Err(error);
        }
        for (name, worlds, guest) in &needs.guests {
            let version = host_context.version(config, name, worlds, guest).await?;
            version.check_configured()?;
        }
        if !needs.guests.is_empty() {
            kind.check_state(config)?;
        }
    }
    Ok(())
}
