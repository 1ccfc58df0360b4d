//! How the program ends: the exit codes that scripts rely on.

use std::process::ExitCode;

use trueup_base::text;
use trueup_capabilities::checkpoint::tools::ToolError;
use trueup_registry::NotLoaded;
use trueup_work::setup::SetupError;

use crate::{output, progress};

/// An ending without an error, and its code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Success.
    Done = 0,
    /// The command ran, and a part of it failed, which was reported.
    Failed = 1,
    /// Some input could not be used, which was reported.
    Unusable = 2,
    /// There are changes (`plan`), or the replay was not identical.
    Differs = 3,
}

/// An ending with an error to print.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Misuse, unreadable input, or nothing to work on: the code is 2. Otherwise the command failed, and it is 1.
    is_misuse: bool,
    pub(crate) error: anyhow::Error,
}

/// How a command ends.
pub(crate) type Ending = Result<Exit, Failure>;

impl<E: Into<anyhow::Error>> From<E> for Failure {
    /// Some errors say themselves that they are misuse.
    fn from(error: E) -> Self {
        let error: anyhow::Error = error.into();
        let is_misuse = matches!(error.downcast_ref(), Some(SetupError::Misused(_)))
            || matches!(error.downcast_ref(), Some(NotLoaded::NoGuest(_)))
            || matches!(error.downcast_ref(), Some(ToolError::Misused(_)));
        Self { is_misuse, error }
    }
}

/// Marks an error as misuse or unreadable input.
pub(crate) fn misused(error: impl Into<anyhow::Error>) -> Failure {
    Failure {
        is_misuse: true,
        error: error.into(),
    }
}

/// Prints the error once, with its causes, and returns the code.
pub(crate) fn report(ending: Ending) -> ExitCode {
    progress::clear();
    let Failure { is_misuse, error } = match ending {
        Ok(exit) => return ExitCode::from(exit as u8),
        Err(failure) => failure,
    };
    // An error of several lines holds several problems, one on each line.
    for line in format!("{error:#}").lines() {
        output::complain(&text::error(format!("error: {line}")));
    }
    ExitCode::from(if is_misuse { 2 } else { 1 })
}
