//! Lists: the query of a list, and one page of the answer.

use std::collections::BTreeMap;

use axum::{extract::Query, http::Uri};
use serde_json::{Value, json};

use super::refusal::Refusal;

/// Entries on a page, if the request gives no limit.
const LIMIT_DEFAULT: usize = 10;

/// The most entries on a page: keeps answers to a size that a real server sends.
const LIMIT_MAX: usize = 1000;

/// A request for a page of a list.
#[derive(Debug, PartialEq)]
pub(super) struct Listing {
    /// From 1.
    page: usize,
    limit: usize,
    pub(super) tag_name: Option<String>,
    /// The values that fields must have.
    pub(super) filters: BTreeMap<String, String>,
}

impl Listing {
    /// Reads the query of a list of one kind, which supports filters on these fields.
    pub(super) fn of_kind(uri: &Uri, filter_names: &[&str]) -> Result<Self, Refusal> {
        let mut parameters = Parameters::parse(uri)?;
        let mut filters = BTreeMap::new();
        if let Some(text) = parameters.0.remove("filters") {
            // A query string within the query string.
            let uri = format!("/?{text}")
                .parse()
                .map_err(|_| Refusal::bad_request("`filters` is no query string"))?;
            filters = Parameters::parse(&uri)?.0;
            if let Some(name) = filters.keys().find(|name| !filter_names.contains(&name.as_str())) {
                let names = filter_names.join(", ");
                return Err(Refusal::bad_request(format!(
                    "filter `{name}` is unknown here; known are: {names}"
                )));
            }
        }
        Self {
            filters,
            ..Self::paged(&mut parameters)?
        }
        .after(parameters)
    }

    /// Reads the query of a list of resources.
    pub(super) fn of_resources(uri: &Uri) -> Result<Self, Refusal> {
        let mut parameters = Parameters::parse(uri)?;
        let tag_name = parameters.0.remove("tag_name");
        Self {
            tag_name,
            ..Self::paged(&mut parameters)?
        }
        .after(parameters)
    }

    fn paged(parameters: &mut Parameters) -> Result<Self, Refusal> {
        let page = parameters.take_number("page", usize::MAX)?.unwrap_or(1);
        let limit = parameters.take_number("limit", LIMIT_MAX)?.unwrap_or(LIMIT_DEFAULT);
        Ok(Self {
            page,
            limit,
            tag_name: None,
            filters: BTreeMap::new(),
        })
    }

    fn after(self, parameters: Parameters) -> Result<Self, Refusal> {
        match parameters.0.keys().next() {
            None => Ok(self),
            Some(name) => Err(Refusal::bad_request(format!("parameter `{name}` is unknown here"))),
        }
    }

    /// The requested page. A page beyond the end is empty.
    pub(super) fn page_of<T>(&self, all: &[T], show: impl Fn(&T) -> Value) -> Value {
        let before = (self.page - 1).saturating_mul(self.limit);
        let entries: Vec<Value> = all.iter().skip(before).take(self.limit).map(show).collect();
        json!({
            "state": "success",
            "messages": [],
            "data": {
                "page": self.page,
                "total_pages": all.len().div_ceil(self.limit),
                "total_items": all.len(),
                "limit": self.limit,
                "data": entries,
            },
        })
    }
}

/// A query's parameters, each once.
struct Parameters(BTreeMap<String, String>);

impl Parameters {
    fn parse(uri: &Uri) -> Result<Self, Refusal> {
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|rejection| Refusal::bad_request(rejection.body_text()))?;
        let mut parameters = BTreeMap::new();
        for (name, value) in pairs {
            if parameters.contains_key(&name) {
                return Err(Refusal::bad_request(format!("parameter `{name}` is there twice")));
            }
            parameters.insert(name, value);
        }
        Ok(Self(parameters))
    }

    fn take_number(&mut self, name: &str, max: usize) -> Result<Option<usize>, Refusal> {
        let Some(text) = self.0.remove(name) else {
            return Ok(None);
        };
        let to = if max == usize::MAX {
            String::new()
        } else {
            format!(" to {max}")
        };
        match text.parse() {
            Ok(number) if (1..=max).contains(&number) => Ok(Some(number)),
            _ => Err(Refusal::bad_request(format!("`{name}` must be a number from 1{to}"))),
        }
    }
}
