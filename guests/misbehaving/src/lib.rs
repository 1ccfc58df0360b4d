//! A guest that breaks the rules, for tests of the host. It never ships.
//!
//! The setting `does` selects the trouble. `trouble` has each kind under a name that a backtrace shows; this file has
//! the exports. Its state is the number of calls that returned, which reveals a lost or repeated call.
//!
//! With the feature `panics` or `never-answers` it replaces any other guest: it accepts that one's settings, keeps its
//! state as it is, and makes its trouble in each call.
#![cfg_attr(not(target_family = "wasm"), forbid(unsafe_code))]

use trueup_guest::Guest;
use trueup_guest::settings::Given;

use crate::bindings::exports::trueup::lbaas::reconciliation::{self, AddressPorts, Desired, Error, Plan, Report};

mod bindings;
mod trouble;

trueup_guest::guest!(Misbehaving);

/// A service whose name suffix starts like this causes no trouble, whatever the setting `does`: tests can then tell one
/// key's trouble from another's.
pub const CALM: &str = "calm";

/// The trouble that the build always makes; `None` if the setting `does` selects it.
const ALWAYS: Option<&str> = if cfg!(feature = "panics") {
    Some("panic")
} else if cfg!(feature = "never-answers") {
    Some("loop")
} else {
    None
};

/// The settings and the state.
#[derive(Default)]
struct Misbehaving {
    /// The setting `does`.
    does: String,
    /// The setting `amount`: lines, milliseconds or bytes.
    amount: u64,
    /// The state: how many calls of `reconcile` returned.
    calls: u64,
    /// The state of the guest that this one replaces.
    taken: Option<String>,
}

impl Guest for Misbehaving {
    fn init(config: &str) -> Result<Self, String> {
        if let Some(does) = ALWAYS {
            let does = does.to_owned();
            return Ok(Self {
                does,
                ..Self::default()
            });
        }
        let mut given = Given::read(config)?;
        let amount = given.whole("amount", 0..=1 << 32).unwrap_or(0);
        let does = given.word("does", &trouble::ALL.map(|name| (name, name)));
        let does = given.end(does.unwrap_or("count"))?.to_owned();
        if does == "ask-at-start" {
            trouble::ask_once();
        }
        Ok(Self {
            does,
            amount,
            ..Self::default()
        })
    }

    fn snapshot(&self) -> String {
        if let Some(taken) = &self.taken {
            return taken.clone();
        }
        trouble::loops_in(&self.does, "snapshot", self.calls);
        let state = self.calls.to_string();
        if self.does == "swell" {
            return trouble::swell(&state, self.amount);
        }
        state
    }

    fn restore(&mut self, snapshot: &str) -> Result<(), String> {
        if ALWAYS.is_some() {
            self.taken = Some(snapshot.to_owned());
            return Ok(());
        }
        let calls = snapshot.trim_end().parse();
        let calls = calls.map_err(|_| format!("snapshot: was {} bytes, must be a number", snapshot.len()))?;
        if trouble::refuses(&self.does, calls) {
            return Err(format!("snapshot: was {calls}, must be 0"));
        }
        trouble::loops_in(&self.does, "restore", calls);
        self.calls = calls;
        Ok(())
    }
}

impl Misbehaving {
    fn reconcile(&mut self, desired: &Desired) -> Result<Report, Error> {
        let is_calm = desired.name_suffix.starts_with(CALM);
        if let Some(does) = trouble::named(&desired.name_suffix) {
            trouble::make(does, self.amount, &desired.service_uid);
        } else if !is_calm {
            trouble::make(&self.does, self.amount, &desired.service_uid);
        }
        if !is_calm && self.does == "say" {
            return Err(Error::InvalidInput(trouble::error(self.amount)));
        }
        trouble::ask_once();
        self.calls += 1;
        let rounds = u32::try_from(self.calls).unwrap_or(u32::MAX);
        Ok(Report {
            created: 0,
            destroyed: 0,
            rounds,
        })
    }
}

impl reconciliation::Guest for Exports {
    fn reconcile_check(_: Desired) -> Result<Plan, Error> {
        Ok(Plan {
            create: Vec::new(),
            destroy: Vec::new(),
        })
    }

    /// `rounds` of the report is the state after the call.
    fn reconcile(desired: Desired) -> Result<Report, Error> {
        with(|state| state.reconcile(&desired))
    }

    fn status(desired: Desired) -> Result<Vec<AddressPorts>, Error> {
        let is_calm = desired.name_suffix.starts_with(CALM);
        if is_calm || with(|state| state.does != "serve") {
            return Ok(Vec::new());
        }
        Ok(vec![AddressPorts {
            address: trouble::FOR_A_TERMINAL.to_owned(),
            ports: vec![80],
        }])
    }
}
