//! The Engine's token, from a file or an environment variable. A file is read again once the Engine refuses its token.

use std::env::VarError;
use std::fmt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use trueup_base::http::secret::Secret;
use trueup_base::regular;

use crate::remote::SettingsError;

/// The variable that holds the Engine's token if the configuration names none.
pub const TOKEN_ENV_DEFAULT: &str = "TRUEUP_LBAAS_TOKEN";

/// Where a token is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenAt {
    /// `token_file`: in this file; surrounding whitespace is ignored.
    File(PathBuf),
    /// `token_env`: in this environment variable.
    Variable(String),
}

impl fmt::Display for TokenAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "the file `{}`", path.display()),
            Self::Variable(name) => write!(f, "the variable `{name}`"),
        }
    }
}

/// The token that requests carry.
#[derive(Debug)]
pub(super) struct Token {
    at: TokenAt,
    kept: Mutex<Kept>,
}

#[derive(Debug)]
struct Kept {
    now: Secret,
    /// The one before it, which an answer that is still on its way may repeat.
    before: Option<Secret>,
}

impl Token {
    /// `now` was read from there.
    pub(super) fn new(at: TokenAt, now: Secret) -> Self {
        let kept = Mutex::new(Kept { now, before: None });
        Self { at, kept }
    }

    pub(super) fn now(&self) -> Secret {
        self.kept.lock().now.clone()
    }

    /// The token that replaces this one, which the Engine refused. `None` if the file still holds it, or can't be read.
    pub(super) fn instead_of(&self, refused: &Secret) -> Option<Secret> {
        // Held while reading: concurrent requests get the same token.
        let mut kept = self.kept.lock();
        if kept.now == *refused
            && let TokenAt::File(path) = &self.at
        {
            let new = from_file(path).inspect_err(|error| tracing::warn!("the Engine refuses the token: {error}"));
            let new = new.ok().filter(|new| new != refused)?;
            kept.before = Some(std::mem::replace(&mut kept.now, new));
            tracing::info!(
                "the Engine refused the token; from now on requests carry the new one in {}",
                self.at
            );
        }
        (kept.now != *refused).then(|| kept.now.clone())
    }

    /// The text without the token.
    pub(super) fn scrub(&self, text: String) -> String {
        let kept = self.kept.lock();
        let text = kept.now.scrub(text);
        kept.before.iter().fold(text, |text, before| before.scrub(text))
    }
}

/// Reads the Engine's token.
///
/// # Errors
/// If it can't be read, or can't be a token.
pub fn read(at: &TokenAt) -> Result<Secret, SettingsError> {
    let name = match at {
        TokenAt::File(path) => return from_file(path),
        TokenAt::Variable(name) => name,
    };
    let text = std::env::var(name).map_err(|error| {
        // `NotUnicode` holds the value itself; an error text must not.
        let error = match error {
            VarError::NotPresent => error,
            VarError::NotUnicode(_) => VarError::NotUnicode("***".into()),
        };
        SettingsError(format!(
            "the environment variable `{name}` does not hold the Engine's token: set it, or `token_file`: {error}"
        ))
    })?;
    new(&text, &format!("the environment variable `{name}`"))
}

/// Reads the token from a file, trimming white space.
///
/// # Errors
/// If it can't be read, or can't be a token.
pub fn from_file(path: &Path) -> Result<Secret, SettingsError> {
    let shown = path.display();
    let text = regular::read_text(path, regular::SMALL);
    let text = text.map_err(|error| format!("can't read the Engine's token from the file `{shown}`: {error}"));
    new(&text.map_err(SettingsError)?, &format!("the file `{shown}`"))
}

/// A token from text; `origin` is the source for error texts.
///
/// # Errors
/// If no header can carry it.
pub fn new(text: &str, origin: &str) -> Result<Secret, SettingsError> {
    Secret::new("Token", text).map_err(|reason| SettingsError(format!("the Engine's token in {origin} {reason}")))
}
