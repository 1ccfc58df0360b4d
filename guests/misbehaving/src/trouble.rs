//! The kinds of trouble, one function each: a host's text about one must contain the function's name.

use std::hint::black_box;

use trueup_guest::bindings::trueup::host::{log, metrics};

use crate::bindings::trueup::host::clock;
use crate::bindings::trueup::lbaas::api;

/// The values of the setting `does`; `count` makes no trouble.
pub(crate) const ALL: [&str; 20] = [
    "allocate",
    "ask",
    "ask-at-start",
    "ask-large",
    "choosy",
    "count",
    "foreign-metric",
    "list",
    "log",
    "loop",
    "loop-in-restore",
    "loop-in-snapshot",
    "metrics",
    "panic",
    "panic-2",
    "recurse",
    "say",
    "serve",
    "sleep",
    "swell",
];

/// Control characters that a terminal obeys, and a line that looks like one of the host's.
pub(crate) const FOR_A_TERMINAL: &str = "\u{1b}[31mred\u{7}\r\ndefault/calm             true     \u{202e}reversed";

/// Makes the trouble of that name, if calls make it.
pub(crate) fn make(does: &str, amount: u64, tag: &str) {
    match does {
        "allocate" => allocate_without_end(),
        "ask" => ask_for_ever(),
        "ask-large" => ask_large_questions(amount),
        "foreign-metric" => metrics::gauge_set("trueup_keys", &[], f64::INFINITY),
        "list" => {
            // The test decides how large the answer is, and whether it comes.
            let _ = api::list_tagged(tag);
        }
        "log" => flood_the_log(amount),
        "loop" => loop_for_ever(),
        "metrics" => flood_metrics(amount),
        "panic" => panic_at_once(),
        // A defect that version 1 does not have.
        "panic-2" if cfg!(feature = "version-2") => panic_at_once(),
        "recurse" => {
            recurse_without_end(0);
        }
        "sleep" => clock::sleep_ms(amount),
        _ => {}
    }
}

/// The trouble that a service's name selects, whatever the setting `does`: several keys of one guest can then have
/// trouble of their own.
pub(crate) fn named(name_suffix: &str) -> Option<&str> {
    let name = name_suffix.split('.').next()?;
    ALL.contains(&name).then_some(name)
}

/// Asks one question. The two versions ask different ones.
pub(crate) fn ask_once() {
    if cfg!(feature = "version-2") {
        crate::bindings::trueup::host::random::next_u64();
    } else {
        clock::now_ms();
    }
}

/// Whether version 2 refuses a state that version 1 left.
pub(crate) fn refuses(does: &str, calls: u64) -> bool {
    cfg!(feature = "version-2") && does == "choosy" && calls > 0
}

/// The state, padded with blanks to this many bytes.
pub(crate) fn swell(state: &str, bytes: u64) -> String {
    let blanks = usize::try_from(bytes).unwrap_or(usize::MAX).saturating_sub(state.len());
    state.to_owned() + &" ".repeat(blanks)
}

#[inline(never)]
fn loop_for_ever() {
    let mut turns = 0_u64;
    loop {
        turns = black_box(turns.wrapping_add(1));
    }
}

#[inline(never)]
fn allocate_without_end() {
    let mut all = Vec::new();
    loop {
        all.push(vec![1_u8; 1 << 20]);
        black_box(&all);
    }
}

#[inline(never)]
#[expect(clippy::panic, reason = "that is its purpose")]
fn panic_at_once() {
    panic!("on purpose");
}

#[inline(never)]
fn recurse_without_end(depth: u64) -> u64 {
    if black_box(depth) == u64::MAX {
        return depth;
    }
    // Not a tail call: the addition comes after it returns.
    black_box(recurse_without_end(depth + 1)).wrapping_add(1)
}

#[inline(never)]
fn ask_for_ever() {
    loop {
        clock::now_ms();
    }
}

/// Whether the guest loops when the host asks for its state, or restores it, after this many calls.
pub(crate) fn loops_in(does: &str, export: &str, calls: u64) {
    if calls > 0 && does.strip_prefix("loop-in-") == Some(export) {
        loop_for_ever();
    }
}

/// An error of this many bytes, which a terminal would obey.
pub(crate) fn error(bytes: u64) -> String {
    let more = usize::try_from(bytes).unwrap_or(usize::MAX);
    FOR_A_TERMINAL.to_owned() + &"x".repeat(more.saturating_sub(FOR_A_TERMINAL.len()))
}

#[inline(never)]
fn ask_large_questions(bytes: u64) {
    let tag = "x".repeat(usize::try_from(bytes).unwrap_or(usize::MAX));
    for _ in 0..1000 {
        // The test decides whether the answer comes.
        let _ = api::list_tagged(&tag);
    }
}

#[inline(never)]
fn flood_the_log(lines: u64) {
    for line in 0..lines {
        log::emit(log::Level::Info, &format!("line {line}"), &[]);
    }
}

#[inline(never)]
fn flood_metrics(lines: u64) {
    for _ in 0..lines {
        metrics::counter_add("misbehaving_lines_total", &[], 1);
    }
}
