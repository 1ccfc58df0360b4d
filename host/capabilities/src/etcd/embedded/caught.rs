//! Catches panics of the database, which may panic on a file that changed underneath it.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

/// `None` after a panic. The panic's text comes from foreign code and goes to the log at level debug.
pub(super) fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    static HOOK: Once = Once::new();
    thread_local! {
        static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
    }
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if IS_CAUGHT.get() {
                tracing::debug!("the database panicked: {info}");
            } else {
                before(info);
            }
        }));
    });
    let outer = IS_CAUGHT.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work)).ok();
    IS_CAUGHT.set(outer);
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_the_database_is_caught_and_not_shown() {
        const IN_CHILD: &str = "TEST_PANICS";
        if std::env::var_os(IN_CHILD).is_some() {
            assert!(caught::<()>(|| panic!("foreign words")).is_none());
            return;
        }
        let name = "etcd::embedded::caught::tests::a_panic_of_the_database_is_caught_and_not_shown";
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let ran = child.args(["--exact", name, "--nocapture"]).env(IN_CHILD, "1").output();
        let ran = ran.unwrap();
        let shown = [ran.stdout, ran.stderr].concat();
        let shown = String::from_utf8_lossy(&shown);
        assert!(ran.status.success() && shown.contains("1 passed"), "{shown}");
        assert!(!shown.contains("foreign words"), "{shown}");
    }
}
