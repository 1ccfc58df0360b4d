//! Opens the store that a configuration names.
//!
//! One store serves all guests of a host.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use trueup_base::regular;
use trueup_capabilities::etcd::embedded::Embedded;
use trueup_capabilities::etcd::planned::Planned;
use trueup_capabilities::etcd::remote::{Etcd, Settings, Tls};
use trueup_capabilities::etcd::{Api, Error};
use trueup_config::{EtcdBackend, EtcdCluster};

use crate::needs::Problem;

/// Opens the store. This contacts no cluster: the first request waits for a cluster that is down.
///
/// # Errors
/// One line: which file cannot be opened or read.
pub fn open(backend: &EtcdBackend) -> Result<Arc<dyn Api>, String> {
    Ok(match backend {
        EtcdBackend::Etcd(cluster) => Arc::new(Etcd::new(settings(cluster)?)),
        EtcdBackend::Embedded(path) => Arc::new(Embedded::open(path).map_err(|error| error.to_string())?),
        EtcdBackend::Simulated => Arc::new(Embedded::in_memory().map_err(|error| error.to_string())?),
    })
}

/// The store of a plan: shows what the configured one has, and keeps changes to itself.
///
/// # Errors
/// As [`open`].
pub(crate) fn planned(backend: &EtcdBackend) -> Result<Arc<dyn Api>, String> {
    let real = match backend {
        EtcdBackend::Embedded(path) => Arc::new(Embedded::copied(path).map_err(|error| error.to_string())?),
        _ => open(backend)?,
    };
    Ok(Arc::new(Planned::new(real).map_err(|error| error.to_string())?))
}

/// Reads a key, as a guest would. `key` is one that guests may read.
pub async fn look(backend: &EtcdBackend, key: &str) -> Result<String, Problem> {
    let (what, next) = match backend {
        EtcdBackend::Etcd(cluster) => {
            let endpoints = cluster.endpoints.join(",");
            let next = format!(
                "etcdctl --endpoints={endpoints} endpoint health; correct `endpoints`, or the user and certificates, in [backend.etcd]"
            );
            (endpoints, next)
        }
        EtcdBackend::Embedded(path) if !path.exists() => {
            return Ok(format!("{}: a run creates it", path.display()));
        }
        EtcdBackend::Embedded(path) => {
            let file = path.display().to_string();
            let next = format!("restore `{file}` from a copy, or give another `path` in [backend.etcd]");
            (file, next)
        }
        EtcdBackend::Simulated => return Ok("simulated, in memory".to_owned()),
    };
    let opened = planned(backend).map_err(|error| Problem::new(error, next.clone()))?;
    match opened.get(key).await {
        Err(Error::Unavailable(error) | Error::AccessDenied(error) | Error::Invalid(error)) => {
            Err(Problem::new(format!("{what}: {error}"), next))
        }
        // A value that is no text is an answer too.
        Ok(_) | Err(Error::NotText(_) | Error::TooManyOperations(_)) => Ok(format!("{what} answers")),
    }
}

fn settings(cluster: &EtcdCluster) -> Result<Settings, String> {
    let user = |(name, file): &(String, PathBuf)| Ok::<_, String>((name.clone(), password(file)?));
    let own = |(cert, key): &(PathBuf, PathBuf)| Ok::<_, String>((read("cert_file", cert)?, read("key_file", key)?));
    let ca = |file: &PathBuf| read("ca_file", file);
    Ok(Settings {
        endpoints: cluster.endpoints.clone(),
        user: cluster.user.as_ref().map(user).transpose()?,
        tls: Tls {
            ca: cluster.ca_file.as_ref().map(ca).transpose()?,
            own: cluster.own.as_ref().map(own).transpose()?,
            server_name: cluster.server_name.clone(),
        },
        request_timeout: cluster.request_timeout,
    })
}

fn read(key: &str, file: &Path) -> Result<Vec<u8>, String> {
    regular::read(file, regular::SMALL)
        .map_err(|error| format!("`{key}` of [backend.etcd]: reading `{}`: {error}", file.display()))
}

fn password(file: &Path) -> Result<String, String> {
    let wrong = |what| format!("`password_file` of [backend.etcd]: `{}` {what}", file.display());
    let text = String::from_utf8(read("password_file", file)?).map_err(|_| wrong("is no text"))?;
    match text.trim() {
        "" => Err(wrong("is empty")),
        text => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn the_store_that_is_named_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/etcd.redb");
        let api = open(&EtcdBackend::Embedded(path.clone())).unwrap();
        assert_eq!(api.put_if_not_exists("/a", "1").await, Ok(true));
        let of_plan = planned(&EtcdBackend::Embedded(path.clone())).unwrap();
        assert_eq!(
            of_plan.delete("/a").await,
            Ok(true),
            "it is read while a host has it open"
        );
        assert!(api.get("/a").await.unwrap().is_some());
        let missing = folder.path().join("missing.redb");
        let of_plan = planned(&EtcdBackend::Embedded(missing.clone())).unwrap();
        assert_eq!((of_plan.put("/a", "1").await, missing.exists()), (Ok(2), false));
        let error = open(&EtcdBackend::Embedded(path)).map(drop).unwrap_err();
        assert!(error.contains("in use by another process"), "{error}");
        let memory = open(&EtcdBackend::Simulated).unwrap();
        assert_eq!(memory.list_keys("").await.unwrap(), [""; 0]);
    }

    #[test]
    fn a_file_that_is_missing_or_empty_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        std::fs::write(file("empty"), " \n").unwrap();
        std::fs::write(file("password"), "secret\n").unwrap();
        let cluster = |password: &str, ca: Option<&str>| EtcdCluster {
            endpoints: vec!["https://127.0.0.1:2379".to_owned()],
            user: Some(("trueup".to_owned(), file(password))),
            ca_file: ca.map(file),
            own: None,
            server_name: None,
            request_timeout: Duration::from_secs(1),
        };
        let fine = settings(&cluster("password", None)).unwrap();
        assert_eq!(fine.user, Some(("trueup".to_owned(), "secret".to_owned())));
        for (cluster, said) in [
            (cluster("empty", None), "is empty"),
            (cluster("none", None), "No such file"),
            (
                cluster("password", Some("none")),
                "`ca_file` of [backend.etcd]: reading",
            ),
        ] {
            let error = open(&EtcdBackend::Etcd(cluster)).map(drop).unwrap_err();
            assert!(error.contains(said) && !error.contains('\n'), "{error}");
        }
    }
}
