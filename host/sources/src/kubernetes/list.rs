//! Lists one kind page by page: all objects, and the version of the list.
//!
//! This module removes nothing: `store.rs` compares the list with the known objects.
//!
//! ```text
//! page -> page -> ... -> all, and its version
//!   ^        |
//!   +-- 410 -+  once more in pages, then all at once
//! ```

use trueup_base::text;

use super::client::{Cluster, Failed};
use super::decode::{self, Page, Read};
use super::store::Scope;
use crate::object::Kind;

/// How often a list is read page by page before it is requested as a whole. In the second try the pages follow quickly,
/// since nothing else causes a delay.
const PAGED_TRIES: u32 = 2;

/// Lists a scope page by page. Returns its objects and the version of the list.
///
/// # Errors
/// If a page is unavailable, or an item does not identify itself: then it is unknown which objects are gone.
pub(super) async fn list(cluster: &Cluster, scope: &Scope) -> Result<(Vec<Read>, String), Failed> {
    let mut listing = Listing::default();
    loop {
        let page = match cluster.page(scope, listing.next.as_deref(), listing.whole()).await {
            Ok(page) => page,
            Err(failed) => {
                listing = listing.after(failed)?;
                continue;
            }
        };
        let taken = listing.take(scope.kind, &page).map_err(|cause| {
            let place = format!("list {} at the API server {}", scope.kind.resource(), cluster.server);
            let text = text::line(&format!("{place}: its answer is not understood: {cause}"));
            Failed { text, code: None }
        })?;
        if let Some(version) = taken {
            return Ok((listing.objects, version));
        }
    }
}

/// A partially read list.
#[derive(Debug, Default)]
struct Listing {
    objects: Vec<Read>,
    /// The start of the next page. `None` for the first page.
    next: Option<String>,
    /// How often its version expired while reading pages.
    expired: u32,
}

impl Listing {
    /// Whether to request the whole list at once.
    fn whole(&self) -> bool {
        self.expired >= PAGED_TRIES
    }

    /// How to restart after a failed page.
    fn after(self, failed: Failed) -> Result<Self, Failed> {
        if failed.is_expired() && self.next.is_some() && !self.whole() {
            return Ok(Self {
                expired: self.expired + 1,
                ..Self::default()
            });
        }
        Err(failed)
    }

    /// Adds a page. After the last one, returns the version of the list.
    fn take(&mut self, kind: Kind, page: &[u8]) -> Result<Option<String>, String> {
        let page: Page<'_> = serde_json::from_slice(page).map_err(|error| error.to_string())?;
        for item in page.items.unwrap_or_default() {
            self.objects.push(decode::read(kind, item)?);
        }
        self.next = page.metadata.next();
        if self.next.is_some() {
            return Ok(None);
        }
        let without = || "a list without resourceVersion".to_owned();
        page.metadata.version().map(Some).ok_or_else(without)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(code: u16) -> Failed {
        Failed {
            text: String::new(),
            code: Some(code),
        }
    }

    #[test]
    fn a_list_that_expires_is_paged_once_more_and_then_asked_for_at_once() {
        let expired = || failed(410);
        let page = |next: &str| {
            serde_json::json!({"metadata": {"resourceVersion": "7", "continue": next}, "items": [{"metadata": {"name": "n1"}}]})
                .to_string()
        };
        let mut listing = Listing::default();
        for whole in [false, true] {
            assert_eq!(listing.take(Kind::Node, page("more").as_bytes()), Ok(None));
            listing = listing.after(expired()).unwrap();
            assert_eq!(
                (listing.whole(), listing.objects.len(), &listing.next),
                (whole, 0, &None)
            );
        }
        assert!(listing.after(expired()).is_err(), "it never ends otherwise");
        let mut listing = Listing::default();
        assert_eq!(listing.take(Kind::Node, page("").as_bytes()), Ok(Some("7".to_owned())));
        assert!(
            Listing::default().after(expired()).is_err(),
            "the first page has no version to be too old"
        );
        assert_eq!(listing.take(Kind::Node, page("more").as_bytes()), Ok(None));
        assert_eq!(listing.after(failed(500)).unwrap_err(), failed(500));
    }
}
