//! How the questions about etcd are read: keys by name, and prefixes as prefixes.

use serde::Deserialize;
use serde_json::Value;
use trueup_journal::Ask;

use super::{Compare, Operation};
use crate::grants::{Access, ETCD, EVERYTHING, is_etcd_scope};
use crate::reading::{
    Action, Capability, Function, Granted, Need, Reading, Write, access, answer, args, stored, text, unless_refused,
};

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
            let args = args::<Args>(ask).unwrap_or_default();
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
        let Some(args) = args::<Args>(ask).filter(|_| answer.get("Ok") != Some(&Value::Bool(false))) else {
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
