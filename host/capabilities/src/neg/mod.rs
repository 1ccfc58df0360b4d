//! `trueup:neg/api`: network endpoint groups of Google Compute Engine.
//!
//! An attachment or a detachment starts here and ends later. The runner of the instance reports its end to the guest
//! through `syncer.on-operation`. Knows nothing of targets or migrations; the guest handles those.
//!
//! ```text
//! guest -> binding (request id, tape, grant) -> Api: simulated, or Compute Engine
//! ```

mod binding;
pub mod compute;
mod order;
pub mod planned;
pub(crate) mod reading;
pub mod shown;
pub mod simulated;

pub use crate::bindings::neg::api::{Error, NegRef};
pub use crate::bindings::neg::types::{Endpoint, EndpointGroup, Location};

use async_trait::async_trait;
use serde::Serialize;
use uuid::Uuid;

/// The maximum number of endpoints in one operation: Compute Engine's limit for one request.
pub const ENDPOINTS_PER_OPERATION_MAX: usize = 500;

/// Network endpoint groups for one instance, real or simulated. Methods have the names and promises of the WIT
/// functions.
///
/// A change carries a [`RequestId`]. If a backend gets the same request with the same id again, it returns its earlier
/// answer and does nothing. That holds across crashes of this host.
#[async_trait]
pub trait Api: Send + Sync {
    /// Ensures that the NEG exists with this subnet. Returns true if it was created now.
    async fn ensure(&self, neg: &NegRef, subnet: &str, request: RequestId) -> Result<bool, Error>;
    /// Every endpoint in the NEG, in the order of [`Endpoint`].
    async fn list_endpoints(&self, neg: &NegRef) -> Result<Vec<Endpoint>, Error>;
    /// Starts an operation that attaches these endpoints, or else detaches them, at most
    /// [`ENDPOINTS_PER_OPERATION_MAX`]. Returns its number, which is unique within an instance.
    async fn change(&self, attaches: bool, neg: &NegRef, endpoints: &[Endpoint], id: RequestId) -> Result<u64, Error>;
}

/// The half of the API that changes nothing; it fills a plan.
#[async_trait]
pub trait Reads: Send + Sync {
    /// [`Api::ensure`] without creating anything: returns true if the NEG exists with this subnet, false if there is
    /// none. Fails as `ensure` does if it differs.
    async fn is_there(&self, neg: &NegRef, subnet: &str) -> Result<bool, Error>;
    /// As [`Api::list_endpoints`].
    async fn endpoints(&self, neg: &NegRef) -> Result<Vec<Endpoint>, Error>;
}

/// The namespace of these ids (RFC 9562, version 5), drawn once for trueup.
const NAMESPACE: Uuid = Uuid::from_u128(0x5b1f_6a52_9c0e_4d5b_8f3a_7e21_c4d9_0b68);

/// Identifies one changing request and all its repetitions: made before the first attempt. Never the zero UUID if a
/// host made it. Derived, never drawn, so that it need not be saved: after a crash the interrupted call runs again on
/// its recorded answers, with the time at which it began. It then makes the same request at the same position, and an
/// id depends on nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub Uuid);

/// When the running call began: the part of a request's position that the journal keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Began {
    /// An entry of the journal, at its time in milliseconds. The host never repeats a time within an instance.
    Entry(u64),
    /// `init`, `restore` or `snapshot`, by the host's clock: never repeated from a recording.
    Unrecorded(u64),
}

impl Default for Began {
    fn default() -> Self {
        Self::Unrecorded(0)
    }
}

/// A request's position, unique among all requests of all instances: the key of its instance, when its call began, and
/// the number of the request in the call, from 1.
type Position<'a> = (&'a str, Began, u32);

impl RequestId {
    /// The id of the request `name` with these arguments at that position.
    ///
    /// # Errors
    /// If the arguments have no JSON form.
    fn of(at: Position<'_>, name: &str, args: &(impl Serialize + ?Sized)) -> serde_json::Result<Self> {
        let (instance, began, number) = at;
        // As a JSON list, different parts never give the same text.
        let parts = serde_json::to_vec(&(instance, began, number, name, args))?;
        Ok(Self(Uuid::new_v5(&NAMESPACE, &parts)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const POSITION: Position<'_> = ("default/web:80", Began::Entry(1_000), 3);

    fn of(position: Position<'_>, name: &str, args: serde_json::Value) -> RequestId {
        RequestId::of(position, name, &args).unwrap()
    }

    #[test]
    fn the_same_question_at_the_same_position_has_the_same_id_for_ever() {
        let id = of(POSITION, "api.attach", json!({"endpoints": []}));
        assert_eq!(id, of(POSITION, "api.attach", json!({"endpoints": []})));
        // A literal: every version of trueup must make this id, or an upgrade attaches twice.
        assert_eq!(id.0.to_string(), "6deec634-42f9-502b-9ada-b1b0297894b6");
        assert_eq!(id.0.get_version_num(), 5);
    }

    #[test]
    fn whatever_differs_makes_another_id() {
        let args = json!({"endpoints": []});
        let mut ids = vec![
            of(POSITION, "api.attach", args.clone()),
            of(POSITION, "api.detach", args.clone()),
            of(POSITION, "api.attach", json!({"endpoints": [1]})),
        ];
        let (instance, began, number) = POSITION;
        let others = [
            ("default/web:8", began, number),
            (instance, Began::Entry(1_001), number),
            (instance, Began::Unrecorded(1_000), number),
            (instance, began, 4),
        ];
        ids.extend(others.map(|position| of(position, "api.attach", args.clone())));
        let different: std::collections::BTreeSet<_> = ids.iter().collect();
        assert_eq!(different.len(), ids.len(), "{ids:?}");
        assert!(ids.iter().all(|id| !id.0.is_nil()));
    }
}
