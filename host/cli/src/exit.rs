//! How the program ends: the exit codes that scripts rely on.

use std::process::ExitCode;

use trueup_base::text;
use trueup_registry::NotLoaded;
use trueup_work::setup::SetupError;

use crate::{output, progress};

/// An ending without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// 0: success.
    Done,
    /// 1: the command ran, and a part of it failed, which was reported.
    Failed,
    /// 2: some input could not be used, which was reported.
    Unusable,
    /// 3: there are changes (`plan`), or the replay was not identical.
    Differs,
}

/// An ending with an error to print.
#[derive(Debug)]
pub(crate) enum Failure {
    /// 1: the command failed.
    Failed(anyhow::Error),
    /// 2: misuse, unreadable input, or nothing to work on.
    Misused(anyhow::Error),
}

/// How a command ends.
pub(crate) type Ending = Result<Exit, Failure>;

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<SetupError> for Failure {
    fn from(error: SetupError) -> Self {
        match error {
            SetupError::Misused(_) => Self::Misused(error.into()),
            SetupError::Failed(_) => Self::Failed(error.into()),
        }
    }
}

impl From<NotLoaded> for Failure {
    fn from(error: NotLoaded) -> Self {
        match error {
            NotLoaded::NoGuest(_) => Self::Misused(error.into()),
            NotLoaded::Failed(_) => Self::Failed(error.into()),
        }
    }
}

/// Marks an error as misuse or unreadable input.
pub(crate) fn misused<E: Into<anyhow::Error>>(error: E) -> Failure {
    Failure::Misused(error.into())
}

/// Prints the error once, with its causes, and returns the code.
pub(crate) fn report(ending: Ending) -> ExitCode {
    progress::clear();
    let (code, error) = match ending {
        Ok(Exit::Done) => return ExitCode::SUCCESS,
        Ok(Exit::Failed) => return ExitCode::from(1),
        Ok(Exit::Unusable) => return ExitCode::from(2),
        Ok(Exit::Differs) => return ExitCode::from(3),
        Err(Failure::Failed(error)) => (1, error),
        Err(Failure::Misused(error)) => (2, error),
    };
    // An error of several lines holds several problems, one on each line.
    for line in format!("{error:#}").lines() {
        output::complain(&text::error(format!("error: {line}")));
    }
    ExitCode::from(code)
}
