//! A simulated Engine over HTTP, and when it held which address. Reads the file in which the Engine keeps its state,
//! where an effect appears before any client gets an answer.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use trueup_benches::effects::{self, Effects};
use trueup_sims::Server;
use trueup_sims::lbaas::{self, ServerConfig};

/// How often to read the file: the precision of the times.
const LOOK: Duration = Duration::from_millis(1);

/// A running Engine.
pub(crate) struct Engine {
    runtime: tokio::runtime::Runtime,
    engine: Server,
    ended: Arc<AtomicBool>,
    reader: JoinHandle<anyhow::Result<Effects>>,
}

impl Engine {
    /// Starts it on a free port, with its file in `folder`.
    pub(crate) fn start(folder: &Path) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let file = folder.join("engine.json");
        let config = ServerConfig {
            state_file: Some(file.clone()),
            ..ServerConfig::default()
        };
        let engine = runtime.block_on(lbaas::start(config, SocketAddr::from(([127, 0, 0, 1], 0))))?;
        let ended = Arc::new(AtomicBool::new(false));
        let reader = {
            let ended = Arc::clone(&ended);
            std::thread::spawn(move || read(&file, &ended))
        };
        Ok(Self {
            runtime,
            engine,
            ended,
            reader,
        })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.engine.local_addr())
    }

    /// The changes whose addresses it now holds.
    pub(crate) fn holds(&self) -> anyhow::Result<Vec<u32>> {
        let mut connection = TcpStream::connect(self.engine.local_addr())?;
        connection.write_all(b"GET /state HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer)?;
        let mut holds: Vec<u32> = effects::in_text(&answer).collect();
        holds.sort_unstable();
        Ok(holds)
    }

    /// Ends it; returns everything that it ever held, and since when.
    pub(crate) fn end(self) -> anyhow::Result<Effects> {
        self.runtime.block_on(self.engine.stop());
        self.ended.store(true, Ordering::SeqCst);
        self.reader
            .join()
            .expect("the thread that reads the Engine's file goes on")
    }
}

/// Reads each file with which the Engine replaces its state, until the end.
fn read(path: &Path, ended: &AtomicBool) -> anyhow::Result<Effects> {
    let mut effects = Effects::default();
    let mut last = None;
    loop {
        let is_last = ended.load(Ordering::SeqCst);
        let mut file = File::open(path).with_context(|| path.display().to_string())?;
        let number = Some(file.metadata()?.ino());
        if last != number {
            last = number;
            let mut text = String::new();
            file.read_to_string(&mut text)?;
            let at = Instant::now();
            effects::in_text(&text).for_each(|change| effects.see(change, at));
        }
        if is_last {
            return Ok(effects);
        }
        std::thread::sleep(LOOK);
    }
}
