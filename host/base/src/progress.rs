//! What this process does that may take long, for a person who waits for it.
//!
//! Rooms say what they do; the command line shows it on a terminal. Nothing is kept where nothing shows it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

static SHOWN: AtomicBool = AtomicBool::new(false);

/// By number, later ones last.
static DOING: Mutex<BTreeMap<u64, String>> = Mutex::new(BTreeMap::new());

/// One work. It has ended when this is dropped.
#[derive(Debug)]
#[must_use]
pub struct Doing(Option<u64>);

/// From now on, works are kept: something shows them.
pub fn show() {
    SHOWN.store(true, Ordering::Relaxed);
}

/// Begins a work, in a few words: `compiling lbaas@1`.
pub fn doing(what: impl FnOnce() -> String) -> Doing {
    Doing(SHOWN.load(Ordering::Relaxed).then(|| {
        let what = what();
        works(|works| {
            let number = works.last_key_value().map_or(0, |(last, _)| last + 1);
            works.insert(number, what);
            number
        })
    }))
}

/// The newest work, and how many others there are. `None` if there is none.
pub fn newest() -> Option<(String, usize)> {
    works(|works| {
        let (_, what) = works.last_key_value()?;
        Some((what.clone(), works.len() - 1))
    })
}

impl Drop for Doing {
    fn drop(&mut self) {
        if let Some(number) = self.0 {
            works(|works| works.remove(&number));
        }
    }
}

fn works<T>(look: impl FnOnce(&mut BTreeMap<u64, String>) -> T) -> T {
    look(&mut DOING.lock().unwrap_or_else(PoisonError::into_inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_work_is_shown_until_it_ends() {
        drop(doing(|| panic!("nothing shows it")));
        show();
        let first = doing(|| "first".to_owned());
        let second = doing(|| "second".to_owned());
        assert_eq!(newest(), Some(("second".to_owned(), 1)));
        drop(second);
        assert_eq!(newest(), Some(("first".to_owned(), 0)));
        drop(first);
        assert_eq!(newest(), None);
    }
}
