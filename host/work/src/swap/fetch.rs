//! Fetches a guest: its bytes, and the program that they compile to.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};
use trueup_instance::Program;
use trueup_registry::{NotLoaded, Reference, Store, Verify, Vouched};

use super::proof::{Refused, Step, refused};
use super::revisions::HOST;
use crate::load::Loader;

/// A fetched guest.
#[derive(Clone)]
pub(crate) struct Fetched {
    pub(crate) program: Arc<Program>,
    /// The original bytes, to which the digest belongs. `None` if they are already in the store.
    pub(crate) bytes: Option<Arc<[u8]>>,
    /// In the format of [`super::Revision::vouched`].
    pub(crate) vouched: Option<String>,
}

/// The maximum number of compiled guests kept in memory for reuse. One in Python has 35 MB.
const LOADED_MAX: usize = 16;

/// The sources of guests. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Guests {
    pub(super) loader: Loader,
    store: Store,
    /// Loaded guests, by digest.
    loaded: Arc<Mutex<BTreeMap<String, Arc<Program>>>>,
}

impl Guests {
    pub(crate) fn new(loader: Loader, store: Store) -> Self {
        let loaded = Arc::default();
        Self { loader, store, loaded }
    }

    /// The guest that a reference names, as the configuration requires: pinned by its lock, and signed if signatures
    /// are required.
    ///
    /// # Errors
    /// Why it is not available.
    pub(crate) async fn named(&self, reference: &Reference, verify: &Verify) -> Result<Fetched, Refused> {
        let loaded = self.load(reference, verify).await;
        loaded.map_err(|error| refused(Step::Load)(error.into()))
    }

    /// The same, but distinguishes a guest that is not available from a load that failed just now.
    ///
    /// # Errors
    /// Why it is not available.
    pub(crate) async fn load(&self, reference: &Reference, verify: &Verify) -> Result<Fetched, NotLoaded> {
        let (this, reference, verify) = (self.clone(), reference.clone(), verify.clone());
        // Compiling is slow, so it runs on a thread of its own.
        let loading = Handle::current();
        let loaded = tokio::task::spawn_blocking(move || {
            let loaded = loading.block_on(this.loader.configured(&reference, &verify))?;
            remember(&mut this.loaded.lock(), &loaded.program);
            Ok::<_, NotLoaded>(loaded)
        });
        let loaded = loaded.await.map_err(|error| NotLoaded::Failed(error.to_string()))??;
        Ok(Fetched {
            program: loaded.program,
            bytes: Some(loaded.found.bytes.into()),
            vouched: match loaded.vouched {
                Vouched::Host => Some(HOST.to_owned()),
                Vouched::Key(key) => Some(key.display().to_string()),
                Vouched::NotAsked => None,
            },
        })
    }

    /// Keeps a guest's bytes, so that a restart and a rollback find them whatever happens to their source.
    ///
    /// # Errors
    /// If they can't be written.
    pub(crate) fn keep(&self, bytes: &[u8]) -> Result<(), Refused> {
        let kept = self.store.put(bytes);
        kept.map(drop).map_err(|error| refused(Step::Commit)(error.into()))
    }

    /// A guest that was once active. `None` if it is no longer kept. Slow if it is not loaded yet: other tasks go on
    /// meanwhile.
    ///
    /// # Errors
    /// Why it is not available now.
    pub(crate) fn kept(&self, digest: &str) -> Result<Option<Arc<Program>>, Refused> {
        beside_tasks(|| {
            // Held while the guest is loaded. After a start, many instances may ask for the same guest at once: it is
            // compiled once.
            let mut loaded = self.loaded.lock();
            if let Some(program) = loaded.get(digest) {
                return Ok(Some(Arc::clone(program)));
            }
            let stored = self.loader.stored(digest);
            let stored = stored.map_err(|error| refused(Step::Load)(error.into()))?;
            if let Some(program) = &stored {
                remember(&mut loaded, program);
            }
            Ok(stored)
        })
    }
}

/// Does slow work. The other tasks of this thread go on on another one, if the runtime has several.
fn beside_tasks<T>(work: impl FnOnce() -> T) -> T {
    let flavor = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    match flavor {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

fn remember(loaded: &mut BTreeMap<String, Arc<Program>>, program: &Arc<Program>) {
    // Active guests are held elsewhere; the rest is loaded again from the compile cache.
    if loaded.len() >= LOADED_MAX {
        loaded.clear();
    }
    loaded.insert(program.guest.digest.to_string(), Arc::clone(program));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn other_tasks_go_on_while_a_guest_is_compiled() {
        let (end, ended) = std::sync::mpsc::channel();
        let compiles = tokio::spawn(async move {
            // The only worker runs this task, and must run the next one, too.
            tokio::spawn(async move { end.send(()) });
            beside_tasks(|| ended.recv_timeout(Duration::from_secs(60)))
        });
        assert_eq!(compiles.await.unwrap(), Ok(()));
    }
}
