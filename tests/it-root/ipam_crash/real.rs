//! `trueup run` in a process of its own, with the store in a file.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Value, json};

use super::ledger::{Answered, Key};
use super::rounds::{Host, Pool, ask};
use support::plugins::trueup_cni;
use support::{Ran, Site, Started, files_under, program, ran, wait_until};

/// The host's settings; `socket` and the rest are in the folder.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Config {
    /// Whether requests share a sync.
    pub(crate) shared_sync: bool,
    /// How long an address rests.
    pub(crate) cooling_period_ms: u64,
    /// The number of entries after which the guest writes a whole checkpoint.
    pub(crate) compact_after: u32,
    /// Limits other than the defaults, in TOML.
    pub(crate) limits: &'static str,
}

/// A host, and the folder that outlives it.
pub(crate) struct Real {
    site: Site,
    socket: PathBuf,
    running: Mutex<Option<Started>>,
    /// The output of the last killed host.
    said: Mutex<String>,
}

impl Real {
    pub(crate) fn new(config: Config) -> Self {
        let Config {
            shared_sync,
            cooling_period_ms,
            compact_after,
            limits,
        } = config;
        // Build it before anything waits for it.
        trueup_cni();
        let site = Site::ipam();
        // Addresses come and go while pods use them: keep what pods hold of a removed ENI.
        let text = format!(
            "[guests.ipam]\nuse = \"builtin:ipam@1\"\n\
             settings = {{ compact_after = {compact_after}, cooling_period_ms = {cooling_period_ms}, \
             unknown_allocations = \"hold\" }}\n\
             grants = {{ checkpoint = {{ read = [\"own\"], write = [\"own\"] }} }}\n\
             limits = {{ {limits} }}\n\
             [adapter.ipam]\nenis_file = \"enis.json\"\nsocket = \"cni.sock\"\nspool_dir = \"spool\"\n\
             [backend.checkpoint]\nkind = \"file\"\npath = \"pods\"\nshared_sync = {shared_sync}\n"
        );
        fs::write(site.path("trueup.toml"), text).unwrap();
        Self {
            socket: site.path("cni.sock"),
            site,
            running: Mutex::new(None),
            said: Mutex::new(String::new()),
        }
    }

    pub(crate) fn site(&self) -> &Site {
        &self.site
    }

    /// The host's output, for the message of a failed test.
    pub(crate) fn said(&self) -> String {
        let running = self.running.lock().unwrap();
        let said = running.as_ref().map(|host| host.stdout() + &host.stderr());
        said.unwrap_or_else(|| self.said.lock().unwrap().clone())
    }

    /// Replays every recording.
    pub(crate) fn replays(&self) -> Ran {
        ran(program().arg("replay").args(self.site.journals()))
    }

    /// The number of recordings: at least one for each start of an instance.
    pub(crate) fn recordings(&self) -> usize {
        self.site.journals().len()
    }

    fn spooled(&self) -> usize {
        let files = files_under(&self.site.path("spool"));
        files
            .iter()
            .filter(|file| file.extension() == Some("json".as_ref()))
            .count()
    }
}

impl Host for Real {
    fn socket(&self) -> &Path {
        &self.socket
    }

    fn start(&self) {
        let mut started = self.site.start("run", &[]);
        started.wait_for("listening on ");
        *self.running.lock().unwrap() = Some(started);
        // Clients here skip the plugin's first step of ADD, which looks for a release of its key.
        wait_until("the releases in the spool", || self.spooled() == 0);
    }

    fn start_in_vain(&self, lives: Duration) {
        let started = self.site.start("run", &[]);
        std::thread::sleep(lives);
        started.kill();
    }

    fn kill(&self) {
        let Some(started) = self.running.lock().unwrap().take() else {
            return;
        };
        let said = started.killed();
        *self.said.lock().unwrap() = said;
    }

    fn shown(&self) -> BTreeMap<Ipv4Addr, Key> {
        let answer = ask(&self.socket, &json!({"v": 1, "command": "SHOW", "instance": null})).unwrap();
        let shown = &answer["ok"];
        let list = |value: &Value| value.as_array().unwrap_or_else(|| panic!("{answer}")).clone();
        let enis = list(&shown["enis"]);
        let on_enis = enis.iter().flat_map(|eni| list(&eni["addresses"]));
        let on_enis = on_enis.filter(|address| !address["key"].is_null());
        let rows = on_enis.map(|row| (row["address"].clone(), row["key"].clone()));
        let held = list(&shown["held"])
            .into_iter()
            .map(|row| (row["ip"].clone(), row["key"].clone()));
        rows.chain(held)
            .map(|(address, key)| {
                let field = |name: &str| key[name].as_str().unwrap().to_owned();
                let key = Key {
                    network: field("network_name"),
                    container: field("container_id"),
                    interface: field("if_name"),
                };
                (address.as_str().unwrap().parse().unwrap(), key)
            })
            .collect()
    }

    fn put_pool(&self, pool: &Pool) {
        let mut enis: BTreeMap<i64, Vec<String>> = BTreeMap::new();
        for (address, device) in pool {
            if let Some(device) = device {
                enis.entry(*device).or_default().push(address.to_string());
            }
        }
        let enis = enis.into_iter().map(|(device, addresses)| {
            json!({"id": format!("eni-{device}"), "device_number": device,
                   "is_primary": device == 0, "is_trunk": false, "addresses": addresses})
        });
        let text = json!({"enis": enis.collect::<Vec<_>>()}).to_string();
        let draft = self.site.path("draft");
        fs::write(&draft, text).unwrap();
        fs::rename(draft, self.site.path("enis.json")).unwrap();
    }

    fn release(&self, key: &Key) -> Answered {
        let configuration = json!({
            "cniVersion": "1.0.0", "name": key.network, "type": "bridge",
            "ipam": {"type": "trueup-cni", "socket": self.socket, "spoolDir": self.site.path("spool"),
                     "timeoutMs": 60_000}
        });
        let stdin = self
            .site
            .path(&format!("{}-{}-{}.json", key.network, key.container, key.interface));
        fs::write(&stdin, configuration.to_string()).unwrap();
        let output = Command::new(trueup_cni())
            .env_clear()
            .env("CNI_COMMAND", "DEL")
            .env("CNI_CONTAINERID", &key.container)
            .env("CNI_IFNAME", &key.interface)
            .stdin(Stdio::from(fs::File::open(&stdin).unwrap()))
            .output()
            .unwrap();
        if output.status.success() {
            return Answered::Done;
        }
        let error: Value = serde_json::from_slice(&output.stdout).unwrap();
        Answered::Refused(
            error["code"].as_u64().unwrap(),
            error["msg"].as_str().unwrap().to_owned(),
        )
    }

    fn inspect(&self) -> Result<(), String> {
        let file = self.site.path("pods");
        if !file.exists() {
            return Ok(());
        }
        let ran = ran(program().args(["checkpoint", "verify"]).arg(file));
        let verdict = ran.last_line();
        // A write that the kill interrupted had no answer.
        match ran.code {
            Some(0) if verdict.ends_with(": whole") => Ok(()),
            Some(1) if verdict.contains(": torn: ") => Ok(()),
            _ => Err(format!("what the kill left behind is not whole: {ran}")),
        }
    }
}
