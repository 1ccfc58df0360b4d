//! Whether an API server answers, serves the kinds that are read, and lets this account do what a host does. Changes
//! nothing: a review of one's own access is answered, not stored.

use std::fmt;
use std::time::SystemTime;

use http::header::DATE;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, PostParams};
use kube::client::Body;

use super::client::{Cluster, Failed, Purpose, scopes};
use super::kubeconfig::ClusterError;
use super::settings::Settings;
use crate::object::Kind;

/// One thing that an account may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// Such as `list`.
    pub verb: &'static str,
    /// The API group; empty for core.
    pub group: &'static str,
    /// Such as `services`, or `services/status`.
    pub resource: &'static str,
    /// The one object. `None`: any.
    pub name: Option<&'static str>,
    /// `None`: everywhere.
    pub namespace: Option<String>,
}

impl Right {
    /// For any object, everywhere.
    pub const fn new(verb: &'static str, group: &'static str, resource: &'static str) -> Self {
        Self {
            verb,
            group,
            resource,
            name: None,
            namespace: None,
        }
    }

    /// The same in one namespace.
    #[must_use]
    pub fn within(self, namespace: Option<&str>) -> Self {
        Self {
            namespace: namespace.map(str::to_owned),
            ..self
        }
    }
}

impl fmt::Display for Right {
    /// `patch services/status in namespace shop`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if let Some(name) = self.name {
            write!(f, " {name}")?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, " in namespace {namespace}"),
            None => Ok(()),
        }
    }
}

/// Asks one API server.
pub struct Probe {
    cluster: Cluster,
}

impl Probe {
    /// Sends nothing yet.
    ///
    /// # Errors
    /// If the address of the API server cannot be determined.
    pub async fn new(settings: &Settings) -> Result<Self, ClusterError> {
        let cluster = Cluster::new(settings).await?;
        Ok(Self { cluster })
    }

    /// The API server's URL.
    pub fn server(&self) -> &str {
        &self.cluster.server
    }

    /// The namespace of the account or of the context.
    pub fn namespace(&self) -> String {
        self.cluster.client().default_namespace().to_owned()
    }

    /// The kinds that are read, and whether a host waits for them.
    pub fn kinds(&self) -> Vec<(Kind, bool)> {
        let Settings { watch, needed, .. } = &self.cluster.settings;
        let mut kinds = watch.clone();
        kinds.dedup();
        kinds.into_iter().map(|kind| (kind, needed.contains(&kind))).collect()
    }

    /// What reading them needs, and whether a host waits for it.
    pub fn reads(&self) -> Vec<(Right, bool)> {
        let settings = &self.cluster.settings;
        let rights = scopes(settings).into_iter().flat_map(|scope| {
            let is_needed = settings.needed.contains(&scope.kind);
            let group = scope.kind.api_version().split_once('/').map_or("", |(group, _)| group);
            ["list", "watch"].map(|verb| {
                let right = Right::new(verb, group, scope.kind.resource());
                (right.within(scope.namespace.as_deref()), is_needed)
            })
        });
        rights.collect()
    }

    /// The API server's clock. `None` if its answer does not say.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn clock(&self) -> Result<Option<SystemTime>, Failed> {
        let purpose = Purpose::one("get", "version", "");
        let request = http::Request::get("/version").body(Body::empty());
        let request = request.map_err(|error| self.cluster.failed(&purpose, &error.to_string()))?;
        let client = self.cluster.client();
        let answer = self.cluster.asked(&purpose, client.send(request)).await?;
        let date = answer.headers().get(DATE).and_then(|date| date.to_str().ok());
        Ok(date.and_then(|date| httpdate::parse_http_date(date).ok()))
    }

    /// Whether the API server serves a kind.
    ///
    /// # Errors
    /// If it does not answer, or does not take our credentials.
    pub async fn serves(&self, kind: Kind) -> Result<bool, Failed> {
        let version = kind.api_version();
        let purpose = Purpose::one("get", "the kinds of", version);
        let client = self.cluster.client();
        let listing = async {
            match version {
                "v1" => client.list_core_api_resources(version).await,
                _ => client.list_api_group_resources(version).await,
            }
        };
        match self.cluster.asked(&purpose, listing).await {
            Ok(listed) => Ok(listed.resources.iter().any(|one| one.name == kind.resource())),
            Err(failed) if failed.is_not_found() => Ok(false),
            Err(failed) => Err(failed),
        }
    }

    /// Whether a namespace exists.
    ///
    /// # Errors
    /// If the API server does not say, as to an account that may not read it.
    pub async fn has_namespace(&self, name: &str) -> Result<bool, Failed> {
        let purpose = Purpose::one("get", "namespaces", name);
        let api: Api<Namespace> = Api::all(self.cluster.client());
        let found = self.cluster.asked(&purpose, api.get_opt(name)).await?;
        Ok(found.is_some())
    }

    /// Whether this account may do something.
    ///
    /// # Errors
    /// If the API server does not answer, or does not take our credentials.
    pub async fn may(&self, right: &Right) -> Result<bool, Failed> {
        let mut resource = right.resource.split('/').map(str::to_owned);
        let about = ResourceAttributes {
            verb: Some(right.verb.to_owned()),
            group: Some(right.group.to_owned()),
            resource: resource.next(),
            subresource: resource.next(),
            namespace: right.namespace.clone(),
            name: right.name.map(str::to_owned),
            ..ResourceAttributes::default()
        };
        let mut review = SelfSubjectAccessReview::default();
        review.spec.resource_attributes = Some(about);
        let purpose = Purpose::one("create", "selfsubjectaccessreviews", "");
        let api: Api<SelfSubjectAccessReview> = Api::all(self.cluster.client());
        let parameters = PostParams::default();
        let answer = self.cluster.asked(&purpose, api.create(&parameters, &review)).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }
}
