//! A guest's `kv` calls pass the tape, then quota and grant, then reach the store.
//!
//! A grant of `etcd` is a list of prefixes. A guest that may read a prefix may read every key that begins with it, and
//! list every longer prefix. A transaction needs read access to what it compares and write access to what it changes.

use serde::Deserialize;
use serde_json::Value;
use trueup_journal::Ask;

use super::{Api, Compare, Error, KeyValue, Operation};
use crate::ask::args;
use crate::bindings::etcd::kv;
use crate::grants::{Access, ETCD, EVERYTHING, is_etcd_scope};
use crate::guard::Guard;
use crate::host::Host;
use crate::reading::{
    self, Action, Capability, Function, Granted, Need, Reading, Write, access, answer, stored, text, unless_refused,
};

/// What a request touches: a key, or every key with a prefix. A grant that covers the text covers all of it.
type Touched<'a> = (Access, &'static str, &'a str);

impl<'a> Guard<'a> {
    /// Returns the store if the guest has all of this access.
    fn kv(&mut self, touched: &[Touched<'_>]) -> Result<&'a dyn Api, Error> {
        self.count(ETCD, 1).map_err(Error::AccessDenied)?;
        if touched.is_empty() && !self.grants.allow_some(ETCD, Access::Write) {
            let text = "no grant to write to etcd".to_owned();
            return Err(Error::AccessDenied(self.refuse("", text, 1)));
        }
        for &(access, what, scope) in touched {
            if !self.grants.allow_etcd(access, scope) {
                let text = format!("no grant to {access} etcd's {what} `{scope}`");
                return Err(Error::AccessDenied(self.refuse(scope, text, 1)));
            }
        }
        let api = self.backends.etcd.as_deref();
        api.ok_or_else(|| Error::Unavailable("this host has no store for etcd; configure `[backend.etcd]`".to_owned()))
    }
}

type Answer<T> = wasmtime::Result<Result<T, Error>>;

impl kv::Host for Host {
    async fn get(&mut self, key: String) -> Answer<Option<KeyValue>> {
        self.ask("kv.get", &args!(key: String), async |mut guard| {
            guard.kv(&[(Access::Read, "key", &key)])?.get(&key).await
        })
        .await
    }

    async fn list_prefix(&mut self, prefix: String) -> Answer<Vec<KeyValue>> {
        self.ask("kv.list-prefix", &args!(prefix: String), async |mut guard| {
            let api = guard.kv(&[(Access::Read, "prefix", &prefix)])?;
            api.list_prefix(&prefix).await
        })
        .await
    }

    async fn list_keys(&mut self, prefix: String) -> Answer<Vec<String>> {
        self.ask("kv.list-keys", &args!(prefix: String), async |mut guard| {
            guard.kv(&[(Access::Read, "prefix", &prefix)])?.list_keys(&prefix).await
        })
        .await
    }

    async fn put(&mut self, key: String, value: String) -> Answer<u64> {
        self.ask("kv.put", &args!(key: String, value: String), async |mut guard| {
            guard.kv(&[(Access::Write, "key", &key)])?.put(&key, &value).await
        })
        .await
    }

    async fn put_if_not_exists(&mut self, key: String, value: String) -> Answer<bool> {
        let args = args!(key: String, value: String);
        self.ask("kv.put-if-not-exists", &args, async |mut guard| {
            let api = guard.kv(&[(Access::Write, "key", &key)])?;
            api.put_if_not_exists(&key, &value).await
        })
        .await
    }

    async fn delete(&mut self, key: String) -> Answer<bool> {
        self.ask("kv.delete", &args!(key: String), async |mut guard| {
            guard.kv(&[(Access::Write, "key", &key)])?.delete(&key).await
        })
        .await
    }

    async fn commit(&mut self, compares: Vec<Compare>, operations: Vec<Operation>) -> Answer<bool> {
        let args = args!(compares: Vec<Compare>, operations: Vec<Operation>);
        self.ask("kv.commit", &args, async |mut guard| {
            let compared = compares.iter().map(|it| (Access::Read, "key", it.key()));
            let changed = operations.iter().map(|it| (Access::Write, "key", it.key()));
            let touched: Vec<_> = compared.chain(changed).collect();
            let api = guard.kv(&touched)?;
            api.commit(&compares, &operations).await
        })
        .await
    }
}

/// How its questions are read: keys by name, and prefixes as prefixes.
pub(crate) static CAPABILITY: Capability = Capability {
    package: "etcd",
    grant: Some(Granted {
        name: ETCD,
        scope: "a prefix of keys, without `*`",
        is_scope: is_etcd_scope,
        example: r#""PREFIX""#,
    }),
    limits_destroying: false,
    functions: &[
        Function::write("kv.commit", keys),
        Function::write("kv.delete", key),
        Function::read("kv.get"),
        Function::read("kv.list-keys"),
        Function::read("kv.list-prefix"),
        Function::write("kv.put", key),
        Function::write("kv.put-if-not-exists", key),
    ],
    reader: || Box::new(Reader),
};

fn key(args: &Value) -> String {
    text(args, "key").to_owned()
}

/// What a transaction changes, ordered by key.
fn keys(args: &Value) -> String {
    let operations = args.get("operations").map(Vec::<Operation>::deserialize);
    let operations = operations.and_then(Result::ok).unwrap_or_default();
    let mut keys: Vec<&str> = operations.iter().map(Operation::key).collect();
    keys.sort();
    keys.join(" ")
}

/// The arguments of all functions.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Args {
    key: Option<String>,
    prefix: Option<String>,
    value: String,
    compares: Vec<Compare>,
    operations: Vec<Operation>,
}

struct Reader;

impl Reading for Reader {
    fn needs(&mut self, ask: &Ask) -> Vec<Need> {
        unless_refused(ask, || {
            let access = access(ask);
            let args = reading::args::<Args>(ask).unwrap_or_default();
            let asked = args.key.iter().chain(&args.prefix);
            let asked = asked.map(|scope| (access, scope.as_str()));
            let compared = args.compares.iter().map(|compare| (Access::Read, compare.key()));
            let changed = args.operations.iter().map(|operation| (access, operation.key()));
            let scope = |scope| match scope {
                // No other scope includes the prefix of all keys.
                "" if args.prefix.is_some() => Some(EVERYTHING.to_owned()),
                scope => is_etcd_scope(scope).then(|| scope.to_owned()),
            };
            let all = asked.chain(compared).chain(changed);
            all.filter_map(|(access, text)| Some(Need::Access(access, scope(text)?)))
                .collect()
        })
    }

    /// A transaction whose comparison failed wrote nothing.
    fn wrote(&self, n: u64, ask: &Ask) -> Vec<Write> {
        let put = |key: String, value: &str| stored(n, ask, "key", key, value);
        let deleted = |key: String| Write {
            action: Action::Destroy,
            ..put(key, "")
        };
        let answer: Value = answer(ask).unwrap_or_default();
        let Some(args) = reading::args::<Args>(ask).filter(|_| answer.get("Ok") != Some(&Value::Bool(false))) else {
            return Vec::new();
        };
        let key = args.key.unwrap_or_default();
        match ask.name.as_str() {
            "kv.put" | "kv.put-if-not-exists" => vec![put(key, &args.value)],
            "kv.delete" => vec![deleted(key)],
            "kv.commit" => {
                let each = args.operations.into_iter().map(|operation| match operation {
                    Operation::Put((key, value)) => put(key, &value),
                    Operation::Delete(key) => deleted(key),
                });
                each.collect()
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
#[path = "binding_tests.rs"]
mod tests;
