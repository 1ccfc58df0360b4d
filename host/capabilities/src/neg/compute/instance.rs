//! The four functions of the contract, for one instance.
//!
//! Each call is pinned to the epoch in which it begins: later epochs send nothing more for it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;
use tokio::time::sleep;
use trueup_base::clock::{Clock as _, SystemClock};
use trueup_base::fence::Fence;

use super::Compute;
use super::operations::Started;
use super::watch::{NOT_FOUND, operation_of};
use super::wire::{self, OperationFailure};
use crate::neg::{Api, Endpoint, Error, NegRef, Reads, RequestId};
use async_trait::async_trait;

/// The maximum number of a list's pages: no NEG has that many endpoints.
const PAGES_MAX: u32 = 2_000;

/// Why a list is incomplete, and whether a page after the first was refused: its token may have expired.
type Unlisted = (Error, bool);

#[async_trait]
impl Api for Compute {
    async fn ensure(&self, neg: &NegRef, subnet: &str, request: RequestId) -> Result<bool, Error> {
        let fence = self.fence.of_this_epoch();
        let watch = &self.watch;
        if self.found(&fence, neg, subnet).await? {
            return Ok(false);
        }
        let body = wire::neg_body(&watch.settings, neg, subnet);
        let insert = watch.settings.insert_request(neg, body, request)?;
        let turn = self.turn_of(neg).await;
        let begun = watch.requests.ask(&fence, &insert).await;
        drop(turn);
        let was_faster = match begun {
            Ok(answer) => match self.inserted(neg, operation_of(&insert.shown(), &answer)?.id).await? {
                None => return Ok(true),
                Some(failure) => match failure.http_status {
                    Some(409) => failure.text,
                    // A failed insertion counts as a refused one.
                    Some(404) => return Err(Error::NotFound),
                    Some(status @ 400..500) => return Err(Error::Refused((status, failure.text))),
                    _ => return Err(Error::Unavailable(failure.text)),
                },
            },
            Err(Error::Refused((409, text))) => text,
            Err(error) => return Err(error),
        };
        // Another client's NEG may differ from the requested one.
        match self.found(&fence, neg, subnet).await? {
            true => Ok(false),
            // The insertion of the other client is still running.
            false => Err(Error::Unavailable(was_faster)),
        }
    }

    async fn list_endpoints(&self, neg: &NegRef) -> Result<Vec<Endpoint>, Error> {
        let listed = match self.list(neg).await {
            // The token may have expired between two pages; one retry shows whether it did.
            Err((_, true)) => self.list(neg).await,
            listed => listed,
        };
        let mut endpoints = listed.map_err(|(error, _)| error)?;
        endpoints.sort();
        // An endpoint may have moved between two pages.
        endpoints.dedup();
        Ok(endpoints)
    }

    async fn change(&self, attaches: bool, neg: &NegRef, endpoints: &[Endpoint], id: RequestId) -> Result<u64, Error> {
        let fence = self.fence.of_this_epoch();
        let watch = &self.watch;
        let body = wire::endpoints_body(endpoints)?;
        let request = watch.settings.change_request(attaches, neg, body, id)?;
        let _turn = self.turn_of(neg).await;
        let started_ms = SystemClock.now_ms();
        let number = operation_of(&request.shown(), &watch.requests.ask(&fence, &request).await?)?.id;
        let started = Started {
            instance: self.instance.clone(),
            number,
            zone: neg.zone.clone(),
            neg: neg.name.clone(),
            request: id.0.to_string(),
            started_ms,
            end: None,
        };
        let begun = watch.begin(started, &self.tasks).await;
        // A number that the host may forget must not be returned: repeating the request yields the same operation.
        begun.map_err(|error| Error::Unavailable(format!("{}: operation {number}: {error}", request.shown())))?;
        Ok(number)
    }
}

#[async_trait]
impl Reads for Compute {
    async fn is_there(&self, neg: &NegRef, subnet: &str) -> Result<bool, Error> {
        self.found(&self.fence.of_this_epoch(), neg, subnet).await
    }

    async fn endpoints(&self, neg: &NegRef) -> Result<Vec<Endpoint>, Error> {
        self.list_endpoints(neg).await
    }
}

impl Compute {
    /// Keeps changes of one NEG in order: first come, first served.
    async fn turn_of(&self, neg: &NegRef) -> OwnedMutexGuard<()> {
        let order = {
            let mut in_order = self.watch.in_order.lock();
            // Entries without a holder or a waiting task are useless.
            in_order.retain(|_, order| Arc::strong_count(order) > 1);
            Arc::clone(in_order.entry(neg.clone()).or_default())
        };
        order.lock_owned().await
    }

    /// Whether the NEG exists as requested. Returns false if there is none.
    async fn found(&self, fence: &Fence, neg: &NegRef, subnet: &str) -> Result<bool, Error> {
        let watch = &self.watch;
        match watch.requests.ask(fence, &watch.settings.neg_request(neg)?).await {
            Ok(there) => wire::compare(&watch.settings, neg, subnet, &there).map(|()| true),
            Err(Error::NotFound) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Waits for an insertion as long as allowed. Returns how it failed, if it did.
    async fn inserted(&self, neg: &NegRef, number: u64) -> Result<Option<OperationFailure>, Error> {
        let watch = &self.watch;
        let limit_ms = watch.settings.ensure_timeout_ms;
        let NegRef { name, zone } = neg;
        let looking = async {
            let mut looks = 0;
            loop {
                match watch.look(zone, number).await {
                    Ok(operation) if operation.is_done => return Ok(operation.failure),
                    Ok(_) | Err(Error::Unavailable(_) | Error::RateLimited(None)) => {}
                    Err(Error::RateLimited(Some(ms))) => sleep(Duration::from_millis(ms)).await,
                    Err(Error::NotFound) => return Err(Error::Unavailable(NOT_FOUND.to_owned())),
                    Err(error) => return Err(error),
                }
                sleep(watch.settings.poll_pause(looks)).await;
                looks += 1;
            }
        };
        let looked = tokio::time::timeout(Duration::from_millis(limit_ms), looking).await;
        let too_long = format!("NEG {name} in {zone} was not there within {limit_ms} ms");
        looked.unwrap_or(Err(Error::Unavailable(too_long)))
    }

    async fn list(&self, neg: &NegRef) -> Result<Vec<Endpoint>, Unlisted> {
        let fence = self.fence.of_this_epoch();
        let watch = &self.watch;
        let mut endpoints = Vec::new();
        let mut token: Option<String> = None;
        for _ in 0..PAGES_MAX {
            let request = watch.settings.list_request(neg, token.as_deref());
            let request = request.map_err(|error| (error, false))?;
            let shown = request.shown();
            let answer = watch.requests.ask(&fence, &request).await;
            let answer = answer.map_err(|error| match error {
                Error::Refused((status, text)) if token.is_some() => {
                    let text = format!("{shown}: the next page was refused: HTTP {status}: {text}");
                    (Error::Unavailable(text), true)
                }
                error => (error, false),
            })?;
            let unusable = |problem| (Error::Unavailable(format!("{shown}: {problem}")), false);
            let (page, next) = wire::page(&answer).map_err(unusable)?;
            endpoints.extend(page);
            match next {
                None => return Ok(endpoints),
                Some(next) if token.as_ref() == Some(&next) => {
                    return Err(unusable("a page names itself as the next one".to_owned()));
                }
                Some(next) => token = Some(next),
            }
        }
        let NegRef { name, zone } = neg;
        let text = format!("NEG {name} in {zone} has more than {PAGES_MAX} pages of endpoints");
        Err((Error::Unavailable(text), false))
    }
}
