//! Paths of requests, from `projects/` on.

use http::Method;
use serde_json::{Value, json};

use super::request::Request;
use super::settings::Settings;
use crate::neg::{Error, NegRef, RequestId};
use crate::remote::{encode, segment};

/// Entries per page; the maximum.
const PAGE_SIZE: u32 = 500;

/// The requests of the settings' project.
impl Settings {
    /// # Errors
    /// `not-found` if no path can hold a name.
    fn zone(&self, zone: &str) -> Result<String, Error> {
        Ok(format!("projects/{}/zones/{}", self.project, name(zone)?))
    }

    fn neg(&self, neg: &NegRef) -> Result<String, Error> {
        let (zone, name) = (self.zone(&neg.zone)?, name(&neg.name)?);
        Ok(format!("{zone}/networkEndpointGroups/{name}"))
    }

    pub(super) fn get_neg(&self, neg: &NegRef) -> Result<Request, Error> {
        Ok(request(Method::GET, self.neg(neg)?, String::new(), None))
    }

    pub(super) fn insert(&self, neg: &NegRef, body: Value, id: RequestId) -> Result<Request, Error> {
        let path = format!("{}/networkEndpointGroups", self.zone(&neg.zone)?);
        Ok(request(Method::POST, path, format!("?requestId={id}"), Some(body)))
    }

    pub(super) fn list(&self, neg: &NegRef, page: Option<&str>) -> Result<Request, Error> {
        let path = format!("{}/listNetworkEndpoints", self.neg(neg)?);
        let page = page
            .map(|page| format!("&pageToken={}", encode(page)))
            .unwrap_or_default();
        let query = format!("?maxResults={PAGE_SIZE}{page}");
        let body = json!({"healthStatus": "SKIP"});
        Ok(request(Method::POST, path, query, Some(body)))
    }

    /// Attaches endpoints, or else detaches them.
    pub(super) fn change(&self, attaches: bool, neg: &NegRef, body: Value, id: RequestId) -> Result<Request, Error> {
        let what = if attaches { "attach" } else { "detach" };
        let path = format!("{}/{what}NetworkEndpoints", self.neg(neg)?);
        Ok(request(Method::POST, path, format!("?requestId={id}"), Some(body)))
    }

    pub(super) fn get_operation(&self, zone: &str, number: u64) -> Result<Request, Error> {
        let path = format!("{}/operations/{number}", self.zone(zone)?);
        Ok(request(Method::GET, path, String::new(), None))
    }
}

fn request(method: Method, path: String, query: String, body: Option<Value>) -> Request {
    Request {
        method,
        path,
        query,
        body,
    }
}

/// Encodes a name. No resource can have one that is no part of a path.
fn name(name: &str) -> Result<String, Error> {
    segment(name).ok_or(Error::NotFound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::neg::order::tests::neg;

    #[test]
    fn names_cannot_leave_their_place() {
        let paths = Settings::new("p");
        let neg = |name: &str| neg(name, "z/../y");
        let path = paths.get_neg(&neg("a?b")).unwrap().path;
        assert_eq!(path, "projects/p/zones/z%2F..%2Fy/networkEndpointGroups/a%3Fb");
        for name in ["", ".", ".."] {
            assert_eq!(paths.get_neg(&neg(name)).err(), Some(Error::NotFound));
        }
        let page = paths.list(&neg("n"), Some("a/b+c=")).unwrap();
        assert_eq!(page.query, "?maxResults=500&pageToken=a%2Fb%2Bc%3D");
    }
}
