//! A guest that breaks the rules, for tests of the host. It never ships.
//!
//! The setting `does` selects the trouble. `trouble` has each kind under a name that a backtrace shows; this file has
//! the bindings and the exports. Its state is the number of calls that returned, which reveals a lost or repeated call.
//!
//! With the feature `panics` or `never-answers` it replaces any other guest: it accepts that one's settings, keeps its
//! state as it is, and makes its trouble in each call.
#![cfg_attr(not(target_family = "wasm"), forbid(unsafe_code))]

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use trueup_guest_common::panics;
use trueup_guest_common::settings::{self, Allowed};

use crate::bindings::exports::trueup::guest::lifecycle;
use crate::bindings::exports::trueup::lbaas::reconciliation::{self, AddressPorts, Desired, Error, Plan, Report};
use crate::bindings::trueup::host::log;

pub mod trouble;

/// The contract's types and functions, generated from `wit/`.
#[expect(
    missing_docs,
    reason = "a case or parameter whose name says it all has no text in `wit/`"
)]
pub mod bindings {
    wit_bindgen::generate!({
        path: ["../../wit/host", "../../wit/guest", "../../wit/lbaas"],
        world: "trueup:lbaas/lbaas-reconciler",
        generate_all,
    });
}

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

thread_local! {
    /// The setting `does`. A component has one thread.
    static DOES: RefCell<String> = const { RefCell::new(String::new()) };
    /// The setting `amount`: lines, milliseconds or bytes.
    static AMOUNT: Cell<u64> = const { Cell::new(0) };
    /// The state: how many calls of `reconcile` returned.
    static CALLS: Cell<u64> = const { Cell::new(0) };
    /// The state of the guest that this one replaces.
    static TAKEN: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The exports.
struct Misbehaving;

impl lifecycle::Guest for Misbehaving {
    fn init(config: String) -> Result<(), String> {
        panics::report(|text| log::emit(log::Level::Error, text, &[]));
        if let Some(does) = ALWAYS {
            DOES.replace(does.to_owned());
            return Ok(());
        }
        let given = settings::read(
            &config,
            &BTreeMap::from([
                ("amount", Allowed::Whole(0, 1 << 32)),
                ("does", Allowed::Word(trouble::ALL)),
            ]),
        )?;
        DOES.replace(given.word("does").unwrap_or("count").to_owned());
        AMOUNT.set(given.whole("amount").unwrap_or(0));
        if DOES.with_borrow(|does| does == "ask-at-start") {
            trouble::ask_once();
        }
        Ok(())
    }

    fn snapshot() -> String {
        if let Some(taken) = TAKEN.with_borrow(Clone::clone) {
            return taken;
        }
        let state = CALLS.get().to_string();
        DOES.with_borrow(|does| trouble::loops_in(does, "snapshot", CALLS.get()));
        if DOES.with_borrow(|does| does == "swell") {
            return trouble::swell(&state, AMOUNT.get());
        }
        state
    }

    fn restore(snapshot: String) -> Result<(), String> {
        if ALWAYS.is_some() {
            TAKEN.replace(Some(snapshot));
            return Ok(());
        }
        let calls = snapshot.trim_end().parse();
        let calls = calls.map_err(|_| format!("snapshot: was {} bytes, must be a number", snapshot.len()))?;
        if DOES.with_borrow(|does| trouble::refuses(does, calls)) {
            return Err(format!("snapshot: was {calls}, must be 0"));
        }
        DOES.with_borrow(|does| trouble::loops_in(does, "restore", calls));
        CALLS.set(calls);
        Ok(())
    }
}

impl reconciliation::Guest for Misbehaving {
    fn reconcile_check(_: Desired) -> Result<Plan, Error> {
        Ok(Plan {
            create: Vec::new(),
            destroy: Vec::new(),
        })
    }

    /// `rounds` of the report is the state after the call.
    fn reconcile(desired: Desired) -> Result<Report, Error> {
        if let Some(does) = trouble::named(&desired.name_suffix) {
            trouble::make(does, AMOUNT.get(), &desired.service_uid);
        } else if !desired.name_suffix.starts_with(CALM) {
            DOES.with_borrow(|does| trouble::make(does, AMOUNT.get(), &desired.service_uid));
        }
        let is_calm = desired.name_suffix.starts_with(CALM);
        if !is_calm && DOES.with_borrow(|does| does == "say") {
            return Err(Error::InvalidInput(trouble::error(AMOUNT.get())));
        }
        trouble::ask_once();
        CALLS.set(CALLS.get() + 1);
        let rounds = u32::try_from(CALLS.get()).unwrap_or(u32::MAX);
        Ok(Report {
            created: 0,
            destroyed: 0,
            rounds,
        })
    }

    fn status(desired: Desired) -> Result<Vec<AddressPorts>, Error> {
        let is_calm = desired.name_suffix.starts_with(CALM);
        if is_calm || DOES.with_borrow(|does| does != "serve") {
            return Ok(Vec::new());
        }
        Ok(vec![AddressPorts {
            address: trouble::FOR_A_TERMINAL.to_owned(),
            ports: vec![80],
        }])
    }
}

#[cfg(target_family = "wasm")]
bindings::export!(Misbehaving with_types_in bindings);
