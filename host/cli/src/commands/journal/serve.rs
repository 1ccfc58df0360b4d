//! `trueup journal serve`: shows recordings as a page in the browser.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use tokio::net::TcpListener;
use trueup_base::local_only;
use trueup_registry::Reference;
use trueup_runtime::page::{self, Against, Source};

use crate::commands::flags::Recordings;
use crate::exit::{Ending, Exit, Failure, misused};
use crate::output::{self, Output};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    recordings: Recordings,
    /// The address to listen on, on loopback; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Another guest that gets the recorded answers too: a file, or the name of a built-in one. The page shows where it
    /// asks or decides differently.
    #[arg(long, value_name = "GUEST")]
    against: Option<String>,
}

pub(crate) fn exec(args: Args, output: Output) -> Ending {
    local_only::must_be_loopback(args.listen).map_err(|why| misused(anyhow!(why)))?;
    let files = args.recordings.paths()?;
    for file in &files {
        let found = std::fs::metadata(file).with_context(|| format!("can't read `{}`", file.display()));
        found.map_err(misused)?;
    }
    let against = args.against.as_deref().map(compared_with).transpose()?;
    let source = Source::new(files, against);
    let listen = args.listen;
    crate::commands::block_on(async move {
        let listener = TcpListener::bind(listen).await;
        let listener = listener.with_context(|| format!("can't listen on `{listen}`"))?;
        let url = format!("http://{}/", listener.local_addr().context("asking for the address")?);
        // Listen first: a reader of the address may stop the server at once.
        let stop = crate::commands::listen_for_stop();
        match output.is_text() {
            true => output::line(&url)?,
            false => output::value_if_read(&serde_json::json!({ "url": url }), output),
        }
        tokio::select! {
            // A viewer holds a connection for as long as it looks; a stop does not wait for that.
            () = stop => {}
            served = page::serve(listener, source) => served.context("serving the page")?,
        }
        Ok(Exit::Done)
    })?
}

fn compared_with(guest: &str) -> Result<Against, Failure> {
    let loader = crate::commands::loader()?;
    let reference = Reference::parse(guest, Path::new("")).map_err(misused)?;
    let program = loader.program(&reference).map_err(misused)?;
    Ok(Against::new(loader.engine, program))
}
