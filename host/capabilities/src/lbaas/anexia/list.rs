//! Lists: by tag and by parent; page by page, then every resource in full.
//!
//! Changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::try_join_all;

use super::http::{Call, if_there};
use super::wire::{self, Entry, Family, RESOURCES};
use crate::lbaas::{Error, Kind, Object};
use crate::remote::encode;

/// A list that has not ended by this page never will: at the default page size it would have a million entries.
pub(super) const PAGES_MAX: u64 = 10_000;

/// The resources of one family: identifiers by name.
pub(super) type Children = BTreeMap<String, BTreeSet<String>>;

impl Call {
    /// Every LBaaS resource that carries the tag, in full, by kind then identifier.
    pub(super) async fn list_tagged(&self, tag: &str) -> Result<Vec<Object>, Error> {
        let reads = self.tagged(tag).await?.into_iter().map(|entry| async move {
            match self.kind(&entry).await? {
                Some(kind) => if_there(self.read(kind, &entry.identifier).await),
                None => Ok(None),
            }
        });
        let mut objects: Vec<Object> = try_join_all(reads).await?.into_iter().flatten().collect();
        objects.sort_by_cached_key(Object::reference);
        Ok(objects)
    }

    /// The entry of every resource that carries the tag.
    pub(super) async fn tagged(&self, tag: &str) -> Result<Vec<Entry>, Error> {
        match self.entries(RESOURCES, &format!("tag_name={}", encode(tag))).await {
            // The Engine does not know the tag.
            Err((1, Error::Refused((422, _)))) => Ok(Vec::new()),
            other => other.map_err(|(_, error)| error),
        }
    }

    /// The children of these kinds of each parent, in order, each with its kind.
    pub(super) async fn children(
        &self,
        parents: impl Iterator<Item = (Kind, &str)>,
    ) -> Result<Vec<(Kind, String)>, Error> {
        let lists = parents.map(|(kind, parent)| async move {
            let children = self.children_by_name(&Family::below(kind, parent)).await?;
            let identifiers = children.into_values().flatten();
            Ok::<_, Error>(identifiers.map(|identifier| (kind, identifier)).collect::<Vec<_>>())
        });
        Ok(try_join_all(lists).await?.concat())
    }

    /// A family's resources.
    pub(super) async fn children_by_name(&self, family: &Family) -> Result<Children, Error> {
        let entries = self.entries(family.kind.names().path, &family.query()).await;
        let mut by_name = Children::new();
        for entry in entries.map_err(|(_, error)| error)? {
            by_name.entry(entry.name).or_default().insert(entry.identifier);
        }
        Ok(by_name)
    }

    /// A resource in full.
    pub(super) async fn read(&self, kind: Kind, identifier: &str) -> Result<Object, Error> {
        wire::object(kind, &self.get(kind.names().path, identifier).await?).map_err(|problem| self.unusable(problem))
    }

    /// The tags of a resource; `None` if it is gone.
    pub(super) async fn tags(&self, identifier: &str) -> Result<Option<Vec<String>>, Error> {
        let Some(answer) = if_there(self.get(RESOURCES, identifier).await)? else {
            return Ok(None);
        };
        let tags =
            wire::tags(&answer).map_err(|problem| self.unusable(format!("resource `{identifier}`: {problem}")))?;
        Ok(Some(tags))
    }

    /// The kind of LBaaS resource of a list's entry; `None` if it has another type or is gone.
    async fn kind(&self, entry: &Entry) -> Result<Option<Kind>, Error> {
        let identifier = &entry.identifier;
        let (kind, name) = match &entry.resource_type {
            Some(resource_type) => resource_type.clone(),
            None => match if_there(self.get(RESOURCES, identifier).await)? {
                // Without a type it might be ours, and an overlooked object would be built twice.
                Some(answer) => wire::resource_type(&answer).ok_or_else(|| {
                    self.unusable(format!("resource `{identifier}`: the answer holds no `resource_type`"))
                })?,
                None => return Ok(None),
            },
        };
        if kind.is_none() {
            tracing::info!(
                identifier,
                resource_type = self.engine.token.scrub(name),
                "left out of the list: it is no LBaaS backend, frontend, bind or server"
            );
        }
        Ok(kind)
    }

    /// Every page of a list, each resource once. An error has the page where it failed.
    async fn entries(&self, collection: &'static str, query: &str) -> Result<Vec<Entry>, (u64, Error)> {
        let full_page = usize::try_from(self.engine.page_size).unwrap_or(usize::MAX);
        let pages_max = self.engine.pages_max;
        let mut entries = Vec::new();
        let mut seen = BTreeSet::new();
        for page in 1..=pages_max {
            let answer = self.get_page(collection, query, page).await;
            let answer = answer.map_err(|failure| (page, failure.error))?;
            let unusable = |problem| (page, self.unusable(format!("GET {collection}: page {page}: {problem}")));
            let (listed, total_pages) = wire::page(&answer).map_err(unusable)?;
            let is_last = total_pages.map_or(listed.len() < full_page, |pages| page >= pages);
            // If an earlier object was destroyed or created meanwhile, a page may repeat entries of the previous one.
            entries.extend(listed.into_iter().filter(|entry| seen.insert(entry.identifier.clone())));
            if is_last {
                return Ok(entries);
            }
        }
        let problem = format!("GET {collection}: the list has not ended by page {pages_max}");
        Err((pages_max, self.unusable(problem)))
    }
}
