//! The guest toy: makes one key of etcd as it should be. The smallest complete guest, and an example of one.
//!
//! Reads before it writes, so that nothing is written where nothing changes. Keeps nothing between calls.
#![cfg_attr(not(target_family = "wasm"), forbid(unsafe_code))]

use trueup_guest::bindings::trueup::etcd::kv;
use trueup_guest::settings::Given;
use trueup_guest::{Imports, Level, Stateless, Telemetry, etcd};

use crate::bindings::exports::trueup::toy::reconciliation::{self, Desired, Error, Outcome};

mod bindings;

trueup_guest::guest!(Toy);

/// The guest. It has no settings.
pub struct Toy;

impl Stateless for Toy {
    const NAME: &str = "toy";
    const VERSION: u32 = 1;

    fn init(config: &str) -> Result<Self, String> {
        Given::read(config)?.end(Self)
    }
}

impl reconciliation::Guest for Exports {
    fn reconcile(Desired { key, value }: Desired) -> Result<Outcome, Error> {
        let stored = kv::get(&key)?;
        let outcome = needed(stored.as_ref().map(|stored| stored.value.as_str()), value.as_deref());
        match outcome {
            Outcome::Unchanged => return Ok(outcome),
            Outcome::Written => _ = kv::put(&key, &value.unwrap_or_default())?,
            Outcome::Deleted => _ = kv::delete(&key)?,
        }
        Imports.log(Level::Info, "the key is as it should be again", &[("key", &key)]);
        Imports.counter_add("toy_changes_total", &[], 1);
        Ok(outcome)
    }
}

/// What makes a key with the value `stored` as `desired`. `None`: without the key.
fn needed(stored: Option<&str>, desired: Option<&str>) -> Outcome {
    match desired {
        _ if stored == desired => Outcome::Unchanged,
        Some(_) => Outcome::Written,
        None => Outcome::Deleted,
    }
}

/// The database's error as the answer of a call.
impl From<kv::Error> for Error {
    fn from(error: kv::Error) -> Self {
        Self::Database(etcd::words(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_key_that_differs_is_changed() {
        for (stored, desired, outcome) in [
            (None, None, Outcome::Unchanged),
            (Some("80/TCP"), Some("80/TCP"), Outcome::Unchanged),
            (None, Some("80/TCP"), Outcome::Written),
            (None, Some(""), Outcome::Written),
            (Some("80/TCP"), Some("443/TCP"), Outcome::Written),
            (Some("80/TCP"), None, Outcome::Deleted),
        ] {
            assert_eq!(needed(stored, desired), outcome, "{stored:?} to {desired:?}");
        }
    }

    #[test]
    fn a_setting_is_refused_as_there_are_none() {
        assert!(Toy::init("{}").is_ok());
        let error = Toy::init(r#"{"prefix": "/toy"}"#).err();
        assert_eq!(
            error.as_deref(),
            Some(r#"prefix: was "/toy", must not be set: there are no settings"#)
        );
    }

    #[test]
    fn an_error_says_what_the_database_said() {
        let said = Error::from(kv::Error::NotText("/toy/shop/web".to_owned()));
        assert_eq!(said, Error::Database("not text: /toy/shop/web".to_owned()));
    }
}
