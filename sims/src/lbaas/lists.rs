//! Lists: the query of a list, and one page of the answer.

use std::collections::BTreeMap;

use axum::{extract::Query, http::Uri};
use serde_json::{Value, json};

use super::Refusal;
use super::kinds::Kind;

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
    /// Reads the query of a list of one kind, which supports filters on some fields, or else of all resources.
    pub(super) fn read(uri: &Uri, kind: Option<Kind>) -> Result<Self, Refusal> {
        let mut given = parameters(uri)?;
        let mut filters = BTreeMap::new();
        let mut tag_name = None;
        if let Some(kind) = kind {
            if let Some(text) = given.remove("filters") {
                filters = parse_filters(&text, kind.about().filters)?;
            }
        } else {
            tag_name = given.remove("tag_name");
        }
        let page = take_number(&mut given, "page", usize::MAX)?.unwrap_or(1);
        let limit = take_number(&mut given, "limit", LIMIT_MAX)?.unwrap_or(LIMIT_DEFAULT);
        if let Some(name) = given.keys().next() {
            return Err(Refusal::bad_request(format!("parameter `{name}` is unknown here")));
        }
        Ok(Self {
            page,
            limit,
            tag_name,
            filters,
        })
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

/// Reads a query string within the query string.
fn parse_filters(text: &str, known: &[&str]) -> Result<BTreeMap<String, String>, Refusal> {
    let uri = format!("/?{text}").parse();
    let filters = parameters(&uri.map_err(|_| Refusal::bad_request("`filters` is no query string"))?)?;
    match filters.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(filters),
        Some(name) => {
            let message = format!("filter `{name}` is unknown here; known are: {}", known.join(", "));
            Err(Refusal::bad_request(message))
        }
    }
}

/// A query's parameters, each once.
fn parameters(uri: &Uri) -> Result<BTreeMap<String, String>, Refusal> {
    let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri)
        .map_err(|rejection| Refusal::bad_request(rejection.body_text()))?;
    let mut parameters = BTreeMap::new();
    for (name, value) in pairs {
        if parameters.contains_key(&name) {
            return Err(Refusal::bad_request(format!("parameter `{name}` is there twice")));
        }
        parameters.insert(name, value);
    }
    Ok(parameters)
}

fn take_number(parameters: &mut BTreeMap<String, String>, name: &str, max: usize) -> Result<Option<usize>, Refusal> {
    let Some(text) = parameters.remove(name) else {
        return Ok(None);
    };
    match text.parse() {
        Ok(number) if (1..=max).contains(&number) => Ok(Some(number)),
        _ if max == usize::MAX => Err(Refusal::bad_request(format!("`{name}` must be a number from 1"))),
        _ => Err(Refusal::bad_request(format!(
            "`{name}` must be a number from 1 to {max}"
        ))),
    }
}
